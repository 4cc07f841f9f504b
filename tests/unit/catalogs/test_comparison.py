"""What counts as the table state that was published."""

from __future__ import annotations

from typing import Any

import pytest

from lakemirror.catalogs.comparison import described, differing


def metadata(*lists: str | None) -> dict[str, Any]:
    """Snapshots 1, 2, …, each with its manifest list, if one is told."""
    made = [{"snapshot-id": number, "timestamp-ms": number} for number, _ in enumerate(lists, 1)]
    for snapshot, place in zip(made, lists, strict=True):
        snapshot.update({} if place is None else {"manifest-list": place})  # type: ignore[dict-item]
    return {"table-uuid": "u-1", "format-version": 2, "location": "gs://m/t", "snapshots": made}


def test_the_same_ids_with_other_manifest_lists_are_another_table_state() -> None:
    """As a table has that somebody registered again, from files of his own."""
    want, got = metadata("gs://m/t/a.avro", "gs://m/t/b.avro"), metadata("gs://m/t/a.avro", "gs://m/t/other.avro")
    assert differing(want, got) == ("manifest lists",)
    assert described(want, got, "manifest lists") == "manifest lists (2: want gs://m/t/b.avro, got gs://m/t/other.avro)"


@pytest.mark.parametrize("got", [("gs://m/t/a.avro", None), (None, None)])
def test_what_the_catalog_does_not_tell_is_not_compared(got: tuple[str | None, ...]) -> None:
    assert differing(metadata("gs://m/t/a.avro", "gs://m/t/b.avro"), metadata(*got)) == ()


def test_snapshots_that_one_side_lacks_are_told_once() -> None:
    assert differing(metadata("gs://m/t/a.avro"), metadata("gs://m/t/a.avro", "gs://m/t/b.avro")) == ("snapshots",)
