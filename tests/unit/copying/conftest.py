"""Two buckets in memory with wires that break as told, and copiers over them that never wait in real time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from lakemirror.copying.copier import Copier
from lakemirror.copying.model import CopyItem, CopySettings
from lakemirror.copying.pace import OwnPace, Pace, Rates
from lakemirror.storage.clients import MemoryBuckets
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.wires.local import memory_wire
from tests.wires import FaultyWire, WireFault

T = TypeVar("T")


@dataclass
class Slept:
    """A clock that moves only when somebody sleeps."""

    now: float = 0.0
    naps: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@dataclass
class Buckets:
    """`memory://source` and `memory://mirror`."""

    memory: MemoryBuckets = field(default_factory=MemoryBuckets)
    time: Slept = field(default_factory=Slept)

    def __post_init__(self) -> None:
        self.store = ObstoreStore({}, memory=self.memory)

    def put(self, name: str, data: bytes, side: str = "source") -> CopyItem:
        self.store.put(f"memory://{side}/{name}", data)
        return self.item(name, len(data))

    def item(self, name: str, size_bytes: int) -> CopyItem:
        return CopyItem(f"memory://source/{name}", f"memory://mirror/{name}", size_bytes)

    def mirrored(self) -> dict[str, bytes]:
        found = self.store.list("memory://mirror")
        return {info.uri.removeprefix("memory://mirror/"): self.store.get(info.uri).data for info in found}

    def uploads(self) -> int:
        return len(self.memory.uploads)

    def copier(
        self,
        *,
        source: Iterable[WireFault] = (),
        mirror: Iterable[WireFault] = (),
        pace: Pace | None = None,
        is_one_store: bool = False,
        **bounds: Any,
    ) -> tuple[Copier, FaultyWire, FaultyWire]:
        wires = FaultyWire(memory_wire(self.memory), source), FaultyWire(memory_wire(self.memory), mirror)
        made = Copier(
            *wires,
            CopySettings(**{"part_bytes": 10, "whole_bytes": 10, "memory_bytes": 80, "concurrency": 4, **bounds}),
            pace or OwnPace(Rates(), self.time.clock, self.time.sleep),
            random=lambda: 0.5,
            clock=self.time.clock,
            sleep=self.time.sleep,
            is_one_store=is_one_store,
        )
        return made, *wires


@pytest.fixture
def buckets() -> Buckets:
    return Buckets()


Run = Callable[[Coroutine[Any, Any, T]], T]


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)
