"""The wire to stores of this machine, files and memory, over their synchronous adapters.

Parts wait on a shelf; `finish` writes the object from them in one create-only put, and checks the sum of what it reads
on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from lakemirror.errors import PermanentError
from lakemirror.storage.buckets import BucketObjects
from lakemirror.storage.checksum import Tally, crc32c_of
from lakemirror.storage.clients import Clients, MemoryBuckets
from lakemirror.storage.files import FileObjects
from lakemirror.storage.port import CHUNK_BYTES, Blob, ConditionFailed, ObjectInfo, ObjectStore
from lakemirror.storage.wire import (
    Part,
    Stored,
    Upload,
    WholeRead,
    WireCapabilities,
    check_md5,
    check_parts,
    check_size,
    check_slice,
    damaged,
    no_uploads,
)
from lakemirror.storage.wires.shelves import FileShelf, MemoryShelf, Shelf

T = TypeVar("T")
_CAPABILITIES: Final = WireCapabilities(
    min_part_bytes=1,
    max_parts=10_000,
    max_create_bytes=1 << 40,
    copies_within=True,
)


class LocalWire:
    """The Wire port over a synchronous store; `in_threads` keeps what may wait for a disk out of the event loop."""

    def __init__(self, store: ObjectStore, shelf: Shelf, *, in_threads: bool) -> None:
        self._store = store
        self._shelf = shelf
        self._in_threads = in_threads

    def capabilities(self, uri: str) -> WireCapabilities:
        return _CAPABILITIES

    async def head(self, uri: str) -> ObjectInfo:
        return await self._run(partial(self._store.head, uri))

    async def stored(self, uri: str) -> Stored:
        info = await self.head(uri)
        return Stored(info.size_bytes, None, info.e_tag)

    async def read(
        self, uri: str, start: int, length: int, *, e_tag: str | None = None, size_bytes: int | None = None
    ) -> bytes:
        check_slice(uri, start, length)
        blob = await self._run(partial(self._read, uri, start, length, e_tag))
        check_size(uri, size_bytes, blob.info.size_bytes)
        return blob.data

    async def read_whole(self, uri: str, size_bytes: int) -> WholeRead:
        return WholeRead(await self.read(uri, 0, size_bytes, size_bytes=size_bytes))

    async def create(self, uri: str, data: bytes, crc32c: int, *, md5: bytes | None = None) -> Stored:
        check_md5(uri, data, md5)
        if (got := crc32c_of(data)) != crc32c:
            raise damaged("create", uri, crc32c, got)
        return await self._run(partial(self._put, uri, data))

    async def begin(self, uri: str) -> str:
        return await self._run(partial(self._shelf.begin, uri))

    async def put_part(self, uri: str, upload: str, number: int, data: bytes, crc32c: int) -> Part:
        if not 1 <= number <= _CAPABILITIES.max_parts:
            raise PermanentError("put_part", uri, f"part {number} cannot be", f"1 to {_CAPABILITIES.max_parts} can")
        if (got := crc32c_of(data)) != crc32c:
            raise damaged("put_part", uri, crc32c, got)
        tag = await self._run(partial(self._shelf.put, uri, upload, number, data))
        return Part(number, len(data), crc32c, tag)

    async def finish(self, uri: str, upload: str, parts: Sequence[Part], crc32c: int) -> Stored:
        check_parts(uri, parts, crc32c)
        return await self._run(partial(self._finish, uri, upload, parts, crc32c))

    async def abort(self, uri: str, upload: str) -> None:
        await self._run(partial(self._shelf.drop, uri, upload))

    async def uploads(self, prefix_uri: str) -> AsyncIterator[Upload]:
        for upload in await self._run(lambda: list(self._shelf.uploads(prefix_uri))):
            yield upload

    def unnamed(self, prefix_uri: str) -> AsyncIterator[Upload]:
        return no_uploads()

    async def copy_within(self, source_uri: str, target_uri: str, *, e_tag: str | None = None) -> Stored:
        def copy() -> Stored:
            there = self._store.head(source_uri)
            _check_same(there, e_tag)
            return self._put(target_uri, self._whole(there))

        return await self._run(copy)

    async def close(self) -> None:
        """Nothing is held open."""

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work) if self._in_threads else work()

    def _read(self, uri: str, start: int, length: int, e_tag: str | None) -> Blob:
        blob = self._store.get(uri, byte_range=(start, length), max_bytes=max(length, 0))
        _check_same(blob.info, e_tag)
        return blob

    def _whole(self, there: ObjectInfo) -> Iterator[bytes]:
        for start in range(0, there.size_bytes, CHUNK_BYTES):
            length = min(CHUNK_BYTES, there.size_bytes - start)
            yield self._read(there.uri, start, length, there.e_tag).data

    def _put(self, uri: str, body: bytes | Iterator[bytes]) -> Stored:
        written = self._store.put(uri, body)
        return Stored(written.size_bytes, written.crc32c, written.e_tag)

    def _finish(self, uri: str, upload: str, parts: Sequence[Part], crc32c: int) -> Stored:
        def checked() -> Iterator[bytes]:
            tally = Tally()
            yield from tally.over(self._shelf.pieces(uri, upload, parts))
            if tally.crc32c != crc32c:
                raise damaged("finish", uri, crc32c, tally.crc32c)

        stored = self._put(uri, checked())
        self._shelf.drop(uri, upload)
        return stored


def memory_wire(memory: MemoryBuckets) -> LocalWire:
    return LocalWire(BucketObjects(Clients({}, memory)), MemoryShelf(memory), in_threads=False)


def file_wire(properties: Mapping[str, str]) -> LocalWire:
    return LocalWire(FileObjects(properties), FileShelf(), in_threads=True)


def _check_same(there: ObjectInfo, e_tag: str | None) -> None:
    if e_tag is not None and there.e_tag != e_tag:
        why = f"the object has changed (want {e_tag}, got {there.e_tag})"
        raise ConditionFailed("read", there.uri, why, "find out who wrote it")
