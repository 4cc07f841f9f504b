"""Wires for tests: over a store that a test stands in front of, and over a wire that breaks on purpose.

`WrappedSides` puts both ports of a side, the store and the wire, behind the same wrapped store, so that what a test
counts or breaks there is all that is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lakemirror.copying.model import OpenWire
from lakemirror.storage.clients import MemoryBuckets
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectStore
from lakemirror.storage.wire import Wire
from lakemirror.storage.wires.local import LocalWire
from lakemirror.storage.wires.shelves import MemoryShelf

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
