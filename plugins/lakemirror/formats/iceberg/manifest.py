"""Manifests: the live files they name, and the same manifest with every path mapped.

Reading gives live entries only; a DELETED entry stays in the manifest and its file is never opened. Rewriting changes
paths, the sizes and path bounds of rewritten position deletes, and nothing else: it is a pure function of the source
manifest, the prefix map and the facts of those delete files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg import avro, plain_manifest
from lakemirror.formats.iceberg.avro_walk import (
    Engine,
    Field,
    Malformed,
    Ranges,
    Record,
    Walker,
    splice,
    write_bytes,
    write_long,
)
from lakemirror.formats.iceberg.manifest_fields import (
    CONTENT,
    FILE_FORMAT,
    FILE_PATH,
    FILE_SIZE,
    KEY_METADATA,
    LOWER_BOUNDS,
    REFERENCED_DATA_FILE,
    STATUS,
    TO_READ_DATA,
    TO_READ_DELETES,
    TO_REWRITE_DATA,
    TO_REWRITE_DELETES,
    UPPER_BOUNDS,
)
from lakemirror.formats.iceberg.plain_manifest import Columns, PlainRules
from lakemirror.model.paths import PrefixMap

DELETED = 2
DELETE_FILE_PATH = 2147483546  # the reserved field id of a position delete's file_path column

Kind = Literal["data", "position_delete", "equality_delete"]
_KINDS: dict[int, Kind] = {0: "data", 1: "position_delete", 2: "equality_delete"}


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
class DeleteFileFacts:
    """What a manifest must say of a rewritten position delete file."""

    size_bytes: int
    lower: bytes
    upper: bytes


def check_length(data: bytes, uri: str, want: int) -> None:
    """A manifest that is cut between two blocks is whole as Avro: only its length in the manifest list tells."""
    _check_length(len(data), uri, want)


def check_length_of(pieces: Iterable[bytes], uri: str, want: int) -> Iterator[bytes]:
    """The same for a manifest that comes in pieces; the error comes after the last of them."""
    got = 0
    for piece in pieces:
        got += len(piece)
        yield piece
    _check_length(got, uri, want)


def _check_length(got: int, uri: str, want: int) -> None:
    if got < want:
        raise PermanentError(
            "read manifest",
            uri,
            f"it is cut (want {want} bytes, got {got})",
            "the file is damaged, or its manifest list is wrong: then rewrite the manifests on the source",
        )


def live_entries(
    data: bytes | Iterable[bytes], uri: str, paths: PrefixMap | None = None, *, engine: Engine | None = None
) -> Iterator[LiveEntry]:
    """Every live entry of a manifest; any damage is an error, never an empty answer.

    With `paths` every path that `rewrite` will map, of deleted entries too, must lie under a known root.
    """
    for part in live_parts(data, uri, paths, PlainRules(()), engine=engine):
        if not isinstance(part, Columns):
            yield from part


def live_parts(
    data: bytes | Iterable[bytes],
    uri: str,
    paths: PrefixMap | None,
    rules: PlainRules,
    *,
    engine: Engine | None = None,
) -> Iterator[Columns | list[LiveEntry]]:
    """The live entries of a manifest in order, some at a time: as columns where all of them are plain data files.

    With the walker in Python, and for what `rules` do not map beyond doubt, they come as objects. `paths` as above.
    """
    stream = _open(data, uri)
    holds_deletes = _holds_deletes(stream.header)
    walker = _walker(stream.header, uri, TO_READ_DELETES if holds_deletes else TO_READ_DATA, engine)
    for _, ranges in _ranges(stream, walker, uri):
        columns = None if holds_deletes else plain_manifest.columns(walker, ranges, rules)
        yield columns or _entries(ranges, uri, paths, holds_deletes=holds_deletes)


def _entries(ranges: Ranges, uri: str, paths: PrefixMap | None, *, holds_deletes: bool) -> list[LiveEntry]:
    found = []
    with _named(uri):
        for record in ranges.records():
            if paths is not None:
                _check_roots(record, uri, paths)
            if not _is_deleted(record, uri):
                found.append(_live_entry(record, uri, holds_deletes=holds_deletes))
    return found


def rewrite(
    data: bytes,
    uri: str,
    paths: PrefixMap,
    deletes: Mapping[str, DeleteFileFacts],
    *,
    engine: Engine | None = None,
) -> bytes:
    """The manifest for the mirror; `deletes` has the facts of its live position deletes by mirror path."""
    return b"".join(rewritten(data, uri, paths, deletes, engine=engine))


def rewritten(
    data: bytes | Iterable[bytes],
    uri: str,
    paths: PrefixMap,
    deletes: Mapping[str, DeleteFileFacts],
    *,
    engine: Engine | None = None,
) -> Iterator[bytes]:
    """The same in pieces, block by block: a manifest of any length in the memory of one block."""
    stream = _open(data, uri)
    holds_deletes = _holds_deletes(stream.header)
    walker = _walker(stream.header, uri, TO_REWRITE_DELETES if holds_deletes else TO_REWRITE_DATA, engine)
    rules = PlainRules(()) if holds_deletes else PlainRules.mapping(paths)

    def block_of(block: avro.Block) -> avro.Block:
        parts = []
        for ranges in _ranges_of(walker, block, uri):
            new = plain_manifest.rewrite(walker, ranges, rules)
            parts.append(_spliced(ranges, uri, paths, deletes, holds_deletes=holds_deletes) if new is None else new)
        return avro.Block(block.count, parts[0] if len(parts) == 1 else b"".join(parts))

    return avro.assembled(stream.header, map(block_of, stream.blocks()))


def _spliced(
    ranges: Ranges, uri: str, paths: PrefixMap, deletes: Mapping[str, DeleteFileFacts], *, holds_deletes: bool
) -> bytes:
    edits: list[tuple[int, int, bytes]] = []
    with _named(uri):
        for record in ranges.records():
            edits += sorted(_edits(record, uri, paths, deletes, holds_deletes=holds_deletes))
    return splice(ranges.data, edits)


def _open(data: bytes | Iterable[bytes], uri: str) -> avro.AvroStream:
    return avro.AvroStream([data] if isinstance(data, bytes) else data, uri)


def _walker(header: avro.Header, uri: str, wanted: tuple[int, ...], engine: Engine | None) -> Walker:
    with _named(uri):
        return Walker(header.metadata["avro.schema"], wanted, engine)


def _ranges(stream: avro.AvroStream, walker: Walker, uri: str) -> Iterator[tuple[avro.Block, Ranges]]:
    for block in stream.blocks():
        for ranges in _ranges_of(walker, block, uri):
            yield block, ranges


def _ranges_of(walker: Walker, block: avro.Block, uri: str) -> Iterator[Ranges]:
    with _named(uri):
        yield from walker.ranges(block.data, block.count)


@contextmanager
def _named(uri: str) -> Iterator[None]:
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


def _holds_deletes(header: avro.Header) -> bool:
    return header.metadata.get("content") == b"deletes"


def _value(record: Record, field_id: int, uri: str) -> object:
    if field_id not in record:
        raise PermanentError(
            "read manifest", uri, f"entries have no field {field_id}", "not a manifest of Iceberg v1 or v2"
        )
    return record[field_id].value


def _is_deleted(record: Record, uri: str) -> bool:
    status = _value(record, STATUS, uri)
    if status not in (0, 1, DELETED):
        raise PermanentError("read manifest", uri, f"an entry has status {status!r}", "the file is damaged")
    return status == DELETED


def _check_roots(record: Record, uri: str, paths: PrefixMap) -> None:
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


def _live_entry(record: Record, uri: str, *, holds_deletes: bool) -> LiveEntry:
    path, size = _value(record, FILE_PATH, uri), _value(record, FILE_SIZE, uri)
    if not isinstance(path, str) or not isinstance(size, int) or size < 0:
        raise PermanentError(
            "read manifest", uri, f"an entry has path {path!r} and size {size!r}", "the file is damaged"
        )
    if _optional(record, KEY_METADATA) is not None:
        raise UnsupportedError("read manifest", uri, f"{path} is encrypted", "encrypted tables are not mirrored")
    kind = _kind(record, uri, holds_deletes=holds_deletes)
    file_format = str(_value(record, FILE_FORMAT, uri)).upper()
    if kind == "position_delete" and file_format != "PARQUET":
        raise UnsupportedError(
            "read manifest", uri, f"position deletes in {file_format} are not supported ({path})", "want Parquet"
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


def _edits(
    record: Record, uri: str, paths: PrefixMap, deletes: Mapping[str, DeleteFileFacts], *, holds_deletes: bool
) -> Iterator[tuple[int, int, bytes]]:
    _value(record, FILE_PATH, uri)
    path_field = record[FILE_PATH]
    target = paths.map(path_field.value)
    yield path_field.start, path_field.end, write_bytes(target.encode())
    referenced = _optional(record, REFERENCED_DATA_FILE)
    if referenced is not None:
        yield referenced.start, referenced.end, write_bytes(paths.map(referenced.value).encode())
    if not holds_deletes or _kind(record, uri, holds_deletes=True) != "position_delete":
        return
    if _is_deleted(record, uri):
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
    yield from _bound_edits(record, facts.lower, facts.upper)


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
