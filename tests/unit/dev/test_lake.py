from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from dev.demo.verdict import Comparison
from dev.lake import Fingerprint, Lake, fingerprint, head


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Lake("onprem", tmp_path).create()
    catalog.create_namespace("s")
    return catalog


def written(catalog: Catalog, name: str, *parts: list[int]) -> Fingerprint:
    table = catalog.create_table(f"s.{name}", pa.schema([("id", pa.int64())]))
    for part in parts:
        table.append(pa.table({"id": part}))
    return fingerprint(table)


def test_a_table_that_is_not_there_has_no_head(catalog: Catalog) -> None:
    assert head(catalog, "s.nope") is None


def test_the_order_and_the_files_of_rows_do_not_matter(catalog: Catalog) -> None:
    one, other = written(catalog, "one", [1, 2, 3]), written(catalog, "other", [3], [2, 1])
    assert (one.files, other.files) == (1, 2)
    assert one.holds_the_same_as(other)


@pytest.mark.parametrize("rows", [[1, 2, 4], [1, 2], [1, 2, 3, 3], [1, 2, 2]])
def test_other_rows_are_other(catalog: Catalog, rows: list[int]) -> None:
    assert not written(catalog, "one", [1, 2, 3]).holds_the_same_as(written(catalog, "other", rows))


def test_an_empty_table_has_a_fingerprint(catalog: Catalog) -> None:
    empty = written(catalog, "empty")
    assert (empty.rows, empty.snapshot_id, empty.files, empty.size_bytes) == (0, None, 0, 0)


def test_source_and_mirror_agree_only_if_all_is_equal(catalog: Catalog) -> None:
    seen = written(catalog, "one", [1, 2, 3])
    same = Comparison("s.one", seen, seen, "v1", 1.0, ("task",))
    assert same.agrees
    for change in (
        {"rows": 2},
        {"digest": "0"},
        {"columns": ("x",)},
        {"snapshot_id": 5},
        {"files": 9},
        {"size_bytes": 9},
    ):
        assert not replace(same, mirror=replace(seen, **change)).agrees, change
    assert not replace(same, mirror=None).agrees
    assert not replace(same, source=None).agrees
