"""Keys of every character a store can hold survive; what it cannot hold stops before a byte is written."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import SetLocationUpdate

from lakemirror.errors import PermanentError
from lakemirror.model.table import TableRef
from lakemirror.replicate.stage import LocalEngine
from tests.iceberg_files import (
    ADDED,
    DELETED,
    EXISTING,
    POSITION_DELETES,
    commit,
    data_files,
    delete_positions,
    entry,
    manifest_file,
    manifests_of,
    position_deletes,
    write,
)
from tests.integration.looking import check_whole, look
from tests.lake import ORDERS, Lake, path_of, rows

pytestmark = pytest.mark.integration

ODD = "a=1/50% off/x+y,z/ü ñ 漢/%20%2F~!@$&'()*;:[]{}.parquet"


def add_file(orders: Table, path: str, *, snapshot_id: int = 77) -> None:
    """Commit a copy of the table's only data file under another path."""
    (first, *_) = data_files(orders)
    data = path_of(first).read_bytes()
    write(path, data)
    added = entry(path, size=len(data), snapshot_id=snapshot_id, record_count=3)
    commit(orders, snapshot_id, [*manifests_of(orders), manifest_file(orders, [added], snapshot_id)])


def test_odd_keys_of_files(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    path = f"{orders.location()}/data/{ODD}"
    add_file(orders, path)
    delete_positions(orders, [(path, 1)])
    lake.sync()
    assert lake.mirror_rows() == lake.source_rows()
    assert len(lake.mirror_rows()) == 5
    assert f"file://{lake.mirror_folder}/shop/orders/data/{ODD}" in check_whole(lake).files()


@pytest.mark.parametrize("warehouse", ["w h=%+,ü", "50%25"])
def test_odd_warehouses(tmp_path: Path, warehouse: str) -> None:
    lake = Lake(tmp_path, warehouse=warehouse)
    lake.create(partitioned_by=["city"]).append(rows(3, city="a=b/c %+,ü"))
    lake.sync()
    assert lake.mirror_rows() == lake.source_rows()
    check_whole(lake)


def test_spellings_of_one_place_are_one_place(lake: Lake) -> None:
    """Old files were written as /abs and file:/abs, newer ones as file:///abs."""
    orders = lake.create()
    orders.append(rows(3))
    home = orders.location().removeprefix("file://")
    add_file(orders, f"{home}/data/plain.parquet", snapshot_id=77)
    add_file(orders, f"file:{home}/data/one-slash.parquet", snapshot_id=78)
    lake.sync()
    assert lake.mirror_rows() == lake.source_rows()
    assert len(check_whole(lake).files()) == 3


def test_a_further_root_works_end_to_end(tmp_path: Path) -> None:
    cold = tmp_path / "cold storage"
    lake = Lake(tmp_path, roots={"cold": cold, "unused": tmp_path / "nothing"})
    orders = lake.create()
    orders.append(rows(3))
    path = f"file://{cold}/2024/x ü.parquet"
    add_file(orders, path)
    delete_positions(orders, [(path, 0), (data_files(orders)[0], 2)])
    lake.sync()
    assert lake.mirror_rows() == lake.source_rows()
    assert len(lake.mirror_rows()) == 4
    seen = check_whole(lake)
    assert f"file://{lake.mirror_folder}/shop/orders/_roots/cold/2024/x ü.parquet" in seen.files()
    assert b"cold storage" not in b"".join(
        data for name, data in lake.mirror_objects().items() if name.endswith(("avro", "metadata.json"))
    )


def test_files_of_two_tables_are_copied_for_each(tmp_path: Path) -> None:
    """A file under a common root, and one of the first table that the second one took over, as `snapshot` does it.

    Neither mirror needs anything of the other: what is left of one that was dropped can go.
    """
    cold, copy = tmp_path / "cold", TableRef.parse("shop.copy")
    lake = Lake(
        tmp_path,
        tables=[{"name": str(ORDERS)}, {"name": str(copy)}],
        roots={"cold": cold, "orders": tmp_path / "warehouse/shop/orders"},
    )
    orders, copied = lake.create(), lake.create(copy)
    orders.append(rows(3))
    shared = [data_files(orders)[0], f"file://{cold}/x.parquet"]
    data = path_of(shared[0]).read_bytes()
    write(shared[1], data)
    entries = [entry(path, size=len(data), snapshot_id=77, record_count=3) for path in shared]
    commit(orders, 77, [*manifests_of(orders), manifest_file(orders, entries[1:], 77)])
    commit(copied, 77, [manifest_file(copied, entries, 77)])
    delete_positions(copied, [(shared[0], 0), (shared[1], 2)])
    for table in (ORDERS, copy):
        lake.sync(table)
        assert lake.mirror_rows(table) == lake.source_rows(table)
        check_whole(lake, table)
    assert len(lake.mirror_rows(copy)) == 4
    lake.follower().drop_mirror(ORDERS)
    shutil.rmtree(lake.mirror_folder / "shop/orders")
    check_whole(lake, copy)
    assert lake.mirror_rows(copy) == lake.source_rows(copy)
    copied.refresh().append(rows(1, 9))
    lake.sync(copy)
    assert len(lake.mirror_rows(copy)) == 5


def plan_in_stages(lake: Lake) -> None:
    """As the tasks of Airflow do it for a large change: detect here, plan in another process."""
    detected = lake.app().detect(ORDERS)
    lake.app().plan_diff(ORDERS, str(detected.plan_uri), str(detected.source_name), LocalEngine(1))


def refused(lake: Lake, says: str, subject: str) -> None:
    """The run stops with this error, in either lane; the mirror has no object more, and its head is where it was."""
    before, head = lake.mirror_objects(), lake.mirror_head()
    for run in (lake.mirror, lambda: plan_in_stages(lake)):
        with pytest.raises(PermanentError, match=says) as caught:
            run()
        assert subject in caught.value.subject
        assert lake.mirror_objects() == before
    lake.follow()
    assert lake.mirror_head() == head


@pytest.mark.parametrize("mirrored_before", [False, True])
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("{home}//x.parquet", "it holds '//'"),
        ("{home}/data//x.parquet", "it holds '//'"),
        ("{home}/data/../x.parquet", "climbs"),
        ("{home}/./x.parquet", "climbs"),
        ("{home}/data/x\n.parquet", "control character"),
        ("{home}/data/x#1.parquet", "it holds '#'"),
        ("{home}/_ready/v9.ready.json", "folder of the mirror's own"),
        ("{home}_old/data/x.parquet", "no known root"),
        ("s3://elsewhere/x.parquet", "no known root"),
    ],
)
def test_keys_that_cannot_be(lake: Lake, path: str, says: str, mirrored_before: bool) -> None:
    orders = lake.create()
    orders.append(rows(3))
    if mirrored_before:
        lake.sync()
    wrong = path.format(home=orders.location())
    added = entry(wrong, size=1, snapshot_id=77)
    commit(orders.refresh(), 77, [*manifests_of(orders), manifest_file(orders, [added], 77)])
    refused(lake, says, wrong.rsplit("/", 1)[-1].replace("\n", "\\n"))


@pytest.mark.parametrize("kind", ["tombstone", "manifest", "list", "property", "statistics"])
def test_every_path_of_the_metadata_must_lie_under_a_known_root(lake: Lake, kind: str) -> None:
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    orders.refresh()
    elsewhere = f"file://{lake.folder}/elsewhere"
    if kind == "tombstone":
        gone = entry(f"{elsewhere}/x.parquet", status=DELETED, snapshot_id=77)
        commit(orders, 77, [*manifests_of(orders), manifest_file(orders, [gone], 77)])
    elif kind == "manifest":
        (one,) = manifests_of(orders)
        data = path_of(one.manifest_path).read_bytes()
        made = manifest_file(orders, [entry(f"{orders.location()}/data/x", snapshot_id=77)], 77)
        made[0] = write(f"{elsewhere}/m.avro", data)
        commit(orders, 77, [made])
    elif kind == "property":
        with orders.transaction() as change:
            change.set_properties({"write.data.path": elsewhere})
    else:
        orders.append(rows(1, 9))
        path = path_of(orders.metadata_location)
        text = path.read_text()
        snapshot = orders.current_snapshot()
        assert snapshot is not None
        if kind == "list":
            text = text.replace(snapshot.manifest_list, f"{elsewhere}/snap.avro")
        else:
            one_more = (
                f'"statistics":[{{"snapshot-id":{snapshot.snapshot_id},"statistics-path":"{elsewhere}/s.puffin",'
                '"file-size-in-bytes":1,"file-footer-size-in-bytes":1,"blob-metadata":[]}]'
            )
            text = text.replace('"statistics":[]', one_more)
        path.write_text(text)
    refused(lake, "no known root", "elsewhere")


def test_a_location_with_a_trailing_slash(tmp_path: Path) -> None:
    """Then pyiceberg's own file names hold `//`: no object store would keep them apart."""
    lake = Lake(tmp_path)
    orders = lake.create(location=f"file://{tmp_path}/warehouse/shop/orders/")
    orders.append(rows(3))
    lake.sync()
    assert lake.mirror_rows() == lake.source_rows()
    assert look(lake).metadata["location"] == f"file://{lake.mirror_folder}/{ORDERS.folder}"


def move_table(orders: Table, location: str) -> Table:
    """What ALTER TABLE … SET LOCATION does: old files stay where they are, new ones go to the new place."""
    orders.catalog.commit_table(orders, (), (SetLocationUpdate(location=location),))
    return orders.refresh()


def written_anew(lake: Lake, before: dict[str, bytes]) -> str:
    """The table is whole under its new map, in a folder of its own, and nothing that was there has changed."""
    result = lake.sync()
    (told,) = (line for line in result.left_out if "all files are copied anew" in line)
    folder = told.rsplit(" ", 1)[-1]
    assert folder.startswith(f"file://{lake.mirror_folder}/shop/orders/_maps/")
    seen = check_whole(lake)
    assert {path for path in (*seen.files(), *seen.manifests) if not path.startswith(f"{folder}/")} == set()
    assert lake.mirror_table().location() == f"file://{lake.mirror_folder}/shop/orders"
    assert lake.mirror_rows() == lake.source_rows()
    after = lake.mirror_objects()
    assert {name: after[name] for name in before} == before
    return folder


def test_a_table_that_moved_goes_to_a_new_folder_lest_deletes_miss_their_files(tmp_path: Path) -> None:
    """Manifests in the mirror hold the old places of files; deletes written from now on would hold new ones."""
    lake = Lake(tmp_path, roots={"old": tmp_path / "warehouse/shop/orders"})
    orders = lake.create()
    orders.append(rows(5))
    lake.sync()
    before = lake.mirror_objects()
    (old,) = data_files(orders.refresh())
    move_table(orders, f"file://{tmp_path}/warehouse/shop/orders2")
    delete_positions(orders, [(old, 1)])
    folder = written_anew(lake, before)
    orders.refresh().append(rows(2, 9))
    assert lake.sync().left_out == ()
    assert lake.mirror_rows() == lake.source_rows()
    assert all(path.startswith(folder) for path in look(lake).files())


def test_a_map_that_comes_back_finds_its_folder_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    orders = lake.create()
    orders.append(rows(5))
    lake.sync()
    folders = []
    for roots in (
        {"data": tmp_path / "warehouse/shop/orders/data"},
        {},
        {"data": tmp_path / "warehouse/shop/orders/data"},
    ):
        lake = Lake(tmp_path, roots=roots)
        orders.refresh().append(rows(1, 9))
        folders.append(written_anew(lake, lake.mirror_objects()))
    assert folders[0] == folders[2] != folders[1]


def test_a_table_that_moved_without_a_root_for_its_old_place(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(5))
    lake.sync()
    move_table(orders.refresh(), f"file://{lake.warehouse}/shop/orders2")
    refused(lake, "lies under no known root", "warehouse/shop/orders/")


def test_roots_that_do_not_touch_the_table_may_come_and_go(tmp_path: Path) -> None:
    lake = Lake(tmp_path, roots={"one": tmp_path / "one"})
    orders = lake.create()
    orders.append(rows(5))
    lake.sync()
    for roots in ({"one": tmp_path / "one", "two": tmp_path / "two"}, {"two": tmp_path / "two"}, {}):
        lake = Lake(tmp_path, roots=roots)
        orders.refresh().append(rows(1, 9))
        lake.sync()
        assert lake.mirror_rows() == lake.source_rows()


def test_a_root_that_a_published_delete_file_mentions_may_come(tmp_path: Path) -> None:
    """Its header names the place, and is left as it was published; a new manifest carries the file on."""
    lake = Lake(tmp_path)
    orders = lake.create()
    orders.append(rows(5))
    out = io.BytesIO()
    table = pq.read_table(io.BytesIO(position_deletes([(data_files(orders)[0], 0)])))
    note = {**table.schema.metadata, b"origin": f"file://{tmp_path}/old/x".encode()}
    pq.write_table(table.replace_schema_metadata(note), out)
    path, manifests = write(f"{orders.location()}/data/d.parquet", out.getvalue()), manifests_of(orders)

    def commit_deletes(snapshot_id: int, status: int) -> None:
        one = entry(path, status=status, content=POSITION_DELETES, size=len(out.getvalue()), snapshot_id=70)
        commit(orders, snapshot_id, [*manifests, manifest_file(orders, [one], snapshot_id, deletes=True)])

    commit_deletes(70, ADDED)
    orders.manage_snapshots().create_tag(70, "keep").commit()
    lake.sync()
    again = Lake(tmp_path, roots={"old": tmp_path / "old"})
    orders = again.source.load_table(str(ORDERS))
    commit_deletes(71, EXISTING)
    assert again.sync().version == 2
    assert again.mirror_rows() == again.source_rows()


def test_a_recreated_table_may_live_elsewhere(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create().append(rows(5))
    lake.sync()
    lake.source.drop_table(str(ORDERS))
    lake.create(location=f"file://{tmp_path}/warehouse/elsewhere").append(rows(2))
    lake.sync()
    assert lake.mirror_rows() == lake.source_rows()


@pytest.mark.parametrize("again", ["another name", "another place"])
def test_a_root_that_was_away_and_comes_back_differently_begins_anew(tmp_path: Path, again: str) -> None:
    """A version without the root lies between; its reused manifest still holds the file where the root once put it."""
    old = tmp_path / "old/t"
    lake = Lake(tmp_path, roots={"one": old})
    orders = lake.create()
    orders.append(rows(3))
    path = f"file://{old}/f.parquet"
    add_file(orders, path)
    lake.sync()
    lake = Lake(tmp_path)
    orders.refresh().append(rows(2, 50))
    assert lake.sync().left_out == ()
    delete_positions(orders.refresh(), [(path, 1)])
    with pytest.raises(PermanentError, match="lies under no known root"):
        lake.mirror()
    lake = Lake(tmp_path, roots={"uno": old} if again == "another name" else {"one": old.parent})
    written_anew(lake, lake.mirror_objects())
    assert len(lake.mirror_rows()) == 7


def test_a_root_that_was_away_and_comes_back_as_it_was_goes_on(tmp_path: Path) -> None:
    old = tmp_path / "old/t"
    lake = Lake(tmp_path, roots={"one": old})
    orders = lake.create()
    orders.append(rows(3))
    path = f"file://{old}/f.parquet"
    add_file(orders, path)
    lake.sync()
    for start in (50, 60):
        lake = Lake(tmp_path)
        orders.refresh().append(rows(2, start))
        lake.sync()
    lake = Lake(tmp_path, roots={"one": old})
    delete_positions(orders.refresh(), [(path, 1)])
    result = lake.sync()
    assert (result.left_out, result.copied_files) == ((), 0)
    assert lake.mirror_rows() == lake.source_rows()
    check_whole(lake)
