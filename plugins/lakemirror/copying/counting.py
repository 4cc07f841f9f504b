"""Counts the requests of a wire by verb, under the names that results use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from lakemirror.model.results import VERBS
from lakemirror.storage.port import CHUNK_BYTES, ObjectInfo
from lakemirror.storage.wire import Part, Stored, Upload, Wire, WireCapabilities


class CountingWire:
    """Counts calls whether they succeed or not. Whatever writes is a put; an abort is a delete."""

    def __init__(self, inner: Wire) -> None:
        self._inner = inner
        self.counts = dict.fromkeys(VERBS, 0)

    def capabilities(self, uri: str) -> WireCapabilities:
        return self._inner.capabilities(uri)

    async def head(self, uri: str) -> ObjectInfo:
        self.counts["head"] += 1
        return await self._inner.head(uri)

    async def stored(self, uri: str) -> Stored:
        self.counts["head"] += 1
        return await self._inner.stored(uri)

    async def read(
        self, uri: str, start: int, length: int, *, e_tag: str | None = None, size_bytes: int | None = None
    ) -> bytes:
        self.counts["get"] += 1
        return await self._inner.read(uri, start, length, e_tag=e_tag, size_bytes=size_bytes)

    def stream(
        self, uri: str, *, start: int, length: int, e_tag: str | None = None, chunk_bytes: int = CHUNK_BYTES
    ) -> AsyncIterator[bytes]:
        self.counts["get"] += 1
        return self._inner.stream(uri, start=start, length=length, e_tag=e_tag, chunk_bytes=chunk_bytes)

    async def create(self, uri: str, data: bytes, crc32c: int) -> Stored:
        self.counts["put"] += 1
        return await self._inner.create(uri, data, crc32c)

    async def begin(self, uri: str) -> str:
        self.counts["put"] += 1
        return await self._inner.begin(uri)

    async def put_part(self, uri: str, upload: str, number: int, data: bytes, crc32c: int) -> Part:
        self.counts["put"] += 1
        return await self._inner.put_part(uri, upload, number, data, crc32c)

    async def finish(self, uri: str, upload: str, parts: Sequence[Part], crc32c: int) -> Stored:
        self.counts["put"] += 1
        return await self._inner.finish(uri, upload, parts, crc32c)

    async def abort(self, uri: str, upload: str) -> None:
        self.counts["delete"] += 1
        await self._inner.abort(uri, upload)

    def uploads(self, prefix_uri: str) -> AsyncIterator[Upload]:
        self.counts["list"] += 1
        return self._inner.uploads(prefix_uri)

    async def copy_within(self, source_uri: str, target_uri: str, *, e_tag: str | None = None) -> Stored:
        self.counts["copy"] += 1
        return await self._inner.copy_within(source_uri, target_uri, e_tag=e_tag)

    async def close(self) -> None:
        await self._inner.close()
