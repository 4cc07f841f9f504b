"""Position delete files (Avro): the same records with the path bytes replaced, everything else copied raw.

Header, schema, blocks and their sizes in records stay as they are. Rows keep their order, unless mapping would leave
them unsorted by path, which the specification forbids. Codecs are those that Iceberg can write: deflate, snappy,
zstandard and none.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg import avro, compression
from lakemirror.formats.iceberg.avro_walk import Malformed, Record, Walker, splice, write_bytes
from lakemirror.formats.iceberg.delete_facts import DELETE_POSITION, MappedPaths, RewrittenDeletes, damaged
from lakemirror.formats.iceberg.manifest import DELETE_FILE_PATH
from lakemirror.formats.iceberg.path_free import header_entries
from lakemirror.model.paths import PrefixMap

MAX_ROWS = 1 << 24
MAX_SORTED_ROWS = 1 << 22
_CRC_BYTES = 4  # after each block of snappy: CRC-32 of the plain bytes
_DAMAGED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)  # Malformed is a ValueError
_CODECS: dict[str, compression.Codec] = {"snappy": "snappy", "zstandard": "zstd"}  # which `avro` leaves packed


def rewrite(data: bytes, uri: str, paths: PrefixMap) -> RewrittenDeletes:
    """The delete file for the mirror with the facts its manifest entry needs."""
    try:
        file = _open(data, uri)
        mapped = MappedPaths(paths)
        blocks = [*_mapped_blocks(file, mapped, uri)]
        if mapped.must_sort:
            blocks = _sorted(file, blocks, uri)
        return mapped.rewritten(_assemble(file, _header(file, paths), blocks), uri)
    except _DAMAGED as err:
        raise damaged(uri, f"not a readable Avro file ({err})") from err


def is_same(left: bytes, right: bytes) -> bool:
    """True if two delete files hold the same records in the same order, however they were compressed."""
    try:
        one, other = _open(left, ""), _open(right, "")
    except (*_DAMAGED, PermanentError):  # what is not whole is not the same
        return False
    return (
        one.codec == other.codec
        and one.file.metadata == other.file.metadata
        and sum(block.count for block in one.blocks) == sum(block.count for block in other.blocks)
        and b"".join(block.data for block in one.blocks) == b"".join(block.data for block in other.blocks)
    )


@dataclass(frozen=True, slots=True)
class _Opened:
    """A file with plain blocks; with a `codec` of ours, `file` is the file that claims to have none."""

    file: avro.AvroFile
    header: bytes
    codec: str | None
    blocks: tuple[avro.Block, ...]


def _open(data: bytes, uri: str) -> _Opened:
    codec, plain_header = _our_codec(data)
    if codec is None:
        file = avro.parse(data, uri)
        return _Opened(file, file.header, None, tuple(file.blocks))
    file = avro.parse(plain_header, uri)
    header = data[: len(file.header) + len(data) - len(plain_header)]
    blocks, room = [], avro.MAX_PLAIN_BYTES
    for block in file.blocks:
        blocks.append(avro.Block(block.count, _unpack(codec, block.data, room)))
        room -= len(blocks[-1].data)
    return _Opened(file, header, codec, tuple(blocks))


def _our_codec(data: bytes) -> tuple[str | None, bytes]:
    """The codec if it is one of ours, and the file as it would be without one: its blocks are then left packed.

    Should the text of the entry stand elsewhere first, the entry itself stays and `avro` refuses its codec.
    """
    for codec in _CODECS:
        entry, plain = (write_bytes(b"avro.codec") + write_bytes(name.encode()) for name in (codec, "null"))
        if entry in data:
            return codec, data.replace(entry, plain, 1)
    return None, data


def _unpack(codec: str, packed: bytes, room: int) -> bytes:
    if codec != "snappy":
        return compression.unpack(_CODECS[codec], packed, room)
    plain = compression.unpack("snappy", packed[:-_CRC_BYTES], room)
    if zlib.crc32(plain) != int.from_bytes(packed[-_CRC_BYTES:], "big"):
        raise Malformed("a block has another CRC-32 than it says")
    return plain


def _pack(codec: str, plain: bytes) -> bytes:
    packed = compression.pack(_CODECS[codec], plain)
    return packed + zlib.crc32(plain).to_bytes(_CRC_BYTES, "big") if codec == "snappy" else packed


def _header(file: _Opened, paths: PrefixMap) -> bytes:
    """The file's header, without comments and key-values that name the source."""
    entries = header_entries(file.file.metadata, paths)
    if entries is None:
        return file.header
    codec = {} if file.codec is None else {"avro.codec": file.codec.encode()}
    return avro.encode_header({**entries, **codec}, file.file.sync)


def _assemble(file: _Opened, header: bytes, blocks: list[avro.Block]) -> bytes:
    codec = file.codec
    packed = blocks if codec is None else [avro.Block(block.count, _pack(codec, block.data)) for block in blocks]
    return header + avro.assemble(file.file, packed)[len(file.file.header) :]


def _mapped_blocks(file: _Opened, mapped: MappedPaths, uri: str) -> Iterator[avro.Block]:
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


def _walker(file: _Opened, uri: str) -> Walker:
    schema = file.file.schema
    found = [field["type"] for field in schema["fields"] if field.get("field-id") == DELETE_FILE_PATH]
    if found not in (["string"], [["null", "string"]]):
        raise damaged(uri, f"no column of text with field id {DELETE_FILE_PATH}")
    return Walker(schema, (DELETE_FILE_PATH, DELETE_POSITION))


def _sorted(file: _Opened, blocks: list[avro.Block], uri: str) -> list[avro.Block]:
    """All records by path and position, in blocks of as many records as they were."""
    first = file.file.schema["fields"][0]
    count = sum(block.count for block in blocks)
    if (first.get("field-id"), first["type"]) != (DELETE_FILE_PATH, "string") or count > MAX_SORTED_ROWS:
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
