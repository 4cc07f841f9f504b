"""What happens to a source table over its life, and what the mirror makes of it."""

from __future__ import annotations

from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.types import StringType

from lakemirror import bridge
from lakemirror.errors import PermanentError, UsageError
from lakemirror.model.layout import TableLayout
from lakemirror.model.table import TableRef
from lakemirror.storage.objects import ObstoreStore
from tests.integration.looking import check_whole, look
from tests.lake import ORDERS, Lake, path_of, rows
from tests.stores import Recorder

pytestmark = pytest.mark.integration


def head_of(table: Table) -> int:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def in_step(lake: Lake) -> None:
    assert lake.mirror_rows() == lake.source_rows()
    check_whole(lake)


@pytest.fixture
def orders(lake: Lake) -> Table:
    """A table of one commit, mirrored and followed."""
    made = lake.create()
    made.append(rows(3))
    lake.sync()
    return made.refresh()


def test_an_unchanged_table_is_one_catalog_call_and_no_object_read(
    lake: Lake, orders: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakemirror.catalogs.sql import SqlCatalog

    asked: list[tuple[str, str]] = []
    select = SqlCatalog._select

    def counted(self: SqlCatalog, op: str, subject: str, *args: Any) -> list[Any]:
        asked.append((op, repr(self)))
        return select(self, op, subject, *args)

    monkeypatch.setattr(SqlCatalog, "_select", counted)
    recorder = Recorder()
    before = lake.mirror_objects()
    result = lake.app(wrap_store=recorder.wrap).mirror(ORDERS)
    assert asked == [("read head", "SqlCatalog('onprem')")]
    assert recorder.uris("source") == []
    assert recorder.uris("mirror", "put", "delete", "copy") == []
    assert (result.lane, result.version, result.snapshot_id) == ("none", 1, head_of(orders))
    assert result.as_json()["requests"]["source"] == {
        "get": 0,
        "head": 0,
        "list": 0,
        "put": 0,
        "copy": 0,
        "delete": 0,
    }
    assert (result.copied_files, result.copied_bytes) == (0, 0)
    assert lake.mirror_objects() == before


def test_dropped_the_mirror_stays(lake: Lake, orders: Table) -> None:
    want = lake.source_rows()
    lake.source.drop_table(str(ORDERS))
    result = lake.sync()
    assert (result.lane, result.version) == ("none", 1)
    assert lake.mirror_rows() == want
    assert lake.app().status(ORDERS).as_json()["source"]["state"] == "dropped"


def test_dropped_and_recreated_is_a_new_epoch_at_the_next_version(lake: Lake, orders: Table) -> None:
    old = lake.mirror_objects(below="shop/orders/data")
    lake.source.drop_table(str(ORDERS))
    again = lake.create()
    again.append(rows(2, 50))
    assert lake.sync().version == 2
    in_step(lake)
    status = lake.app().status(ORDERS).as_json()
    assert status["epoch"] == str(again.metadata.table_uuid)
    assert status["markers"]["ready"] == [1, 2]
    assert [one["snapshot-id"] for one in look(lake).metadata["snapshots"]] == [head_of(again)]
    assert old.items() <= lake.mirror_objects(below="shop/orders/data").items()


def test_recreated_and_told_to_stop(tmp_path: Path) -> None:
    lake = Lake(tmp_path, defaults={"on_source_recreated": "stop"})
    first = lake.create()
    first.append(rows(3))
    lake.sync()
    want, before = lake.source_rows(), lake.mirror_objects()
    lake.source.drop_table(str(ORDERS))
    again = lake.create()
    again.append(rows(2, 50))
    with pytest.raises(PermanentError, match="the source table was recreated") as caught:
        lake.mirror()
    assert str(first.metadata.table_uuid) in caught.value.message
    assert str(again.metadata.table_uuid) in caught.value.message
    assert (lake.mirror_rows(), lake.mirror_objects()) == (want, before)


def test_rolled_back_the_mirror_follows_and_copies_nothing(lake: Lake, orders: Table) -> None:
    first = head_of(orders)
    orders.append(rows(3, 3))
    lake.sync()
    orders.refresh().manage_snapshots().rollback_to_snapshot(first).commit()
    result = lake.sync()
    assert (result.version, result.snapshot_id, result.copied_files) == (3, first, 0)
    in_step(lake)
    orders.refresh().append(rows(1, 90))
    assert lake.sync().version == 4
    in_step(lake)


@pytest.mark.parametrize("version", ["1", "2"])
def test_rolled_back_and_told_to_stop(tmp_path: Path, version: str) -> None:
    """Also if somebody wrote to it before the next look: what was taken back is gone all the same."""
    lake = Lake(tmp_path, defaults={"on_source_rollback": "stop"})
    orders = lake.create(properties={"format-version": version})
    orders.append(rows(3))
    first = head_of(orders)
    orders.append(rows(3, 3))
    lake.sync()
    want = lake.mirror_rows()
    orders.refresh().manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(PermanentError, match="the source was rolled back"):
        lake.mirror()
    orders.refresh().append(rows(1, 90))
    with pytest.raises(PermanentError, match="the source was rolled back"):
        lake.mirror()
    assert lake.mirror_rows() == want
    lake = Lake(tmp_path)
    lake.sync()
    in_step(lake)


def test_told_to_stop_a_table_that_is_expired_goes_on(tmp_path: Path) -> None:
    """Of the snapshot that is mirrored the source has nothing any more, nor of what came right after it."""
    lake = Lake(tmp_path, defaults={"on_source_rollback": "stop"})
    orders = lake.create()
    for start in range(0, 9, 3):
        orders.append(rows(3, start))
        lake.sync()
    for start in range(9, 15, 3):
        orders.refresh().append(rows(3, start))
    gone = [one.snapshot_id for one in orders.refresh().snapshots() if one.snapshot_id != head_of(orders)]
    orders.maintenance.expire_snapshots().by_ids(gone).commit()
    lake.sync()
    in_step(lake)


def test_schema_change_alone(lake: Lake, orders: Table) -> None:
    with orders.update_schema() as schema:
        schema.add_column("note", StringType())
    result = lake.sync()
    assert (result.version, result.lane, result.copied_files, result.rewritten.manifests) == (2, "task", 0, 0)
    in_step(lake)
    assert lake.mirror_table().schema().find_field("note").field_id == 3


def test_property_change_alone(lake: Lake, orders: Table) -> None:
    with orders.transaction() as change:
        change.set_properties({"owner": "ada"})
    assert lake.sync().version == 2
    assert lake.mirror_table().properties["owner"] == "ada"


def test_a_pin_alone_is_no_change(lake: Lake, orders: Table) -> None:
    orders.manage_snapshots().create_tag(head_of(orders), "lakemirror-pin-1").commit()
    result = lake.mirror()
    assert (result.lane, result.version) == ("none", 1)
    orders.refresh().append(rows(1, 9))
    lake.sync()
    assert set(look(lake).metadata["refs"]) == {"main"}


def test_what_was_main_when_is_told_as_on_the_source(lake: Lake, orders: Table) -> None:
    """Between two looks main was elsewhere and came back: nothing changed but the log, which AS OF a time asks."""
    first = head_of(orders)
    orders.append(rows(1, 9))
    second = head_of(orders)
    lake.sync()
    for snapshot_id in (first, second):
        orders.refresh().manage_snapshots().set_current_snapshot(snapshot_id).commit()
    assert lake.sync().version == 3
    source, mirror = (table.metadata.snapshot_log for table in (orders.refresh(), lake.mirror_table()))
    assert [entry.snapshot_id for entry in mirror] == [first, second, first, second]
    assert mirror == source
    assert lake.sync().lane == "none"


def test_renamed_is_dropped_under_the_old_name_and_new_under_the_new(tmp_path: Path) -> None:
    lake = Lake(tmp_path, tables=[{"match": "shop.*"}])
    lake.create().append(rows(3))
    lake.sync()
    new = TableRef.parse("shop.sales")
    lake.source.rename_table(str(ORDERS), str(new))
    want = lake.source_rows(new)
    assert lake.mirror().lane == "none"
    assert lake.sync(new).version == 1
    assert (lake.mirror_rows(), lake.mirror_rows(new)) == (want, want)


def test_a_target_snapshot_and_then_the_head(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    first = head_of(orders)
    orders.append(rows(3, 3))
    assert lake.sync(target_snapshot_id=first).snapshot_id == first
    assert lake.mirror_rows() == lake.source_rows(snapshot_id=first)
    check_whole(lake)
    assert lake.mirror(target_snapshot_id=first).lane == "none"
    assert lake.sync().snapshot_id == head_of(orders)
    in_step(lake)
    with pytest.raises(UsageError, match="the source has no snapshot 5"):
        lake.mirror(target_snapshot_id=5)


def test_the_source_moves_on_between_detect_and_publish(lake: Lake, orders: Table) -> None:
    """What was detected is published whole; the next run takes the rest."""
    orders.append(rows(3, 3))
    app = lake.app()
    detected = app.detect(ORDERS)
    want = lake.source_rows()
    orders.append(rows(3, 6))
    assert app.mirror(ORDERS, detected=detected).version == 2
    lake.follow()
    assert lake.mirror_rows() == want
    assert lake.sync().version == 3
    in_step(lake)


def test_snapshots_that_the_source_expired_leave_the_mirror_too(lake: Lake, orders: Table) -> None:
    first = head_of(orders)
    orders.append(rows(3, 3))
    lake.sync()
    assert {one["snapshot-id"] for one in look(lake).metadata["snapshots"]} == {first, head_of(orders)}
    orders.refresh().maintenance.expire_snapshots().by_id(first).commit()
    lake.sync()
    assert [one["snapshot-id"] for one in look(lake).metadata["snapshots"]] == [head_of(orders)]
    in_step(lake)


def test_the_old_side_is_read_from_the_mirror_because_the_source_expired_it(lake: Lake, orders: Table) -> None:
    """Manifests and lists of the last mirrored version are gone on the source; the next step works all the same."""
    old = [orders.refresh().current_snapshot()]
    gone = [path_of(one.manifest_path) for one in old[0].manifests(orders.io)] if old[0] else []
    orders.delete("id = 1")
    for path in gone:
        path.unlink()
    lake.sync()
    in_step(lake)


def test_ordinals_of_demoted_markers_are_never_used_again(lake: Lake, orders: Table) -> None:
    folder = lake.mirror_folder / "shop/orders/_ready"
    (folder / "v2.demoted.json").write_text("{}")
    orders.append(rows(3, 3))
    assert lake.sync().version == 3
    in_step(lake)


@pytest.mark.parametrize("is_foreign", [False, True], ids=["ours", "foreign"])
def test_what_the_source_shows_again_is_published_once_more(lake: Lake, orders: Table, *, is_foreign: bool) -> None:
    """v2 was seen, and is demoted; the source is back where v1 was. Readers are not led back to v1: it comes as v3."""
    first = orders.metadata_location
    orders.append(rows(3, 3))
    lake.sync()
    if is_foreign:
        with lake.mirror_catalog() as theirs:
            theirs.load_table(str(ORDERS)).append(rows(1, 99))
    with connect(lake.folder / "source.db") as database:
        database.execute("UPDATE iceberg_tables SET metadata_location = ?", [first])
    layout = TableLayout.of(f"file://{lake.mirror_folder}", ORDERS)
    bridge.demote(ObstoreStore({}), layout, 2, lambda: None)
    assert lake.app().watch_source().look([ORDERS]).hints == {ORDERS: first}
    result = lake.mirror()
    assert (result.version, result.snapshot_id, result.copied_files) == (3, head_of(orders), 0)
    assert lake.app().watch_source().look([ORDERS]).hints == {}
    again = lake.mirror()
    assert (again.version, again.lane) == (3, "none")
    assert lake.follow(overwrite_foreign=is_foreign).committed
    in_step(lake)
