"""Detection's small decisions: the prefix map of a table, and the lane."""

from __future__ import annotations

from typing import Any

import pytest

from lakemirror.model.layout import TableLayout
from lakemirror.replicate.detect import prefix_map
from lakemirror.replicate.lane import bytes_at_most, choose_lane

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


def line(*summaries: dict[str, Any], broken_before: int = 0) -> dict[str, Any]:
    """Snapshots 1, 2, … each the parent of the next; the parent of `broken_before` has expired."""
    made = [
        {"snapshot-id": n, "summary": summary, **({"parent-snapshot-id": n - 1} if n > 1 else {})}
        for n, summary in enumerate(summaries, start=1)
    ]
    return {"snapshots": made[broken_before - 1 :] if broken_before else made}


def added(size: int, total: int | None = None) -> dict[str, str]:
    return {"added-files-size": str(size)} | ({} if total is None else {"total-files-size": str(total)})


@pytest.mark.parametrize(
    ("metadata", "new", "mirrored", "want"),
    [
        pytest.param(line(added(7)), [1], [], 7, id="first"),
        pytest.param(line({}, added(5), added(6)), [3], [1], 11, id="skipped versions count"),
        pytest.param(line(added(1), added(5), added(6)), [3, 2], [1], 11, id="a shared line counts once"),
        pytest.param(line(added(9), added(5), added(6)), [1], [3], 9, id="a late tag on an old snapshot"),
        pytest.param(
            line({}, {"operation": "delete"}, {"operation": "replace"}), [3], [1], 0, id="deletes add nothing"
        ),
        pytest.param(line({}, {"operation": "append"}), [2], [1], None, id="a summary that does not say"),
        pytest.param(line(added(1), added(2), added(3, 50), broken_before=3), [3], [1], 50, id="a broken line"),
        pytest.param(line(added(1), added(2), added(3), broken_before=3), [3], [1], None, id="broken, and no total"),
        pytest.param(line(added(1, 1), added(2, 3)), [1], [1, 2], 1, id="mirrored, and not known any more"),
        pytest.param(line({}, added(2)), [1], [1, 2], None, id="not known any more, and no total"),
        pytest.param(line({}), [], [1], 0, id="nothing new"),
        pytest.param({}, [], [], 0, id="no snapshot"),
    ],
)
def test_bytes_at_most(metadata: dict[str, Any], new: list[int], mirrored: list[int], want: int | None) -> None:
    assert bytes_at_most(metadata, new, mirrored) == want
