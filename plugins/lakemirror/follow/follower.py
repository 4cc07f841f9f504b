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
from lakemirror.catalogs.comparison import described, differing
from lakemirror.catalogs.ports import MirrorCatalog, MirrorHead, Published
from lakemirror.errors import LostRaceError, PermanentError
from lakemirror.formats.iceberg import metadata_json
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import Marker
from lakemirror.model.paths import canonical, is_below
from lakemirror.model.table import TableRef
from lakemirror.storage.port import ObjectNotFound, ObjectStore
from lakemirror.storage.wrappers.once import ReadOnceStore

_VERSION = re.compile(r"[1-9][0-9]{0,17}")
_HEAD_KIND = "head"  # the only kind of marker that speaks of what readers of the table see


@dataclass(frozen=True, slots=True)
class Head:
    """What the mirror catalog shows; `version` is None if it is not what Lakemirror committed, `changed` says why."""

    shown: MirrorHead
    version: int | None
    snapshot_id: int | None
    table_uuid: str | None
    changed: tuple[str, ...] = ()

    @property
    def metadata_uri(self) -> str:
        return self.shown.metadata_uri


@dataclass(frozen=True, slots=True)
class Outcome:
    marker: Marker | None
    head: Head | None
    committed: bool


def head_of(catalog: MirrorCatalog, store: ObjectStore, layout: TableLayout, table: TableRef) -> Head | None:
    """The mirror's head as catalog and bucket tell it.

    It is ours if it claims a version whose ready marker names this very file; or, where the catalog keeps metadata in
    files of its own, if it shows exactly what that marker's file says.
    """
    shown = catalog.load(table)
    if shown is None:
        return None
    metadata = shown.metadata
    if metadata is None:
        if not is_below(shown.metadata_uri, layout.root):
            return Head(shown, None, None, None, ("place",))
        metadata = _read_head(store, shown.metadata_uri, table)
    claimed = str((metadata.get("properties") or {}).get(metadata_json.VERSION_PROPERTY, ""))
    changed: tuple[str, ...] = ("version",)
    if _VERSION.fullmatch(claimed) is not None:
        changed = _changed(store, layout, int(claimed), shown)
    return Head(
        shown,
        None if changed else int(claimed),
        metadata_json.current_snapshot_id(metadata),
        metadata.get("table-uuid"),
        changed,
    )


def _read_head(store: ObjectStore, uri: str, table: TableRef) -> dict[str, Any]:
    try:
        return metadata_json.parse(_get(store, uri), uri)
    except ObjectNotFound as err:
        raise PermanentError(
            "follow", str(table), f"the mirror's head {uri} is not in the bucket", "restore it; nothing was changed"
        ) from err


def _changed(store: ObjectStore, layout: TableLayout, version: int, shown: MirrorHead) -> tuple[str, ...]:
    """In what the head is not the version that it claims to be."""
    try:
        marker = bridge.read_ready(store, layout, version)
        if canonical(marker.metadata_uri) == canonical(shown.metadata_uri):
            return ()
        if shown.metadata is None:
            return ("place",)
        return differing(_published(store, marker), shown.metadata)
    except ObjectNotFound:
        return ("version",)


def _published(store: ObjectStore, marker: Marker) -> dict[str, Any]:
    return metadata_json.parse(_get(store, marker.metadata_uri), marker.metadata_uri)


def _get(store: ObjectStore, uri: str) -> bytes:
    return store.get(uri, max_bytes=metadata_json.MAX_METADATA_BYTES).data


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
    store = ReadOnceStore(store)  # markers and metadata files never change once they are there
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
    new = Published(marker.metadata_uri, metadata)
    catalog.commit(table, None if head is None else head.shown, new)
    return Outcome(marker, _read_back(table, layout, catalog, store, marker, metadata), committed=True)


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
        f"foreign commit: the mirror's head {head.metadata_uri} was not published by Lakemirror"
        f" (other {', '.join(head.changed)})",
        "see who writes to the mirror; --adopt takes over a table of the same uuid, --overwrite-foreign replaces it",
    )


def _read_back(
    table: TableRef,
    layout: TableLayout,
    catalog: MirrorCatalog,
    store: ObjectStore,
    marker: Marker,
    want: dict[str, Any],
) -> Head:
    """A success answer proves nothing: the catalog must show what was committed, or something newer of ours."""
    head = head_of(catalog, store, layout, table)
    if head is None:
        raise PermanentError(
            "follow", str(table), "the catalog took the commit but shows no table", "check the catalog"
        )
    if head.version is not None and head.version >= marker.version:
        return head
    got = head.shown.metadata
    if got is not None and head.version is None and _claims(got, marker.version):
        wrong = "; ".join(described(want, got, name) for name in head.changed)
        raise PermanentError(
            "follow", str(table), f"the catalog took the commit but shows other {wrong}", "check the catalog"
        )
    raise LostRaceError("follow", str(table), f"after the commit the catalog shows {head.metadata_uri}", "run again")


def _claims(metadata: dict[str, Any], version: int) -> bool:
    return (metadata.get("properties") or {}).get(metadata_json.VERSION_PROPERTY) == str(version)
