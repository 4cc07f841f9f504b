"""Where a table stands, in each state it can be in."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import StringType

from lakemirror.config.loader import load_config
from lakemirror.errors import SourceVanishedError, TransientError
from lakemirror.model.results import PlanResult, StatusResult
from lakemirror.usecases.ports import Ports
from lakemirror.usecases.status import status as status_of
from tests.iceberg_files import commit, entry, manifest_file
from tests.lake import ORDERS, Lake, path_of, rows

KEYS = {
    "table": None,
    "ok": None,
    "epoch": None,
    "source": {"snapshot_id", "committed_at", "state"},
    "mirror": {"version", "snapshot_id", "visible_at", "state"},
    "lag_s": None,
    "latency_s": None,
    "backlog_files": None,
    "backlog_bytes": None,
    "level": None,
    "markers": {"ready", "in_progress"},
    "problem": {"kind", "op", "subject", "message", "hint"},
    "catalog": None,
    "warnings": None,
}
SQL = {
    "type": "sql",
    "commit": "pointer",
    "has_namespace_levels": True,
    "has_register": True,
    "has_whole_swap": True,
    "has_drop": True,
    "has_multi_table_commit": False,
    "has_idempotency_keys": False,
    "formats": [1, 2, 3],
    "preview_formats": [],
    "max_metadata_bytes": None,
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def now(lake: Lake) -> datetime:
    """A hundred seconds after the source's last commit."""
    return at(lake.source.load_table(str(ORDERS)).metadata.last_updated_ms) + timedelta(seconds=100)


def status(lake: Lake, moment: datetime | None = None) -> StatusResult:
    fixed = moment or now(lake)
    return lake.app(now=lambda: fixed).status(ORDERS)


def told(result: StatusResult) -> dict[str, Any]:
    document = result.as_json()
    assert document.keys() == KEYS.keys()
    for key, inner in KEYS.items():
        if inner is not None and document[key] is not None:
            assert document[key].keys() == inner
    return document


def test_no_such_table_anywhere(lake: Lake) -> None:
    document = told(status(lake, datetime.now(UTC)))
    assert document["source"] == {"snapshot_id": None, "committed_at": None, "state": "dropped"}
    assert document["mirror"] == {"version": None, "snapshot_id": None, "visible_at": None, "state": "missing"}
    assert (document["epoch"], document["lag_s"], document["backlog_files"]) == (None, None, None)


def test_never_mirrored(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    first = orders.metadata.snapshot_log[0].timestamp_ms
    orders.append(rows(3, 3))
    document = told(result := status(lake))
    assert (document["source"]["state"], document["mirror"]["state"]) == ("ok", "missing")
    assert (document["backlog_files"], document["markers"]) == (2, {"ready": [], "in_progress": []})
    assert document["backlog_bytes"] > 0
    assert document["lag_s"] == pytest.approx((now(lake) - at(first)).total_seconds(), abs=0.01)
    assert result.is_behind
    assert list(lake.mirror_folder.parent.glob("mirror*")) == []


def test_ready_but_not_followed(lake: Lake) -> None:
    lake.create().append(rows(3))
    lake.mirror()
    document = told(result := status(lake))
    assert (document["mirror"]["state"], document["backlog_files"]) == ("missing", 0)
    assert document["markers"] == {"ready": [1], "in_progress": []}
    assert document["lag_s"] >= 100
    assert result.is_behind


def test_in_step(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    snapshot = orders.refresh().current_snapshot()
    assert snapshot is not None
    document = told(result := status(lake))
    assert document == {
        "table": "shop.orders",
        "ok": True,
        "epoch": str(orders.metadata.table_uuid),
        "source": {
            "snapshot_id": str(snapshot.snapshot_id),
            "committed_at": at(orders.metadata.last_updated_ms)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "state": "ok",
        },
        "mirror": {
            "version": 1,
            "snapshot_id": str(snapshot.snapshot_id),
            "visible_at": document["mirror"]["visible_at"],
            "state": "ok",
        },
        "lag_s": 0.0,
        "latency_s": document["latency_s"],
        "backlog_files": 0,
        "backlog_bytes": 0,
        "level": None,
        "markers": {"ready": [1], "in_progress": []},
        "problem": None,
        "catalog": SQL,
        "warnings": [],
    }
    assert document["mirror"]["visible_at"].endswith("Z")
    visible_at = datetime.fromisoformat(document["mirror"]["visible_at"])
    committed_at = datetime.fromisoformat(document["source"]["committed_at"])
    assert document["latency_s"] == pytest.approx((visible_at - committed_at).total_seconds(), abs=0.01)
    assert not result.is_behind


def test_behind_since_the_first_commit_that_is_not_shown(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    orders.refresh().append(rows(3, 3))
    first = orders.metadata.snapshot_log[-1].timestamp_ms
    orders.append(rows(3, 6))
    document = told(result := status(lake))
    assert (document["mirror"]["version"], document["backlog_files"]) == (1, 2)
    assert document["lag_s"] == pytest.approx((now(lake) - at(first)).total_seconds(), abs=0.01)
    assert result.is_behind


def test_mirrored_further_but_followed_less(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    orders.refresh().append(rows(3, 3))
    lake.mirror()
    document = told(result := status(lake))
    assert (document["mirror"]["version"], document["markers"]["ready"]) == (1, [1, 2])
    assert (document["backlog_files"], result.is_behind) == (0, True)


def test_schema_change_alone_is_a_lag_without_files(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    with orders.refresh().update_schema() as update:
        update.add_column("note", StringType())
    document = told(status(lake))
    assert (document["backlog_files"], document["backlog_bytes"]) == (0, 0)
    assert document["lag_s"] == pytest.approx(100, abs=0.01)


def test_a_commit_that_no_reader_can_see_is_no_lag(lake: Lake) -> None:
    """A pin on the source is a commit there, and nothing that the mirror would ever show."""
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    snapshot = orders.refresh().current_snapshot()
    assert snapshot is not None
    orders.manage_snapshots().create_tag(snapshot.snapshot_id, "lakemirror-pin-1").commit()
    assert lake.mirror().lane == "none"
    result = status(lake)
    assert (result.lag_s, result.backlog_files, result.is_behind) == (0.0, 0, False)


def test_dropped_source_keeps_the_mirror(lake: Lake) -> None:
    lake.create().append(rows(3))
    lake.sync()
    moment = now(lake)
    lake.source.drop_table(str(ORDERS))
    document = told(result := status(lake, moment))
    assert document["source"] == {"snapshot_id": None, "committed_at": None, "state": "dropped"}
    assert (document["mirror"]["version"], document["mirror"]["state"]) == (1, "ok")
    assert (document["lag_s"], document["backlog_files"], result.is_behind) == (0.0, None, True)


@pytest.mark.parametrize("loss", ["catalog", "broken catalog", "metadata"])
def test_unreachable_source(lake: Lake, loss: str) -> None:
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    moment = now(lake)
    lake.source.close()
    if loss == "metadata":
        path_of(orders.refresh().metadata_location).unlink()
    elif loss == "catalog":
        (lake.folder / "source.db").unlink()
    else:
        (lake.folder / "source.db").write_bytes(b"garbage" * 200)
    document = told(result := status(lake, moment))
    assert document["source"]["state"] == "unreachable"
    assert (document["mirror"]["version"], document["lag_s"], result.is_behind) == (1, None, True)
    assert document["problem"]["kind"] == ("transient" if loss == "metadata" else "permanent")


@pytest.mark.parametrize("damage", ["cut", "no json object", "no time", "a time that is none", "a broken log"])
def test_damaged_source_metadata_is_a_problem_of_a_source_that_was_reached(lake: Lake, damage: str) -> None:
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    moment = now(lake)
    orders.refresh().append(rows(1, 3))
    file = path_of(orders.metadata_location)
    whole = json.loads(file.read_text())
    altered = {
        "no json object": [],
        "no time": {key: value for key, value in whole.items() if key != "last-updated-ms"},
        "a time that is none": {**whole, "last-updated-ms": "noon"},
        "a broken log": {**whole, "snapshot-log": [3]},
    }
    file.write_text(file.read_text()[:100] if damage == "cut" else json.dumps(altered[damage]))
    document = told(result := status(lake, moment))
    assert document["source"]["state"] == "ok"
    assert (document["mirror"]["version"], document["lag_s"], result.is_behind) == (1, None, True)
    assert document["problem"]["kind"] == "permanent"
    assert document["problem"]["subject"].endswith(file.name)


def test_a_table_that_is_not_supported_any_more_says_so(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    orders.refresh().append(rows(1, 3))
    file = path_of(orders.metadata_location)
    file.write_text(json.dumps({**json.loads(file.read_text()), "properties": {"encryption.key-id": "k"}}))
    document = told(result := status(lake))
    assert (document["source"]["state"], document["backlog_files"], result.is_behind) == ("ok", None, True)
    assert "the table is encrypted" in document["problem"]["message"]


@pytest.mark.parametrize("family", [TransientError, SourceVanishedError])
def test_a_source_that_fails_while_the_backlog_is_planned(lake: Lake, family: type[TransientError]) -> None:
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    orders.refresh().append(rows(1, 3))

    def backlog() -> PlanResult:
        raise family("read manifest", "s3://lake/m.avro", "timed out", "run again")

    document = told(result := status_of(ORDERS, Ports(load_config(lake.config_path)), now(lake), backlog))
    assert (document["source"]["state"], document["backlog_files"], result.is_behind) == ("ok", None, True)
    assert (document["problem"]["kind"], document["problem"]["message"]) == ("transient", "timed out")


def test_foreign_mirror(lake: Lake) -> None:
    lake.create().append(rows(3))
    lake.sync()
    with lake.mirror_catalog() as theirs:
        theirs.load_table(str(ORDERS)).append(rows(1, 99))
    document = told(result := status(lake))
    assert (document["mirror"]["state"], document["mirror"]["version"]) == ("foreign", None)
    assert "was not published by Lakemirror; other " in document["warnings"][0]
    assert result.is_behind


def test_what_is_staged_shows_until_it_is_ready(lake: Lake) -> None:
    lake.create().append(rows(3))
    lake.sync()
    staged = lake.mirror_folder / "shop/orders/_inprogress"
    staged.mkdir(exist_ok=True)
    for version in (1, 2):
        (staged / f"v{version}.marker.json").write_bytes(b"")
    assert told(status(lake))["markers"] == {"ready": [1], "in_progress": [2]}


def test_recreated_source_lags_since_its_first_commit(lake: Lake) -> None:
    lake.create().append(rows(3))
    lake.sync()
    lake.source.drop_table(str(ORDERS))
    again = lake.create()
    again.append(rows(1))
    document = told(status(lake))
    assert document["backlog_files"] == 1
    assert document["epoch"] != str(again.metadata.table_uuid)
    assert document["lag_s"] == pytest.approx(100, abs=0.01)


def test_a_follower_knows_no_source(lake: Lake) -> None:
    lake.create().append(rows(3))
    lake.mirror()
    behind = lake.follower().status(ORDERS)
    assert told(behind)["source"] is None
    assert (behind.mirror_state, behind.is_behind) == ("missing", True)
    assert behind.lag_s is not None
    assert behind.lag_s > 0
    lake.follow()
    after = lake.follower().status(ORDERS)
    assert (after.mirror_version, after.lag_s, after.backlog_files, after.is_behind) == (1, 0.0, None, False)


def test_a_backlog_that_cannot_be_planned_is_unknown(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    orders.refresh()
    made = manifest_file(orders, [entry("s3://unknown/x.parquet", snapshot_id=77)], 77)
    commit(orders, 77, [made])
    document = told(result := status(lake))
    assert (document["backlog_files"], document["backlog_bytes"], result.is_behind) == (None, None, True)
    assert "s3://unknown/x.parquet" in str(document["problem"])
