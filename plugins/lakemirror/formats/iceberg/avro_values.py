"""Avro's primitive values: numbers and texts, read with every length checked, written as the specification has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Decode = Callable[[bytes, int], tuple[Any, int]]


class Malformed(ValueError):
    """The bytes are not what the schema says; callers turn it into an error that names the file."""


def read_long(data: bytes, pos: int) -> tuple[int, int]:
    """A number and where it ends."""
    if pos + 1 < len(data) and data[pos + 1] < 0x80 <= data[pos]:  # two bytes: the length of most paths
        result = data[pos] & 0x7F | data[pos + 1] << 7
        return (result >> 1) ^ -(result & 1), pos + 2
    result = shift = 0
    while True:
        if pos >= len(data) or shift > 63:
            raise Malformed("a number is cut or too long")
        byte = data[pos]
        pos += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            if result >> 64:
                raise Malformed("a number is too long")
            return (result >> 1) ^ -(result & 1), pos
        shift += 7


def write_long(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def write_bytes(value: bytes) -> bytes:
    return write_long(len(value)) + value


def read_bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    size, pos = read_long(data, pos)
    if size < 0 or pos + size > len(data):
        raise Malformed("a text or byte field does not fit")
    return data[pos : pos + size], pos + size


def read_text(data: bytes, pos: int) -> tuple[str, int]:
    raw, end = read_bytes(data, pos)
    try:
        return raw.decode(), end
    except UnicodeDecodeError as err:
        raise Malformed("a text field is not UTF-8") from err


def read_count(data: bytes, pos: int) -> tuple[int, int]:
    """The number of items that follow in an array or map; the size in bytes that may stand there is passed over."""
    count, pos = read_long(data, pos)
    if count < 0:
        count = -count
        _, pos = read_long(data, pos)
    if count > len(data):
        raise Malformed(f"an array claims {count} items in {len(data)} bytes")
    return count, pos
