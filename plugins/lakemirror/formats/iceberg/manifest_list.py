"""Manifest lists: which manifests make up a snapshot, and the same list with paths and lengths of the mirror."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg import avro
from lakemirror.formats.iceberg.avro_walk import (
    Malformed,
    Places,
    Ranges,
    Record,
    Walker,
    splice,
    write_bytes,
    write_long,
)

PATH, LENGTH, CONTENT, SEQUENCE_NUMBER, KEY_METADATA = 500, 501, 517, 515, 519
ADDED_FILES, EXISTING_FILES, DELETED_FILES = 504, 505, 506
_COUNTS = (ADDED_FILES, EXISTING_FILES, DELETED_FILES)
MAX_BYTES = 1 << 28  # of a list, as it lies on the store
MAX_MANIFESTS = 1 << 20
WANTED = (PATH, LENGTH, CONTENT, SEQUENCE_NUMBER, *_COUNTS, KEY_METADATA)
Content = tuple[int | bytes, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """A manifest as a list names it; counts are None where an old writer left them out."""

    path: str
    length: int
    has_deletes: bool
    added_files: int | None
    existing_files: int | None
    deleted_files: int | None
    sequence_number: int = 0  # of the commit that wrote it; 0 in format version 1

    @property
    def entries(self) -> int | None:
        """How many entries the manifest has, if the list says so."""
        counts = (self.added_files, self.existing_files, self.deleted_files)
        return sum(count for count in counts if count is not None) if None not in counts else None


@dataclass(frozen=True, slots=True)
class MirroredManifest:
    path: str
    length: int


class Seen(Generic[T]):
    """What was made of records before, by schema and content: the lists of one table repeat each other's records."""

    def __init__(self) -> None:
        self._made: dict[bytes, dict[Content, T]] = {}

    def of(self, schema: bytes) -> dict[Content, T]:
        return self._made.setdefault(schema, {})


def read(data: bytes, uri: str, seen: Seen[ManifestRef] | None = None) -> tuple[ManifestRef, ...]:
    """All manifests of a list, in its order; any damage is an error, never an empty answer."""
    file = avro.parse(data, uri)
    known = (seen or Seen()).of(file.metadata["avro.schema"])
    with _named(uri):
        parts = (part for _, parts in _blocks(file, uri) for part in parts)
        return tuple(ref for part in parts for _, ref in _made(part, known, lambda record: _ref(record, uri)))


def rewrite(
    data: bytes, uri: str, manifests: Mapping[str, MirroredManifest], seen: Seen[tuple[bytes, bytes]] | None = None
) -> bytes:
    """The list for the mirror: paths and lengths from `manifests` (by source path), nothing else changed.

    `seen` may be shared by lists that are rewritten with the same `manifests`.
    """
    file = avro.parse(data, uri)
    blocks = []
    known = (seen or Seen()).of(file.metadata["avro.schema"])
    with _named(uri):
        for block, parts in _blocks(file, uri):
            made = ((part, _made(part, known, lambda record: _mirrored(record, uri, manifests))) for part in parts)
            new = b"".join(splice(part.data, _edits(part, found)) for part, found in made)
            blocks.append(avro.Block(block.count, new))
    return avro.assemble(file, blocks)


def _mirrored(record: Record, uri: str, manifests: Mapping[str, MirroredManifest]) -> tuple[bytes, bytes]:
    path = record[PATH].value
    mirrored = manifests.get(path)
    if mirrored is None:
        raise PermanentError("rewrite manifest list", uri, f"{path} was not rewritten", "report this")
    return write_bytes(mirrored.path.encode()), write_long(mirrored.length)


def _edits(ranges: Ranges, found: Iterable[tuple[Places, tuple[bytes, bytes]]]) -> Iterator[tuple[int, int, bytes]]:
    """In the order of the bytes, which is that of the schema."""
    slots = {slot.field_id: number for number, slot in enumerate(ranges.program.slots)}
    path, length = 3 * slots[PATH], 3 * slots[LENGTH]
    for places, (new_path, new_length) in found:
        edits = [
            (places[path + 1], places[path + 2], new_path),
            (places[length + 1], places[length + 2], new_length),
        ]
        yield from sorted(edits)


def _blocks(file: avro.AvroFile, uri: str) -> Iterator[tuple[avro.Block, Iterator[Ranges]]]:
    """Each block with its records, some at a time."""
    walker = Walker(file.metadata["avro.schema"], WANTED)
    count = sum(block.count for block in file.blocks)
    if count > MAX_MANIFESTS:
        raise UnsupportedError(
            "read manifest list", uri, f"it names {count} manifests", f"want {MAX_MANIFESTS} or fewer: rewrite them"
        )
    for block in file.blocks:
        yield block, walker.ranges(block.data, block.count)


@contextmanager
def _named(uri: str) -> Iterator[None]:
    """Damage found inside becomes an error that names the file."""
    try:
        yield
    except (Malformed, LookupError, TypeError, AttributeError, RecursionError) as err:
        raise PermanentError(
            "read manifest list", uri, f"not readable ({err!r})", "the source's file is damaged; nothing was published"
        ) from err


def _made(ranges: Ranges, known: dict[Content, T], make: Callable[[Record], T]) -> list[tuple[Places, T]]:
    found = []
    for places in ranges.places():
        content = ranges.content(places)
        made = known.get(content)
        if made is None:
            record = ranges.record(places)
            _check(record)
            made = known[content] = make(record)
        found.append((places, made))
    return found


def _check(record: Record) -> None:
    """What every later step builds on; the rest is copied as it is."""
    if not isinstance(record[PATH].value, str) or not isinstance(record[LENGTH].value, int) or record[LENGTH].value < 0:
        raise Malformed("an entry has no path or no length")
    if CONTENT in record and record[CONTENT].value not in (0, 1):
        raise Malformed(f"an entry has content type {repr(record[CONTENT].value)[:100]}")
    for field_id in _COUNTS:
        count = record[field_id].value if field_id in record else None
        if count is not None and (not isinstance(count, int) or count < 0):
            raise Malformed(f"an entry has a count of {repr(count)[:100]}")
    number = record[SEQUENCE_NUMBER].value if SEQUENCE_NUMBER in record else None
    if number is not None and not isinstance(number, int):
        raise Malformed(f"an entry has the sequence number {repr(number)[:100]}")


def _ref(record: Record, uri: str) -> ManifestRef:
    def value(field_id: int) -> Any:
        return record[field_id].value if field_id in record else None

    if value(KEY_METADATA) is not None:
        raise UnsupportedError(
            "read manifest list", uri, f"{value(PATH)} is encrypted", "encrypted tables are not mirrored"
        )
    added, existing, deleted = (value(field_id) for field_id in _COUNTS)
    number = value(SEQUENCE_NUMBER) or 0
    return ManifestRef(value(PATH), value(LENGTH), value(CONTENT) == 1, added, existing, deleted, number)
