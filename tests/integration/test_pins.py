"""The source expires, for real, what a run has planned: with a pin the run goes on, without one it plans anew."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.table import Table

from lakemirror.app import App
from lakemirror.config.loader import load_config
from lakemirror.errors import TransientError
from lakemirror.replicate.stage import LocalEngine
from lakemirror.storage.port import Blob, ObjectStore
from lakemirror.storage.wrappers.forward import ForwardingStore
from tests.lake import ORDERS, Lake, path_of, rows

pytestmark = pytest.mark.integration
PINNED = {"source_pin_seconds": 3600}


def opened(folder: Path, *, is_pinned: bool = True, **knobs: Any) -> tuple[Lake, Table]:
    lake = Lake(folder, defaults={**(PINNED if is_pinned else {}), **knobs})
    orders = lake.create()
    orders.append(rows(3))
    return lake, orders


def pin(lake: Lake, snapshot_id: int) -> dict[str, int]:
    """The pin of this lake's mirror."""
    mirror = hashlib.sha256(f"file://{lake.mirror_folder}/shop/orders".encode()).hexdigest()[:12]
    return {f"lakemirror-pin-{mirror}-{snapshot_id}": snapshot_id}


def pins(orders: Table) -> dict[str, int]:
    refs = orders.refresh().metadata.refs
    return {name: ref.snapshot_id for name, ref in refs.items() if name.startswith("lakemirror-pin-")}


def head(orders: Table) -> int:
    current = orders.refresh().current_snapshot()
    assert current is not None
    return current.snapshot_id


def rewrite_and_expire(orders: Table) -> None:
    """All rows in new files; every snapshot that no ref holds is expired, and what only it needed is deleted."""
    orders.refresh().overwrite(rows(5, 100))
    orders.maintenance.expire_snapshots().older_than(
        datetime.now(UTC).replace(tzinfo=None) + timedelta(days=1)
    ).commit()
    orders.refresh()
    needed: set[Path] = set()
    for snapshot in orders.metadata.snapshots:
        needed.add(path_of(snapshot.manifest_list))
        for manifest in snapshot.manifests(orders.io):
            needed.add(path_of(manifest.manifest_path))
            needed |= {path_of(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(orders.io)}
    for path in path_of(orders.location()).rglob("*"):
        if path.suffix in (".parquet", ".avro") and path not in needed:
            path.unlink()


class Expiring(ForwardingStore):
    """The source, expired the moment before its first data file is read."""

    def __init__(self, inner: ObjectStore, orders: Table, seen: list[dict[str, int]]) -> None:
        super().__init__(inner)
        self._orders, self._seen = orders, seen

    def get(self, uri: str, **options: Any) -> Blob:
        if "/data/" in uri and not self._seen:
            self._seen.append(pins(self._orders))
            rewrite_and_expire(self._orders)
        return super().get(uri, **options)


@pytest.mark.parametrize("has_fence", [True, False])
@pytest.mark.parametrize("is_pinned", [True, False])
def test_what_is_expired_while_it_is_copied(tmp_path: Path, is_pinned: bool, has_fence: bool) -> None:
    lake, orders = opened(tmp_path, is_pinned=is_pinned, max_replans=0, fence=has_fence)
    first, seen = head(orders), list[dict[str, int]]()
    app = lake.app(wrap_store=lambda side, store: Expiring(store, orders, seen) if side == "source" else store)
    if not is_pinned:
        with pytest.raises(TransientError, match="the source file is gone"):
            app.mirror(ORDERS)
        assert seen == [{}]
    else:
        result = app.mirror(ORDERS)
        assert (result.version, result.snapshot_id, result.copied_files) == (1, first, 1)
        assert seen == [pin(lake, first)]
        lake.follow()
        assert [row["id"] for row in lake.mirror_rows()] == [0, 1, 2]
    assert pins(orders) == {}, "dropped when it was published"
    lake.sync()
    assert lake.mirror_rows() == lake.source_rows()
    assert "lakemirror-pin" not in lake.mirror_table().metadata.model_dump_json()


@pytest.mark.parametrize("is_pinned", [True, False])
def test_what_is_expired_between_the_tasks_of_a_run(tmp_path: Path, is_pinned: bool) -> None:
    lake, orders = opened(tmp_path, is_pinned=is_pinned, small_change_files=0)
    first, engine = head(orders), LocalEngine(2)
    detected = lake.app().detect(ORDERS)
    planned = lake.app().plan_diff(ORDERS, str(detected.plan_uri), str(detected.source_name), engine)
    assert (planned.plan_uri != detected.plan_uri) is is_pinned, "the plan is of the state that has the pin"
    rewrite_and_expire(orders)
    copied = lake.app().copy_objects(ORDERS, str(planned.plan_uri), engine)
    assert (copied.plan_uri == planned.plan_uri) is is_pinned
    lake.app().rewrite_metadata(ORDERS, copied.plan_uri, engine)
    published = lake.app().publish(ORDERS, copied.plan_uri)
    assert (published.snapshot_id == first) is is_pinned
    assert pins(orders) == {}


def test_a_retry_finds_its_pin_and_its_plan(tmp_path: Path) -> None:
    lake, orders = opened(tmp_path, copy_attempts=1)

    class Broken(ForwardingStore):
        def get(self, uri: str, **options: Any) -> Blob:
            if "/data/" in uri:
                raise TransientError("get", uri, "the line is cut", "run again")
            return super().get(uri, **options)

    with pytest.raises(TransientError):
        lake.app(wrap_store=lambda side, store: Broken(store) if side == "source" else store).mirror(ORDERS)
    plans, commits = os.listdir(lake.mirror_folder / "shop/orders/_plan"), len(orders.refresh().metadata.metadata_log)
    assert pins(orders) == pin(lake, head(orders))
    assert lake.mirror().version == 1
    assert os.listdir(lake.mirror_folder / "shop/orders/_plan") == plans
    assert (pins(orders), len(orders.metadata.metadata_log)) == ({}, commits + 1)


def test_pins_of_dead_runs_are_dropped_by_the_next_one_and_those_of_others_stay_without_a_fence(tmp_path: Path) -> None:
    for has_fence in (True, False):
        lake, orders = opened(tmp_path / str(has_fence), fence=has_fence)
        (dead,) = pin(lake, 7)
        orders.manage_snapshots().create_tag(head(orders), dead).create_tag(head(orders), "mine").commit()
        orders.append(rows(1, 50))
        lake.sync()
        assert (dead in pins(orders)) is not has_fence
        assert "mine" in orders.refresh().metadata.refs


@pytest.mark.parametrize("has_fence", [True, False])
def test_two_mirrors_of_one_source_leave_each_other_their_pins(tmp_path: Path, has_fence: bool) -> None:
    lake, orders = opened(tmp_path, fence=has_fence)
    document = yaml.safe_load(lake.config_path.read_text())
    document["mirror"]["location"] += "2"
    document["mirror"]["catalog"]["uri"] = "sqlite:///mirror2.db"
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump(document))
    found: list[dict[str, int]] = []

    class Meanwhile(ForwardingStore):
        """The other mirror makes all of its own run while the first one copies."""

        def get(self, uri: str, **options: Any) -> Blob:
            if "/data/" in uri and not found:
                App(load_config(other), owner="another run").mirror(ORDERS)
                found.append(pins(orders))
            return super().get(uri, **options)

    lake.app(wrap_store=lambda side, store: Meanwhile(store) if side == "source" else store).mirror(ORDERS)
    assert found == [pin(lake, head(orders))]
    assert pins(orders) == {}


def test_a_pin_lives_for_its_time_from_now_on_however_old_its_snapshot(tmp_path: Path) -> None:
    """The source counts from the snapshot's own time."""
    lake, orders = opened(tmp_path)
    made_ms = orders.refresh().metadata.snapshots[0].timestamp_ms
    later = datetime.fromtimestamp(made_ms / 1000, UTC) + timedelta(days=30)
    found: list[int | None] = []

    class Looking(ForwardingStore):
        def get(self, uri: str, **options: Any) -> Blob:
            if "/data/" in uri:
                refs = orders.refresh().metadata.refs
                (name,) = pin(lake, head(orders))
                found.append(refs[name].max_ref_age_ms)
            return super().get(uri, **options)

    lake.app(wrap_store=lambda side, store: Looking(store) if side == "source" else store, now=lambda: later).mirror(
        ORDERS
    )
    (age_ms,) = found
    assert age_ms is not None
    assert abs(age_ms - (30 * 86_400 + 3600) * 1000) < 2000


def test_a_change_of_pins_alone_is_no_change(tmp_path: Path) -> None:
    lake, orders = opened(tmp_path)
    lake.sync()
    location = orders.refresh().metadata_location
    assert lake.mirror().lane == "none"
    assert orders.refresh().metadata_location == location


def test_a_source_that_takes_no_tag_is_told_with_the_way_out(tmp_path: Path) -> None:
    lake, orders = opened(tmp_path)
    with sqlite3.connect(lake.folder / "source.db") as connection:
        connection.execute(
            "CREATE TRIGGER no_tags BEFORE UPDATE ON iceberg_tables BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    with pytest.raises(
        TransientError, match=r"pin shop\.orders: the source does not take the tag .*source_pin_seconds"
    ):
        lake.mirror()
    assert pins(orders) == {}
