"""The history budget: what branches and tags name stays, of the rest the newest, and what went is told."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from lakemirror.errors import PermanentError
from lakemirror.formats.iceberg.metadata_json import MirrorMetadata
from lakemirror.replicate.history import HistoryBudget, Retained, retain

METADATA: dict[str, Any] = {
    "last-updated-ms": 10_000,
    "snapshots": [{"snapshot-id": number, "timestamp-ms": 1000 * number} for number in range(1, 10)],
}
MIRRORED = (1, 2, 3, 5, 8, 9, 77)  # 4, 6 and 7 were skipped; the source has expired 77


def kept(budget: HistoryBudget, *, referenced: tuple[int, ...] = (2, 9), base: int = 100, each: int = 10) -> Retained:
    def make(snapshots: Iterable[int]) -> MirrorMetadata:
        return MirrorMetadata(b"x" * (base + each * len({*snapshots})), "name", ())

    return retain("ns.t", METADATA, 7, MIRRORED, referenced, budget, make)


def test_without_limits_all_that_the_source_still_has() -> None:
    assert kept(HistoryBudget()) == Retained((1, 2, 3, 5, 8, 9), ())


@pytest.mark.parametrize(
    ("budget", "snapshots", "told"),
    [
        (HistoryBudget(versions=2), (2, 5, 8, 9), ("2 earlier versions: more than history_versions",)),
        (HistoryBudget(versions=0), (2, 9), ("4 earlier versions: more than history_versions",)),
        (HistoryBudget(versions=4), (1, 2, 3, 5, 8, 9), ()),
        (HistoryBudget(age_s=5), (2, 5, 8, 9), ("2 earlier versions: older than history_age",)),
        (HistoryBudget(size_bytes=160), (1, 2, 3, 5, 8, 9), ()),
        (
            HistoryBudget(size_bytes=149),
            (2, 5, 8, 9),
            ("2 earlier versions: the metadata file would be larger than its budget",),
        ),
        (
            HistoryBudget(catalog_bytes=120),
            (2, 9),
            ("4 earlier versions: the metadata file would be larger than its budget",),
        ),
        (
            HistoryBudget(versions=3, age_s=7, size_bytes=139),
            (2, 8, 9),
            (
                "1 earlier versions: older than history_age",
                "2 earlier versions: the metadata file would be larger than its budget",
            ),
        ),
    ],
)
def test_the_oldest_go_first(budget: HistoryBudget, snapshots: tuple[int, ...], told: tuple[str, ...]) -> None:
    assert kept(budget) == Retained(snapshots, told)


def test_a_wish_that_cannot_be_met_is_met_as_far_as_it_goes_but_a_catalogs_limit_is_a_stop() -> None:
    assert kept(HistoryBudget(size_bytes=50)).snapshots == (2, 9)
    with pytest.raises(PermanentError, match="want at most 119 bytes, got 120 with the branches and tags alone"):
        kept(HistoryBudget(catalog_bytes=119))


def test_a_server_that_keeps_logs_of_its_own_has_room_for_them() -> None:
    document = {"location": "s3://m/t", "snapshot-log": [{}], "properties": {}}

    def make(snapshots: Iterable[int]) -> MirrorMetadata:
        return MirrorMetadata(json.dumps({**document, "x": "x" * 1000 * len({*snapshots})}).encode(), "name", ())

    def fitting(metadata: dict[str, Any], budget: HistoryBudget, version: int = 1000) -> Retained:
        return retain("ns.t", metadata, version, MIRRORED, (2, 9), budget, make)

    alone = HistoryBudget(catalog_bytes=30_000)
    assert fitting(METADATA, alone) == Retained((1, 2, 3, 5, 8, 9), ())
    logging = replace(alone, has_server_logs=True)  # a hundred files by their places: about 16,000 bytes
    assert fitting(METADATA, logging) == Retained((1, 2, 3, 5, 8, 9), ())
    logging = replace(logging, catalog_bytes=20_000)
    assert len(fitting(METADATA, logging).snapshots) == 3
    assert fitting(METADATA, logging, version=2).snapshots == (1, 2, 3, 5, 8, 9)  # two files were there so far
    swaying = {**METADATA, "snapshot-log": [{"snapshot-id": one} for one in (9, 8) * 40]}  # 80 heads of two snapshots
    assert fitting(swaying, logging, version=2).snapshots == (1, 2, 3, 5, 8, 9)
    assert len(fitting(swaying, replace(logging, catalog_bytes=9_000), version=2).snapshots) == 3
    with pytest.raises(PermanentError, match="the catalog's own logs counted") as caught:
        fitting(METADATA, replace(logging, catalog_bytes=15_000))
    assert "write.metadata.previous-versions-max" in caught.value.hint
