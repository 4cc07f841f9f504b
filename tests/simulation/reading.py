"""A table read by the book from its metadata.json down, over a plain map of objects, by code that is not lakemirror's.

What was parsed once is remembered by its bytes: the same few files are read in every schedule.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tests.avro_bytes import records
from tests.histories.contents import positions_in
from tests.iceberg_files import DATA, DELETED, POSITION_DELETES

Json = dict[str, Any]


class NotWhole(Exception):
    """Something that the table names is missing or is not what is said of it."""


@dataclass(frozen=True)
class View:
    """What a reader can see of a table, with paths relative to its location."""

    uuid: str
    current: int | None
    refs: tuple[tuple[str, int], ...]
    schemas: str
    shape: tuple[int, int]  # the ids of the schema and the spec that are current
    snapshots: Mapping[int, tuple[Any, ...]]
    properties: Mapping[str, str]
    closure: frozenset[str]  # every object that it needs


@lru_cache(maxsize=1 << 14)
def _metadata(data: bytes) -> Json:
    found: Json = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return found


@lru_cache(maxsize=1 << 14)
def _records(data: bytes) -> list[Json]:
    return records(data)


@lru_cache(maxsize=1 << 14)
def _positions(data: bytes, kind: str) -> list[tuple[str, int]]:
    return positions_in(data, kind)


def view(objects: Mapping[str, bytes], metadata_uri: str, places: tuple[str, ...]) -> View:
    """The table as it is at this metadata file; `places` are what its paths may begin with, without the scheme's //."""
    return view_of(_metadata(_get(objects, metadata_uri)), objects, metadata_uri, places)


def view_of(metadata: Json, objects: Mapping[str, bytes], metadata_uri: str | None, places: tuple[str, ...]) -> View:
    closure = set() if metadata_uri is None else {metadata_uri}
    snapshots = {
        one["snapshot-id"]: (one.get("parent-snapshot-id"), *_snapshot(one, objects, places, closure))
        for one in metadata["snapshots"]
    }
    current = metadata.get("current-snapshot-id")
    return View(
        metadata["table-uuid"],
        None if current == -1 else current,
        tuple(sorted((name, ref["snapshot-id"]) for name, ref in metadata["refs"].items())),
        json.dumps([one["fields"] for one in metadata["schemas"]], sort_keys=True),
        (metadata["current-schema-id"], metadata["default-spec-id"]),
        snapshots,
        metadata.get("properties") or {},
        frozenset(closure),
    )


def differences(got: View, want: View) -> str:
    """In what the mirror is not the source; snapshots may be left out if no ref needs them."""
    for name in ("uuid", "current", "refs", "schemas", "shape"):
        if getattr(got, name) != getattr(want, name):
            return f"{name} (want {getattr(want, name)}, got {getattr(got, name)})"
    missing = {number for _, number in want.refs} - got.snapshots.keys()
    if missing:
        return f"snapshots {sorted(missing)}, which refs need"
    for number, files in got.snapshots.items():
        if number in want.snapshots and files != want.snapshots[number]:
            return f"files of snapshot {number}"
    other = {key for key, value in want.properties.items() if got.properties.get(key) != value}
    return f"properties {sorted(other)}" if other else ""


def _snapshot(
    snapshot: Json, objects: Mapping[str, bytes], places: tuple[str, ...], closure: set[str]
) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    place = _key(snapshot["manifest-list"])
    closure.add(place)
    for manifest in _records(_get(objects, place)):
        place = _key(manifest["manifest_path"])
        closure.add(place)
        data = _get(objects, place)
        if len(data) != manifest["manifest_length"]:
            raise NotWhole(f"{place}: the list says {manifest['manifest_length']} bytes, it has {len(data)}")
        for entry in _records(data):
            if entry["status"] != DELETED:
                found.append(_file(entry, manifest, objects, places, closure))
    return sorted(found, key=repr)


def _file(
    entry: Json, manifest: Json, objects: Mapping[str, bytes], places: tuple[str, ...], closure: set[str]
) -> tuple[Any, ...]:
    file = entry["data_file"]
    place = _key(file["file_path"])
    closure.add(place)
    data = _get(objects, place)
    if len(data) != file["file_size_in_bytes"]:
        raise NotWhole(f"{place}: the manifest says {file['file_size_in_bytes']} bytes, it has {len(data)}")
    sequence = entry.get("sequence_number")
    facts = (_short(place, places), manifest["sequence_number"] if sequence is None else sequence)
    content = file.get("content", DATA)
    if content == POSITION_DELETES:
        rows = [(_short(_key(path), places), at) for path, at in _positions(data, file["file_format"])]
        return (*facts, content, tuple(rows))
    return (*facts, content, hashlib.sha256(data).hexdigest())


def _get(objects: Mapping[str, bytes], uri: str) -> bytes:
    try:
        return objects[uri]
    except KeyError:
        raise NotWhole(f"{uri} is missing") from None


def _key(path: str) -> str:
    """Paths without a scheme are files."""
    plain = path.removeprefix("file:")
    return f"file:///{plain.lstrip('/')}" if plain.startswith("/") else path


def _short(uri: str, places: tuple[str, ...]) -> str:
    """Without the folder of its own in which a recreated table lies."""
    for place in places:
        if uri.startswith(f"{place}/"):
            return re.sub(r"^_maps/[0-9a-f]+/", "", uri[len(place) + 1 :])
    raise NotWhole(f"{uri} lies outside {places}")
