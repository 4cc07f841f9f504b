"""Names in the mirror bucket, and what a marker's name claims."""

from __future__ import annotations

import pytest

from lakemirror.model.layout import TableLayout, ordinal
from lakemirror.model.table import TableRef


def test_uris_of_a_table() -> None:
    layout = TableLayout.of("gs://m/lake/", TableRef.parse("a.b.orders"))
    assert [
        layout.root,
        layout.ready(7),
        layout.staged(7),
        layout.plan("p"),
        layout.ledger("p"),
        layout.index("d"),
        layout.metadata("f.json"),
        layout.further_root("cold"),
    ] == [
        "gs://m/lake/a.b/orders",
        "gs://m/lake/a.b/orders/_ready/v7.ready.json",
        "gs://m/lake/a.b/orders/_inprogress/v7.marker.json",
        "gs://m/lake/a.b/orders/_plan/p",
        "gs://m/lake/a.b/orders/_ledger/p",
        "gs://m/lake/a.b/orders/_ledger/index/d.parquet",
        "gs://m/lake/a.b/orders/metadata/f.json",
        "gs://m/lake/a.b/orders/_roots/cold",
    ]


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("v7.ready.json", (7, "ready")),
        ("v12.demoted.json", (12, "demoted")),
        ("v7.marker.json", (7, "marker")),
        ("v7.ready.json.tmp", None),
        ("v.ready.json", None),
        ("v-1.ready.json", None),
        ("xv7.ready.json", None),
        ("v7.READY.json", None),
        ("v07.ready.json", None),
        ("v٧.ready.json", None),
    ],
)
def test_ordinal(name: str, want: tuple[int, str] | None) -> None:
    """One version has one name: v07 is not v7."""
    assert ordinal(f"gs://m/ns/t/_ready/{name}") == want
