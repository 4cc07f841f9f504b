"""What is copied and within which bounds: plain values that travel to whoever does the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from lakemirror.storage.abilities import Abilities
from lakemirror.storage.clients import storage_properties
from lakemirror.storage.wire import Wire, open_wire

MAX_PARTS: Final = 10_000  # of one upload, at every store that has uploads in parts
OpenWire = Callable[[], Wire]


@dataclass(frozen=True, slots=True)
class CopyItem:
    """One file, as the plan names it; `size_bytes` is what its manifest says."""

    source: str
    target: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CopiedItem:
    """A file that the mirror has whole; `adopted`: it was there already, with the same size and checksum.

    `crc32c` is None only if the store copied the file by itself and tells no sum of it.
    """

    item: CopyItem
    crc32c: int | None
    e_tag: str | None
    adopted: bool


@dataclass(frozen=True, slots=True)
class CopySettings:
    """The bounds of one task."""

    concurrency: int = 64
    """Requests in flight at once, at most; fewer when a store asks for it."""
    memory_bytes: int = 256 * 10**6
    """What files may take in memory at once."""
    part_bytes: int = 16 * 1024**2
    """Files that do not go whole are sent in parts of this size."""
    whole_bytes: int = 64 * 1024**2
    """A file up to this size goes whole, if memory holds three of them; one that is not larger than a part always."""
    attempts: int = 8
    """Tries of one request."""
    retry_budget: int = 1000
    """Repeated requests of the whole task."""
    object_deadline_s: float = 1800.0
    """One file that goes whole, or one part of a larger one, with all its tries; waiting in line does not count."""
    deadline_at: float | None = None
    """The moment, in seconds of the epoch, when the whole copy must be done; None: whenever."""

    @property
    def held_bytes(self) -> int:
        """Bytes of files that may be held; the rest is for what connections and their buffers take."""
        return self.memory_bytes * 4 // 5

    @property
    def most_whole_bytes(self) -> int:
        return max(self.part_bytes, min(self.whole_bytes, self.held_bytes // 3))


@dataclass(frozen=True, slots=True)
class WireTo:
    """Opens the wire to one side; pickles, so that each process opens its own."""

    properties: tuple[tuple[str, str], ...]
    abilities: Callable[[], Abilities] | None = None

    def __call__(self) -> Wire:
        return open_wire(dict(self.properties), abilities=None if self.abilities is None else self.abilities())

    def __repr__(self) -> str:
        return "WireTo(…)"  # the properties hold secrets


def wire_to(properties: Mapping[str, str], abilities: Callable[[], Abilities] | None = None) -> WireTo:
    """Without what belongs to a catalog: its secrets do not travel to whoever copies."""
    return WireTo(tuple(sorted(storage_properties(properties).items())), abilities)
