"""Table metadata: what a version of the source is, and the metadata.json the mirror shows for it.

The mirror's file is a pure function of the source's metadata, the prefix map, the version number, the retained
snapshots and the property overrides. Fields it does not know are kept. What cannot be mirrored yet is refused by name
before anything is written.
"""

from __future__ import annotations

import gzip
import io
import json
import uuid
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg import metadata_shape
from lakemirror.formats.iceberg.avro_values import Malformed
from lakemirror.formats.iceberg.path_free import PathFree
from lakemirror.model import bounded_json
from lakemirror.model.paths import PrefixMap, is_relative

MAX_METADATA_BYTES = 1 << 28
PIN_PREFIX = "lakemirror-pin-"
VERSION_PROPERTY = "lakemirror.version"
SNAPSHOT_PROPERTY = "lakemirror.source-snapshot-id"
PATH_PROPERTIES = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
_MOST_INT, _MOST_LONG = str((1 << 31) - 1), str((1 << 63) - 1)
# What lets engines delete the mirror's files, or snapshots that hold them, is overridden whatever the source says
# (docs/catalogs.md): in every version, ...
SAFE_PROPERTIES = {
    "gc.enabled": "false",
    "write.metadata.delete-after-commit.enabled": "false",
    "history.expire.max-snapshot-age-ms": _MOST_LONG,
    "history.expire.min-snapshots-to-keep": _MOST_INT,
    "history.expire.max-ref-age-ms": _MOST_LONG,
}
# ... and where the source has them, properties of single engines.
SAFE_IF_THERE = {
    "external.table.purge": "FALSE",
    "vacuum_max_snapshot_age_seconds": _MOST_INT,
    "vacuum_min_snapshots_to_keep": _MOST_INT,
    "vacuum_max_metadata_files_to_keep": _MOST_INT,
}
_STRUCTURE = ("schema", "schemas", "partition-spec", "partition-specs", "sort-orders")
_STATISTICS = ("statistics", "partition-statistics")
_REMADE = ("location", "snapshots", "snapshot-log", "refs", "metadata-log", "properties", *_STATISTICS)
_LARGEST_ID = 2**31 - 1
_NAMESPACE = uuid.UUID("5b0f9d8e-3c1a-4f57-9d5b-8f2b6d0c7a11")

Json = dict[str, Any]


def parse(data: bytes, uri: str) -> Json:
    """The metadata as JSON, unpacked if it is gzip'ed; any damage is an error that names the file.

    All that this library looks at has the type that it must have.
    """
    try:
        if data[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
                data = packed.read(MAX_METADATA_BYTES + 1)
        if len(data) > MAX_METADATA_BYTES:
            raise ValueError(f"more than {MAX_METADATA_BYTES} bytes")
        metadata = bounded_json.loads(data)
    except (ValueError, EOFError, OSError, zlib.error) as err:
        raise PermanentError("read metadata", uri, f"not readable ({err})", "the file is damaged") from err
    if not isinstance(metadata, dict) or "format-version" not in metadata or "view-uuid" in metadata:
        raise PermanentError("read metadata", uri, "not Iceberg table metadata", "the catalog points at a wrong file")
    try:
        metadata_shape.check(metadata)
    except Malformed as err:
        raise PermanentError("read metadata", uri, f"not whole ({err})", "the file is damaged") from err
    return metadata


def refuse_unsupported(metadata: Json, subject: str, *, accepts_v1: bool = True) -> None:
    """Stop, by name, at whatever this version cannot mirror exactly."""
    version = metadata["format-version"]
    if type(version) is not int or version not in (1, 2, 3):
        raise UnsupportedError("detect", subject, f"format version {version!r} is not supported", "want 1, 2 or 3")
    if version == 1 and not accepts_v1:
        hint = "upgrade the table to v2 on the source"
        raise UnsupportedError("detect", subject, "the mirror's catalog refuses tables of format version 1", hint)
    if version == 1 and "table-uuid" not in metadata:  # which is optional there
        raise UnsupportedError(
            "detect",
            subject,
            "a table of format version 1 without a table-uuid: nothing tells it from one made anew under its name",
            "upgrade the table to v2 on the source",
        )
    missing = [key for key in ("table-uuid", "location", "last-updated-ms") if key not in metadata]
    if missing:
        raise PermanentError("detect", subject, f"its metadata has no {', '.join(missing)}", "the file is damaged")
    properties = metadata.get("properties") or {}
    if metadata.get("encryption-keys") or any(key.startswith("encryption.") for key in properties):
        raise UnsupportedError("detect", subject, "the table is encrypted", "encrypted tables are not mirrored")
    for section in _STATISTICS:
        for entry in metadata.get(section) or ():
            if entry.get("key-metadata") is not None:
                what = f"the {section} of snapshot {entry['snapshot-id']} are encrypted"
                raise UnsupportedError("detect", subject, what, "encrypted tables are not mirrored")
    wanted = {ref["snapshot-id"] for ref in refs(metadata).values()}
    for snapshot in snapshots(metadata).values():
        if "manifest-list" not in snapshot and snapshot["snapshot-id"] in wanted:
            raise UnsupportedError(
                "detect",
                subject,
                f"snapshot {snapshot['snapshot-id']} has no manifest list",
                "rewrite it on the source",
            )
        if snapshot.get("key-id") is not None:
            raise UnsupportedError("detect", subject, "the table is encrypted", "encrypted tables are not mirrored")


def snapshots(metadata: Json) -> dict[int, Json]:
    return {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots") or ()}


def moved_lists(old: Json, new: Json) -> dict[int, tuple[str, str]]:
    """Of snapshots that both have: where their manifest lists lie, if not in one place. A snapshot is its files."""
    before = snapshots(old)
    found = {}
    for number, one in snapshots(new).items():
        was, now = before.get(number, {}).get("manifest-list"), one.get("manifest-list")
        if was and now and was != now:
            found[number] = (str(was), str(now))
    return found


def has_files(snapshot: Json) -> bool:
    """True if the snapshot's summary says that it holds files; many summaries say nothing."""
    summary = snapshot.get("summary") or {}
    return any(str(summary.get(key, "0")) not in ("0", "") for key in ("total-data-files", "total-delete-files"))


def current_snapshot_id(metadata: Json) -> int | None:
    current = metadata.get("current-snapshot-id")
    return None if current in (None, -1) else int(current)


def refs(metadata: Json) -> dict[str, Json]:
    """Branches and tags but our own pins; `main` is there whenever the table has a snapshot."""
    named = {name: ref for name, ref in (metadata.get("refs") or {}).items() if not name.startswith(PIN_PREFIX)}
    current = current_snapshot_id(metadata)
    if current is not None:
        named.setdefault("main", {"snapshot-id": current, "type": "branch"})
    return named


def statistics_files(metadata: Json, retained: Iterable[int]) -> list[tuple[str, int]]:
    """Paths and sizes of the statistics files of the retained snapshots."""
    kept = set(retained)
    return [
        (entry["statistics-path"], entry["file-size-in-bytes"])
        for section in _STATISTICS
        for entry in metadata.get(section) or ()
        if entry["snapshot-id"] in kept
    ]


def paths(metadata: Json) -> Iterator[str]:
    """Every place that the metadata names; a snapshot without a manifest list, or no location, is an error.

    Properties may name a place relative to that of the table.
    """
    try:
        yield metadata["location"]
        for snapshot in metadata.get("snapshots") or ():
            yield snapshot["manifest-list"]
            yield from map(str, snapshot.get("manifests") or ())  # of old writers of v1, instead of a list
    except KeyError as err:
        raise PermanentError("read metadata", "table metadata", f"it has no {err.args[0]}", "it is damaged") from err
    yield from (entry["statistics-path"] for section in _STATISTICS for entry in metadata.get(section) or ())
    yield from (entry["metadata-file"] for entry in metadata.get("metadata-log") or ())
    properties = metadata.get("properties") or {}
    for place in (properties[key] for key in PATH_PROPERTIES if key in properties):
        yield f"{metadata['location']}/{place}" if is_relative(place) else place


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


@dataclass(frozen=True, slots=True)
class MirrorMetadata:
    """The mirror's metadata.json: its bytes, its file name, and what of the source it leaves out."""

    data: bytes
    file_name: str
    left_out: tuple[str, ...]


def for_mirror(
    source: Json,
    paths: PrefixMap,
    version: int,
    head: int | None,
    retained: Iterable[int],
    *,
    location: str,
    dangling: Collection[str] = (),
    lift: int = 0,
) -> MirrorMetadata:
    """The metadata of a version for a table at `location`, with `head` as main and only the retained snapshots.

    Statistics whose file is one of `dangling` are left out; whoever names them tells so. The highest column id so far
    is the source's and `lift`: nobody reads it, but commits by requirements can name it.
    """
    kept = set(retained)
    free = PathFree(paths)
    mirror: Json = free.fields({key: value for key, value in source.items() if key not in (*_STRUCTURE, *_REMADE)})
    mirror.update({key: free.structure(source[key]) for key in _STRUCTURE if key in source})
    mirror["location"] = location
    if "last-column-id" in source:
        mirror["last-column-id"] = max(source["last-column-id"], min(source["last-column-id"] + lift, _LARGEST_ID))
    mirror["current-snapshot-id"] = -1 if head is None else head
    mirror["snapshots"] = [
        free.entry(_with_list(snapshot), "manifest-list", f"snapshot {snapshot['snapshot-id']}")
        for snapshot in source.get("snapshots") or ()
        if snapshot["snapshot-id"] in kept
    ]
    mirror["refs"] = free.fields(_refs(source, head, kept), "refs")
    mirror["snapshot-log"] = _snapshot_log(source, head, kept)
    mirror["metadata-log"] = []
    for section in _STATISTICS:
        if section in source:
            mirror[section] = [
                free.entry(entry, "statistics-path", f"{section} of snapshot {entry['snapshot-id']}")
                for entry in source[section] or ()
                if entry["snapshot-id"] in kept and entry["statistics-path"] not in dangling
            ]
    mirror["properties"] = _properties(source.get("properties") or {}, paths, version, head, free)
    data = json.dumps(mirror, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    return MirrorMetadata(
        data, f"{version:05d}-{uuid.uuid5(_NAMESPACE, data.decode())}.metadata.json", tuple(free.left_out)
    )


def _with_list(snapshot: Json) -> Json:
    if "manifest-list" not in snapshot:
        raise UnsupportedError(
            "write metadata",
            f"snapshot {snapshot['snapshot-id']}",
            "it has no manifest list",
            "rewrite it on the source",
        )
    return snapshot


def _refs(source: Json, head: int | None, kept: set[int]) -> Json:
    named = {name: ref for name, ref in refs(source).items() if ref["snapshot-id"] in kept}
    if head is None:
        named.pop("main", None)
    else:
        named["main"] = {**(refs(source).get("main") or {"type": "branch"}), "snapshot-id": head}
    return named


def _snapshot_log(source: Json, head: int | None, kept: set[int]) -> list[Json]:
    """The end of the source's log that tells of retained snapshots without a gap, up to the head.

    What lies before a snapshot that is left out is dropped: a query AS OF a time in the gap would find the wrong one.
    """
    log: list[Json] = []
    for entry in source.get("snapshot-log") or ():
        if entry["snapshot-id"] in kept:
            log.append(entry)
        else:
            log.clear()
    while log and log[-1]["snapshot-id"] != head:
        log.pop()
    if not log and head is not None:
        log = [{"snapshot-id": head, "timestamp-ms": snapshots(source)[head]["timestamp-ms"]}]
    return log


def _properties(
    source: Mapping[str, str], paths: PrefixMap, version: int, head: int | None, free: PathFree
) -> dict[str, str]:
    properties: dict[str, str] = free.fields(
        {key: value for key, value in source.items() if key not in PATH_PROPERTIES}, "property"
    )
    places = {key: source[key] for key in PATH_PROPERTIES if key in source}
    properties.update({key: place if is_relative(place) else paths.map(place) for key, place in places.items()})
    properties.update(SAFE_PROPERTIES)
    properties.update({key: value for key, value in SAFE_IF_THERE.items() if key in properties})
    properties[VERSION_PROPERTY] = str(version)
    if head is not None:
        properties[SNAPSHOT_PROPERTY] = str(head)
    return properties


def fingerprint_fields(metadata: Json, head: int | None) -> Json:
    """What a reader of the mirror could tell apart: all but pins, logs of files and the time of the last write.

    Of the log of heads, up to `head`, that is what comes after the last snapshot which is gone: no reader looks behind
    it, and expiry that shortens the rest is seen by the snapshots that went.
    """
    ignored = ("metadata-log", "last-updated-ms", "snapshot-log", "refs")
    log = _snapshot_log(metadata, head, {*snapshots(metadata)})
    heads = [(entry["snapshot-id"], entry["timestamp-ms"]) for entry in log]
    kept = {key: value for key, value in metadata.items() if key not in ignored}
    return {**kept, "refs": refs(metadata), "snapshot-log": heads}
