"""All that a copy task needs, as values that travel to it; and the copier made of them on its own event loop."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from lakemirror.copying.copier import Copier
from lakemirror.copying.counting import CountingWire
from lakemirror.copying.hub import FIRST, REJOIN_S, REPEATED, HubAddress, HubPace, unreachable
from lakemirror.copying.model import CopySettings, OpenWire
from lakemirror.copying.pace import NO_LIMIT, OwnPace, Pace, Rates
from lakemirror.storage.wires.pages import keep_large_buffers_apart


@dataclass(frozen=True, slots=True)
class CopyPorts:
    """Both sides, the bounds of a task, and the rates of the whole run with how they are shared."""

    source: OpenWire
    mirror: OpenWire
    settings: CopySettings
    rates: Rates = NO_LIMIT
    shares: int = 1
    """Tasks that may work at once: each has this share of the rates where the hub cannot be reached."""
    attempts: int = 1
    """How many at one task may work at once; where there is no hub, each has its part of the task's share."""
    hub: HubAddress | None = None
    is_one_store: bool = False
    """Both sides are one store under the same account, which may copy by itself."""
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    """Seconds of the epoch; for the deadline, which all processes share."""
    random: Callable[[], float] = random.random


class Counts:
    """The requests of a task to both sides."""

    def __init__(self, source: CountingWire, mirror: CountingWire) -> None:
        self._source, self._mirror = source, mirror

    @property
    def begun(self) -> int:
        """Uploads in parts that were begun, or may have been."""
        return self._mirror.begun

    def take(self) -> dict[str, dict[str, int]]:
        """Those that were not taken before."""
        taken = {"source": dict(self._source.counts), "mirror": dict(self._mirror.counts)}
        for wire in (self._source, self._mirror):
            wire.counts = dict.fromkeys(wire.counts, 0)
        return taken


@dataclass(frozen=True, slots=True)
class Opened:
    copier: Copier
    counts: Counts
    pace: Pace


@asynccontextmanager
async def opened(ports: CopyPorts, task: str, *, is_repeated: bool = False) -> AsyncIterator[Opened]:
    """The copier of one task, by the name under which the hub knows it; `is_repeated`: it was begun before."""
    keep_large_buffers_apart()  # else the task may take half as much memory again as its bound
    pace = await _pace(ports, task, is_repeated=is_repeated)
    source, mirror = CountingWire(ports.source()), CountingWire(ports.mirror())
    copier = Copier(
        source,
        mirror,
        ports.settings,
        pace,
        random=ports.random,
        clock=ports.clock,
        is_one_store=ports.is_one_store,
    )
    try:
        yield Opened(copier, Counts(source, mirror), pace)
    finally:
        await pace.leave()
        await source.close()
        await mirror.close()


async def _pace(ports: CopyPorts, task: str, *, is_repeated: bool) -> Pace:
    """By the hub; a first attempt that does not reach it has the share of its task, one after it has none."""
    if ports.hub is None:
        return OwnPace(ports.rates.divided(ports.shares * ports.attempts), ports.clock)
    has_share = not (is_repeated and ports.rates.is_limited)
    patience_s = 0.0 if has_share else _patience_s(ports)
    how = REPEATED if is_repeated else FIRST
    joined = await HubPace.join(ports.hub, ports.rates, task, how, patience_s=patience_s)
    if joined is None and not has_share:
        raise unreachable(ports.hub, "this task was begun before, and may not copy unseen beside its first attempt")
    return joined or OwnPace(ports.rates.divided(ports.shares), ports.clock)


def _patience_s(ports: CopyPorts) -> float:
    """A twin can wait as long as the first attempt may take; where there are none, everybody waits for this one."""
    patience_s = ports.settings.object_deadline_s if ports.attempts > 1 else REJOIN_S
    until = ports.settings.deadline_at
    return patience_s if until is None else max(0.0, min(patience_s, until - ports.now()))
