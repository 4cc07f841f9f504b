"""Byte strings made hostile without knowing what they mean: cut, flipped, spliced, repeated, numbers made extreme."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

_EXTREMES = (
    *(value.to_bytes(size, order) for size in (1, 2, 4, 8) for order in ("little", "big") for value in (0, 1, 127)),
    *(bytes([0xFF]) * size for size in (1, 2, 4, 8)),
    *(bytes([0x7F]) + bytes([0xFF]) * (size - 1) for size in (2, 4, 8)),
    *(bytes([0xFF]) * (size - 1) + bytes([0x7F]) for size in (2, 4, 8)),
    b"\xff" * 9 + b"\x01",  # variable-length numbers: the largest, the smallest, one that is too long
    b"\xfe" + b"\xff" * 8 + b"\x01",
    b"\xff" * 10,
    b"\x80" * 9 + b"\x01",
    b"\xfe\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x04",
)


def mutate(data: bytes, other: bytes, rng: Random) -> bytes:
    """One to four changes; `other` is what pieces are taken from."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        data = rng.choice(_CHANGES)(data, other, rng)
    return data


def _place(data: bytes, rng: Random) -> int:
    """Ends of files hold what says how to read them: every second change is there."""
    if len(data) > 64 and rng.random() < 0.4:
        return len(data) - 1 - int(rng.random() ** 2 * min(len(data) - 1, 1500))
    return rng.randrange(len(data)) if data else 0


def _cut(data: bytes, other: bytes, rng: Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _cut_start(data: bytes, other: bytes, rng: Random) -> bytes:
    return data[rng.randrange(len(data) + 1) :]


def _flip(data: bytes, other: bytes, rng: Random) -> bytes:
    if not data:
        return data
    broken = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        broken[_place(data, rng)] ^= 1 << rng.randrange(8)
    return bytes(broken)


def _overwrite(data: bytes, other: bytes, rng: Random) -> bytes:
    at, new = _place(data, rng), rng.choice(_EXTREMES)
    return data[:at] + new + data[at + len(new) :]


def _insert(data: bytes, other: bytes, rng: Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.choice((*_EXTREMES, rng.randbytes(rng.randrange(1, 20)))) + data[at:]


def _remove(data: bytes, other: bytes, rng: Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at + rng.randrange(1, 64) :]


def _repeat(data: bytes, other: bytes, rng: Random) -> bytes:
    at = _place(data, rng)
    piece = data[at : at + rng.randrange(1, 200)]
    return data[:at] + piece * rng.choice((2, 3, 100)) + data[at:]


def _splice(data: bytes, other: bytes, rng: Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _transplant(data: bytes, other: bytes, rng: Random) -> bytes:
    at, start, size = _place(data, rng), rng.randrange(len(other) + 1), rng.randrange(1, 200)
    return data[:at] + other[start : start + size] + data[at + size :]


_CHANGES: tuple[Callable[[bytes, bytes, Random], bytes], ...] = (
    *(_flip, _flip, _flip, _overwrite, _overwrite, _overwrite, _cut, _cut_start),
    *(_insert, _remove, _repeat, _splice, _transplant),
)
