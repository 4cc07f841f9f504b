"""Results: the JSON keys that scripts rely on, exactly, and reports that a person can read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from lakemirror.model.results import (
    Detected,
    FollowResult,
    MirrorResult,
    PlanResult,
    Rewritten,
    StageResult,
    StatusResult,
    describe_volume,
    human_bytes,
    iso,
)
from lakemirror.model.table import TableRef

T = TableRef.parse("ns.t")
ZEROS = {"get": 0, "head": 0, "list": 0, "put": 0, "copy": 0, "delete": 0}


def test_plan() -> None:
    assert PlanResult(T, 6, 12, 3, 400, 1, 2, 50, "task").as_json() == {
        "table": "ns.t",
        "ok": True,
        "from_version": 6,
        "to_snapshot_id": "12",
        "files": 3,
        "bytes": 400,
        "manifest_lists_read": 1,
        "manifests_read": 2,
        "manifests_reused": 50,
        "lane": "task",
    }
    assert PlanResult(T, None, None, 0, 0, 0, 0, 0, "task").as_json()["to_snapshot_id"] is None


def test_mirror() -> None:
    made = MirrorResult(
        table=T,
        version=7,
        snapshot_id=12,
        lane="spark",
        copied_files=3,
        copied_bytes=400,
        skipped_files=1,
        rewritten=Rewritten(2, 1, 1),
        requests={"source": {"get": 9}},
        seconds={"detect": 0.12345, "copy": 0.5, "total": 2.0},
        marker="gs://m/v7.ready.json",
        left_out=("property x: it holds a source path",),
    )
    assert made.as_json() == {
        "table": "ns.t",
        "ok": True,
        "version": 7,
        "snapshot_id": "12",
        "lane": "spark",
        "copied_files": 3,
        "copied_bytes": 400,
        "skipped_files": 1,
        "rewritten": {"manifests": 2, "manifest_lists": 1, "delete_files": 1, "puffins": 0},
        "requests": {"source": {**ZEROS, "get": 9}, "mirror": ZEROS},
        "seconds": {
            "detect": 0.123,
            "plan": 0.0,
            "copy": 0.5,
            "rewrite": 0.0,
            "verify": 0.0,
            "publish": 0.0,
            "total": 2.0,
        },
        "copied_bytes_per_s": 800,
        "marker": "gs://m/v7.ready.json",
        "left_out": ["property x: it holds a source path"],
        "reason": None,
    }
    assert made.report() == [
        "ns.t: published v7 (snapshot 12) in lane spark",
        "copied 3 files, 400 B at 800 B/s; 1 were there already",
        "rewrote 2 manifests, 1 manifest lists, 1 delete files",
        "took 2.0 s (detect 0.1, copy 0.5)",
        "left out: property x: it holds a source path",
    ]


def test_follow() -> None:
    assert FollowResult(T, 7, 12, committed=True, seconds={"total": 0.5}).as_json() == {
        "table": "ns.t",
        "ok": True,
        "version": 7,
        "snapshot_id": "12",
        "committed": True,
        "seconds": {"total": 0.5},
        "warnings": [],
    }
    warned = FollowResult(T, 7, 12, committed=False, warnings=("a preview",))
    assert warned.as_json()["warnings"] == ["a preview"]
    assert warned.report()[1:] == ["ns.t: warning: a preview"]
    found = FollowResult(T, 7, 12, committed=False, first_seen=True)
    assert found.report() == ["ns.t: the mirror is at v7, committed by an earlier run that did not record it"]
    assert found.as_json().keys() == FollowResult(T, 7, 12, committed=True).as_json().keys()
    assert FollowResult(T, None, None, committed=False).report() == ["ns.t: nothing to do, no version is ready"]


STATUS: dict[str, Any] = {
    "table": T,
    "epoch": "u-1",
    "source_state": "ok",
    "source_snapshot_id": 12,
    "source_committed_at": datetime(2026, 1, 2, tzinfo=UTC),
    "mirror_state": "ok",
    "mirror_version": 7,
    "mirror_snapshot_id": 12,
    "visible_at": None,
    "lag_s": 0.0,
    "latency_s": 12.5,
    "backlog_files": 0,
    "backlog_bytes": 0,
    "ready": (6, 7),
    "in_progress": (),
}


def test_status() -> None:
    assert StatusResult(**STATUS).as_json() == {
        "table": "ns.t",
        "ok": True,
        "epoch": "u-1",
        "source": {"snapshot_id": "12", "committed_at": "2026-01-02T00:00:00.000Z", "state": "ok"},
        "mirror": {"version": 7, "snapshot_id": "12", "visible_at": None, "state": "ok"},
        "lag_s": 0.0,
        "latency_s": 12.5,
        "backlog_files": 0,
        "backlog_bytes": 0,
        "level": None,
        "markers": {"ready": [6, 7], "in_progress": []},
        "problem": None,
        "catalog": None,
        "warnings": [],
    }
    assert StatusResult(**{**STATUS, "source_state": None}).as_json()["source"] is None


@pytest.mark.parametrize(
    ("change", "behind"),
    [
        ({}, False),
        ({"lag_s": 0.5}, True),
        ({"lag_s": None}, False),
        ({"source_state": "dropped"}, True),
        ({"source_state": "unreachable"}, True),
        ({"mirror_state": "missing"}, True),
        ({"mirror_state": "foreign"}, True),
        ({"source_state": None, "lag_s": 5.0}, True),
        ({"problem": {"kind": "permanent"}}, True),
    ],
    ids=str,
)
def test_status_is_behind(change: dict[str, Any], behind: bool) -> None:
    """Without a source the newest marker is what the mirror should show."""
    assert StatusResult(**{**STATUS, **change}).is_behind is behind


def test_stage() -> None:
    made = StageResult(T, "copy", "gs://m/_plan/p", 2.0, 3, 400, 1, requests={"source": {"get": 3, "head": 0}})
    assert made.as_json() == {
        "table": "ns.t",
        "ok": True,
        "stage": "copy",
        "plan_uri": "gs://m/_plan/p",
        "seconds": 2.0,
        "files": 3,
        "bytes": 400,
        "skipped_files": 1,
        "rewritten": {"manifests": 0, "manifest_lists": 0, "delete_files": 0, "puffins": 0},
        "requests": {"source": {"get": 3, "head": 0}},
    }
    assert made.report()[1:] == ["3 files, 400 B at 200 B/s, 1 were there already", "requests: source 3 get"]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (Detected(T, "none", 7, 7, None, 0, None), "ns.t: nothing to do (newest version v7)"),
        (Detected(T, "none", 7, 7, None, 0, reason="it sleeps"), "ns.t: nothing to do: it sleeps (newest version v7)"),
        (
            Detected(T, "task", None, 1, 12, 3, None),
            "ns.t: from nothing to v1 (snapshot 12), at most 3 files, lane task",
        ),
        (Detected(T, "spark", 7, 8, 12, 9, "p"), "ns.t: from v7 to v8 (snapshot 12), at most 9 files, lane spark"),
    ],
)
def test_detected_in_one_line(found: Detected, says: str) -> None:
    assert found.summary == says


def test_small_things() -> None:
    assert [human_bytes(n) for n in (0, 999, 1000, 1_500_000, 10**12 * 3)] == [
        "0 B",
        "999 B",
        "1.0 KB",
        "1.5 MB",
        "3.0 TB",
    ]
    assert iso(None) is None


@pytest.mark.parametrize(
    ("done", "seconds", "total", "text"),
    [
        (0, 3.0, 10, ""),
        (5_000_000, 0.0, 0, "5.0 MB"),
        (5_000_000, 2.0, 0, "5.0 MB, 2.5 MB/s"),
        (5_000_000, 2.0, 15_000_000, "5.0 MB of 15.0 MB, 2.5 MB/s, 4 s left"),
        (5_000_000, 2.0, 5_000_000, "5.0 MB of 5.0 MB, 2.5 MB/s"),
        (1_000, 10.0, 100_000, "1.0 KB of 100.0 KB, 100 B/s, 16 min left"),
        (1_000, 10.0, 1_000_000, "1.0 KB of 1.0 MB, 100 B/s, 2 h 46 min left"),
    ],
)
def test_how_far_and_how_long(done: int, seconds: float, total: int, text: str) -> None:
    assert describe_volume(done, seconds, total) == text
