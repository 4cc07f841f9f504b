"""ORC's run-length encodings: lengths of texts read from any run of version 2, and written as direct runs.

Nothing is believed beyond the bytes that are there, and no more values are made than the caller asked for.
"""

from __future__ import annotations

from lakemirror.formats.iceberg.avro_walk import Malformed
from lakemirror.formats.iceberg.orc.wire import read_varint

_MAX_RUN = 512
_SHORT_REPEAT, _DIRECT, _PATCHED_BASE = 0, 1, 2
_WIDTHS = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)  # by code
_MAX_VALUE = 1 << 63


def read_lengths(data: bytes, count: int) -> list[int]:
    """Exactly `count` unsigned values; fails unless they end where the data ends."""
    values: list[int] = []
    at = 0
    while len(values) < count:
        if at >= len(data):
            raise Malformed(f"{len(values)} values where there should be {count}")
        run, at = _read_run(data, at)
        values += run
    if len(values) != count or at != len(data):
        raise Malformed(f"more than the {count} values that there should be")
    return values


def write_lengths(values: list[int]) -> bytes:
    """Runs of up to 512 values, each in as many whole bytes as the largest needs."""
    out = []
    for start in range(0, len(values), _MAX_RUN):
        run = values[start : start + _MAX_RUN]
        size = max(1, (max(run).bit_length() + 7) // 8)
        if size > 4:
            raise Malformed(f"a text of {max(run)} bytes")
        header = _DIRECT << 14 | _WIDTHS.index(size * 8) << 9 | len(run) - 1
        out += [header.to_bytes(2, "big"), *(value.to_bytes(size, "big") for value in run)]
    return b"".join(out)


def is_all_set(data: bytes, count: int) -> bool:
    """True if a stream of booleans says `count` times true: no value is missing."""
    found, want, at = bytearray(), (count + 7) // 8, 0
    while len(found) < want:
        header = _take(data, at, 1)[0]
        if header < 0x80:  # so many times one byte
            found += _take(data, at + 1, 1) * (header + 3)
            at += 2
        else:  # so many bytes
            found += _take(data, at + 1, 256 - header)
            at += 1 + 256 - header
    spare = want * 8 - count
    return int.from_bytes(found[:want], "big") >> spare == (1 << count) - 1


def _read_run(data: bytes, at: int) -> tuple[list[int], int]:
    first = data[at]
    kind = first >> 6
    if kind == _SHORT_REPEAT:
        size = (first >> 3 & 7) + 1
        return [int.from_bytes(_take(data, at + 1, size), "big")] * ((first & 7) + 3), at + 1 + size
    second = _take(data, at + 1, 1)[0]
    code, count = first >> 1 & 31, ((first & 1) << 8 | second) + 1
    if kind == _DIRECT:
        return _unpack(data, at + 2, count, _WIDTHS[code])
    if kind == _PATCHED_BASE:
        return _read_patched(data, at + 2, count, _WIDTHS[code])
    return _read_delta(data, at + 2, count, _WIDTHS[code] if code else 0)


def _read_patched(data: bytes, at: int, count: int, width: int) -> tuple[list[int], int]:
    """Values above a base, whose high bits stand in a list of patches with the gaps between them."""
    third, fourth = _take(data, at, 2)
    base_size, patch_width = (third >> 5) + 1, _WIDTHS[third & 31]
    gap_width, patches = (fourth >> 5) + 1, fourth & 31
    base = int.from_bytes(_take(data, at + 2, base_size), "big")
    if base >> (base_size * 8 - 1):
        raise Malformed("a length is negative")
    values, at = _unpack(data, at + 2 + base_size, count, width)
    entry_width = next((known for known in _WIDTHS if known >= gap_width + patch_width), 0)
    if not entry_width:
        raise Malformed("a patch is wider than 64 bits")
    entries, at = _unpack(data, at, patches, entry_width)
    place = 0
    for entry in entries:
        place += entry >> patch_width
        patch = entry & (1 << patch_width) - 1
        if place >= count:
            raise Malformed("a patch lies behind its run")
        values[place] |= patch << width
    return _checked([base + value for value in values]), at


def _read_delta(data: bytes, at: int, count: int, width: int) -> tuple[list[int], int]:
    base, at = read_varint(data, at)
    zigzag, at = read_varint(data, at)
    step = (zigzag >> 1) ^ -(zigzag & 1)
    if width == 0:
        return _checked([base + step * number for number in range(count)]), at
    deltas, at = _unpack(data, at, max(0, count - 2), width)
    values = [base, base + step][:count]
    for delta in deltas:
        values.append(values[-1] + (delta if step >= 0 else -delta))
    return _checked(values), at


def _checked(values: list[int]) -> list[int]:
    if min(values) < 0 or max(values) >= _MAX_VALUE:
        raise Malformed("a length is negative or too large")
    return values


def _unpack(data: bytes, at: int, count: int, width: int) -> tuple[list[int], int]:
    """`count` numbers of `width` bits each, the highest bits first, padded to whole bytes."""
    size = (count * width + 7) // 8
    raw = _take(data, at, size)
    if width == 8:
        return [*raw], at + size
    bits, mask = int.from_bytes(raw, "big"), (1 << width) - 1
    top = size * 8 - width
    return [bits >> top - number * width & mask for number in range(count)], at + size


def _take(data: bytes, at: int, size: int) -> bytes:
    if size > len(data) - at:
        raise Malformed("a run is cut")
    return data[at : at + size]
