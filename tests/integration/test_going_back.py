"""The source goes back to what the mirror has: nothing is read again, nothing is sent again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.table import Table

from lakemirror.model.results import MirrorResult
from lakemirror.replicate.stage import LocalEngine
from tests.iceberg_files import (
    ADDED,
    EXISTING,
    PATH_ID,
    POSITION_DELETES,
    bounds,
    commit,
    data_files,
    entry,
    manifest_file,
    manifests_of,
    position_deletes,
    write,
)
from tests.lake import ORDERS, Lake, path_of, rows
from tests.stores import Recorder

pytestmark = pytest.mark.integration
COMMITS = 5


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Any byte more than a thousand would be a matter for Spark."""
    return Lake(tmp_path, defaults={"small_change_bytes": 1000})


@pytest.fixture
def orders(lake: Lake) -> Table:
    orders = lake.create()
    for number in range(COMMITS):
        orders.append(rows(2000, start=2000 * number))
    lake.sync()
    return orders


def head_of(table: Table) -> int:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def rewrite_manifests(orders: Table, snapshot_id: int) -> None:
    files = [task.file for task in orders.refresh().scan().plan_files()]
    entries = [
        entry(one.file_path, status=EXISTING, size=one.file_size_in_bytes, record_count=one.record_count)
        for one in files
    ]
    sizes = {"total-files-size": str(sum(one.file_size_in_bytes for one in files))}
    commit(orders, snapshot_id, [manifest_file(orders, entries, snapshot_id)], summary=sizes)


def go_back(orders: Table, snapshot_id: int) -> None:
    orders.refresh().manage_snapshots().set_current_snapshot(snapshot_id).commit()
    orders.refresh()


def recorded(lake: Lake) -> tuple[MirrorResult, Recorder]:
    recorder = Recorder()
    result = lake.app(wrap_store=recorder.wrap).mirror(ORDERS, engine=LocalEngine(2))
    lake.follow()
    assert lake.mirror_rows() == lake.source_rows()
    return result, recorder


def files_put(recorder: Recorder) -> list[str]:
    return [uri for uri in recorder.uris("mirror", "put") if uri.endswith((".avro", ".parquet")) and "/_" not in uri]


def test_to_a_mirrored_snapshot_whose_manifests_were_rewritten_since(lake: Lake, orders: Table) -> None:
    before = head_of(orders)
    rewrite_manifests(orders, 900)
    lake.sync()
    go_back(orders, before)
    result, recorder = recorded(lake)
    assert (result.lane, result.copied_files, result.snapshot_id) == ("task", 0, before)
    assert recorder.uris("source") == [orders.metadata_location]
    assert files_put(recorder) == []


def test_to_a_mirrored_snapshot_whose_files_were_replaced_some_versions_ago(lake: Lake, orders: Table) -> None:
    before = head_of(orders)
    orders.overwrite(rows(3))
    lake.sync()
    for number in range(2):
        orders.append(rows(1, start=number))
        lake.sync()
    go_back(orders, before)
    result, recorder = recorded(lake)
    assert (result.lane, result.copied_files) == ("task", 0)
    assert recorder.uris("source") == [orders.metadata_location]
    assert files_put(recorder) == []


def test_back_and_forth(lake: Lake, orders: Table) -> None:
    """What a version holds by the word of an earlier one, the next ones hold, too."""
    before = head_of(orders)
    orders.overwrite(rows(3))
    lake.sync()
    after = head_of(orders)
    for snapshot_id in (before, after, before, after):
        go_back(orders, snapshot_id)
        _, recorder = recorded(lake)
        assert recorder.uris("source") == [orders.metadata_location]


def test_a_late_tag_on_a_mirrored_snapshot(lake: Lake, orders: Table) -> None:
    before = head_of(orders)
    orders.overwrite(rows(3))
    lake.sync()
    orders.manage_snapshots().create_tag(before, "kept").commit()
    _, recorder = recorded(lake)
    assert recorder.uris("source") == [orders.refresh().metadata_location]
    assert lake.mirror_rows(snapshot_id=before) == lake.source_rows(snapshot_id=before)


def test_back_and_written_to_since(lake: Lake, orders: Table) -> None:
    before = head_of(orders)
    rewrite_manifests(orders, 900)
    lake.sync()
    go_back(orders, before)
    known = {one.manifest_path for one in manifests_of(orders)}
    orders.append(rows(1, start=77_000))
    snapshot = orders.current_snapshot()
    assert snapshot is not None
    (manifest,) = [one for one in manifests_of(orders) if one.manifest_path not in known]
    (data,) = [one.data_file.file_path for one in manifest.fetch_manifest_entry(orders.io)]
    result, recorder = recorded(lake)
    assert result.copied_files == 1
    assert sorted(recorder.uris("source", "get")) == sorted(
        [orders.metadata_location, snapshot.manifest_list, manifest.manifest_path, data]
    )


def test_to_a_snapshot_that_was_skipped(lake: Lake, orders: Table) -> None:
    """Its own manifest is new to the mirror, its file is not: a manifest that was rewritten since names it."""
    known = {one.manifest_path for one in manifests_of(orders)}
    orders.append(rows(2000, start=77_000))
    skipped = orders.current_snapshot()
    assert skipped is not None
    (manifest,) = [one for one in manifests_of(orders) if one.manifest_path not in known]
    rewrite_manifests(orders, 900)
    lake.sync()
    go_back(orders, skipped.snapshot_id)
    result, recorder = recorded(lake)
    assert result.copied_files == 0
    assert {*recorder.uris("source")} == {orders.metadata_location, skipped.manifest_list, manifest.manifest_path}


def test_without_the_index_of_that_time_it_is_a_large_change(lake: Lake, orders: Table) -> None:
    before = head_of(orders)
    marker = json.loads((lake.mirror_folder / "shop/orders/_ready/v1.ready.json").read_text())
    orders.overwrite(rows(3))
    lake.sync()
    path_of(marker["index_uri"]).unlink()
    go_back(orders, before)
    result, recorder = recorded(lake)
    assert (result.lane, result.copied_files, result.snapshot_id) == ("spark", 0, before)
    assert len(recorder.uris("source")) > COMMITS


def test_bounds_of_deletes_are_what_they_were(lake: Lake, orders: Table) -> None:
    """A writer rewrote the manifest and kept no bounds; the version before it is mirrored again all the same."""
    file, manifests = data_files(orders)[0], manifests_of(orders)
    data = position_deletes([(file, 0)])
    path = write(f"{orders.location()}/data/d.parquet", data)
    edge = {name: bounds({PATH_ID: file.encode()}) for name in ("lower_bounds", "upper_bounds")}
    for snapshot_id, status, fields in ((70, ADDED, edge), (71, EXISTING, edge), (72, EXISTING, {})):
        one = entry(path, status=status, content=POSITION_DELETES, size=len(data), snapshot_id=70, **fields)
        commit(orders, snapshot_id, [*manifests, manifest_file(orders, [one], snapshot_id, deletes=True)])
        lake.sync()
    marker = json.loads((lake.mirror_folder / "shop/orders/_ready/v3.ready.json").read_text())
    path_of(marker["index_uri"]).unlink()
    go_back(orders, 71)
    result, _ = recorded(lake)
    assert (result.version, result.snapshot_id) == (5, 71)
