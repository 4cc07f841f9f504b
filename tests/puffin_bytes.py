"""Puffin files made to order, written apart from the library; bitmaps come from CRoaring."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyroaring import BitMap64

MAGIC = b"PFA1"
Json = dict[str, Any]


def bitmap(positions: Iterable[int], *, runs: bool = False) -> bytes:
    found = BitMap64(positions)
    if runs:
        found.run_optimize()
    return bytes(found.serialize())


def vector(body: bytes) -> bytes:
    """A deletion vector around a serialised bitmap."""
    guarded = b"\xd1\xd3\x39\x64" + body
    return struct.pack(">I", len(guarded)) + guarded + struct.pack(">I", zlib.crc32(guarded))


def vector_blob(path: str, cardinality: int | str) -> Json:
    return {
        "type": "deletion-vector-v1",
        "fields": [2147483645],
        "snapshot-id": -1,
        "sequence-number": -1,
        "properties": {"referenced-data-file": path, "cardinality": str(cardinality)},
    }


def puffin(
    blobs: Sequence[tuple[Json, bytes]], *, padding: bytes = b"", more: Mapping[str, Any] | None = None
) -> bytes:
    """A file of these blobs, `padding` before each; offset and length are filled in unless they are given."""
    body, described = MAGIC, []
    for blob, data in blobs:
        body += padding
        described.append({"offset": len(body), "length": len(data), **blob})
        body += data
    return body + footer({"blobs": described, "properties": {"created-by": "a test"}, **(more or {})})


def footer(payload: Any, *, flags: bytes = bytes(4), size: int | None = None) -> bytes:
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return MAGIC + raw + struct.pack("<i", len(raw) if size is None else size) + flags + MAGIC


def deletion_vectors(positions: Mapping[str, Iterable[int]], **options: Any) -> bytes:
    """A file with a deletion vector for each data file."""
    blobs = []
    for path, wanted in positions.items():
        unique = {*wanted}
        blobs.append((vector_blob(path, len(unique)), vector(bitmap(unique))))
    return puffin(blobs, **options)
