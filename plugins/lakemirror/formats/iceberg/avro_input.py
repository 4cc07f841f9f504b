"""Bytes on their way in: pieces of any size, given out in the sizes that a reader asks for.

What is asked for and is not there is Malformed. At most what is asked for and one piece are held at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakemirror.formats.iceberg.avro_values import Malformed, read_long

_LONGEST_NUMBER = 10


class Input:
    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._data = b""
        self._pos = 0
        self._kept: list[bytes] | None = None
        self._room = 0
        self._problem = ""

    def limit(self, size: int, problem: str) -> None:
        """Keep what is given out from here on, and be Malformed when it becomes more than `size` bytes."""
        self._kept, self._room, self._problem = [], size, problem

    def unlimit(self) -> bytes:
        """What was given out since `limit`, which ends."""
        kept, self._kept = self._kept or [], None
        return b"".join(kept)

    def is_at_end(self) -> bool:
        return not self._fill(1)

    def take(self, size: int) -> bytes:
        if size < 0 or (self._kept is not None and size > self._room):
            raise Malformed(self._problem if size >= 0 else "a length is below zero")
        if not self._fill(size):
            raise Malformed(f"it is cut: {size} bytes are wanted, {len(self._data) - self._pos} are left")
        return self._given(self._pos + size)

    def long(self) -> int:
        self._fill(_LONGEST_NUMBER)
        value, end = read_long(self._data, self._pos)
        self._given(end)
        return value

    def _given(self, end: int) -> bytes:
        given = self._data[self._pos : end]
        self._pos = end
        if self._kept is not None:
            self._kept.append(given)
            self._room -= len(given)
            if self._room < 0:
                raise Malformed(self._problem)
        return given

    def _fill(self, size: int) -> bool:
        """Have so many bytes at hand, if there are so many."""
        there = len(self._data) - self._pos
        if there >= size:
            return True
        parts = [self._data[self._pos :]]
        for piece in self._pieces:
            parts.append(bytes(piece))
            there += len(piece)
            if there >= size:
                break
        self._data, self._pos = b"".join(parts), 0
        return there >= size
