"""Follow: bring the mirror catalog to the newest ready version, by compare-and-set, and read back what was done.

It needs the mirror bucket and the mirror catalog, nothing of the source. Ten followers on one marker make one commit.
Nothing outside the table's own folder is ever read or committed. A head that Lakemirror did not write is a foreign
commit: it stops the follower until an operator says what to do with it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from lakemirror import bridge
from lakemirror.catalogs.ports import MirrorCatalog
from lakemirror.errors import LostRaceError, PermanentError
from lakemirror.formats.iceberg import metadata_json
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import Marker
from lakemirror.model.paths import canonical, is_below
from lakemirror.model.table import TableRef
from lakemirror.storage.port import ObjectNotFound, ObjectStore

_VERSION = re.compile(r"[1-9][0-9]{0,17}")
_HEAD_KIND = "head"  # the only kind of marker that speaks of what readers of the table see


@dataclass(frozen=True, slots=True)
class Head:
    """Where the mirror catalog points; `version` is None if Lakemirror did not write what it points at."""

    metadata_uri: str
    version: int | None
    snapshot_id: int | None
    table_uuid: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    marker: Marker | None
    head: Head | None
    committed: bool


def head_of(catalog: MirrorCatalog, store: ObjectStore, layout: TableLayout, table: TableRef) -> Head | None:
    """The mirror's head as catalog and bucket tell it; ours only if a ready marker of that version names the file."""
    uri = catalog.head(table)
    if uri is None:
        return None
    if not is_below(uri, layout.root):
        return Head(uri, None, None, None)
    try:
        metadata = metadata_json.parse(_get(store, uri), uri)
    except ObjectNotFound as err:
        raise PermanentError(
            "follow", str(table), f"the mirror's head {uri} is not in the bucket", "restore it; nothing was changed"
        ) from err
    claimed = (metadata.get("properties") or {}).get(metadata_json.VERSION_PROPERTY, "")
    is_ours = _VERSION.fullmatch(claimed) is not None and _published_as(store, layout, int(claimed)) == canonical(uri)
    return Head(
        uri, int(claimed) if is_ours else None, metadata_json.current_snapshot_id(metadata), metadata.get("table-uuid")
    )


def _get(store: ObjectStore, uri: str) -> bytes:
    return store.get(uri, max_bytes=metadata_json.MAX_METADATA_BYTES).data


def _published_as(store: ObjectStore, layout: TableLayout, version: int) -> str | None:
    try:
        return canonical(bridge.read_ready(store, layout, version).metadata_uri)
    except ObjectNotFound:
        return None


def follow(
    table: TableRef,
    layout: TableLayout,
    catalog: MirrorCatalog,
    store: ObjectStore,
    *,
    adopt: bool = False,
    overwrite_foreign: bool = False,
) -> Outcome:
    """Apply the newest ready marker if the mirror is behind it."""
    newest = bridge.published(store, layout).newest
    head = head_of(catalog, store, layout, table)
    is_foreign = head is not None and head.version is None
    if newest is None and not is_foreign:
        return Outcome(None, head, committed=False)
    marker = None if newest is None else bridge.read_ready(store, layout, newest)
    if is_foreign and head is not None:
        _judge_foreign(table, head, marker, adopt=adopt, overwrite_foreign=overwrite_foreign)
    if marker is None:
        return Outcome(None, head, committed=False)
    if head is not None and head.version is not None and head.version >= marker.version:
        return Outcome(marker, head, committed=False)
    metadata = check(marker, layout, store, table)
    if head is None:
        catalog.register(table, marker.metadata_uri)
    else:
        catalog.swap(table, head.metadata_uri, marker.metadata_uri)
    _read_back(table, layout, catalog, store, marker, metadata)
    return Outcome(marker, head_of(catalog, store, layout, table), committed=True)


def check(marker: Marker, layout: TableLayout, store: ObjectStore, table: TableRef) -> dict[str, Any]:
    """The marker is a head of this table, stays in its folder, and its metadata file is there and unaltered."""
    if marker.kind != _HEAD_KIND:
        raise PermanentError(
            "follow",
            layout.ready(marker.version),
            f"it is of kind {marker.kind}, and only a marker of kind {_HEAD_KIND} moves the table",
            "upgrade this side",
        )
    if marker.table != str(table):
        raise PermanentError(
            "follow", layout.ready(marker.version), f"it is of table {marker.table}", "it was moved here"
        )
    if not is_below(marker.metadata_uri, layout.root):
        raise PermanentError(
            "follow", layout.ready(marker.version), f"{marker.metadata_uri} lies outside {layout.root}", "it was forged"
        )
    try:
        data = _get(store, marker.metadata_uri)
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
    return metadata


def _judge_foreign(table: TableRef, head: Head, marker: Marker | None, *, adopt: bool, overwrite_foreign: bool) -> None:
    """Stop at a head that is not ours, unless the operator named a way out and it fits."""
    if overwrite_foreign and marker is not None:
        return
    if adopt and marker is not None:
        if head.table_uuid == marker.epoch:
            return
        raise PermanentError(
            "follow",
            str(table),
            f"cannot adopt: the mirror's table has uuid {head.table_uuid}, the source's has {marker.epoch}",
            "use --overwrite-foreign to replace it",
        )
    raise PermanentError(
        "follow",
        str(table),
        f"foreign commit: the mirror's head {head.metadata_uri} was not published by Lakemirror",
        "see who writes to the mirror; --adopt takes over a table of the same uuid, --overwrite-foreign replaces it",
    )


def _read_back(
    table: TableRef,
    layout: TableLayout,
    catalog: MirrorCatalog,
    store: ObjectStore,
    marker: Marker,
    want: dict[str, Any],
) -> None:
    """A success answer proves nothing: the catalog must show what was committed, or something newer of ours."""
    uri = catalog.head(table)
    if uri is None:
        raise PermanentError(
            "follow", str(table), "the catalog took the commit but shows no table", "check the catalog"
        )
    if canonical(uri) == canonical(marker.metadata_uri):
        got = metadata_json.parse(_get(store, uri), uri)
        keys = ("table-uuid", "current-snapshot-id", "current-schema-id", "default-spec-id", "refs", "properties")
        wrong = [key for key in keys if got.get(key) != want.get(key)]
        if wrong:
            raise PermanentError(
                "follow", str(table), f"read back other {', '.join(wrong)} than were committed", "check it"
            )
        return
    head = head_of(catalog, store, layout, table)
    if head is None or head.version is None or head.version <= marker.version:
        raise LostRaceError("follow", str(table), f"after the commit the catalog shows {uri}", "run again")
