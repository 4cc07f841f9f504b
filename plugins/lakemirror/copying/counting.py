"""Counts the requests of a wire by verb, under the names that results use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TypeVar

from lakemirror.model.results import VERBS
from lakemirror.storage.metering import metered
from lakemirror.storage.port import ObjectInfo
from lakemirror.storage.wire import Part, Stored, Upload, WholeRead, Wire, WireCapabilities

T = TypeVar("T")


class CountingWire:
    """Counts requests whether they succeed or not. Whatever writes is a put; an abort is a delete.

    A wire over HTTP tells of each of its requests; a call to any other is one. `begun` are tries to begin an upload.
    """

    def __init__(self, inner: Wire) -> None:
        self._inner = inner
        self.counts = dict.fromkeys(VERBS, 0)
        self.begun = 0

    def capabilities(self, uri: str) -> WireCapabilities:
        return self._inner.capabilities(uri)

    async def head(self, uri: str) -> ObjectInfo:
        return await self._counted("head", self._inner.head(uri))

    async def stored(self, uri: str) -> Stored:
        return await self._counted("head", self._inner.stored(uri))

    async def read(
        self, uri: str, start: int, length: int, *, e_tag: str | None = None, size_bytes: int | None = None
    ) -> bytes:
        return await self._counted("get", self._inner.read(uri, start, length, e_tag=e_tag, size_bytes=size_bytes))

    async def read_whole(self, uri: str, size_bytes: int) -> WholeRead:
        return await self._counted("get", self._inner.read_whole(uri, size_bytes))

    async def create(self, uri: str, data: bytes, crc32c: int, *, md5: bytes | None = None) -> Stored:
        return await self._counted("put", self._inner.create(uri, data, crc32c, md5=md5))

    async def begin(self, uri: str) -> str:
        self.begun += 1
        return await self._counted("put", self._inner.begin(uri))

    async def put_part(self, uri: str, upload: str, number: int, data: bytes, crc32c: int) -> Part:
        return await self._counted("put", self._inner.put_part(uri, upload, number, data, crc32c))

    async def finish(self, uri: str, upload: str, parts: Sequence[Part], crc32c: int) -> Stored:
        return await self._counted("put", self._inner.finish(uri, upload, parts, crc32c))

    async def abort(self, uri: str, upload: str) -> None:
        await self._counted("delete", self._inner.abort(uri, upload))

    def uploads(self, prefix_uri: str) -> AsyncIterator[Upload]:
        self.counts["list"] += 1
        return self._inner.uploads(prefix_uri)

    def unnamed(self, prefix_uri: str) -> AsyncIterator[Upload]:
        self.counts["list"] += 1
        return self._inner.unnamed(prefix_uri)

    async def copy_within(self, source_uri: str, target_uri: str, *, e_tag: str | None = None) -> Stored:
        return await self._counted("copy", self._inner.copy_within(source_uri, target_uri, e_tag=e_tag))

    async def close(self) -> None:
        await self._inner.close()

    async def _counted(self, verb: str, call: Awaitable[T]) -> T:
        with metered() as made:
            try:
                return await call
            finally:
                for told, requests in (made or {verb: 1}).items():
                    self.counts[told] += requests
