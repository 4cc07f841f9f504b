"""What is new is read, exactly, and nothing else: one commit on a thousand, and thousands of commits at once."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from pyiceberg.manifest import write_manifest_list
from pyiceberg.table import Table

from tests.iceberg_files import EXISTING, commit, entry, manifest_file, manifests_of, write
from tests.lake import ORDERS, Lake, path_of, rows
from tests.stores import READS, WRITES, Recorder

pytestmark = pytest.mark.integration
COUNT = 1000


def long_history(lake: Lake, orders: Table, commits: int, files_left: int) -> Table:
    """Let the table live through so many commits, expire all before, and end with manifests of one file each.

    Only the head's manifest list is there: whoever opens another one, or an older metadata file, fails.
    """
    home = orders.location()
    for old in path_of(f"{home}/metadata").glob("*.metadata.json"):
        if str(old) != str(path_of(orders.metadata_location)):
            old.unlink()
    files = [write(f"{home}/data/{number}.parquet", b"tiny") for number in range(files_left)]
    manifests = [manifest_file(orders, [entry(path, size=4, snapshot_id=commits)], commits) for path in files]
    location = f"{home}/metadata/snap-{commits}.avro"
    with write_manifest_list(2, orders.io.new_output(location), commits, commits - 1, commits, "deflate") as writer:
        writer.add_manifests(manifests)
    document = json.loads(path_of(orders.metadata_location).read_text())
    start = document["last-updated-ms"]
    document["snapshots"] = [
        {
            "snapshot-id": number,
            "parent-snapshot-id": number - 1,
            "sequence-number": number,
            "timestamp-ms": start + number,
            "manifest-list": f"{home}/metadata/snap-{number}.avro",
            "schema-id": 0,
            "summary": {"operation": "append", "added-files-size": "4", "total-files-size": str(4 * number)},
        }
        for number in range(1, commits + 1)
    ]
    document["snapshot-log"] = [{"snapshot-id": n, "timestamp-ms": start + n} for n in range(1, commits + 1)]
    document["metadata-log"] = []
    document |= {"current-snapshot-id": commits, "last-sequence-number": commits, "last-updated-ms": start + commits}
    document["refs"] = {"main": {"snapshot-id": commits, "type": "branch"}}
    new = write(f"{home}/metadata/{commits:05d}-long.metadata.json", json.dumps(document).encode())
    with sqlite3.connect(lake.folder / "source.db") as database:
        database.execute("UPDATE iceberg_tables SET metadata_location = ?", (new,))
    return orders.refresh()


@pytest.fixture(scope="module")
def long_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("long"), defaults={"small_change_files": 5 * COUNT})
    long_history(lake, lake.create(), COUNT, COUNT)
    lake.sync()
    return lake


def recorded(lake: Lake) -> Recorder:
    recorder = Recorder()
    result = lake.app(wrap_store=recorder.wrap).mirror(ORDERS)
    assert result.lane == "task"
    lake.follow()
    return recorder


def old_objects_read(lake: Lake, recorder: Recorder, before: set[str]) -> list[str]:
    """What the run read of objects that the mirror had before it, by path below the table's folder."""
    root = f"file://{lake.mirror_folder}/shop/orders/"
    read = [uri.removeprefix(root) for uri in recorder.uris("mirror", *READS)]
    return sorted(uri for uri in read if uri in before)


def objects(lake: Lake) -> set[str]:
    folder = lake.mirror_folder / "shop/orders"
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def newest_index(lake: Lake, version: int) -> str:
    marker = json.loads((lake.mirror_folder / f"shop/orders/_ready/v{version}.ready.json").read_text())
    return str(Path(path_of(marker["index_uri"])).relative_to(lake.mirror_folder / "shop/orders"))


def newest_version(lake: Lake) -> int:
    return max(int(name.split(".")[0][1:]) for name in lake.ready())


def test_an_appended_file(long_lake: Lake) -> None:
    orders = long_lake.source.load_table(str(ORDERS))
    before, version = objects(long_lake), newest_version(long_lake)
    known = {one.manifest_path for one in manifests_of(orders)}
    orders.append(rows(1))
    (added,) = [one for one in manifests_of(orders) if one.manifest_path not in known]
    (data,) = [one.data_file.file_path for one in added.fetch_manifest_entry(orders.io)]
    manifest = added.manifest_path
    snapshot = orders.current_snapshot()
    assert snapshot is not None
    recorder = recorded(long_lake)
    assert sorted(recorder.uris("source", "get")) == sorted(
        [orders.metadata_location, snapshot.manifest_list, manifest, data]
    )
    assert recorder.uris("source", "stream", "head", "list", *WRITES) == []
    assert old_objects_read(long_lake, recorder, before) == sorted(
        [
            "_control/lease.json",
            "_control/lease.json",
            f"_ready/v{version}.ready.json",
            newest_index(long_lake, version),
        ]
    )
    listed = [uri.split("shop/orders/")[-1].split("/")[0] for uri in recorder.uris("mirror", "list")]
    assert listed == ["_ready", "_ready"], "before it plans, and when it has published"
    made = {*recorder.uris("mirror", "put")}
    read_back = [uri for uri in recorder.uris("mirror", "get", "stream") if uri in made and "lease.json" not in uri]
    assert [path_of(uri).name for uri in read_back] == [path_of(data).name], "what is as long as the table is not"
    looked_at = {uri.rpartition("/")[2].partition(".")[2] for uri in recorder.uris("mirror", "head") if uri in made}
    assert looked_at == {"avro", "parquet", "metadata.json"}


def test_a_rewritten_manifest(long_lake: Lake) -> None:
    """One manifest is replaced by one that carries its file over: of all copies only that of the old one is read."""
    orders = long_lake.source.load_table(str(ORDERS))
    before, version = objects(long_lake), newest_version(long_lake)
    manifests = manifests_of(orders)
    old = next(one for one in manifests if "m0" in one.manifest_path)
    (file,) = [one.data_file.file_path for one in old.fetch_manifest_entry(orders.io)]
    size = path_of(file).stat().st_size
    data = write(f"{orders.location()}/data/one-more-{version}.parquet", b"tiny")
    entries = [entry(file, status=EXISTING, size=size), entry(data, size=4, snapshot_id=77_000 + version)]
    new = manifest_file(orders, entries, 77_000 + version)
    commit(orders, 77_000 + version, [new, *(one for one in manifests if one is not old)])
    snapshot = orders.current_snapshot()
    assert snapshot is not None
    recorder = recorded(long_lake)
    assert sorted(recorder.uris("source", "get")) == sorted(
        [orders.metadata_location, snapshot.manifest_list, new.manifest_path, data]
    )
    assert recorder.uris("source", "stream") == []
    copy = old.manifest_path.split("shop/orders/")[-1]
    assert old_objects_read(long_lake, recorder, before) == sorted(
        [
            "_control/lease.json",
            "_control/lease.json",
            f"_ready/v{version}.ready.json",
            newest_index(long_lake, version),
            copy,
        ]
    )


def test_the_plan_says_so_too(long_lake: Lake) -> None:
    orders = long_lake.source.load_table(str(ORDERS))
    count = len(manifests_of(orders))
    orders.append(rows(1, 50))
    plan = long_lake.app().plan(ORDERS)
    assert (plan.files, plan.manifest_lists_read, plan.manifests_read, plan.manifests_reused) == (1, 1, 1, count)
    long_lake.sync()


def test_nothing_but_metadata_changed(long_lake: Lake) -> None:
    orders = long_lake.source.load_table(str(ORDERS))
    with orders.transaction() as change:
        change.set_properties({"owner": "ada"})
    recorder = recorded(long_lake)
    assert recorder.uris("source") == [orders.metadata_location]


def test_thousands_of_commits_at_once(tmp_path: Path) -> None:
    """The mirror was away for 5,000 commits: all it knew has expired, and it comes to the head in one step."""
    lake = Lake(tmp_path)
    orders = lake.create()
    orders.append(rows(2))
    lake.sync()
    orders = long_history(lake, orders, 5000, 7)
    recorder = recorded(lake)
    snapshot = orders.current_snapshot()
    assert snapshot is not None
    manifests = [one.manifest_path for one in manifests_of(orders)]
    files = [f"{orders.location()}/data/{number}.parquet" for number in range(7)]
    assert sorted(recorder.uris("source")) == sorted(
        [orders.metadata_location, snapshot.manifest_list, *manifests, *files]
    )
    mirrored = lake.mirror_table()
    assert mirrored.metadata.current_snapshot_id == 5000
    assert len(manifests_of(mirrored)) == 7
    assert len(mirrored.metadata.snapshots) == 1, "skipped versions are not in the mirror"
