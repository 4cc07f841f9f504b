"""The two ends of a copy, with the words for what goes wrong there: gone, changed, not as large, somebody else's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from lakemirror.copying.memory import ByteLimit
from lakemirror.copying.model import CopyItem
from lakemirror.copying.retry import Patience, Retrying
from lakemirror.copying.together import all_within
from lakemirror.errors import PermanentError, SourceVanishedError, TransientError
from lakemirror.storage.checksum import combined, crc32c_of
from lakemirror.storage.port import ConditionFailed, ObjectNotFound
from lakemirror.storage.wire import Stored, WholeRead, Wire


class MisreadError(TransientError):
    """What was read of a source file, part by part, is not what its store keeps."""


class ForeignError(PermanentError):
    """Something else lies under the key: nothing of ours is in it."""


class End:
    """One store: its wire, its retries, and the memory that both ends share."""

    def __init__(self, wire: Wire, retrying: Retrying, memory: ByteLimit, chunk_bytes: int) -> None:
        self.wire = wire
        self.retrying = retrying
        self._memory = memory
        self._chunk_bytes = chunk_bytes

    async def stored(self, uri: str, patience: Patience) -> Stored:
        return await self.retrying(lambda: self.wire.stored(uri), patience)

    async def crc32c(self, uri: str, stored: Stored, patience: Patience) -> int:
        """As the store keeps it, or else by reading the object once: pieces side by side, each with its own time."""
        if stored.crc32c is not None:
            return stored.crc32c
        size_bytes = stored.size_bytes

        async def summed(start: int, length: int) -> tuple[int, int]:
            read = partial(self.wire.read, uri, start, length, e_tag=stored.e_tag, size_bytes=size_bytes)
            data = await self.retrying(read, patience.anew(), paid_bytes=length)
            return crc32c_of(data), length

        starts = range(0, size_bytes, self._chunk_bytes)
        chunks = ((start, min(self._chunk_bytes, size_bytes - start)) for start in starts)
        jobs = ((length, partial(summed, start, length)) for start, length in chunks)
        return combined(await all_within(self._memory, jobs))


class SourceEnd(End):
    """The end that is only read; what the plan says of a file must be so."""

    async def look(self, item: CopyItem, patience: Patience) -> Stored:
        """What the store says of the file, if its size is what the plan says."""
        with vanishing(item):
            stored = await self.stored(item.source, patience)
        if stored.size_bytes != item.size_bytes:
            raise wrong_size(item, stored.size_bytes)
        return stored

    async def whole(self, item: CopyItem, patience: Patience, *, leaves_md5: bool = False) -> WholeRead:
        """All bytes of a small file, by one request; an MD5 may be left for the mirror's store to compare."""
        size_bytes = item.size_bytes
        if size_bytes == 0:
            await self.look(item, patience)
            return WholeRead(b"")

        async def read() -> WholeRead:
            if leaves_md5:
                return await self.wire.read_whole(item.source, size_bytes)
            return WholeRead(await self.wire.read(item.source, 0, size_bytes, size_bytes=size_bytes))

        with vanishing(item):
            try:
                return await self.retrying(read, patience, paid_bytes=size_bytes)
            except ObjectNotFound:
                raise
            except PermanentError:
                await self.look(item, patience)  # is it the size? then it is said so
                raise

    async def part(self, item: CopyItem, start: int, length: int, e_tag: str | None, patience: Patience) -> bytes:
        read = partial(self.wire.read, item.source, start, length, e_tag=e_tag, size_bytes=item.size_bytes)
        with vanishing(item), changing(item):
            return await self.retrying(read, patience, paid_bytes=length)

    async def sum(self, item: CopyItem, patience: Patience) -> int:
        """The CRC32C of a file that need not be copied."""
        stored = await self.look(item, patience)
        with vanishing(item), changing(item):
            return await self.crc32c(item.source, stored, patience)


class MirrorEnd(End):
    """The end that is written, create-only."""

    async def has(self, uri: str, patience: Patience) -> bool:
        try:
            await self.retrying(lambda: self.wire.head(uri), patience)
        except ObjectNotFound:
            return False
        return True

    async def there(self, item: CopyItem, crc32c: int, patience: Patience) -> tuple[Stored, int]:
        """What lies under the key already, and its CRC32C; ForeignError if it is not even as large as it must be."""
        try:
            there = await self.stored(item.target, patience)
            if there.size_bytes != item.size_bytes:
                raise foreign(item, crc32c, f"{there.size_bytes} bytes")
            return there, await self.crc32c(item.target, there, patience)
        except ObjectNotFound as err:
            text = "it was there a moment ago, and is gone"
            raise TransientError("copy", item.target, text, "run again; find out who deletes here") from err


@contextmanager
def vanishing(item: CopyItem) -> Iterator[None]:
    try:
        yield
    except ObjectNotFound as err:
        raise SourceVanishedError(
            "copy", item.source, "the source file is gone", "run again: it plans anew from the source's head"
        ) from err


@contextmanager
def changing(item: CopyItem) -> Iterator[None]:
    try:
        yield
    except ConditionFailed as err:
        raise PermanentError(
            "copy",
            item.source,
            f"the source file has changed under its name ({err.message})",
            "files of Iceberg tables never change: find out who wrote it",
        ) from err


def wrong_size(item: CopyItem, got: int) -> PermanentError:
    return PermanentError(
        "copy",
        item.source,
        f"its size is not what its manifest says (want {item.size_bytes}, got {got})",
        "look at it",
    )


def misread(item: CopyItem, why: str) -> MisreadError:
    text = f"damaged on the way ({why})"
    return MisreadError("copy", item.source, text, "run again; if it is always so, its store has lost it: restore it")


def foreign(item: CopyItem, crc32c: int, got: str) -> ForeignError:
    return ForeignError(
        "copy",
        item.target,
        f"another object lies under this key (want {item.size_bytes} bytes with crc32c {crc32c:08x}, got {got})",
        "find out who wrote it; move it away and run again",
    )
