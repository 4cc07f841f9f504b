"""Avro object files as bytes: take the blocks out, put them back, touch nothing else.

A file is read block by block from pieces of any size, so that its length does not matter; `parse` takes a small one
apart at once. Every length is checked before it is believed; a file that is cut, padded or absurd ends in a
PermanentError that names it, in bounded memory. Codecs are those that writers of Iceberg use; others are refused by
name. A file is put together again with its own codec.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from isal import isal_zlib
from isal.igzip_lib import IsalError

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg import compression
from lakemirror.formats.iceberg.avro_input import Input
from lakemirror.formats.iceberg.avro_values import Malformed, write_bytes, write_long
from lakemirror.model import bounded_json

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
MAX_HEADER_BYTES = 1 << 26
MAX_HEADER_ENTRIES = 1000
MAX_SCHEMA_BYTES = 8 << 20
MAX_SCHEMA_VALUES = 1 << 20
MAX_BLOCK_BYTES = 1 << 28  # of one block, packed or unpacked: what is in memory at once
MAX_PLAIN_BYTES = 1 << 29  # of all blocks together that `parse` unpacks
MAX_STREAM_BYTES = 1 << 34  # of all blocks together that are unpacked one after the other: an end even to endless bombs
_CODECS: dict[str, compression.Codec] = {"snappy": "snappy", "zstandard": "zstd", "bzip2": "bzip2"}
_CRC_BYTES = 4  # after each block of snappy: CRC-32 of the plain bytes
# isal's stubs declare IsalError as a value, though it is a class
_DAMAGED = (Malformed, cast(type[Exception], IsalError), ValueError, RecursionError)


class NotWhole(PermanentError):
    """The bytes are not a whole Avro file within the bounds."""


@dataclass(frozen=True, slots=True)
class Block:
    count: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Header:
    """The start of an object file; `raw` runs up to and including the sync marker."""

    raw: bytes
    metadata: dict[str, bytes]
    codec: str

    @property
    def sync(self) -> bytes:
        return self.raw[-SYNC_BYTES:]


@dataclass(frozen=True, slots=True)
class AvroFile:
    """An object file taken apart; `header` runs up to and including the sync marker."""

    header: bytes
    metadata: dict[str, bytes]
    codec: str
    blocks: tuple[Block, ...]

    @property
    def schema(self) -> Any:
        return json.loads(self.metadata["avro.schema"])

    @property
    def sync(self) -> bytes:
        return self.header[-SYNC_BYTES:]


class AvroStream:
    """An object file on its way in: the header is read, the blocks come one by one, once."""

    def __init__(self, pieces: Iterable[bytes], uri: str) -> None:
        """`uri` is for error messages only; errors of `pieces` pass through."""
        self._uri = uri
        self._input = Input(pieces)
        try:
            self.header = self._read_header()
        except _DAMAGED as err:
            raise _damaged(uri, err) from err

    def _read_header(self) -> Header:
        source = self._input
        source.limit(MAX_HEADER_BYTES, f"the header is longer than {MAX_HEADER_BYTES} bytes")
        if source.take(len(MAGIC)) != MAGIC:
            raise Malformed("no Avro magic at its start")
        metadata: dict[str, bytes] = {}
        while count := source.long():
            if count < 0:
                count = -count
                source.long()
            if len(metadata) + count > MAX_HEADER_ENTRIES:
                raise Malformed(f"the header has more than {MAX_HEADER_ENTRIES} entries")
            for _ in range(count):
                key = source.take(source.long())
                metadata[key.decode()] = source.take(source.long())
        source.take(SYNC_BYTES)
        codec = metadata.get("avro.codec", b"null").decode()
        known = ("null", "deflate", *_CODECS)
        if codec not in known:
            hint = f"want {', '.join(known[:-1])} or {known[-1]}"
            raise UnsupportedError("read avro", self._uri, f"codec {codec!r} is not supported", hint)
        if "avro.schema" not in metadata:
            raise Malformed("no schema in the header")
        _check_schema(metadata["avro.schema"])
        return Header(source.unlimit(), metadata, codec)

    def blocks(self, max_bytes: int | None = None) -> Iterator[Block]:
        """Each block, unpacked; `max_bytes` of them together."""
        limit = MAX_STREAM_BYTES if max_bytes is None else max_bytes
        room = limit
        try:
            while not self._input.is_at_end():
                block = self._read_block(min(room, MAX_BLOCK_BYTES), limit)
                room -= len(block.data)
                yield block
        except _DAMAGED as err:
            raise _damaged(self._uri, err) from err

    def _read_block(self, room: int, limit: int) -> Block:
        source, header = self._input, self.header
        count, size = source.long(), source.long()
        if count < 0 or not 0 <= size <= MAX_BLOCK_BYTES:
            raise Malformed(f"a block of {count} records and {size} bytes does not fit")
        data = source.take(size)
        if source.take(SYNC_BYTES) != header.sync:
            raise Malformed("a block does not end in the sync marker")
        try:
            return Block(count, _unpack(header.codec, data, room))
        except compression.TooLarge as err:
            raise Malformed(
                f"a block unpacks to more than {MAX_BLOCK_BYTES} bytes, or the file to more than {limit} bytes"
            ) from err


def _check_schema(schema: bytes) -> None:
    if len(schema) > MAX_SCHEMA_BYTES:
        raise Malformed(f"a schema of {len(schema)} bytes (want at most {MAX_SCHEMA_BYTES})")
    bounded_json.loads(schema, max_values=MAX_SCHEMA_VALUES)


def _damaged(uri: str, err: Exception) -> NotWhole:
    return NotWhole(
        "read avro", uri, f"not a whole Avro file ({err})", "the source's file is damaged; nothing was published"
    )


def _unpack(codec: str, packed: bytes, room: int) -> bytes:
    if codec == "deflate":
        return _inflate(packed, room)
    plain = packed
    if codec == "snappy":
        plain = compression.unpack("snappy", packed[:-_CRC_BYTES], room)
        if zlib.crc32(plain) != int.from_bytes(packed[-_CRC_BYTES:], "big"):
            raise Malformed("a block has another CRC-32 than it says")
    elif codec != "null":
        plain = compression.unpack(_CODECS[codec], packed, room)
    if len(plain) > room:
        raise compression.TooLarge(f"a block of more than {room} bytes")
    return plain


def _inflate(packed: bytes, room: int) -> bytes:
    """What lies behind the end of the data is left alone: many a writer leaves a part of zlib's checksum there."""
    unpacker = isal_zlib.decompressobj(wbits=-15)
    plain: bytes = unpacker.decompress(packed, room + 1)  # 0 would mean without a limit
    if len(plain) > room:
        raise compression.TooLarge(f"a block unpacks to more than {room} bytes")
    if not unpacker.eof:
        raise Malformed("a block of deflate is cut")
    return plain


def _pack(codec: str, plain: bytes) -> bytes:
    if codec == "null":
        return plain
    packed = compression.pack("deflate" if codec == "deflate" else _CODECS[codec], plain)
    return packed + zlib.crc32(plain).to_bytes(_CRC_BYTES, "big") if codec == "snappy" else packed


def encode_header(metadata: Mapping[str, bytes], sync: bytes) -> bytes:
    """A header with these entries, in this order."""
    entries = b"".join(write_bytes(key.encode()) + write_bytes(value) for key, value in metadata.items())
    return MAGIC + write_long(len(metadata)) + entries + write_long(0) + sync


def parse(data: bytes, uri: str) -> AvroFile:
    """Take a whole object file apart; `uri` is for error messages only."""
    stream = AvroStream([data], uri)
    blocks = tuple(stream.blocks(MAX_PLAIN_BYTES))
    return AvroFile(stream.header.raw, stream.header.metadata, stream.header.codec, blocks)


def assemble(file: AvroFile, blocks: Iterable[Block]) -> bytes:
    """Put a file together again from its own header and new blocks."""
    return b"".join(assembled(Header(file.header, file.metadata, file.codec), blocks))


def assembled(header: Header, blocks: Iterable[Block]) -> Iterator[bytes]:
    """The same, piece by piece: the header, then each block."""
    yield header.raw
    for block in blocks:
        body = _pack(header.codec, block.data)
        yield b"".join((write_long(block.count), write_long(len(body)), body, header.sync))


Entries = dict[str, bytes]


def same_records(
    left: bytes | Iterable[bytes],
    right: bytes | Iterable[bytes],
    uri: str,
    essence: Callable[[Entries], Entries] = lambda entries: entries,
) -> bool:
    """True if two files hold the same records under headers of the same essence, however they were compressed."""
    try:
        one, other = (AvroStream([side] if isinstance(side, bytes) else side, uri) for side in (left, right))
        headers = [essence(side.header.metadata) for side in (one, other)]
        return headers[0] == headers[1] and _same_blocks(one.blocks(), other.blocks())
    except (NotWhole, UnsupportedError):  # what cannot be read is not the same
        return False


def _same_blocks(left: Iterator[Block], right: Iterator[Block]) -> bool:
    """Counts and bytes of all blocks together; where a block ends does not matter."""
    counts = [0, 0]
    sides = (left, right)
    rest = [memoryview(b""), memoryview(b"")]
    while True:
        for side in (0, 1):
            while not rest[side]:
                block = next(sides[side], None)
                if block is None:
                    break
                counts[side] += block.count
                rest[side] = memoryview(block.data)
        size = min(map(len, rest))
        if size == 0:
            return not rest[0] and not rest[1] and counts[0] == counts[1]
        if rest[0][:size] != rest[1][:size]:
            return False
        rest = [part[size:] for part in rest]
