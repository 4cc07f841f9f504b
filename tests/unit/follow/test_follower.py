"""The follower: newest ready version by compare-and-set, nothing forged, nothing foreign, one commit for all."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lakemirror import bridge
from lakemirror.catalogs.ports import MirrorHead
from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.errors import LostRaceError, PermanentError, TransientError
from lakemirror.follow.follower import follow
from lakemirror.formats.iceberg import metadata_json
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import Marker
from lakemirror.model.table import TableRef
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import Blob, ObjectInfo, ObjectStore, Overwrite
from lakemirror.storage.wrappers.forward import ForwardingStore
from tests.avro_bytes import container
from tests.iceberg_files import list_entry, list_schema
from tests.lake import ORDERS, SCHEMA, Lake, rows
from tests.unit.markers import written


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A source of one commit, mirrored as v1, not followed yet."""
    lake = Lake(tmp_path)
    lake.create().append(rows(3))
    lake.mirror()
    return lake


STORE = ObstoreStore({})


def layout(lake: Lake) -> TableLayout:
    return TableLayout.of(f"file://{lake.mirror_folder}", ORDERS)


def catalog(lake: Lake) -> SqlCatalog:
    uri = f"sqlite:///{lake.folder}/mirror.db"
    return SqlCatalog("cloud", {"uri": uri, "warehouse": f"file://{lake.mirror_folder}"}, may_be_new=True)


def newest(lake: Lake) -> Marker:
    version = bridge.published(STORE, layout(lake)).newest
    assert version is not None
    return bridge.read_ready(STORE, layout(lake), version)


def commit_again(lake: Lake) -> None:
    lake.source.load_table(str(ORDERS)).append(rows(1, 10))
    lake.mirror()


def test_nothing_ready_is_nothing_to_do_and_makes_no_catalog(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    result = lake.follow()
    assert (result.version, result.snapshot_id, result.committed) == (None, None, False)
    assert not (tmp_path / "mirror.db").exists()


def test_registers_first_then_rests_then_swaps(lake: Lake) -> None:
    first = lake.follow()
    assert (first.version, first.snapshot_id, first.committed) == (1, newest(lake).snapshot_id, True)
    assert lake.mirror_rows() == lake.source_rows()
    again = lake.follow()
    assert (again.version, again.committed) == (1, False)
    commit_again(lake)
    assert (lake.follow().version, lake.mirror_rows()) == (2, lake.source_rows())


class Watched(SqlCatalog):
    """A mirror catalog that remembers what it was made to point at."""

    def __init__(self, lake: Lake) -> None:
        super().__init__("cloud", {"uri": f"sqlite:///{lake.folder}/mirror.db"}, may_be_new=True)
        self.commits: list[str] = []

    def register(self, table: TableRef, metadata_uri: str) -> None:
        self.commits.append(metadata_uri)
        super().register(table, metadata_uri)

    def swap(self, table: TableRef, expected: str, metadata_uri: str) -> None:
        self.commits.append(metadata_uri)
        super().swap(table, expected, metadata_uri)


def test_of_several_ready_markers_only_the_newest_is_applied(lake: Lake) -> None:
    commit_again(lake)
    commit_again(lake)
    watched = Watched(lake)
    assert follow(ORDERS, layout(lake), watched, STORE).committed
    assert watched.commits == [newest(lake).metadata_uri]
    assert lake.mirror_table().metadata.properties["lakemirror.version"] == "3"


def test_what_is_registered_has_the_sources_ids(lake: Lake) -> None:
    """A table that is created anew would get fresh field ids; a registered one keeps them."""
    lake.follow()
    source, mirror = lake.source.load_table(str(ORDERS)).metadata, lake.mirror_table().metadata
    assert lake.mirror_table().last_sequence_number == lake.source.load_table(str(ORDERS)).last_sequence_number
    assert (mirror.schemas, mirror.partition_specs, mirror.sort_orders, mirror.table_uuid) == (
        source.schemas,
        source.partition_specs,
        source.sort_orders,
        source.table_uuid,
    )
    assert mirror.last_column_id == source.last_column_id


def forge(lake: Lake, **changes: Any) -> None:
    """Replace the ready marker of v1 by one with these fields and a hash that fits."""
    forged = dataclasses.replace(newest(lake), **changes)
    STORE.put(layout(lake).ready(1), written(forged, "eve"), Overwrite())


def refused(lake: Lake, says: str) -> None:
    with pytest.raises(PermanentError, match=says):
        lake.follow()
    assert lake.mirror_head() is None


def test_marker_that_points_outside_the_folder(lake: Lake, tmp_path: Path) -> None:
    outside = tmp_path / "outside.metadata.json"
    outside.write_bytes(STORE.get(newest(lake).metadata_uri).data)
    forge(lake, metadata_uri=f"file://{outside}")
    refused(lake, "lies outside")
    forge_uri = f"{layout(lake).root}/metadata/../../../../outside.metadata.json"
    STORE.put(
        layout(lake).ready(1), written(dataclasses.replace(_unchecked(lake), metadata_uri=forge_uri)), Overwrite()
    )
    refused(lake, "lies outside")


def _unchecked(lake: Lake) -> Marker:
    uri = layout(lake).ready(1)
    return Marker.from_bytes(STORE.get(uri).data, uri)


def test_marker_with_an_altered_hash(lake: Lake) -> None:
    uri = layout(lake).ready(1)
    STORE.put(uri, STORE.get(uri).data.replace(b'"files": 1', b'"files": 2'), Overwrite())
    refused(lake, "its hash does not fit")


def test_marker_of_another_table(lake: Lake) -> None:
    forge(lake, table="shop.customers")
    refused(lake, "it is of table shop.customers")


def test_marker_moved_here_from_another_tables_folder(lake: Lake) -> None:
    other = TableRef.parse("shop.customers")
    lake_two = lake.create(other)
    lake_two.append(rows(1))
    lake.config_path.write_text(lake.config_path.read_text().replace("- name: shop.orders", "- match: 'shop.*'"))
    lake.mirror(other)
    moved = STORE.get(layout(lake).ready(1).replace("orders", "customers")).data
    STORE.put(layout(lake).ready(2), moved.replace(b'"v1"', b'"v2"'), Overwrite())
    with pytest.raises(PermanentError):
        lake.follow()
    assert lake.mirror_head() is None


def test_marker_of_a_newer_format(lake: Lake) -> None:
    uri = layout(lake).ready(1)
    document = {**json.loads(STORE.get(uri).data), "format": 2}
    STORE.put(uri, json.dumps(document).encode(), Overwrite())
    refused(lake, "format 2")


def test_marker_of_another_kind_does_not_move_main(lake: Lake) -> None:
    forge(lake, kind="backfill")
    refused(lake, "kind backfill, and this version knows head and history; upgrade Lakemirror on this side")


def test_metadata_with_another_manifest_list_than_the_marker(lake: Lake) -> None:
    forge(lake, manifest_list_uri=f"{layout(lake).root}/metadata/other.avro")
    refused(lake, "its manifest list is not the marker's")


def forge_second(lake: Lake, **changes: Any) -> None:
    """Alter v2, which names v1 as its parent, and make its hash fit."""
    forged = dataclasses.replace(newest(lake), **changes)
    STORE.put(layout(lake).ready(2), written(forged, "eve"), Overwrite())


@pytest.mark.parametrize("shown", [False, True])
def test_a_marker_that_does_not_follow_from_what_is_shown(lake: Lake, shown: bool) -> None:
    if shown:
        lake.follow()
    before = lake.mirror_head()
    commit_again(lake)
    forge_second(lake, parent_checksum="sha256:00")
    with pytest.raises(PermanentError, match="the chain of markers is broken: its parent is not v1"):
        lake.follow()
    assert lake.mirror_head() == before


def test_history_fills_the_past_and_never_moves_main(lake: Lake) -> None:
    """A marker of that kind that leads where its parent does is taken, and no other."""
    lake.follow()
    before = lake.mirror_head()
    first = newest(lake)
    commit_again(lake)
    forge_second(lake, kind="history")
    with pytest.raises(PermanentError, match="it fills the past, but moves main"):
        lake.follow()
    assert lake.mirror_head() == before
    document = json.loads(STORE.get(first.metadata_uri).data)
    document["properties"]["lakemirror.version"] = "2"
    data = json.dumps(document).encode()
    uri = layout(lake).metadata("00002-filled.metadata.json")
    STORE.put(uri, data)
    filled = dataclasses.replace(
        first,
        version=2,
        kind="history",
        parent=1,
        parent_checksum=first.checksum,
        metadata_uri=uri,
        metadata_sha256=hashlib.sha256(data).hexdigest(),
    )
    STORE.put(layout(lake).ready(2), written(filled), Overwrite())
    assert (lake.follow().version, lake.follow().committed) == (2, False)
    assert len(lake.mirror_rows()) == 3


def test_a_head_that_was_demoted_too_late_is_still_ours(lake: Lake) -> None:
    """A follower may commit what is demoted at that moment; the mirror goes on from there."""
    lake.follow()
    bridge.demote(STORE, layout(lake), 1, lambda: None)
    assert (lake.follow().version, lake.follow().committed) == (1, False)
    commit_again(lake)
    marker = newest(lake)
    assert (marker.version, marker.parent) == (2, None)
    assert (lake.follow().version, lake.mirror_rows()) == (2, lake.source_rows())


class Demoting(SqlCatalog):
    """Whoever demotes has looked at the catalog before; a commit comes, and it dies before it looks again."""

    def __init__(self, lake: Lake, *, is_restored: bool = False) -> None:
        super().__init__("cloud", {"uri": f"sqlite:///{lake.folder}/mirror.db"}, may_be_new=True)
        self._layout, self._is_restored = layout(lake), is_restored

    def register(self, table: TableRef, metadata_uri: str) -> None:
        bridge.demote(STORE, self._layout, 1, lambda: None)
        super().register(table, metadata_uri)
        if self._is_restored:
            bridge.restore(STORE, self._layout, 1)


def test_a_version_that_is_demoted_while_it_is_committed_is_told(lake: Lake) -> None:
    outcome = follow(ORDERS, layout(lake), Demoting(lake), STORE)
    assert (outcome.committed, outcome.is_demoted) == (True, True)
    [warning] = outcome.warnings
    assert warning.startswith("demoted head: readers see v1, which was demoted")
    again = lake.follow()
    assert (again.committed, again.warnings) == (False, (warning,))
    status = lake.app().status(ORDERS)
    assert (status.is_head_demoted, status.is_behind, status.warnings) == (True, True, (warning,))
    bridge.restore(STORE, layout(lake), 1)
    assert (lake.follow().warnings, lake.app().status(ORDERS).warnings) == ((), ())
    assert not lake.app().status(ORDERS).is_behind


def test_a_version_that_is_restored_by_then_is_not_told(lake: Lake) -> None:
    outcome = follow(ORDERS, layout(lake), Demoting(lake, is_restored=True), STORE)
    assert (outcome.committed, outcome.is_demoted, outcome.warnings) == (True, False, ())


def test_a_late_marker_beside_a_demoted_head_makes_it_no_foreign_one(lake: Lake) -> None:
    """A run that had planned the same ordinal left its own ready marker there; it never counted."""
    lake.follow()
    was = newest(lake)
    bridge.demote(STORE, layout(lake), 1, lambda: None)
    late = layout(lake).metadata("00001-late.metadata.json")
    STORE.put(late, STORE.get(was.metadata_uri).data)
    STORE.put(layout(lake).ready(1), written(dataclasses.replace(was, metadata_uri=late)))
    assert (lake.follow().version, lake.follow().committed) == (1, False)
    commit_again(lake)
    assert (lake.follow().version, lake.mirror_rows()) == (2, lake.source_rows())


@pytest.mark.parametrize("shown", [None, 1])
def test_a_marker_that_came_late_is_not_committed(lake: Lake, shown: int | None) -> None:
    """Listed before it was demoted, read after a late run had put its own in its place."""
    if shown is not None:
        lake.follow()
        commit_again(lake)
    was = newest(lake)
    late = layout(lake).metadata("0000x-late.metadata.json")
    STORE.put(late, STORE.get(was.metadata_uri).data)

    class Slept(ForwardingStore):
        has_slept = False

        def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
            found = [*super().list(prefix_uri)]
            if not self.has_slept:
                self.has_slept = True
                bridge.demote(STORE, layout(lake), was.version, lambda: shown)
                STORE.put(layout(lake).ready(was.version), written(dataclasses.replace(was, metadata_uri=late)))
            return iter(found)

    head = lake.mirror_head()
    told = "v1 was dropped or demoted since" if shown is None else "never counted"
    with pytest.raises(LostRaceError, match=told):
        follow(ORDERS, layout(lake), catalog(lake), Slept(STORE))
    assert lake.mirror_head() == head


def test_metadata_that_is_gone_or_altered(lake: Lake) -> None:
    uri = newest(lake).metadata_uri
    data = STORE.get(uri).data
    STORE.put(uri, data.replace(b"Bern", b"Chur") + b" ", Overwrite())
    refused(lake, "its hash is not the marker's")
    STORE.delete([uri])
    refused(lake, "the marker's metadata file is not in the bucket")


def forge_metadata(lake: Lake, change: Callable[[dict[str, Any]], object]) -> None:
    """Alter the metadata of v1, and make its marker fit."""
    marker = newest(lake)
    document = json.loads(STORE.get(marker.metadata_uri).data)
    change(document)
    data = json.dumps(document).encode()
    STORE.put(marker.metadata_uri, data, Overwrite())
    forge(lake, metadata_sha256=hashlib.sha256(data).hexdigest())


def statistics(document: dict[str, Any], path: str) -> list[dict[str, Any]]:
    sizes = {"file-size-in-bytes": 1, "file-footer-size-in-bytes": 1, "blob-metadata": []}
    return [{"snapshot-id": document["current-snapshot-id"], "statistics-path": path, **sizes}]


# What metadata can name, each made to name the path that it is given.
NAMING: dict[str, Callable[..., object]] = {
    "location": lambda document, path: document.update({"location": path}),
    "manifest list": lambda document, path: document["snapshots"][0].update({"manifest-list": path}),
    "manifests": lambda document, path: document["snapshots"][0].update({"manifests": [path]}),
    "statistics": lambda document, path: document.update({"statistics": statistics(document, path)}),
    "partition statistics": lambda document, path: document.update(
        {"partition-statistics": statistics(document, path)}
    ),
    "metadata log": lambda document, path: document.update(
        {"metadata-log": [{"timestamp-ms": 1, "metadata-file": path}]}
    ),
    **{
        key: lambda document, path, key=key: document["properties"].update({key: path})  # type: ignore[misc]
        for key in metadata_json.PATH_PROPERTIES
    },
}
OUTSIDE = ["file://{source}/shop/orders/x", "{root}_old/x", "{root}/../other/x", "s3://elsewhere/x", "/etc/x"]


@pytest.mark.parametrize("what", NAMING)
def test_metadata_whose_paths_lead_outside(lake: Lake, what: str) -> None:
    for path in OUTSIDE:
        place = path.format(source=lake.warehouse, root=layout(lake).root)
        forge_metadata(lake, partial(NAMING[what], path=place))
        refused(lake, f"{re.escape(place)} lies outside")


def test_a_property_that_climbs_out(lake: Lake) -> None:
    for place in ("../other", "data/../../other"):
        forge_metadata(lake, partial(NAMING["write.data.path"], path=place))
        refused(lake, "lies outside")


def test_a_property_that_names_a_place_relative_to_the_table(lake: Lake) -> None:
    with lake.source.load_table(str(ORDERS)).transaction() as changing:
        changing.set_properties({"write.data.path": "data"})
    lake.mirror()
    assert lake.follow().version == 2


def replace_list(lake: Lake, *paths: str) -> None:
    """The manifest list of the head, made by somebody else."""
    uri = newest(lake).manifest_list_uri
    assert uri is not None
    STORE.put(uri, container(list_schema(), [[list_entry(path, 100) for path in paths]]), Overwrite())


def test_a_manifest_list_that_leads_outside(lake: Lake) -> None:
    for path in OUTSIDE:
        place = path.format(source=lake.warehouse, root=layout(lake).root)
        replace_list(lake, f"{layout(lake).root}/metadata/m.avro", place)
        refused(lake, f"{re.escape(place)} lies outside")


def test_the_list_of_a_tag_that_leads_outside(lake: Lake) -> None:
    """A tag on what was main, published with a newer main: readers come to see both."""
    old = newest(lake).manifest_list_uri
    table = lake.source.load_table(str(ORDERS))
    table.manage_snapshots().create_tag(int(table.metadata.current_snapshot_id or 0), "kept").commit()
    commit_again(lake)
    assert old is not None
    assert newest(lake).manifest_list_uri != old
    whole, forged = STORE.get(old).data, [f"{layout(lake).root}/metadata/m.avro", "s3://elsewhere/x"]
    STORE.put(old, container(list_schema(), [[list_entry(path, 100) for path in forged]]), Overwrite())
    refused(lake, "s3://elsewhere/x lies outside")
    STORE.delete([old])
    refused(lake, "this manifest list is not in the bucket")
    STORE.put(old, whole)
    counted = Counted(STORE)
    assert follow(ORDERS, layout(lake), catalog(lake), counted).committed
    commit_again(lake)
    counted.read.clear()
    assert follow(ORDERS, layout(lake), catalog(lake), counted).committed
    assert [uri for uri in counted.read if "snap-" in uri] == [newest(lake).manifest_list_uri], (
        "the tag was seen before"
    )


def test_a_manifest_list_that_is_not_the_published_one(lake: Lake) -> None:
    inside = [f"{layout(lake).root}/metadata/m{number}.avro" for number in range(2)]
    replace_list(lake, *inside)
    refused(lake, r"it does not name the marker's manifests \(want 1, got 2\)")
    replace_list(lake)
    refused(lake, r"\(want 1, got 0\)")
    uri = newest(lake).manifest_list_uri
    assert uri is not None
    STORE.put(uri, b"Obj\x01", Overwrite())
    refused(lake, "it was altered")
    STORE.delete([uri])
    refused(lake, "this manifest list is not in the bucket")


def test_the_manifest_list_costs_one_request_and_only_before_a_commit(lake: Lake) -> None:
    counted = Counted(STORE)
    follow(ORDERS, layout(lake), catalog(lake), counted)
    assert [uri for uri in counted.read if "snap-" in uri] == [newest(lake).manifest_list_uri]
    counted.read.clear()
    follow(ORDERS, layout(lake), catalog(lake), counted)
    assert not any("snap-" in uri for uri in counted.read)


class Counted(ForwardingStore):
    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.read: list[str] = []

    def get(self, uri: str, **options: Any) -> Blob:
        self.read.append(uri)
        return super().get(uri, **options)


def write_to_mirror(lake: Lake) -> None:
    with lake.mirror_catalog() as theirs:
        theirs.load_table(str(ORDERS)).append(rows(1, 99))


def test_foreign_commit_stops_until_an_operator_decides(lake: Lake) -> None:
    lake.follow()
    write_to_mirror(lake)
    foreign = lake.mirror_head()
    for _ in range(2):
        with pytest.raises(PermanentError, match="foreign commit") as caught:
            lake.follow()
        assert str(foreign) in caught.value.message
        assert "other place (want " in caught.value.message
        assert "current snapshot (want " in caught.value.message
    assert lake.mirror_head() == foreign
    commit_again(lake)
    with pytest.raises(PermanentError, match="foreign commit"):
        lake.follow()


@pytest.mark.parametrize("way", ["adopt", "overwrite_foreign"])
def test_foreign_commit_is_taken_over_or_replaced_on_demand(lake: Lake, way: str) -> None:
    lake.follow()
    write_to_mirror(lake)
    result = lake.follow(ORDERS, **{way: True})
    assert (result.version, result.committed) == (1, True)
    assert lake.mirror_rows() == lake.source_rows()


@pytest.mark.parametrize("way", ["adopt", "overwrite_foreign"])
def test_a_way_out_does_not_lead_back_to_an_older_version(lake: Lake, way: str) -> None:
    """It slept since it listed the markers: another follower showed v2, and somebody wrote on top of that."""

    class Slept(ForwardingStore):
        def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
            found = [*super().list(prefix_uri)]
            commit_again(lake)
            lake.follow()
            with lake.mirror_catalog() as theirs:
                theirs.load_table(str(ORDERS)).append(rows(1, 99))
            return iter(found)

    with pytest.raises(LostRaceError, match="was made from v2, and this run knows none after v1"):
        follow(ORDERS, layout(lake), catalog(lake), Slept(STORE), **{way: True})
    bridge.demote(STORE, layout(lake), 2, lambda: None)
    with pytest.raises(LostRaceError, match="was made from v2, and this run knows none after v1") as told:
        follow(ORDERS, layout(lake), catalog(lake), STORE, **{way: True})
    assert f"after the next `mirror {ORDERS}`" in told.value.hint
    bridge.restore(STORE, layout(lake), 2)
    assert follow(ORDERS, layout(lake), catalog(lake), STORE, **{way: True}).committed
    assert lake.mirror_rows() == lake.source_rows()


def test_a_table_of_another_uuid_is_never_adopted_but_may_be_replaced(lake: Lake) -> None:
    with lake.mirror_catalog() as theirs:
        theirs.create_namespace("shop")
        theirs.create_table(str(ORDERS), SCHEMA)
    foreign = lake.mirror_head()
    for options in ({}, {"adopt": True}):
        with pytest.raises(PermanentError, match=r"foreign commit|cannot adopt"):
            lake.follow(ORDERS, **options)
        assert lake.mirror_head() == foreign
    assert lake.follow(overwrite_foreign=True).committed
    assert lake.mirror_rows() == lake.source_rows()


def test_foreign_table_without_any_marker_is_left_alone(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.mirror_catalog() as theirs:
        theirs.create_namespace("shop")
        theirs.create_table(str(ORDERS), SCHEMA)
    foreign = lake.mirror_head()
    for options in ({}, {"adopt": True}, {"overwrite_foreign": True}):
        with pytest.raises(PermanentError, match="foreign commit"):
            lake.follow(ORDERS, **options)
    assert lake.mirror_head() == foreign


def damage(place: str | None, how: str) -> None:
    assert place is not None
    path = Path(place.removeprefix("file://"))
    if how == "gone":
        path.unlink()
    else:
        path.write_text(how)


@pytest.mark.parametrize("how", ["gone", "{}", "no JSON", '{"format-version": 2, "snapshots": 7}'])
@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_a_head_whose_file_cannot_be_read_is_foreign(lake: Lake, whose: str, how: str) -> None:
    lake.follow()
    if whose == "theirs":
        write_to_mirror(lake)
    damage(lake.mirror_head(), how)
    commit_again(lake)
    with pytest.raises(PermanentError, match=r"foreign commit.*; other file \(") as met:
        lake.follow()
    assert "drop-mirror shop.orders --yes --overwrite-foreign" in met.value.hint
    with pytest.raises(PermanentError, match="cannot adopt"):
        lake.follow(ORDERS, adopt=True)
    status = lake.app().status(ORDERS)
    assert (status.mirror_state, status.mirror_version, status.is_behind) == ("foreign", None, True)
    assert status.warnings[0].startswith("foreign commit: ")
    result = lake.follow(ORDERS, overwrite_foreign=True)
    assert (result.version, result.committed) == (2, True)
    assert lake.mirror_rows() == lake.source_rows()


@pytest.mark.parametrize("how", ["gone", "{}"])
def test_the_newest_version_whose_file_is_lost_comes_back_by_dropping_it(lake: Lake, how: str) -> None:
    """There is nothing to go over it with: the way out is a version that is written anew."""
    lake.follow()
    damage(lake.mirror_head(), how)
    with pytest.raises(PermanentError, match="foreign commit"):
        lake.follow()
    with pytest.raises(PermanentError, match=r"is not in the bucket|its hash is not the marker's") as met:
        lake.follow(ORDERS, overwrite_foreign=True)
    assert "drop-mirror shop.orders --yes --overwrite-foreign" in met.value.hint
    with pytest.raises(PermanentError, match="was not published by Lakemirror"):
        lake.app().drop_mirror(ORDERS)
    lake.app().drop_mirror(ORDERS, overwrite_foreign=True)
    assert lake.sync().version == 2
    assert lake.mirror_rows() == lake.source_rows()


def test_a_head_that_cannot_be_read_is_not_replaced_by_an_older_version(lake: Lake) -> None:
    """It slept since it listed the markers; what the head was made from nobody can tell."""
    lake.follow()

    class Slept(ForwardingStore):
        lists = 0

        def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
            found = [*super().list(prefix_uri)]
            if not self.lists:
                commit_again(lake)
                lake.follow()
                damage(lake.mirror_head(), "gone")
            self.lists += 1
            return iter(found)

    with pytest.raises(LostRaceError, match="v2 was published since this run has listed them"):
        follow(ORDERS, layout(lake), catalog(lake), Slept(STORE), overwrite_foreign=True)


def test_a_head_whose_marker_is_damaged_is_foreign(lake: Lake) -> None:
    lake.follow()
    write_to_mirror(lake)
    commit_again(lake)
    ready = Path(layout(lake).ready(1).removeprefix("file://"))
    kept = ready.read_bytes()
    ready.write_bytes(kept.replace(b'"checksum": "', b'"checksum": "0'))
    with pytest.raises(PermanentError, match=r"foreign commit.*; other marker \(of v1: its hash does not fit"):
        lake.follow()
    assert lake.app().status(ORDERS).mirror_state == "foreign"
    with pytest.raises(PermanentError, match="its hash does not fit"):  # no chain leads to v2 any more
        lake.follow(ORDERS, overwrite_foreign=True)
    lake.app().drop_mirror(ORDERS, overwrite_foreign=True)
    assert lake.sync().version == 3
    assert lake.mirror_rows() == lake.source_rows()


def test_a_marker_of_a_newer_format_is_not_called_foreign(lake: Lake) -> None:
    lake.follow()
    commit_again(lake)
    ready = Path(layout(lake).ready(1).removeprefix("file://"))
    ready.write_bytes(ready.read_bytes().replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(PermanentError, match="it is of format 2"):
        lake.app().drop_mirror(ORDERS, overwrite_foreign=True)


def test_ten_followers_of_one_marker_make_one_commit(lake: Lake) -> None:
    lake.follow()
    commit_again(lake)
    start = threading.Barrier(10)

    def run(_: int) -> str:
        start.wait(20)
        try:
            return "committed" if lake.follow().committed else "nothing"
        except (LostRaceError, TransientError):
            return "lost"

    with ThreadPoolExecutor(10) as pool:
        outcomes = list(pool.map(run, range(10)))
    assert outcomes.count("committed") == 1
    assert lake.mirror_rows() == lake.source_rows()


class Meddling(SqlCatalog):
    """A catalog in which something else happens right before, or instead of, our swap."""

    def __init__(self, lake: Lake, instead: str | None, *, swallow: bool = False) -> None:
        super().__init__("cloud", {"uri": f"sqlite:///{lake.folder}/mirror.db"}, may_be_new=True)
        self._instead, self._swallow = instead, swallow

    def swap(self, table: TableRef, expected: str, metadata_uri: str) -> None:
        if self._instead is not None:
            super().swap(table, expected, self._instead)
        if not self._swallow:
            super().swap(table, expected, metadata_uri)


def test_head_that_moved_meanwhile_is_a_lost_race(lake: Lake) -> None:
    lake.follow()
    commit_again(lake)
    elsewhere = f"{layout(lake).root}/metadata/elsewhere.json"
    with pytest.raises(LostRaceError, match="head moved"):
        follow(ORDERS, layout(lake), Meddling(lake, elsewhere), STORE)
    assert catalog(lake).head(ORDERS) == elsewhere


def test_a_commit_that_did_not_happen_is_not_believed(lake: Lake) -> None:
    lake.follow()
    commit_again(lake)
    with pytest.raises(PermanentError, match="took the commit but shows the head that it had, file:"):
        follow(ORDERS, layout(lake), Meddling(lake, None, swallow=True), STORE)


def test_a_mirror_that_is_dropped_right_after_the_commit_is_a_lost_race(lake: Lake) -> None:
    """`drop-mirror` comes between the commit and the look at what became of it."""

    class Dropped(SqlCatalog):
        def register(self, table: TableRef, metadata_uri: str) -> None:
            super().register(table, metadata_uri)
            lake.follower().drop_mirror(table)

    mirror = Dropped("cloud", {"uri": f"sqlite:///{lake.folder}/mirror.db"}, may_be_new=True)
    with pytest.raises(LostRaceError, match="the mirror was dropped meanwhile"):
        follow(ORDERS, layout(lake), mirror, STORE)
    assert catalog(lake).load(ORDERS) is None


def test_a_drop_that_comes_late_and_takes_the_next_version_away(lake: Lake) -> None:
    """Where drops compare nothing, and clocks differ by more than is allowed: the next run registers it again."""
    lake.follow()
    lake.follower().drop_mirror(ORDERS)
    lake.mirror()

    class Late(SqlCatalog):
        def register(self, table: TableRef, metadata_uri: str) -> None:
            super().register(table, metadata_uri)
            self.drop(table, MirrorHead(metadata_uri))

    mirror = Late("cloud", {"uri": f"sqlite:///{lake.folder}/mirror.db"}, may_be_new=True)
    with pytest.raises(LostRaceError, match="the drop before it came late"):
        follow(ORDERS, layout(lake), mirror, STORE)
    assert lake.follow().version == 2


class Overtaken(SqlCatalog):
    """Right after our commit somebody puts this file in its place."""

    def __init__(self, lake: Lake, then: str) -> None:
        super().__init__("cloud", {"uri": f"sqlite:///{lake.folder}/mirror.db"}, may_be_new=True)
        self._then = then

    def swap(self, table: TableRef, expected: str, metadata_uri: str) -> None:
        super().swap(table, expected, metadata_uri)
        super().swap(table, metadata_uri, self._then)


def test_an_older_version_of_ours_after_the_commit_is_a_lost_race(lake: Lake) -> None:
    lake.follow()
    commit_again(lake)
    second = newest(lake).metadata_uri
    commit_again(lake)
    with pytest.raises(LostRaceError, match="after the commit the catalog shows file:"):
        follow(ORDERS, layout(lake), Overtaken(lake, second), STORE)
    assert lake.follow().version == 3
