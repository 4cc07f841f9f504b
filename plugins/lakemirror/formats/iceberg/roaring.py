"""Roaring bitmaps of 64-bit positions, as deletion vectors hold them: counted and checked, never unpacked.

The portable serialisation is walked with every length checked before it is believed. Containers must be sorted and
hold as many values as their headers say. Memory is bounded by the bytes that came in: runs are counted, not unpacked.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from lakemirror.formats.iceberg.avro_walk import Malformed

_COOKIE = 12347  # with run containers; the number of containers is in its upper half
_COOKIE_WITHOUT_RUNS = 12346
_FEW = 4  # so many containers have a table of offsets even if there are runs
_MAX_CONTAINERS = 1 << 16
_ARRAY_MAX = 4096
_BITSET_BYTES = 8192


def cardinality(data: bytes) -> int:
    """How many positions a serialised 64-bit bitmap holds; fails unless it is whole and ends where the data ends."""
    reader = _Reader(data)
    (count,) = reader.unpack("<Q")
    total, last = 0, -1
    for _ in range(count):  # each takes 12 bytes or more: a false count ends with the data
        (key,) = reader.unpack("<I")
        if key <= last:
            raise Malformed("the bitmaps are not in the order of their keys")
        if key >= 1 << 31:
            raise Malformed("a position is negative")
        last = key
        total += _count_32(reader)
    if reader.at != len(data):
        raise Malformed(f"{len(data) - reader.at} bytes follow the last bitmap")
    return total


@dataclass(slots=True)
class _Reader:
    data: bytes
    at: int = 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise Malformed("a bitmap is cut")
        self.at += size
        return self.data[self.at - size : self.at]

    def unpack(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))


def _count_32(reader: _Reader) -> int:
    start = reader.at
    (cookie,) = reader.unpack("<I")
    if cookie & 0xFFFF == _COOKIE:
        size = (cookie >> 16) + 1
        flags = reader.take((size + 7) // 8)
        has_offsets = size >= _FEW
    elif cookie == _COOKIE_WITHOUT_RUNS:
        (size,) = reader.unpack("<I")
        flags, has_offsets = b"", True
    else:
        raise Malformed(f"a bitmap starts with {cookie}, which is no roaring cookie")
    if size > _MAX_CONTAINERS:
        raise Malformed(f"a bitmap claims {size} containers")
    headers = reader.unpack(f"<{2 * size}H")
    keys, counts = headers[::2], [less_one + 1 for less_one in headers[1::2]]
    if not _is_rising(keys):
        raise Malformed("the containers are not in the order of their keys")
    offsets = reader.unpack(f"<{size}I") if has_offsets else None
    for number, count in enumerate(counts):
        if offsets is not None and offsets[number] != reader.at - start:
            raise Malformed("a container is not where the table of offsets says")
        if _count_container(reader, count, is_run=bool(flags and flags[number >> 3] >> (number & 7) & 1)) != count:
            raise Malformed(f"a container does not hold the {count} values that its header says")
    return sum(counts)


def _count_container(reader: _Reader, count: int, *, is_run: bool) -> int:
    if is_run:
        return _count_runs(reader)
    if count > _ARRAY_MAX:
        return int.from_bytes(reader.take(_BITSET_BYTES), "little").bit_count()
    values = reader.unpack(f"<{count}H")
    if not _is_rising(values):
        raise Malformed("the values of a container are not sorted")
    return len(values)


def _count_runs(reader: _Reader) -> int:
    (runs,) = reader.unpack("<H")
    pairs = reader.unpack(f"<{2 * runs}H")
    total, free = 0, 0
    for start, more in zip(pairs[::2], pairs[1::2], strict=True):
        if start < free or start + more > 0xFFFF:
            raise Malformed("the runs of a container overlap or leave it")
        free = start + more + 1
        total += more + 1
    return total


def _is_rising(values: tuple[int, ...]) -> bool:
    return list(values) == sorted(set(values))
