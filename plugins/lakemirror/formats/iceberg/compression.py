"""Compressed blocks as Avro and ORC files hold them: unpacked into bounded memory, packed deterministically.

The codecs are raw deflate, snappy, LZ4 blocks, zstd and bzip2. Data that is cut, damaged or larger than it may be
ends in Malformed.
"""

from __future__ import annotations

import bz2
from typing import Literal, cast

import pyarrow as pa
from isal import isal_zlib
from isal.igzip_lib import IsalError

from lakemirror.formats.iceberg.avro_values import Malformed

Codec = Literal["deflate", "snappy", "lz4", "zstd", "bzip2"]
_ARROW_NAMES = {"snappy": "snappy", "lz4": "lz4_raw", "zstd": "zstd"}
_DEFLATE_LEVEL = 1
_BZIP2_LEVEL = 9
_SNAPPY_MOST = 22  # bytes out of one: a copy of 64 takes three
_LEAST_MATCH = 4
_READ_BYTES = 1 << 20
# isal's stubs declare IsalError as a value, though it is a class
_DAMAGED = (pa.ArrowException, OSError, cast(type[Exception], IsalError))


class TooLarge(Malformed):
    """A block is whole as far as was looked, and unpacks to more than there is room for."""


def unpack(codec: Codec, packed: bytes, room: int) -> bytes:
    """The plain bytes, no more than `room` of them."""
    try:
        plain = _unpack(codec, packed, room)
    except _DAMAGED as err:
        raise Malformed(f"a block of {codec} is damaged ({err})") from err
    if len(plain) > room:
        raise TooLarge(f"a block unpacks to more than {room} bytes")
    return plain


def pack(codec: Codec, plain: bytes) -> bytes:
    if codec == "deflate":
        # not `isal_zlib.compress`: of one process in some hundreds it makes other bytes, by where its memory lies
        packer = isal_zlib.compressobj(_DEFLATE_LEVEL, isal_zlib.DEFLATED, -15)
        return bytes(packer.compress(plain) + packer.flush())
    if codec == "bzip2":
        return bz2.compress(plain, _BZIP2_LEVEL)
    return bytes(pa.compress(plain, codec=_ARROW_NAMES[codec], asbytes=True))


def _unpack(codec: Codec, packed: bytes, room: int) -> bytes:
    if codec == "deflate":
        unpacker = isal_zlib.decompressobj(wbits=-15)
        plain = bytes(unpacker.decompress(packed, room + 1))  # 0 would mean without a limit
        if len(plain) <= room and (not unpacker.eof or unpacker.unused_data):
            raise Malformed("a block of deflate is cut, or longer than its data")
        return plain
    if codec == "bzip2":
        bunzip = bz2.BZ2Decompressor()
        plain = bunzip.decompress(packed, room + 1)
        if len(plain) <= room and (not bunzip.eof or bunzip.unused_data):
            raise Malformed("a block of bzip2 is cut, or longer than its data")
        return plain
    if codec == "zstd":
        return _unpack_stream(packed, room)
    size = _snappy_size(packed) if codec == "snappy" else _lz4_size(packed, room)
    if codec == "snappy" and size > _SNAPPY_MOST * len(packed):
        raise Malformed(f"a block of snappy says that {size} bytes are in {len(packed)}")
    if size > room:
        raise TooLarge(f"a block unpacks to more than {room} bytes")
    if size == 0:
        return b""
    return bytes(pa.decompress(packed, decompressed_size=size, codec=_ARROW_NAMES[codec], asbytes=True))


def _unpack_stream(packed: bytes, room: int) -> bytes:
    """Zstd need not say its size; a read takes the memory it asks for, so it asks for little.

    `read` would not give its memory back when it fails.
    """
    parts, size = [], 0
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        while size <= room and (part := stream.read_buffer(_READ_BYTES).to_pybytes()):
            parts.append(part)
            size += len(part)
    return b"".join(parts)


def _snappy_size(packed: bytes) -> int:
    size = shift = 0
    for byte in packed[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
        shift += 7
    raise Malformed("a block of snappy does not say its size")


def _lz4_size(packed: bytes, room: int) -> int:
    """A block of LZ4 does not say its size: add up what its sequences will copy."""
    size = at = 0
    while at < len(packed) and size <= room:
        token = packed[at]
        literals, at = _lz4_length(packed, at + 1, token >> 4)
        at += literals
        size += literals
        if at == len(packed):
            return size
        match, at = _lz4_length(packed, at + 2, token & 15)
        size += match + _LEAST_MATCH
    if size <= room:
        raise Malformed("a block of lz4 is cut")
    return size


def _lz4_length(packed: bytes, at: int, length: int) -> tuple[int, int]:
    if length < 15:
        return length, at
    while at < len(packed):
        length += packed[at]
        at += 1
        if packed[at - 1] < 255:
            return length, at
    raise Malformed("a block of lz4 is cut")
