"""A wire and an empty prefix of its own, for the contract suite: each test runs its coroutine on a loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from lakemirror.storage.abilities import Abilities
from lakemirror.storage.checksum import crc32c_of
from lakemirror.storage.clients import MemoryBuckets
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.wire import Part, Stored, Wire, open_wire

T = TypeVar("T")


@dataclass(frozen=True)
class WireHome:
    """Where wires lead in a test; `store` is the synchronous port over the same objects."""

    root: str
    properties: dict[str, str]
    memory: MemoryBuckets
    abilities: Abilities

    @property
    def store(self) -> ObstoreStore:
        return ObstoreStore(self.properties, memory=self.memory, abilities=lambda: self.abilities)

    def uri(self, key: str) -> str:
        return f"{self.root}/{key}"

    def listed(self) -> list[str]:
        return sorted(info.uri.removeprefix(f"{self.root}/") for info in self.store.list(self.root))

    def run(self, work: Callable[[Wire], Awaitable[T]]) -> T:
        async def opened() -> T:
            wire = open_wire(self.properties, self.memory, self.abilities)
            try:
                return await asyncio.wait_for(work(wire), 90)
            finally:
                await wire.close()

        return asyncio.run(opened())


async def create(wire: Wire, uri: str, data: bytes) -> Stored:
    return await wire.create(uri, data, crc32c_of(data))


async def put_part(wire: Wire, uri: str, upload: str, number: int, data: bytes) -> Part:
    return await wire.put_part(uri, upload, number, data, crc32c_of(data))
