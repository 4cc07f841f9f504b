"""Whether the parts of a file, as they were read, are what the source's store keeps: by the one sum that it names.

- CRC32C and CRC-32 of a whole are combined from those of its parts, whoever read them.
- An ETag that looks like an MD5 needs the bytes in their order: parts that are read side by side are hashed one after
  the other, each before its place in memory is given back. One task must read them all.
- An ETag of parts (`…-3`) needs the MD5 of each: where ours are made of whole ones, whoever reads one hashes those.
  Where each of ours is one of them, and the mirror's store names the MD5 of what came, that one serves: nobody here
  hashes anything, and the way to the mirror is proven with the way here.
- Such an ETag may be something else. Other bytes are read a second time; the same twice are what the store has. Once
  more ETags were odd than right, they are compared no longer.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from lakemirror.copying.ends import misread
from lakemirror.copying.model import CopyItem
from lakemirror.storage.checksum import CRC32, combined
from lakemirror.storage.md5_tags import Md5Sum, Md5Tag, md5s_of
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

    def trusted(self, seen: Stored) -> Stored:
        """Without the MD5, where ETags are no longer compared."""
        return seen if self._odd <= self._matching else replace(seen, md5=None)

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
            self._check_tag(item, crc32c, seen, fits=in_order.fits)
        elif (tag := self.trusted(seen).md5) is not None:
            self._check_tag(item, crc32c, seen, fits=tag.fits_parts(b"".join(part.md5s for part in parts)))

    def _check_tag(self, item: CopyItem, crc32c: int, seen: Stored, *, fits: bool) -> None:
        if fits:
            self._matching += 1
        elif self._misread.get(item.source) == crc32c:
            self._odd += 1
        else:
            self._misread[item.source] = crc32c
            raise misread(item, f"it is not that of its ETag {seen.e_tag}")


async def summed(part: Part, data: bytes, seen: Stored, in_order: InOrder | None, *, trusts_tags: bool = False) -> Part:
    """The part with the sum that `Proof` needs besides its CRC32C; `trusts_tags`: the part's tag is its MD5."""
    if in_order is not None:
        await in_order.add(part.number, data)
    elif seen.crc32c is not None:
        return part
    elif seen.crc32 is not None:
        return replace(part, crc32=await asyncio.to_thread(zlib.crc32, data))
    elif seen.md5 is not None and seen.md5.part_bytes is not None:
        tag = Md5Tag.of(part.tag) if trusts_tags and part.size_bytes <= seen.md5.part_bytes else None
        if tag is not None and tag.parts == 0:
            return replace(part, md5s=tag.md5)
        return replace(part, md5s=await asyncio.to_thread(md5s_of, data, seen.md5.part_bytes))
    return part


AT_ONCE: Final = 3
"""Parts are made of whole ones of the source's as long as so many fit into memory at once."""


def aligned(tag: Md5Tag, wanted_bytes: int, most_bytes: int) -> int | None:
    """The size of parts, as wanted or larger, that are made of whole ones of the tag's; None: above `most_bytes`."""
    if tag.part_bytes is None:
        return None
    part_bytes = -(-wanted_bytes // tag.part_bytes) * tag.part_bytes
    return part_bytes if part_bytes <= max(wanted_bytes, most_bytes) else None
