"""Avro object files as bytes: take the blocks out, put them back, touch nothing else.

Every length is checked before it is believed; a file that is cut, padded or
absurd ends in a PermanentError that names it, in bounded memory. Codecs: null and deflate; others are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from isal import isal_zlib
from isal.igzip_lib import IsalError

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg.avro_walk import Malformed, read_long, write_bytes, write_long

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
MAX_PLAIN_BYTES = 1 << 30  # of all blocks of a file together, unpacked
_LEVEL = 1
# isal's stubs declare IsalError as a value, though it is a class
_DAMAGED = (Malformed, cast(type[Exception], IsalError), ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Block:
    count: int
    data: bytes


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


def parse(data: bytes, uri: str) -> AvroFile:
    """Take an Avro object file apart; `uri` is for error messages only."""
    try:
        return _parse(data, uri)
    except _DAMAGED as err:
        raise PermanentError(
            "read avro", uri, f"not a whole Avro file ({err})", "the source's file is damaged; nothing was published"
        ) from err


def _parse(data: bytes, uri: str) -> AvroFile:
    if data[: len(MAGIC)] != MAGIC:
        raise Malformed("no Avro magic at its start")
    metadata, pos = _read_metadata(data, len(MAGIC))
    header_end = pos + SYNC_BYTES
    if header_end > len(data):
        raise Malformed("the header is cut")
    sync = data[pos:header_end]
    codec = metadata.get("avro.codec", b"null").decode()
    if codec not in ("null", "deflate"):
        raise UnsupportedError("read avro", uri, f"codec {codec!r} is not supported", "want null or deflate")
    if "avro.schema" not in metadata:
        raise Malformed("no schema in the header")
    json.loads(metadata["avro.schema"])
    blocks = []
    pos, room = header_end, MAX_PLAIN_BYTES
    while pos < len(data):
        count, pos = read_long(data, pos)
        size, pos = read_long(data, pos)
        end = pos + size
        if count < 0 or size < 0 or end + SYNC_BYTES > len(data):
            raise Malformed(f"a block of {count} records and {size} bytes does not fit")
        if data[end : end + SYNC_BYTES] != sync:
            raise Malformed("a block does not end in the sync marker")
        blocks.append(Block(count, _inflate(data[pos:end], room) if codec == "deflate" else data[pos:end]))
        room -= len(blocks[-1].data)
        pos = end + SYNC_BYTES
    return AvroFile(data[:header_end], metadata, codec, tuple(blocks))


def _read_metadata(data: bytes, pos: int) -> tuple[dict[str, bytes], int]:
    metadata: dict[str, bytes] = {}
    while True:
        count, pos = read_long(data, pos)
        if count == 0:
            return metadata, pos
        if count < 0:
            count = -count
            _, pos = read_long(data, pos)
        if count > len(data):
            raise Malformed("the header claims more entries than bytes")
        for _ in range(count):
            key, pos = _read_bytes(data, pos)
            value, pos = _read_bytes(data, pos)
            metadata[key.decode()] = value


def _read_bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    size, pos = read_long(data, pos)
    if size < 0 or pos + size > len(data):
        raise Malformed("a header entry does not fit")
    return data[pos : pos + size], pos + size


def _inflate(packed: bytes, room: int) -> bytes:
    unpacker = isal_zlib.decompressobj(wbits=-15)
    plain: bytes = unpacker.decompress(packed, room + 1)  # 0 would mean without a limit
    if not unpacker.eof or len(plain) > room:
        raise Malformed(f"a block is cut, or the file unpacks to more than {MAX_PLAIN_BYTES} bytes")
    return plain


def encode_header(metadata: Mapping[str, bytes], sync: bytes) -> bytes:
    """A header with these entries, in this order."""
    entries = b"".join(write_bytes(key.encode()) + write_bytes(value) for key, value in metadata.items())
    return MAGIC + write_long(len(metadata)) + entries + write_long(0) + sync


def assemble(file: AvroFile, blocks: Iterable[Block]) -> bytes:
    """Put a file together again from its own header and new blocks."""
    parts = [file.header]
    for block in blocks:
        body = _deflate(block.data) if file.codec == "deflate" else block.data
        parts += [write_long(block.count), write_long(len(body)), body, file.sync]
    return b"".join(parts)


def _deflate(plain: bytes) -> bytes:
    packer = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, -15)
    packed: bytes = packer.compress(plain) + packer.flush()
    return packed


def same_records(left: bytes, right: bytes, uri: str) -> bool:
    """True if two files hold the same records under the same header, however they were compressed."""
    try:
        one, other = parse(left, uri), parse(right, uri)
    except PermanentError:  # what is not whole is not the same
        return False
    return (
        one.metadata == other.metadata
        and sum(block.count for block in one.blocks) == sum(block.count for block in other.blocks)
        and b"".join(block.data for block in one.blocks) == b"".join(block.data for block in other.blocks)
    )
