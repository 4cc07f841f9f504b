"""Puffin files: taken apart, checked, and written again with the data files that deletion vectors refer to mapped.

Only the footer changes. Every blob keeps its bytes and its offset, so what manifests say of offset and length stays
true. Each deletion vector is verified: length, magic, CRC-32, and its bitmap against the cardinality it claims.
Statistics (theta sketches) hold no paths: a file of those alone is copied, never rewritten. Refused by name: compressed
footers (no Iceberg library writes or reads them), blobs of an unknown type.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg import roaring
from lakemirror.formats.iceberg.avro_walk import Malformed
from lakemirror.formats.iceberg.delete_facts import RewrittenDeletes
from lakemirror.formats.iceberg.manifest import DeleteFileFacts, DeletionVector
from lakemirror.formats.iceberg.path_free import PathFree
from lakemirror.model import bounded_json
from lakemirror.model.paths import PrefixMap

MAGIC = b"PFA1"
MAX_FOOTER_BYTES = 64 << 20  # of JSON: room for some 200,000 deletion vectors
MAX_FOOTER_VALUES = 1 << 22
DELETION_VECTOR = "deletion-vector-v1"
THETA_SKETCH = "apache-datasketches-theta-v1"
REFERENCED_DATA_FILE, CARDINALITY = "referenced-data-file", "cardinality"
_VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
_TRAILER_BYTES = 12  # size of the payload, flags, magic
_FLAG_COMPRESSED = 1
_DAMAGED = (ValueError, RecursionError)  # Malformed is a ValueError, and so is what json and encode raise
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PuffinFile:
    """A Puffin file taken apart: `body` is all before the footer, `footer` its JSON as it is."""

    body: bytes
    footer: Json
    flags: bytes

    @property
    def blobs(self) -> list[Json]:
        found: list[Json] = self.footer["blobs"]
        return found


def parse(data: bytes, uri: str) -> PuffinFile:
    """Take a Puffin file apart; every blob lies between the first magic and the footer, and none overlaps another."""
    try:
        return _parse(data, uri)
    except _DAMAGED as err:
        raise _damaged(uri, err) from err


def rewrite(data: bytes, uri: str, paths: PrefixMap) -> RewrittenDeletes:
    """The file for the mirror, with what the manifest entries of its deletion vectors must say."""
    try:
        return _rewrite(_parse(data, uri), uri, paths)
    except _DAMAGED as err:
        raise _damaged(uri, err) from err


def vectors(data: bytes, uri: str) -> frozenset[DeletionVector]:
    """The deletion vectors of a file, verified, for the data files that it names."""
    try:
        file = _parse(data, uri)
        return frozenset(_checked_vector(file.body, blob) for blob in file.blobs if blob["type"] == DELETION_VECTOR)
    except _DAMAGED as err:
        raise _damaged(uri, err) from err


def _rewrite(file: PuffinFile, uri: str, paths: PrefixMap) -> RewrittenDeletes:
    blobs: list[Json] = []
    vectors: list[DeletionVector] = []
    free = PathFree(paths)
    for blob in file.blobs:
        if blob["type"] == DELETION_VECTOR:
            vector = _checked_vector(file.body, blob)
            target = paths.map(vector.referenced_data_file)
            vectors.append(replace(vector, referenced_data_file=target))
            blob = {**blob, "properties": {**_freed(blob["properties"], free), REFERENCED_DATA_FILE: target}}
        elif blob["type"] != THETA_SKETCH:
            raise UnsupportedError(
                "rewrite deletes", uri, f"unknown blob type {blob['type']!r}", f"want {DELETION_VECTOR}"
            )
        blobs.append(blob)
    if not vectors:
        raise PermanentError(
            "rewrite deletes", uri, "the file holds no deletion vector", "a file of statistics is copied as it is"
        )
    targets = [vector.referenced_data_file for vector in vectors]
    if len({*targets}) < len(targets):
        raise PermanentError(
            "rewrite deletes", uri, "two deletion vectors are for one data file", "the source's file is damaged"
        )
    rest = free.fields({**file.footer, "blobs": []})
    body = assemble(file, {**rest, "blobs": blobs})
    facts = DeleteFileFacts(len(body), min(targets).encode(), max(targets).encode(), frozenset(vectors))
    return RewrittenDeletes(body, facts)


def assemble(file: PuffinFile, footer: Mapping[str, Any]) -> bytes:
    """The same body under another footer."""
    payload = json.dumps(footer, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return b"".join([file.body, MAGIC, payload, len(payload).to_bytes(4, "little"), file.flags, MAGIC])


def is_same(left: bytes, right: bytes, paths: PrefixMap | None = None) -> bool:
    """True if two files hold the same blobs in the same places with the same properties."""
    try:
        one, other = (_essence(parse(data, ""), paths) for data in (left, right))
    except (*_DAMAGED, LookupError, TypeError, AttributeError, PermanentError):  # what is not whole is not the same
        return False
    return one == other


def _essence(file: PuffinFile, paths: PrefixMap | None) -> PuffinFile:
    """Without what names the source, but for the data files that the vectors are for."""
    if paths is None:
        return file
    free = PathFree(paths)
    blobs = [
        {**blob, "properties": _freed(blob["properties"], free)} if blob["type"] == DELETION_VECTOR else blob
        for blob in file.blobs
    ]
    return replace(file, footer={**free.fields({**file.footer, "blobs": []}), "blobs": blobs})


def _freed(properties: Json, free: PathFree) -> Json:
    """Without the path first, then with it: the order of the properties stays."""
    kept = free.fields({**properties, REFERENCED_DATA_FILE: ""})
    return {**kept, REFERENCED_DATA_FILE: properties[REFERENCED_DATA_FILE]}


def _damaged(uri: str, err: Exception) -> PermanentError:
    return PermanentError("read puffin", uri, f"not a whole Puffin file ({err})", "the source's file is damaged")


def _parse(data: bytes, uri: str) -> PuffinFile:
    if len(data) < 2 * len(MAGIC) + _TRAILER_BYTES:
        raise Malformed(f"{len(data)} bytes are too few")
    if data[: len(MAGIC)] != MAGIC or data[-len(MAGIC) :] != MAGIC:
        raise Malformed("no Puffin magic at its start or end")
    flags = data[-8:-4]
    if flags[0] & _FLAG_COMPRESSED:
        raise UnsupportedError("read puffin", uri, "the footer is compressed with LZ4", "want a plain footer")
    if any(flags):
        raise UnsupportedError("read puffin", uri, f"unknown flags {flags.hex()}", "want none")
    size = int.from_bytes(data[-12:-8], "little", signed=True)
    payload_end = len(data) - _TRAILER_BYTES
    body_end = payload_end - size - len(MAGIC)
    if not 0 <= size <= MAX_FOOTER_BYTES or body_end < len(MAGIC):
        raise Malformed(f"a footer of {size} bytes does not fit")
    if data[body_end : body_end + len(MAGIC)] != MAGIC:
        raise Malformed("no Puffin magic before the footer")
    footer = bounded_json.loads(data[payload_end - size : payload_end], max_values=MAX_FOOTER_VALUES, pairs=_object)
    blobs = footer.get("blobs") if isinstance(footer, dict) else None
    if not isinstance(blobs, list):
        raise Malformed("the footer has no list of blobs")
    _check_places(blobs, body_end)
    return PuffinFile(data[:body_end], footer, flags)


def _object(pairs: Iterable[tuple[str, Any]]) -> Json:
    found: Json = {}
    for key, value in pairs:
        if key in found:
            raise Malformed(f"the footer has {key[:100]!r} twice in one object")
        found[key] = value
    return found


def _check_places(blobs: list[Any], body_end: int) -> None:
    places = []
    for blob in blobs:
        if not isinstance(blob, dict) or not isinstance(blob.get("type"), str):
            raise Malformed("a blob of the footer has no type")
        places.append((_number(blob, "offset"), _number(blob, "length")))
    free = len(MAGIC)
    for offset, length in sorted(places):
        if offset < free or length < 0 or offset + length > body_end:
            raise Malformed(f"a blob of {length} bytes at {offset} does not fit, or overlaps another")
        free = offset + length


def _number(blob: Json, name: str) -> int:
    value = blob.get(name)
    if type(value) is not int:
        raise Malformed(f"a blob has {name} {str(value)[:50]!r}")
    return value


def _checked_vector(body: bytes, blob: Json) -> DeletionVector:
    """A deletion vector with the source's path, after its bytes have been verified."""
    if blob.get("compression-codec") is not None:
        raise Malformed("a deletion vector is compressed, which the specification forbids")
    properties = blob.get("properties")
    path = properties.get(REFERENCED_DATA_FILE) if isinstance(properties, dict) else None
    claimed = properties.get(CARDINALITY) if isinstance(properties, dict) else None
    if not isinstance(path, str) or not isinstance(claimed, str):
        raise Malformed(f"a deletion vector has no {REFERENCED_DATA_FILE} or no {CARDINALITY}")
    offset, length = _number(blob, "offset"), _number(blob, "length")
    count = _count(body[offset : offset + length])
    if claimed != str(count):
        raise Malformed(
            f"the deletion vector of {path[:1000]} has another cardinality (want {claimed[:20]}, got {count})"
        )
    return DeletionVector(path, offset, length, count)


def _count(blob: bytes) -> int:
    """The positions of a vector: length and CRC-32 are big-endian and guard magic and bitmap."""
    guarded, crc = blob[4:-4], blob[-4:]
    if len(blob) < 4 + len(_VECTOR_MAGIC) + 4 or int.from_bytes(blob[:4], "big") != len(guarded):
        raise Malformed("a deletion vector has another length than it says")
    if guarded[: len(_VECTOR_MAGIC)] != _VECTOR_MAGIC:
        raise Malformed("a deletion vector has no magic")
    if zlib.crc32(guarded) != int.from_bytes(crc, "big"):
        raise Malformed("a deletion vector has another CRC-32 than it says")
    return roaring.cardinality(guarded[len(_VECTOR_MAGIC) :])
