"""Detection's small decisions: the prefix map of a table, and the lane."""

from __future__ import annotations

from typing import Any

import pytest

from lakemirror.model.layout import TableLayout
from lakemirror.replicate.detect import prefix_map
from lakemirror.replicate.lane import bytes_at_most, choose_lane
from tests.unit.markers import marker

LAYOUT = TableLayout("gs://m/ns/t")


def test_the_tables_own_location_goes_to_its_folder_whatever_the_roots_say() -> None:
    paths = prefix_map("s3a://wh/ns/t/", LAYOUT, {"cold": "s3://cold", "all": "s3://wh", "same": "s3://wh/ns/t"})
    assert paths.map("s3://wh/ns/t/data/x") == "gs://m/ns/t/data/x"
    assert paths.map("s3://wh/other/x") == "gs://m/ns/t/_roots/all/other/x"
    assert paths.map("s3n://cold/x") == "gs://m/ns/t/_roots/cold/x"


@pytest.mark.parametrize(
    ("files", "size", "lane"),
    [
        (0, None, "task"),
        (0, 1 << 60, "task"),
        (10, 1000, "task"),
        (11, 0, "spark"),
        (10, 1001, "spark"),
        (1, None, "spark"),
    ],
)
def test_lane(files: int, size: int | None, lane: str) -> None:
    """Small is small in both; unknown is not small; a change of metadata alone needs no Spark."""
    assert choose_lane(files, size, 10, 1000) == lane


def test_zero_small_files_means_always_spark() -> None:
    assert choose_lane(1, 0, 0, 1000) == "spark"


def snapshots(*summaries: dict[str, Any]) -> dict[str, Any]:
    made = [
        {"snapshot-id": n, "sequence-number": n, "summary": summary} for n, summary in enumerate(summaries, start=1)
    ]
    return {"snapshots": made}


@pytest.mark.parametrize(
    ("summaries", "known", "want"),
    [
        ([{"total-files-size": "7"}], None, 7),
        ([{}], None, None),
        ([{}, {"added-files-size": "5"}, {"added-files-size": "6"}], 1, 11),
        ([{}, {"operation": "delete"}, {"operation": "replace"}], 1, 0),
        ([{}, {"operation": "append"}], 1, None),
        ([{}, {"added-files-size": "5"}], 2, 0),
    ],
)
def testbytes_at_most(summaries: list[dict[str, Any]], known: int | None, want: int | None) -> None:
    newest = None if known is None else marker(LAYOUT, sequence_number=known)
    assert bytes_at_most(snapshots(*summaries), len(summaries), newest) == want


def test_a_table_without_a_snapshot_weighs_nothing() -> None:
    assert bytes_at_most({}, None, None) == 0
