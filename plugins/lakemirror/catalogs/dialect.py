"""What one kind of REST catalog demands beyond the protocol, as data, and the checks that follow from it. Pure.

A commit that would break a rule is refused before it is sent, by name: the answers of servers to such commits differ,
and some leave things behind.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from lakemirror.catalogs.abilities import ALL_FORMATS
from lakemirror.formats.iceberg.metadata_json import current_snapshot_id
from lakemirror.model.table import TableRef

Json = dict[str, Any]
_LOGS: Final = ("snapshot-log", "metadata-log")
_LOG_ENTRY_BYTES: Final = 65  # of an entry besides the place that it names
_FILE_NAME_BYTES: Final = 80  # of a metadata file that a server wrote
_KEPT_FILES: Final = "write.metadata.previous-versions-max"
_KEPT_FILES_DEFAULT: Final = 100


@dataclass(frozen=True, slots=True)
class Dialect:
    """`has_fixed_place`: a table lies in `<place of its namespace>/<its name>`, for good."""

    type: str
    formats: tuple[int, ...] = ALL_FORMATS
    preview_formats: tuple[int, ...] = ()
    max_metadata_bytes: int | None = None
    has_namespace_levels: bool = True
    has_whole_swap: bool | None = None
    has_fixed_place: bool = False


REST: Final = Dialect("rest")


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a catalog will not take a version, and what to do."""

    message: str
    hint: str


def objection(dialect: Dialect, table: TableRef, place: str, old: Json | None, new: Json) -> Objection | None:
    """`old` is what the catalog shows, `place` the metadata file of `new`; None: nothing speaks against it."""
    if not dialect.has_namespace_levels and len(table.namespace) != 1:
        return Objection(f"{dialect.type} has namespaces of one level", "mirror it elsewhere, or rename its namespace")
    version = new["format-version"]
    if version not in dialect.formats:
        known = ", ".join(map(str, dialect.formats))
        hint = "upgrade the table on the source, or exclude it"
        return Objection(f"format version {version} is not taken, only {known}", hint)
    if dialect.has_fixed_place:
        found = _misplaced(table, old, new)
        if found is not None:
            return found
    limit = dialect.max_metadata_bytes
    size = 0 if limit is None else size_after(place, old, new)
    if limit is not None and size > limit:
        hint = "keep less history: history_versions, history_age or history_bytes; or have the limit raised"
        return Objection(f"its metadata would have {size} bytes, and {limit} are allowed", hint)
    return None


def _misplaced(table: TableRef, old: Json | None, new: Json) -> Objection | None:
    place = str(new["location"]).rstrip("/")
    if old is not None and str(old.get("location")).rstrip("/") != place:
        told = f"a table stays where it is (want {old.get('location')}, got {place})"
        return Objection(told, "drop the mirror table, and then sync")
    if place.rpartition("/")[2] != table.name:
        told = f"a table lies in a folder of its own name (want …/{table.name}, got {place})"
        return Objection(told, "keep mirror.location as it was, or drop the mirror table")
    return None


def size_after(place: str, old: Json | None, new: Json) -> int:
    """About how long the catalog's own file will be: what we publish, with the logs that the server keeps itself."""
    if old is None:
        return _length(new)
    own = {key: value for key, value in new.items() if key not in _LOGS}
    there = {snapshot["snapshot-id"] for snapshot in new.get("snapshots") or ()}
    heads: list[Json] = []
    for entry in old.get("snapshot-log") or ():
        if entry["snapshot-id"] in there:
            heads.append(entry)
        else:
            heads.clear()  # as the specification wants it: nothing before a snapshot that is gone
    files = old.get("metadata-log") or []
    files = files[max(0, len(files) + 1 - _kept_files(new)) :]
    logs = {"snapshot-log": heads, "metadata-log": files}
    entries = 1 + (current_snapshot_id(old) != current_snapshot_id(new))
    return _length({**own, **logs}) + entries * _LOG_ENTRY_BYTES + len(place.encode())


def room_for_logs(new: Json, heads: int, files: int) -> int:
    """By how much a server's own logs can make its file longer than `new`, now and for as long as `new` is the head.

    `heads`: how often any of the snapshots of `new` was the head; `files`: how many metadata files there were so far.
    """
    places = (f"{new['location']}/metadata", str((new.get("properties") or {}).get("write.metadata.path", "")))
    place = max(len(one.encode()) for one in places) + _FILE_NAME_BYTES
    further = max(0, heads - len(new.get("snapshot-log") or ()))
    return further * _LOG_ENTRY_BYTES + min(files, _kept_files(new)) * (_LOG_ENTRY_BYTES + place)


def _kept_files(metadata: Json) -> int:
    """How many earlier metadata files a server lists: the table's property, as Iceberg reads it."""
    said = str((metadata.get("properties") or {}).get(_KEPT_FILES, ""))
    return max(1, int(said)) if said.isascii() and said.isdigit() and len(said) < 10 else _KEPT_FILES_DEFAULT


def _length(metadata: Json) -> int:
    return len(json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode())
