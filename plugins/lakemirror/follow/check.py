"""What a follower checks before it commits a version. Nothing outside the table's own folder is read, or believed.

The marker and its metadata file must say the same, of this very table, and name nothing that lies elsewhere.
"""

from __future__ import annotations

import hashlib
from typing import Any

from lakemirror.errors import PermanentError
from lakemirror.formats.iceberg import metadata_json
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import HEAD, HISTORY, Marker
from lakemirror.model.paths import canonical, is_below
from lakemirror.model.table import TableRef
from lakemirror.storage.port import ObjectNotFound, ObjectStore


def check(
    marker: Marker, before: Marker | None, layout: TableLayout, store: ObjectStore, table: TableRef
) -> dict[str, Any]:
    """The marker is of this table, stays in its folder, and its metadata file is there, unaltered and fits it.

    `before` is the marker that it names as its parent. The metadata is given back.
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
        raise PermanentError(
            "follow", marker.metadata_uri, "the marker's metadata file is not in the bucket", "mirror the table again"
        ) from err
    if hashlib.sha256(data).hexdigest() != marker.metadata_sha256:
        raise PermanentError("follow", marker.metadata_uri, "its hash is not the marker's", "it was altered")
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
    manifest_list = None if head is None else head.get("manifest-list")
    if manifest_list != marker.manifest_list_uri:
        raise PermanentError(
            "follow",
            marker.metadata_uri,
            f"its manifest list is not the marker's (want {marker.manifest_list_uri}, got {manifest_list})",
            "one of them was altered",
        )
    return metadata


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
