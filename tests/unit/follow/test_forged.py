"""Markers, metadata and manifest lists that are not what was published: refused, whoever wrote them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.follow.follower import follow
from lakemirror.formats.iceberg import metadata_json
from lakemirror.model.marker import Marker
from lakemirror.model.table import TableRef
from lakemirror.storage.port import Blob, ObjectStore, Overwrite
from lakemirror.storage.wrappers.forward import ForwardingStore
from tests.avro_bytes import container
from tests.iceberg_files import list_entry, list_schema
from tests.lake import ORDERS, Lake, rows
from tests.unit.follow.mirrored import STORE, catalog, commit_again, layout, newest
from tests.unit.markers import written


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


@pytest.mark.parametrize("shown", [False, True])
def test_marker_of_a_newer_format_of_which_nothing_is_known(lake: Lake, shown: bool) -> None:
    """It is told what to do, and readers go on to see what they saw."""
    if shown:
        lake.follow()
        commit_again(lake)
    before = lake.mirror_head()
    document = {"format": 2, "version": {"ordinal": 2}, "parent": [1], "closure": {"sha512": "00"}, "checksum": None}
    uri = layout(lake).ready(2 if shown else 1)
    STORE.put(uri, json.dumps(document).encode(), Overwrite())
    with pytest.raises(UnsupportedError, match="it is of format 2, and this version reads format 1") as caught:
        lake.follow()
    assert (type(caught.value), caught.value.subject) == (UnsupportedError, uri)
    assert caught.value.hint == "upgrade Lakemirror on this side; until then nothing changes here"
    assert lake.mirror_head() == before


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
