"""A manifest's entry as a record: the live file that it names, and the edits that move it to the mirror.

Deleted entries are edited as well, and their files never opened.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg.avro_program import Program
from lakemirror.formats.iceberg.avro_walk import Field, Malformed, Record, write_bytes, write_long
from lakemirror.formats.iceberg.manifest_fields import (
    COLUMN_SIZES,
    CONTENT,
    CONTENT_OFFSET,
    CONTENT_SIZE,
    FILE_FORMAT,
    FILE_PATH,
    FILE_SIZE,
    KEY_METADATA,
    LOWER_BOUNDS,
    RECORD_COUNT,
    REFERENCED_DATA_FILE,
    SPLIT_OFFSETS,
    STATUS,
    UPPER_BOUNDS,
)
from lakemirror.model.paths import PrefixMap

ADDED, DELETED = 1, 2
DELETE_FILE_PATH = 2147483546  # the reserved field id of a position delete's file_path column

Bounds = tuple[bytes | None, bytes | None]
Kind = Literal["data", "position_delete", "equality_delete"]
_KINDS: dict[int, Kind] = {0: "data", 1: "position_delete", 2: "equality_delete"}
PUFFIN = "PUFFIN"
_EMPTY = write_long(0)  # a list or a map without items
_POSITION_DELETES = ("PARQUET", "ORC", "AVRO", PUFFIN)


@dataclass(frozen=True, slots=True)
class LiveEntry:
    """A file that a manifest holds alive; the bounds are those of a position delete's path column."""

    path: str
    size_bytes: int
    kind: Kind
    file_format: str
    lower: bytes | None
    upper: bytes | None


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """One deletion vector of a Puffin file, as its manifest entry must describe it."""

    referenced_data_file: str  # in the mirror
    offset: int  # content_offset
    length: int  # content_size_in_bytes
    cardinality: int  # record_count


@dataclass(frozen=True, slots=True)
class DeleteFileFacts:
    """What a manifest must say of a rewritten delete file.

    `vectors` are those of a Puffin file; None if it was rewritten with an earlier version. Entries that are carried
    over were checked with it then; for one that is new `read_vectors` looks into the mirror's file. Bounds that are
    not known, because an entry of an earlier manifest had none, `read_bounds` takes from there, too.
    """

    size_bytes: int
    lower: bytes | None
    upper: bytes | None
    vectors: frozenset[DeletionVector] | None = None
    read_vectors: Callable[[], frozenset[DeletionVector]] | None = dataclasses.field(default=None, compare=False)
    read_bounds: Callable[[str], Bounds] | None = dataclasses.field(default=None, compare=False)

    def bounds(self, file_format: str) -> Bounds:
        """Of the paths in the file; what the manifest says of them must not follow from who named it before."""
        if self.read_bounds is None or (self.lower is not None and self.upper is not None):
            return self.lower, self.upper
        return self.read_bounds(file_format)


@contextmanager
def named(uri: str) -> Iterator[None]:
    """Damage found inside becomes an error that names the file."""
    try:
        yield
    except (Malformed, LookupError, TypeError, AttributeError, RecursionError) as err:
        raise PermanentError(
            "read manifest",
            uri,
            f"not a readable manifest ({err!r})",
            "the source's file is damaged; nothing was published",
        ) from err


def _value(record: Record, field_id: int, uri: str) -> object:
    if field_id not in record:
        raise PermanentError(
            "read manifest", uri, f"entries have no field {field_id}", "not a manifest of Iceberg v1 to v3"
        )
    return record[field_id].value


def is_deleted(record: Record, uri: str) -> bool:
    status = _value(record, STATUS, uri)
    if status not in (0, 1, DELETED):
        raise PermanentError("read manifest", uri, f"an entry has status {status!r}", "the file is damaged")
    return status == DELETED


def check_roots(record: Record, uri: str, paths: PrefixMap) -> None:
    """Every path that `edits` will map lies under a known root."""
    _value(record, FILE_PATH, uri)
    for field in (record[FILE_PATH], _optional(record, REFERENCED_DATA_FILE)):
        if field is not None:
            paths.map(field.value)


def _optional(record: Record, field_id: int) -> Field | None:
    field = record.get(field_id)
    return field if field is not None and field.value is not None else None


def _kind(record: Record, uri: str, *, holds_deletes: bool) -> Kind:
    content = record[CONTENT].value if CONTENT in record else 0
    if content not in _KINDS:
        raise UnsupportedError("read manifest", uri, f"unknown content type {content}", "want 0, 1 or 2")
    if (content != 0) != holds_deletes:
        what = "deletes" if holds_deletes else "data"
        raise PermanentError(
            "read manifest", uri, f"a manifest of {what} holds content type {content}", "it is damaged"
        )
    return _KINDS[content]


def live_entry(record: Record, uri: str, *, holds_deletes: bool) -> LiveEntry:
    """The file that a live entry names; what contradicts itself or is not supported is an error."""
    path, size = _value(record, FILE_PATH, uri), _value(record, FILE_SIZE, uri)
    if not isinstance(path, str) or not isinstance(size, int) or size < 0:
        raise PermanentError(
            "read manifest", uri, f"an entry has path {path!r} and size {size!r}", "the file is damaged"
        )
    if _optional(record, KEY_METADATA) is not None:
        raise UnsupportedError("read manifest", uri, f"{path} is encrypted", "encrypted tables are not mirrored")
    kind = _kind(record, uri, holds_deletes=holds_deletes)
    file_format = str(_value(record, FILE_FORMAT, uri)).upper()
    if kind == "position_delete" and file_format not in _POSITION_DELETES:
        want = ", ".join(_POSITION_DELETES)
        raise UnsupportedError(
            "read manifest", uri, f"position deletes in {file_format} are not supported ({path})", f"want {want}"
        )
    is_path_bound = kind == "position_delete"
    lower = _path_bound(record, LOWER_BOUNDS) if is_path_bound else None
    upper = _path_bound(record, UPPER_BOUNDS) if is_path_bound else None
    return LiveEntry(path, size, kind, file_format, lower, upper)


def _path_bound(record: Record, field_id: int) -> bytes | None:
    field = _optional(record, field_id)
    if field is None:
        return None
    return next((bound["value"] for bound in field.value if bound["key"] == DELETE_FILE_PATH), None)


def edits(
    record: Record, uri: str, paths: PrefixMap, deletes: Mapping[str, DeleteFileFacts], *, holds_deletes: bool
) -> Iterator[tuple[int, int, bytes]]:
    """Byte ranges and what belongs there in the mirror, in no order."""
    _value(record, FILE_PATH, uri)
    path_field = record[FILE_PATH]
    target = paths.map(path_field.value)
    yield path_field.start, path_field.end, write_bytes(target.encode())
    referenced = _optional(record, REFERENCED_DATA_FILE)
    if referenced is not None:
        yield referenced.start, referenced.end, write_bytes(paths.map(referenced.value).encode())
    if not holds_deletes or _kind(record, uri, holds_deletes=True) != "position_delete":
        return
    if is_deleted(record, uri):
        yield from _bound_edits(
            record, _mapped_bound(record, LOWER_BOUNDS, paths), _mapped_bound(record, UPPER_BOUNDS, paths)
        )
        return
    facts = deletes.get(target)
    if facts is None:
        raise PermanentError(
            "rewrite manifest", uri, f"no facts for {target}", "report this: the plan missed a delete file"
        )
    yield record[FILE_SIZE].start, record[FILE_SIZE].end, write_long(facts.size_bytes)
    for field_id in (COLUMN_SIZES, SPLIT_OFFSETS):  # places and lengths in the source's file: nobody needs them
        field = _optional(record, field_id)
        if field is not None:
            yield field.start, field.end, _EMPTY
    file_format = str(_value(record, FILE_FORMAT, uri)).upper()
    if file_format == PUFFIN:
        bound = _check_vector(record, uri, paths, facts).encode()
        yield from _bound_edits(record, bound, bound)
    elif any(_path_bound(record, field_id) is not None for field_id in (LOWER_BOUNDS, UPPER_BOUNDS)):
        yield from _bound_edits(record, *facts.bounds(file_format))


def _check_vector(record: Record, uri: str, paths: PrefixMap, facts: DeleteFileFacts) -> str:
    """The data file that an entry's deletion vector is for; the vector must lie in its Puffin file where it says."""
    path = record[FILE_PATH].value
    found = [_optional(record, field_id) for field_id in (REFERENCED_DATA_FILE, CONTENT_OFFSET, CONTENT_SIZE)]
    referenced, offset, length = (None if field is None else field.value for field in found)
    if not isinstance(referenced, str) or offset is None or length is None:
        raise PermanentError(
            "rewrite manifest",
            uri,
            f"the entry of a deletion vector in {path} does not say where it lies or what it is for",
            "the file is damaged",
        )
    rows = _value(record, RECORD_COUNT, uri)
    if not all(isinstance(number, int) for number in (offset, length, rows)):
        raise PermanentError(
            "rewrite manifest", uri, f"the entry of a deletion vector in {path} has no numbers", "the file is damaged"
        )
    vector = DeletionVector(paths.map(referenced), offset, length, int(str(rows)))
    known = facts.vectors
    if known is None and facts.read_vectors is not None and _value(record, STATUS, uri) == ADDED:
        known = facts.read_vectors()
    if known is not None and vector not in known:
        raise PermanentError(
            "rewrite manifest",
            uri,
            f"{path} has no deletion vector for {referenced} of {vector.cardinality} rows at {offset} ({length} bytes)",
            "the manifest and its Puffin file contradict each other; repair the source",
        )
    return vector.referenced_data_file


def check_shapes(program: Program, uri: str) -> None:
    """What `edits` empties can be empty."""
    for field_id in (COLUMN_SIZES, SPLIT_OFFSETS):
        number = program.slot(field_id)
        if number is not None and not {*program.slots[number].kinds} <= {"null", "array", "map"}:
            raise PermanentError(
                "rewrite manifest", uri, f"field {field_id} is not a list", "not a manifest of Iceberg v1 to v3"
            )


def _mapped_bound(record: Record, field_id: int, paths: PrefixMap) -> bytes | None:
    """A tombstone's bound: mapped if it is a whole path, dropped if it is cut; its file is never opened."""
    bound = _path_bound(record, field_id)
    if bound is None:
        return None
    mapped = paths.find(bound.decode(errors="replace"))
    return None if mapped is None else mapped.encode()


def _bound_edits(record: Record, lower: bytes | None, upper: bytes | None) -> Iterator[tuple[int, int, bytes]]:
    for field_id, new in ((LOWER_BOUNDS, lower), (UPPER_BOUNDS, upper)):
        field = _optional(record, field_id)
        if field is None or _path_bound(record, field_id) is None:
            continue
        kept = [(b["key"], new if b["key"] == DELETE_FILE_PATH else b["value"]) for b in field.value]
        yield field.start, field.end, _encode_bounds([(key, value) for key, value in kept if value is not None])


def _encode_bounds(bounds: list[tuple[int, bytes]]) -> bytes:
    items = b"".join(write_long(key) + write_bytes(value) for key, value in bounds)
    return (write_long(len(bounds)) if bounds else b"") + items + write_long(0)
