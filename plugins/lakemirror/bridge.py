"""The chain of ready markers in the mirror bucket: what was ever published, in order, create-only.

A new marker takes the ordinal after the newest that was ever ready and names it as its parent. Whoever comes second
at an ordinal with other content has lost the race. Safety rests on that alone: not on clocks, names or events.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

from lakemirror.errors import LostRaceError, PermanentError
from lakemirror.model.layout import TableLayout, ordinal
from lakemirror.model.marker import MAX_BYTES, Marker
from lakemirror.model.paths import is_below
from lakemirror.model.table import TableRef
from lakemirror.storage.port import Blob, ConditionFailed, Create, IfMatch, ObjectNotFound, ObjectStore


@dataclass(frozen=True, slots=True)
class Ordinals:
    """The versions that markers claim; `last_used` counts demoted ones, which are never used again."""

    ready: tuple[int, ...]
    last_used: int

    @property
    def newest(self) -> int | None:
        return self.ready[-1] if self.ready else None


def published(store: ObjectStore, layout: TableLayout) -> Ordinals:
    """What `_ready` holds."""
    seen = [found for info in store.list(layout.ready_folder) if (found := ordinal(info.uri))]
    ready = sorted({version for version, kind in seen if kind == "ready"})
    return Ordinals(tuple(ready), max((version for version, _ in seen), default=0))


def staged(store: ObjectStore, layout: TableLayout) -> tuple[int, ...]:
    """The versions that lie in `_inprogress`."""
    seen = (ordinal(info.uri) for info in store.list(layout.staged_folder))
    return tuple(sorted(found[0] for found in seen if found))


def read_ready(store: ObjectStore, layout: TableLayout, version: int) -> Marker:
    """A ready marker, checked: its hash, its own ordinal and that it stays inside its table's folder."""
    uri = layout.ready(version)
    marker = Marker.from_bytes(store.get(uri, max_bytes=MAX_BYTES).data, uri)
    if marker.version != version:
        raise PermanentError("read marker", uri, f"it speaks of v{marker.version}", "it was moved or altered")
    for named in (marker.metadata_uri, marker.index_uri, marker.manifest_list_uri):
        if named is not None and not is_below(named, layout.root):
            raise PermanentError("read marker", uri, f"{named} lies outside {layout.root}", "it was moved or forged")
    return marker


def stage(store: ObjectStore, layout: TableLayout, marker: Marker, data: bytes) -> bytes:
    """Write the marker to `_inprogress`; what an equal earlier try left there is taken as it is."""
    uri = layout.staged(marker.version)
    try:
        store.put(uri, data, Create())
        return data
    except ConditionFailed:
        there = _find(store, uri)
    if there is None:
        raise LostRaceError("stage", uri, "another run is working on this version", "run again")
    if _checksum_of(there, uri) == marker.checksum:
        return there.data
    try:
        store.put(uri, data, IfMatch(there.info.e_tag or ""))
    except ConditionFailed as err:
        raise LostRaceError("stage", uri, "another run is working on this version", "run again") from err
    return data


def publish(store: ObjectStore, layout: TableLayout, marker: Marker, data: bytes) -> None:
    """Put the ready marker, create-only; an equal one that is there already is success."""
    uri = layout.ready(marker.version)
    try:
        store.put(uri, data, Create())
    except ConditionFailed as err:
        there = Marker.from_bytes(store.get(uri, max_bytes=MAX_BYTES).data, uri)
        if there.checksum != marker.checksum:
            raise LostRaceError(
                "publish",
                uri,
                f"another run published this version first (want {marker.checksum}, got {there.checksum})",
                "run again: it plans from the winner",
            ) from err
    store.delete([layout.staged(marker.version)])


def announce(store: ObjectStore, location: str, table: TableRef) -> None:
    """Note that the mirror has this table, so that a follower can find it; noting it again changes nothing."""
    with suppress(ConditionFailed):
        store.put(f"{_register_of(location)}/{table}.json", json.dumps({"table": str(table)}).encode(), Create())


def announced(store: ObjectStore, location: str) -> tuple[str, ...]:
    """The names of all tables that were ever announced, by name. A hint: what is true stands in their folders."""
    found = (info.uri.rsplit("/", 1)[-1] for info in store.list(_register_of(location)))
    return tuple(sorted(name.removesuffix(".json") for name in found if name.endswith(".json")))


def _register_of(location: str) -> str:
    return f"{location.rstrip('/')}/_tables"


def _find(store: ObjectStore, uri: str) -> Blob | None:
    try:
        return store.get(uri, max_bytes=MAX_BYTES)
    except ObjectNotFound:
        return None


def _checksum_of(blob: Blob, uri: str) -> str | None:
    try:
        return Marker.from_bytes(blob.data, uri).checksum
    except PermanentError:
        return None
