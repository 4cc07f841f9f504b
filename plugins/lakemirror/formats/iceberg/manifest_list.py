"""Manifest lists: which manifests make up a snapshot, and the same list with paths and lengths of the mirror."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg import avro
from lakemirror.formats.iceberg.avro_walk import Malformed, Record, Walker, splice, write_bytes, write_long

PATH, LENGTH, CONTENT, ADDED_FILES, EXISTING_FILES, KEY_METADATA = 500, 501, 517, 504, 505, 519
MAX_BYTES = 1 << 28  # of a list, as it lies on the store
WANTED = (PATH, LENGTH, CONTENT, ADDED_FILES, EXISTING_FILES, KEY_METADATA)


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """A manifest as a list names it; counts are None where an old writer left them out."""

    path: str
    length: int
    has_deletes: bool
    added_files: int | None
    existing_files: int | None


@dataclass(frozen=True, slots=True)
class MirroredManifest:
    path: str
    length: int


def read(data: bytes, uri: str) -> tuple[ManifestRef, ...]:
    """All manifests of a list, in its order; any damage is an error, never an empty answer."""
    return tuple(_ref(record, uri) for _, records in _blocks(avro.parse(data, uri), uri) for record in records)


def rewrite(data: bytes, uri: str, manifests: Mapping[str, MirroredManifest]) -> bytes:
    """The list for the mirror: paths and lengths from `manifests` (by source path), nothing else changed."""
    file = avro.parse(data, uri)
    blocks = []
    for block, records in _blocks(file, uri):
        edits: list[tuple[int, int, bytes]] = []
        for record in records:
            edits += sorted(_edits(record, uri, manifests))
        blocks.append(avro.Block(block.count, splice(block.data, edits)))
    return avro.assemble(file, blocks)


def _edits(record: Record, uri: str, manifests: Mapping[str, MirroredManifest]) -> Iterator[tuple[int, int, bytes]]:
    path, length = record[PATH], record[LENGTH]
    mirrored = manifests.get(path.value)
    if mirrored is None:
        raise PermanentError("rewrite manifest list", uri, f"{path.value} was not rewritten", "report this")
    yield path.start, path.end, write_bytes(mirrored.path.encode())
    yield length.start, length.end, write_long(mirrored.length)


def _blocks(file: avro.AvroFile, uri: str) -> Iterator[tuple[avro.Block, list[Record]]]:
    """Each block with its records; damage becomes an error that names the file."""
    try:
        walker = Walker(file.metadata["avro.schema"], WANTED)
        for block in file.blocks:
            records = list(walker.walk(block.data, block.count))
            for record in records:
                _check(record)
            yield block, records
    except (Malformed, LookupError, TypeError, AttributeError, RecursionError) as err:
        raise PermanentError(
            "read manifest list", uri, f"not readable ({err!r})", "the source's file is damaged; nothing was published"
        ) from err


def _check(record: Record) -> None:
    """What every later step builds on; the rest is copied as it is."""
    if not isinstance(record[PATH].value, str) or not isinstance(record[LENGTH].value, int) or record[LENGTH].value < 0:
        raise Malformed("an entry has no path or no length")
    if CONTENT in record and record[CONTENT].value not in (0, 1):
        raise Malformed(f"an entry has content type {record[CONTENT].value!r}")
    for field_id in (ADDED_FILES, EXISTING_FILES):
        count = record[field_id].value if field_id in record else None
        if count is not None and (not isinstance(count, int) or count < 0):
            raise Malformed(f"an entry has a count of {count!r}")


def _ref(record: Record, uri: str) -> ManifestRef:
    def value(field_id: int) -> Any:
        return record[field_id].value if field_id in record else None

    if value(KEY_METADATA) is not None:
        raise UnsupportedError(
            "read manifest list", uri, f"{value(PATH)} is encrypted", "encrypted tables are not mirrored"
        )
    return ManifestRef(value(PATH), value(LENGTH), value(CONTENT) == 1, value(ADDED_FILES), value(EXISTING_FILES))
