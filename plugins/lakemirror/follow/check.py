"""What a follower checks before it commits a version. Nothing outside the table's own folder is read, or believed.

The marker, its metadata file and the manifest list of its head must say the same, of this very table, and name nothing
that lies elsewhere; nor may the lists of other branches and tags that readers come to see. Deeper it does not look:
what manifests name, and the lists of snapshots that nothing points at, were made by the replicator, which maps every
single path into this folder and reads back what it wrote before it publishes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from lakemirror.errors import PermanentError
from lakemirror.formats.iceberg import manifest_list, metadata_json
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import HEAD, HISTORY, Marker
from lakemirror.model.paths import canonical, is_below
from lakemirror.model.table import TableRef
from lakemirror.storage.port import ObjectNotFound, ObjectStore


def check(
    marker: Marker,
    before: Marker | None,
    layout: TableLayout,
    store: ObjectStore,
    table: TableRef,
    shown: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The marker is of this table, stays in its folder, and its metadata file is there, unaltered and fits it.

    `before` is the marker that it names as its parent, `shown` the metadata that readers see until now. The metadata is
    given back.
    """
    _check_kind(marker, before, layout)
    if marker.table != str(table):
        raise PermanentError(
            "follow", layout.ready(marker.version), f"it is of table {marker.table}", "it was moved here"
        )
    if not is_below(marker.metadata_uri, layout.root):
        raise PermanentError(
            "follow", layout.ready(marker.version), f"{marker.metadata_uri} lies outside {layout.root}", "it was forged"
        )
    try:
        data = read_metadata(store, marker.metadata_uri)
    except ObjectNotFound as err:
        told = "the marker's metadata file is not in the bucket"
        raise PermanentError("follow", marker.metadata_uri, told, f"put it back; {_written_anew(table)}") from err
    if hashlib.sha256(data).hexdigest() != marker.metadata_sha256:
        hint = f"it was altered: put it back as it was; {_written_anew(table)}"
        raise PermanentError("follow", marker.metadata_uri, "its hash is not the marker's", hint)
    metadata = metadata_json.parse(data, marker.metadata_uri)
    want = (marker.epoch, marker.snapshot_id, str(marker.version))
    claimed = (metadata.get("properties") or {}).get(metadata_json.VERSION_PROPERTY)
    got = (metadata.get("table-uuid"), metadata_json.current_snapshot_id(metadata), claimed)
    if got != want:
        raise PermanentError(
            "follow",
            marker.metadata_uri,
            f"uuid, snapshot or version are not the marker's (want {want}, got {got})",
            "one of them was altered",
        )
    for path in metadata_json.paths(metadata):
        if canonical(path).rstrip("/") != canonical(layout.root) and not is_below(path, layout.root):
            raise PermanentError("follow", marker.metadata_uri, f"{path} lies outside {layout.root}", "it was forged")
    head = None if marker.snapshot_id is None else metadata_json.snapshots(metadata).get(marker.snapshot_id)
    list_uri = None if head is None else head.get("manifest-list")
    if list_uri != marker.manifest_list_uri:
        raise PermanentError(
            "follow",
            marker.metadata_uri,
            f"its manifest list is not the marker's (want {marker.manifest_list_uri}, got {list_uri})",
            "one of them was altered",
        )
    if list_uri is not None:
        _check_list(marker, list_uri, layout, store)
    for uri in _lists_of_other_refs(metadata, shown or {}):
        _manifests_of(uri, layout, store)
    return metadata


def _lists_of_other_refs(metadata: dict[str, Any], shown: Mapping[str, Any]) -> list[str]:
    """Of branches and tags but the head, that readers do not see yet."""
    others = _pointed_at(metadata) - _pointed_at(shown) - {metadata_json.current_snapshot_id(metadata)}
    found = (one for number, one in metadata_json.snapshots(metadata).items() if number in others)
    return [one["manifest-list"] for one in found if one.get("manifest-list") is not None]


def _pointed_at(metadata: Mapping[str, Any]) -> set[int | None]:
    return {ref.get("snapshot-id") for ref in (metadata.get("refs") or {}).values()}


def _written_anew(table: TableRef) -> str:
    return f"if it is lost, `drop-mirror {table} --yes --overwrite-foreign`, then sync"


def _check_list(marker: Marker, uri: str, layout: TableLayout, store: ObjectStore) -> None:
    """The manifests of the head are as many as the marker says."""
    count = len(_manifests_of(uri, layout, store))
    if count != marker.manifest_count:
        told = f"it does not name the marker's manifests (want {marker.manifest_count}, got {count})"
        raise PermanentError("follow", uri, told, "one of them was altered")


def _manifests_of(uri: str, layout: TableLayout, store: ObjectStore) -> set[str]:
    """What a list names, all of it in the table's folder; one request."""
    try:
        manifests = manifest_list.read(store.get(uri, max_bytes=manifest_list.MAX_BYTES).data, uri)
    except ObjectNotFound as err:
        told = "this manifest list is not in the bucket"
        raise PermanentError("follow", uri, told, "mirror the table again") from err
    except PermanentError as err:
        raise PermanentError("follow", uri, err.message, "it was altered") from err
    for one in manifests:
        if not is_below(one.path, layout.root):
            raise PermanentError("follow", uri, f"{one.path} lies outside {layout.root}", "it was forged")
    return {one.path for one in manifests}


def read_metadata(store: ObjectStore, uri: str) -> bytes:
    return store.get(uri, max_bytes=metadata_json.MAX_METADATA_BYTES).data


def _check_kind(marker: Marker, before: Marker | None, layout: TableLayout) -> None:
    uri = layout.ready(marker.version)
    if marker.kind not in (HEAD, HISTORY):
        raise PermanentError(
            "follow",
            uri,
            f"it is of kind {marker.kind}, and this version knows {HEAD} and {HISTORY}",
            "upgrade Lakemirror on this side; until then nothing changes here",
        )
    if marker.kind == HISTORY and (before is None or _main_of(before) != _main_of(marker)):
        raise PermanentError(
            "follow",
            uri,
            f"it fills the past, but moves main (want {None if before is None else _main_of(before)}, "
            f"got {_main_of(marker)})",
            "it was altered, or its writer is broken",
        )


def _main_of(marker: Marker) -> tuple[str, int | None]:
    return marker.epoch, marker.snapshot_id
