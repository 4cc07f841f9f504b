"""Wires for tests: over a store that a test stands in front of, and over a wire that breaks on purpose.

`WrappedSides` puts both ports of a side, the store and the wire, behind the same wrapped store, so that what a test
counts or breaks there is all that is asked.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from lakemirror.copying.model import OpenWire
from lakemirror.errors import TransientError
from lakemirror.storage.clients import MemoryBuckets
from lakemirror.storage.md5_tags import Md5Tag
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectInfo, ObjectStore, ThrottledError
from lakemirror.storage.wire import Part, Stored, Upload, WholeRead, Wire, WireCapabilities
from lakemirror.storage.wires.local import LocalWire
from lakemirror.storage.wires.shelves import MemoryShelf

T = TypeVar("T")
WrapStore = Callable[[str, ObjectStore], ObjectStore]


def wire_over(store: ObjectStore, memory: MemoryBuckets | None = None) -> Wire:
    """The wire whose every request goes through this store; unfinished uploads wait in memory."""
    return LocalWire(store, MemoryShelf(memory or MemoryBuckets()), in_threads=True)


@dataclass
class WrappedSides:
    """`App(wrap_store=sides.store, wrap_wire=sides.wire)`: one wrapped store for each side."""

    wrap_store: WrapStore
    stores: dict[str, ObjectStore] = field(default_factory=dict)
    memory: MemoryBuckets = field(default_factory=MemoryBuckets)

    def store(self, side: str, store: ObjectStore) -> ObjectStore:
        if side not in self.stores:
            self.stores[side] = self.wrap_store(side, store)
        return self.stores[side]

    def wire(self, side: str, wire: OpenWire) -> OpenWire:
        return lambda: wire_over(self.store(side, ObstoreStore({})), self.memory)


class Act(Enum):
    """What happens to the request that a fault names."""

    FAIL = "TransientError, nothing done"
    FAIL_AFTER = "done, then TransientError"
    THROTTLE = "ThrottledError, nothing done"
    FLIP = "one bit of the bytes is turned on their way, to the store or from it"
    STALL = "no answer, ever"


@dataclass(frozen=True, slots=True)
class WireFault:
    """Requests `first` (from 1) to `last` of `verb` meet `act`."""

    verb: str
    act: Act
    first: int = 1
    last: int = 1
    retry_after_s: float | None = None


def shelf_tag(part: Part) -> str:
    """As files and memory tag it."""
    return f"{part.size_bytes}-{part.crc32c:08x}"


def md5_tag(data: bytes) -> str:
    """As S3 tags a part."""
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class FaultyWire:
    """A wire that breaks as told; `calls` has every request as (verb, uri), `most_at_once` how many were under way.

    With `crc32cs` and `sums` it tells the sums of these objects, as stores do that keep them; with `tags` it leaves
    those to whoever reads an object whole, and `matched` says which were found to be right. `checks_md5` and
    `aborts_safely` are said of it. With `part_tag` it tags parts by what this makes of the bytes that came.
    """

    def __init__(self, inner: Wire, faults: Iterable[WireFault] = ()) -> None:
        self._inner = inner
        self.crc32cs: dict[str, int] = {}
        self.sums: dict[str, dict[str, Any]] = {}
        self.tags: dict[str, Md5Tag] = {}
        self.matched: list[str] = []
        self.checks_md5 = False
        self.aborts_safely = True
        self.part_tag: Callable[[bytes], str] | None = None
        self._faults = tuple(faults)
        self._seen: Counter[str] = Counter()
        self.calls: list[tuple[str, str]] = []
        self.at_once = self.most_at_once = 0

    def capabilities(self, uri: str) -> WireCapabilities:
        powers = self._inner.capabilities(uri)
        return replace(
            powers,
            checks_md5=self.checks_md5 or powers.checks_md5,
            tags_parts_md5=self.part_tag is not None or powers.tags_parts_md5,
            aborts_safely=self.aborts_safely and powers.aborts_safely,
        )

    async def head(self, uri: str) -> ObjectInfo:
        return await self._met("head", uri, lambda: self._inner.head(uri))

    async def stored(self, uri: str) -> Stored:
        stored = await self._met("stored", uri, lambda: self._inner.stored(uri))
        return replace(stored, **{"crc32c": self.crc32cs.get(uri, stored.crc32c), **self.sums.get(uri, {})})

    async def read(
        self, uri: str, start: int, length: int, *, e_tag: str | None = None, size_bytes: int | None = None
    ) -> bytes:
        nth = self._seen["read"] + 1
        data = await self._met(
            "read", uri, lambda: self._inner.read(uri, start, length, e_tag=e_tag, size_bytes=size_bytes)
        )
        return self._turned("read", nth, data)

    async def read_whole(self, uri: str, size_bytes: int) -> WholeRead:
        nth = self._seen["read"] + 1
        read = await self._met("read", uri, lambda: self._inner.read_whole(uri, size_bytes))
        data, left = self._turned("read", nth, read.data), self.tags.get(uri)
        return WholeRead(data) if left is None else WholeRead(data, left, partial(self.matched.append, uri))

    async def create(self, uri: str, data: bytes, crc32c: int, *, md5: bytes | None = None) -> Stored:
        sent = self._sent("create", data)
        return await self._met("create", uri, lambda: self._inner.create(uri, sent, crc32c, md5=md5))

    async def begin(self, uri: str) -> str:
        return await self._met("begin", uri, lambda: self._inner.begin(uri))

    async def put_part(self, uri: str, upload: str, number: int, data: bytes, crc32c: int) -> Part:
        sent = self._sent("put_part", data)
        part = await self._met("put_part", uri, lambda: self._inner.put_part(uri, upload, number, sent, crc32c))
        if self.part_tag is None:
            return part
        return replace(part, tag=self.part_tag(sent))

    async def finish(self, uri: str, upload: str, parts: Sequence[Part], crc32c: int) -> Stored:
        known = parts if self.part_tag is None else [replace(one, tag=shelf_tag(one)) for one in parts]
        return await self._met("finish", uri, lambda: self._inner.finish(uri, upload, known, crc32c))

    async def abort(self, uri: str, upload: str) -> None:
        await self._met("abort", uri, lambda: self._inner.abort(uri, upload))

    def uploads(self, prefix_uri: str) -> AsyncIterator[Upload]:
        return self._inner.uploads(prefix_uri)

    def unnamed(self, prefix_uri: str) -> AsyncIterator[Upload]:
        return self._inner.unnamed(prefix_uri)

    async def copy_within(self, source_uri: str, target_uri: str, *, e_tag: str | None = None) -> Stored:
        return await self._met(
            "copy_within", target_uri, lambda: self._inner.copy_within(source_uri, target_uri, e_tag=e_tag)
        )

    async def close(self) -> None:
        await self._inner.close()

    def count(self, verb: str) -> int:
        return self._seen[verb]

    def _due(self, verb: str, nth: int) -> list[WireFault]:
        return [fault for fault in self._faults if fault.verb == verb and fault.first <= nth <= fault.last]

    def _sent(self, verb: str, data: bytes) -> bytes:
        return self._turned(verb, self._seen[verb] + 1, data)

    def _turned(self, verb: str, nth: int, data: bytes) -> bytes:
        flips = any(fault.act is Act.FLIP for fault in self._due(verb, nth))
        return bytes([data[0] ^ 1]) + data[1:] if flips and data else data

    async def _met(self, verb: str, uri: str, request: Callable[[], Awaitable[T]]) -> T:
        self._seen[verb] += 1
        self.calls.append((verb, uri))
        due = self._due(verb, self._seen[verb])
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)
            for fault in due:
                if fault.act is Act.STALL:
                    await asyncio.Event().wait()
                if fault.act is Act.FAIL:
                    raise TransientError(verb, uri, "injected", "run again")
                if fault.act is Act.THROTTLE:
                    raise ThrottledError(verb, uri, "injected", "slow down", fault.retry_after_s)
            answer = await request()
        finally:
            self.at_once -= 1
        if any(fault.act is Act.FAIL_AFTER for fault in due):
            raise TransientError(verb, uri, "injected, after it was done", "run again")
        return answer
