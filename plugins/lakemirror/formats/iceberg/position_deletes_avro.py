"""Position delete files (Avro): the same records with the path bytes replaced, everything else copied raw.

Header, schema, blocks and their sizes in records stay as they are. Rows keep their order, unless mapping would leave
them unsorted by path, which the specification forbids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lakemirror.errors import UnsupportedError
from lakemirror.formats.iceberg import avro
from lakemirror.formats.iceberg.avro_slots import type_name, unwrapped
from lakemirror.formats.iceberg.avro_walk import Malformed, Record, Walker, splice, write_bytes
from lakemirror.formats.iceberg.delete_facts import DELETE_POSITION, MappedPaths, RewrittenDeletes, damaged
from lakemirror.formats.iceberg.manifest import DELETE_FILE_PATH
from lakemirror.formats.iceberg.path_free import header_entries, header_essence
from lakemirror.model.paths import PrefixMap

MAX_ROWS = 1 << 24
MAX_SORTED_ROWS = 1 << 22
_DAMAGED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)  # Malformed is a ValueError


def rewrite(data: bytes, uri: str, paths: PrefixMap) -> RewrittenDeletes:
    """The delete file for the mirror with the facts its manifest entry needs."""
    try:
        file = avro.parse(data, uri)
        mapped = MappedPaths(paths)
        blocks = [*_mapped_blocks(file, mapped, uri)]
        if not mapped.seen:  # nothing would tell it from one that is cut behind its header
            raise damaged(uri, "the file deletes nothing")
        if mapped.must_sort:
            blocks = _sorted(file, blocks, uri)
        return mapped.rewritten(avro.assemble(replace(file, header=_header(file, paths)), blocks), uri)
    except _DAMAGED as err:
        raise damaged(uri, f"not a readable Avro file ({err})") from err


def is_same(left: bytes, right: bytes, paths: PrefixMap | None = None) -> bool:
    """True if two delete files hold the same records in the same order, however they were compressed."""
    try:
        return avro.same_records(left, right, "", lambda entries: header_essence(entries, paths))
    except Malformed:  # a schema in a header that is none
        return False


def _header(file: avro.AvroFile, paths: PrefixMap) -> bytes:
    """The file's header, without comments and key-values that name the source."""
    entries = header_entries(file.metadata, paths)
    return file.header if entries is None else avro.encode_header(entries, file.sync)


def _mapped_blocks(file: avro.AvroFile, mapped: MappedPaths, uri: str) -> Iterator[avro.Block]:
    walker = _walker(file, uri)
    rows = sum(block.count for block in file.blocks)
    if rows > MAX_ROWS:
        raise UnsupportedError("read position deletes", uri, f"{rows} rows", f"want {MAX_ROWS} or fewer")
    for block in file.blocks:
        parts = []
        for part in walker.ranges(block.data, block.count):
            paths = (record[DELETE_FILE_PATH] for record in part.records())
            edits = [(path.start, path.end, write_bytes(mapped.map(path.value, uri).encode())) for path in paths]
            parts.append(splice(part.data, edits))
        yield avro.Block(block.count, b"".join(parts))


def _walker(file: avro.AvroFile, uri: str) -> Walker:
    schema = file.schema
    found = [field["type"] for field in schema["fields"] if field.get("field-id") == DELETE_FILE_PATH]
    if len(found) != 1 or not _is_text(found[0]):
        raise damaged(uri, f"no column of text with field id {DELETE_FILE_PATH}")
    return Walker(schema, (DELETE_FILE_PATH, DELETE_POSITION))


def _is_text(kind: object) -> bool:
    """Text, or text or nothing, in every way that a schema can say it."""
    kind = unwrapped(kind)
    branches = kind if isinstance(kind, list) else [kind]
    return sorted(type_name(unwrapped(branch)) for branch in branches) in (["string"], ["null", "string"])


def _sorted(file: avro.AvroFile, blocks: list[avro.Block], uri: str) -> list[avro.Block]:
    """All records by path and position, in blocks of as many records as they were."""
    first = file.schema["fields"][0]
    count = sum(block.count for block in blocks)
    is_first = first.get("field-id") == DELETE_FILE_PATH and not isinstance(unwrapped(first["type"]), list)
    if not is_first or count > MAX_SORTED_ROWS:
        raise UnsupportedError(
            "rewrite deletes",
            uri,
            f"its {count} rows need another order in the mirror",
            f"want {MAX_SORTED_ROWS} or fewer, the path first",
        )
    walker = _walker(file, uri)
    rows: list[tuple[str, int, bytes]] = []
    for block in blocks:
        records: list[Record] = [*walker.walk(block.data, block.count)]
        starts = [record[DELETE_FILE_PATH].start for record in records]
        for record, start, end in zip(records, starts, [*starts[1:], len(block.data)], strict=True):
            rows.append((record[DELETE_FILE_PATH].value, record[DELETE_POSITION].value, block.data[start:end]))
    rows.sort(key=lambda row: row[:2])
    taken, result = 0, []
    for block in blocks:
        result.append(avro.Block(block.count, b"".join(row[2] for row in rows[taken : taken + block.count])))
        taken += block.count
    return result
