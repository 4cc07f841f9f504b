"""Avro by the book, written apart from the library so that the two can be held against each other.

Encodes and decodes whole records of any schema, and object files with every freedom the format leaves: codec, blocks,
negative counts, header order. Slow and plain.
"""

from __future__ import annotations

import bz2
import io
import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import zstandard

CODECS = ("null", "deflate", "snappy", "zstandard", "bzip2")
MAGIC = b"Obj\x01"
SYNC = bytes(range(16))


def long(value: int) -> bytes:
    zigzag = value * 2 if value >= 0 else -value * 2 - 1
    out = b""
    while zigzag >= 128:
        out += bytes([zigzag % 128 + 128])
        zigzag //= 128
    return out + bytes([zigzag])


def sized(value: bytes) -> bytes:
    return long(len(value)) + value


def encode(schema: Any, value: Any, *, negative_counts: bool = False) -> bytes:
    def go(kind: Any, one: Any) -> bytes:
        return encode(kind, one, negative_counts=negative_counts)

    if isinstance(schema, list):
        branch = schema.index("null") if one_is_null(value) else next(i for i, s in enumerate(schema) if s != "null")
        return long(branch) + go(schema[branch], value)
    name = schema if isinstance(schema, str) else schema["type"]
    match name:
        case "null":
            return b""
        case "boolean":
            return b"\x01" if value else b"\x00"
        case "int" | "long":
            return long(value)
        case "float" | "double":
            return struct.pack("<f" if name == "float" else "<d", value)
        case "string":
            return sized(value.encode())
        case "bytes":
            return sized(value)
        case "fixed":
            assert len(value) == schema["size"]
            return bytes(value)
        case "record":
            return b"".join(go(field["type"], value[field["name"]]) for field in schema["fields"])
        case "array":
            return _blocks([go(schema["items"], one) for one in value], negative_counts)
        case "map":
            return _blocks([sized(k.encode()) + go(schema["values"], v) for k, v in value.items()], negative_counts)
        case _:
            raise AssertionError(schema)


def one_is_null(value: Any) -> bool:
    return value is None


def _blocks(items: Sequence[bytes], negative: bool) -> bytes:
    if not items:
        return long(0)
    body = b"".join(items)
    return (long(-len(items)) + long(len(body)) if negative else long(len(items))) + body + long(0)


class Decoder:
    """Reads values from bytes; an IndexError or a wrong end means that they were not whole."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        assert 0 <= size <= len(self.data) - self.at, "cut"
        self.at += size
        return self.data[self.at - size : self.at]

    def long(self) -> int:
        zigzag = shift = 0
        while True:
            byte = self.take(1)[0]
            zigzag += (byte % 128) << shift
            shift += 7
            if byte < 128:
                return zigzag // 2 if zigzag % 2 == 0 else -(zigzag + 1) // 2

    def counts(self) -> Iterator[int]:
        while count := self.long():
            if count < 0:
                self.long()
            yield from range(abs(count))

    def read(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return self.read(schema[self.long()])
        name = schema if isinstance(schema, str) else schema["type"]
        match name:
            case "null":
                return None
            case "boolean":
                return self.take(1) == b"\x01"
            case "int" | "long":
                return self.long()
            case "float" | "double":
                return struct.unpack("<f" if name == "float" else "<d", self.take(4 if name == "float" else 8))[0]
            case "string":
                return self.take(self.long()).decode()
            case "bytes":
                return self.take(self.long())
            case "fixed":
                return self.take(schema["size"])
            case "record":
                return {field["name"]: self.read(field["type"]) for field in schema["fields"]}
            case "array":
                return [self.read(schema["items"]) for _ in self.counts()]
            case "map":
                return {self.take(self.long()).decode(): self.read(schema["values"]) for _ in self.counts()}
            case dict() | list():
                return self.read(name)
            case _:
                raise AssertionError(schema)


def container(
    schema: Any,
    blocks: Sequence[Sequence[Mapping[str, Any]]],
    *,
    codec: str | None = "deflate",
    meta: Mapping[str, str] | None = None,
    negative_counts: bool = False,
    level: int = 6,
) -> bytes:
    """An object file with one block for each list of records; `codec` None leaves the header without one."""
    bodies = [
        (len(block), b"".join(encode(schema, record, negative_counts=negative_counts) for record in block))
        for block in blocks
    ]
    header = {"avro.schema": json.dumps(schema), **(meta or {})} | ({} if codec is None else {"avro.codec": codec})
    return raw_container(header, bodies, negative_counts=negative_counts, level=level)


def raw_container(
    header: Mapping[str, str], bodies: Sequence[tuple[int, bytes]], *, negative_counts: bool = False, level: int = 6
) -> bytes:
    entries = [sized(key.encode()) + sized(value.encode()) for key, value in header.items()]
    out = [MAGIC + _blocks(entries, negative_counts) + SYNC]
    for count, body in bodies:
        out.append(long(count) + sized(packed(header.get("avro.codec", "null"), body, level)) + SYNC)
    return b"".join(out)


def packed(codec: str, body: bytes, level: int = 6) -> bytes:
    """A block as others would pack it; by a codec that is none of CODECS it stays as it is."""
    if codec == "deflate":
        packer = zlib.compressobj(level, zlib.DEFLATED, -15)
        return packer.compress(body) + packer.flush()
    if codec == "snappy":
        return bytes(pa.compress(body, codec="snappy", asbytes=True)) + zlib.crc32(body).to_bytes(4, "big")
    if codec == "zstandard":
        out = io.BytesIO()
        with zstandard.ZstdCompressor(level).stream_writer(out, closefd=False) as writer:
            writer.write(body)  # such a frame does not say its size
        return out.getvalue()
    return bz2.compress(body, level or 1) if codec == "bzip2" else body


def unpacked(codec: str, body: bytes) -> bytes:
    if codec == "deflate":
        return zlib.decompressobj(-15).decompress(body)
    if codec == "snappy":
        size = sum((byte & 127) << 7 * at for at, byte in enumerate(_varint(body)))
        plain = bytes(pa.decompress(body[:-4], decompressed_size=size, codec="snappy", asbytes=True)) if size else b""
        assert zlib.crc32(plain) == int.from_bytes(body[-4:], "big")
        return plain
    if codec == "zstandard":
        return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    return bz2.decompress(body) if codec == "bzip2" else body


def _varint(data: bytes) -> bytes:
    return data[: next(at for at, byte in enumerate(data) if byte < 128) + 1]


def header_of(data: bytes) -> dict[str, str]:
    return _open(data)[1]


def header_size(data: bytes) -> int:
    return _open(data)[0].at


def block_bodies(data: bytes) -> list[tuple[int, bytes]]:
    """Count and unpacked bytes of each block."""
    decoder, header = _open(data)
    found = []
    while decoder.at < len(data):
        count, body = decoder.long(), decoder.take(decoder.long())
        found.append((count, unpacked(header.get("avro.codec", "null"), body)))
        decoder.take(16)
    return found


def records(data: bytes) -> list[dict[str, Any]]:
    schema = json.loads(header_of(data)["avro.schema"])
    found = []
    for count, body in block_bodies(data):
        decoder = Decoder(body)
        found += [decoder.read(schema) for _ in range(count)]
        assert decoder.at == len(body)
    return found


def _open(data: bytes) -> tuple[Decoder, dict[str, str]]:
    assert data[:4] == MAGIC
    decoder = Decoder(data)
    decoder.take(4)
    header = {decoder.take(decoder.long()).decode(): decoder.take(decoder.long()).decode() for _ in decoder.counts()}
    decoder.take(16)
    return decoder, header
