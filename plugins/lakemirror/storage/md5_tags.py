"""ETags of S3 that look like MD5s: that of an object, or (`…-3`) that of the MD5s of the parts it was uploaded in.

Where the parts met is not in the tag; without it only a tag of at most one part can be compared.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

_SHAPE: Final = re.compile(r'"?(?P<md5>[0-9a-fA-F]{32})(?:-(?P<parts>[1-9][0-9]{0,4}))?"?')


@dataclass(frozen=True, slots=True)
class Md5Tag:
    """`parts`: that the tag names, 0 for none; all of them but the last are of `part_bytes`."""

    md5: bytes
    parts: int
    part_bytes: int | None = None

    @classmethod
    def of(cls, e_tag: str | None) -> Md5Tag | None:
        found = _SHAPE.fullmatch(e_tag or "")
        return cls(bytes.fromhex(found["md5"]), int(found["parts"] or 0)) if found else None

    @property
    def is_comparable(self) -> bool:
        return self.parts <= 1 or self.part_bytes is not None

    def fits_parts(self, md5s: bytes) -> bool:
        """Whether these are the MD5s of all its parts, one after the other."""
        return len(md5s) == 16 * self.parts > 0 and _md5(md5s).digest() == self.md5


class Md5Sum:
    """Of bytes that come piece by piece, in their order: are they those of the tag?"""

    def __init__(self, tag: Md5Tag) -> None:
        self._tag = tag
        self._done: list[bytes] = []
        self._part = _md5()
        self._part_bytes = 0

    def add(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            if self._part_bytes == self._tag.part_bytes:
                self._done.append(self._part.digest())
                self._part, self._part_bytes = _md5(), 0
            room = len(left) if self._tag.part_bytes is None else self._tag.part_bytes - self._part_bytes
            self._part.update(left[:room])
            self._part_bytes += len(left[:room])
            left = left[room:]

    @property
    def fits(self) -> bool:
        if self._tag.parts == 0:
            return self._part.digest() == self._tag.md5
        digests = [*self._done, self._part.digest()]
        return len(digests) == self._tag.parts and _md5(b"".join(digests)).digest() == self._tag.md5


def fits(tag: Md5Tag, data: bytes) -> bool:
    """Whether these are all the bytes of the tag's object."""
    summed = Md5Sum(tag)
    summed.add(data)
    return summed.fits


def md5s_of(data: bytes, part_bytes: int) -> bytes:
    """The MD5s of a tag's parts, one after the other, that are all there is in these bytes."""
    starts = range(0, len(data), part_bytes)
    return b"".join(_md5(memoryview(data)[start : start + part_bytes]).digest() for start in starts)


def _md5(data: bytes | memoryview = b"") -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)
