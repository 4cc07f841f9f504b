"""What the judge forgives a mirror, and what it does not: the comparison alone, over what engines would say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.comparison import SAME, Json, differing_metadata, differing_rows, row_columns

ROOTS = {"/source/t": "/mirror/t"}


def table(root: str, *snapshots: Json, next_row_id: int) -> Json:
    """Metadata of a v3 table; each snapshot is given by its id, first row id and number of rows."""
    made = [{**one, "manifest-list": f"{root}/metadata/{one['snapshot-id']}.avro"} for one in snapshots]
    return {**dict.fromkeys(SAME, 3), "next-row-id": next_row_id, "snapshots": made}


def snapshot(number: int, first_row_id: int, rows: int) -> Json:
    return {"snapshot-id": number, "first-row-id": first_row_id, "added-rows": rows}


def judged(theirs: Json, *, on_rest: bool) -> list[str]:
    """Of a source with three snapshots of ten rows each."""
    ours = table("/source/t", *(snapshot(n, 10 * n - 10, 10) for n in (1, 2, 3)), next_row_id=30)
    return list(differing_metadata(ours, theirs, ROOTS, lambda place: 1, on_rest=on_rest))


@pytest.mark.parametrize(
    ("log", "is_right"), [([2, 1, 3], True), ([3], True), ([], True), ([1, 2, 1, 3, 3], False), ([2, 3], False)]
)
def test_the_log_of_heads_is_an_end_of_the_sources(log: list[int], is_right: bool) -> None:
    """But on a REST catalog, which writes its own."""
    ours, theirs = (
        table(root, snapshot(1, 0, 10), next_row_id=30) | {"snapshot-log": [{"snapshot-id": one} for one in heads]}
        for root, heads in (("/source/t", [1, 2, 1, 3]), ("/mirror/t", log))
    )
    told = list(differing_metadata(ours, theirs, ROOTS, lambda place: 1))
    assert [one.partition(":")[0] for one in told] == ([] if is_right else ["snapshot-log"])
    assert list(differing_metadata(ours, theirs, ROOTS, lambda place: 1, on_rest=True)) == []


def test_a_mirror_that_lacks_a_snapshot_is_right() -> None:
    assert judged(table("/mirror/t", snapshot(1, 0, 10), snapshot(3, 20, 10), next_row_id=30), on_rest=False) == []


@pytest.mark.parametrize(
    ("snapshots", "on_rest", "is_right"),
    [
        ((snapshot(1, 0, 10), snapshot(3, 20, 20)), True, True),
        ((snapshot(1, 0, 20), snapshot(3, 20, 10)), True, True),
        ((snapshot(1, 0, 10), snapshot(3, 20, 20)), False, False),
        ((snapshot(1, 0, 10), snapshot(3, 20, 21)), True, False),
        ((snapshot(1, 0, 21), snapshot(3, 20, 10)), True, False),
        ((snapshot(1, 0, 10), snapshot(3, 20, 9)), True, False),
        ((snapshot(1, 0, 10), snapshot(2, 10, 10), snapshot(3, 20, 11)), True, False),
    ],
    ids=["told later", "told before", "not on SQL", "beyond the end", "into the next", "too few", "nothing skipped"],
)
def test_only_a_rest_catalog_is_told_of_the_rows_of_skipped_snapshots(
    snapshots: tuple[Json, ...], on_rest: bool, is_right: bool
) -> None:
    assert (judged(table("/mirror/t", *snapshots, next_row_id=30), on_rest=on_rest) == []) == is_right


def test_rows_are_read_with_their_lineage_where_there_is_one() -> None:
    assert row_columns({"format-version": 2}) == "*"
    assert row_columns({"format-version": 3}) == "*, _row_id, _last_updated_sequence_number"


def said(what: str, ours: list[Json], theirs: list[Json], retained: tuple[int, ...] = (1, 3)) -> list[str]:
    rows = ([json.dumps(row) for row in side] for side in (ours, theirs))
    return list(differing_rows(what, *rows, ROOTS, retained, lambda place: 7))


def partition(day: int, last: int | None, **other: Any) -> Json:
    told = {"spec_id": 0, "last_updated_at": last, "last_updated_snapshot_id": last}
    return {"partition": {"day": day}, "record_count": 5, **told, **other}


@pytest.mark.parametrize("name", ["spec_id", "last_updated_at", "last_updated_snapshot_id"])
def test_the_last_update_of_a_partition_is_compared(name: str) -> None:
    ours = [partition(1, 1), partition(2, 3)]
    assert said("partitions", ours, ours) == []
    assert len(said("partitions", ours, [partition(1, 1), partition(2, 3, **{name: 9})])) == 2


def test_the_last_update_by_a_skipped_snapshot_is_not() -> None:
    ours = [partition(1, 1), partition(2, 2)]
    assert said("partitions", ours, [partition(1, 1), partition(2, 1)]) == []
    assert said("partitions", ours, [partition(1, 1), partition(2, None, spec_id=None)]) == []
    assert len(said("partitions", ours, [partition(1, None), partition(2, 1)])) == 2
    assert len(said("partitions", ours, [partition(1, 1), partition(2, 1, record_count=6)])) == 2


def file(root: str, content: int, column_size: int) -> Json:
    sizes = {"column_sizes": {"1": column_size}, "split_offsets": [4], "file_size_in_bytes": 7}
    return {"content": content, "file_path": f"{root}/data/a", "lower_bounds": {}, "upper_bounds": {}, **sizes}


@pytest.mark.parametrize(("content", "differences"), [(0, 2), (1, 0), (2, 2)], ids=["data", "positions", "equality"])
def test_sizes_of_columns_are_compared_but_for_files_that_are_written_anew(content: int, differences: int) -> None:
    same = file("/source/t", content, 30), file("/mirror/t", content, 30)
    assert said("files", [same[0]], [same[1]]) == []
    assert len(said("files", [same[0]], [file("/mirror/t", content, 31)])) == differences
