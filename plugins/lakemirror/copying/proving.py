"""Whether the parts of a file, as they were read, are what the source's store keeps: by the one sum that it names.

- CRC32C and CRC-32 of a whole are combined from those of its parts, whoever read them.
- An ETag that looks like an MD5 needs the bytes in their order: parts that are read side by side are hashed one after
  the other, each before its place in memory is given back.
- Such an ETag may be something else. Other bytes are read a second time; the same twice are what the store has. Once
  more ETags were odd than right, they are compared no longer.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence

from lakemirror.copying.ends import misread
from lakemirror.copying.model import CopyItem
from lakemirror.storage.checksum import CRC32, combined
from lakemirror.storage.md5_tags import Md5Sum, Md5Tag
from lakemirror.storage.wire import Part, Stored


class InOrder:
    """The MD5 of parts that come side by side: each has its turn."""

    def __init__(self, tag: Md5Tag) -> None:
        self._sum = Md5Sum(tag)
        self._turn = asyncio.Condition()
        self._next = 1

    async def add(self, number: int, data: bytes) -> None:
        async with self._turn:
            await self._turn.wait_for(lambda: self._next == number)
            await asyncio.to_thread(self._sum.add, data)
            self._next += 1
            self._turn.notify_all()

    @property
    def fits(self) -> bool:
        return self._sum.fits


class Proof:
    """The comparison for the files of one task, with what it has learned of their ETags."""

    def __init__(self) -> None:
        self._matching = self._odd = 0
        self._misread: dict[str, int] = {}

    def in_order(self, seen: Stored) -> InOrder | None:
        """For a file whose parts this task reads all by itself, from the first to the last."""
        return InOrder(seen.md5) if seen.md5 is not None and self._odd <= self._matching else None

    def check(
        self, item: CopyItem, crc32c: int, parts: Sequence[Part], seen: Stored, in_order: InOrder | None = None
    ) -> None:
        """MisreadError unless `parts`, whose CRC32C together is `crc32c`, are what was `seen` of the source file."""
        if seen.crc32c is not None:
            if crc32c != seen.crc32c:
                raise misread(item, f"want crc32c {seen.crc32c:08x}, got {crc32c:08x}")
        elif seen.crc32 is not None:
            got = combined(((part.crc32 or 0, part.size_bytes) for part in parts), CRC32)
            if got != seen.crc32:
                raise misread(item, f"want crc32 {seen.crc32:08x}, got {got:08x}")
        elif in_order is not None:
            self._check_tag(item, crc32c, seen, in_order)

    def _check_tag(self, item: CopyItem, crc32c: int, seen: Stored, in_order: InOrder) -> None:
        if in_order.fits:
            self._matching += 1
        elif self._misread.get(item.source) == crc32c:
            self._odd += 1
        else:
            self._misread[item.source] = crc32c
            raise misread(item, f"it is not that of its ETag {seen.e_tag}")


async def crc32_of(data: bytes, seen: Stored) -> int | None:
    """The sum of a part that `Proof` needs besides its CRC32C."""
    if seen.crc32 is None or seen.crc32c is not None:
        return None
    return await asyncio.to_thread(zlib.crc32, data)
