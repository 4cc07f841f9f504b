"""The published schema of markers is what is written, and it is current."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import ENVELOPE
from lakemirror.model.marker_schema import build_schema
from tests.iceberg_files import data_files, delete_positions
from tests.lake import ORDERS, SCHEMA, Lake, rows
from tests.unit.markers import marker, written

PUBLISHED = Path(__file__).resolve().parents[3] / "docs" / "marker.schema.json"


def problems(document: dict[str, Any]) -> list[str]:
    validator = jsonschema.Draft202012Validator(build_schema(), format_checker=jsonschema.FormatChecker())
    return [error.message for error in validator.iter_errors(document)]


def test_the_published_schema_is_current_and_a_schema() -> None:
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    assert published == build_schema()
    jsonschema.Draft202012Validator.check_schema(published)


def test_it_names_every_field_and_no_other() -> None:
    document = json.loads(written(marker(TableLayout("s3://m/shop/orders"), 9, demoted=(3, 7), dropped=2)))
    assert set(build_schema()["properties"]) == set(document)
    assert set(ENVELOPE) < set(document)


@pytest.mark.parametrize("fence", [True, False])
def test_every_marker_that_is_written_fits(tmp_path: Path, fence: bool) -> None:
    lake = Lake(tmp_path, defaults={"fence": fence})
    orders = lake.create(schema=SCHEMA)
    staged: list[bytes] = []

    def watch(side: str, store: Any) -> Any:
        put = store.put

        def noted(uri: str, body: Any, *condition: Any) -> Any:
            if "/_inprogress/" in uri:
                staged.append(body)
            return put(uri, body, *condition)

        store.put = noted
        return store

    lake.app(wrap_store=watch).mirror(ORDERS)  # an empty table
    orders.append(rows(3))
    lake.app(wrap_store=watch).mirror(ORDERS)
    delete_positions(orders, [(data_files(orders)[0], 1)])
    lake.app(wrap_store=watch).mirror(ORDERS)
    folder = lake.mirror_folder / ORDERS.folder / "_ready"
    ready = [json.loads(path.read_bytes()) for path in sorted(folder.iterdir())]
    assert [one["version"] for one in ready] == ["v1", "v2", "v3"]
    assert [one["fence_token"] for one in ready] == ([1, 2, 3] if fence else [None] * 3)
    assert len(staged) == 3
    for document in (*ready, *map(json.loads, staged)):
        assert problems(document) == []


@pytest.mark.parametrize(
    "change",
    [
        {"version": "7"},
        {"kind": "other"},
        {"format": 2},
        {"files": -1},
        {"checksum": "x"},
        {"created_at": 5},
        {"fence_token": 0},
        {"snapshot_id": 5},
    ],
    ids=str,
)
def test_what_is_no_marker_does_not_fit(change: dict[str, Any]) -> None:
    hashes = {"metadata_sha256": "a" * 64, "index_sha256": "b" * 64}
    made = json.loads(written(marker(TableLayout("s3://m/shop/orders"), **hashes)))
    assert problems(made) == []
    assert problems({**made, "of_a_later_version": True}) == []
    assert problems({**made, **change})
