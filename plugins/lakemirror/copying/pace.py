"""Rates that hold: bytes and requests wait for their turn before they go, so that others have room on the line.

Turns are given on a line of time: each wish moves it on by what it takes at the rate, and goes when its time has come.
From the first wish on, the bytes that went are never more than the rate's. Who comes late, because others kept the
machine busy, may catch up half a second; more is not saved up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from lakemirror.errors import UsageError

SLACK_S: Final = 0.5
"""What may be caught up."""
LEASE_S: Final = 0.05
"""A wish for less than so many seconds' worth is rounded up to it, and the rest kept for the next ones."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second; None: no limit."""

    bytes_per_s: float | None = None
    requests_per_s: float | None = None

    def __post_init__(self) -> None:
        for rate in (self.bytes_per_s, self.requests_per_s):
            if rate is not None and rate <= 0:
                raise UsageError("limit", f"{rate:g} per second", "a rate must be above zero", "leave it out")

    def divided(self, shares: int) -> Rates:
        return Rates(
            None if self.bytes_per_s is None else self.bytes_per_s / shares,
            None if self.requests_per_s is None else self.requests_per_s / shares,
        )

    @property
    def is_limited(self) -> bool:
        return self.bytes_per_s is not None or self.requests_per_s is not None


NO_LIMIT: Final = Rates()


class Timeline:
    """When the next units may go, at a rate; whoever calls it keeps others out meanwhile."""

    def __init__(self) -> None:
        self._free_at: float | None = None

    def reserve(self, units: float, rate: float, now: float) -> float:
        """Seconds to wait until so many units may go."""
        self._free_at = (now if self._free_at is None else max(self._free_at, now - SLACK_S)) + units / rate
        return max(0.0, self._free_at - now)

    def give_back(self, units: float, rate: float) -> None:
        if self._free_at is not None:
            self._free_at -= units / rate


class Pace(Protocol):
    """What a task asks before it sends or reads."""

    async def take(self, size_bytes: int, requests: int = 1) -> None:
        """Wait until so many bytes and requests may go."""
        ...

    def tell(self, files: int, size_bytes: int) -> None:
        """So much more is done; for whoever shows progress."""
        ...

    async def leave(self, *, is_done: bool = False) -> None:
        """Nothing more will be asked for; `is_done`: because the task is."""
        ...


class OwnPace:
    """The rates of this process alone."""

    def __init__(
        self,
        rates: Rates,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rates, self._clock, self._sleep = rates, clock, sleep
        self._bytes, self._requests = Timeline(), Timeline()

    async def take(self, size_bytes: int, requests: int = 1) -> None:
        now, wait_s = self._clock(), 0.0
        if self._rates.bytes_per_s is not None and size_bytes:
            wait_s = self._bytes.reserve(size_bytes, self._rates.bytes_per_s, now)
        if self._rates.requests_per_s is not None and requests:
            wait_s = max(wait_s, self._requests.reserve(requests, self._rates.requests_per_s, now))
        if wait_s > 0:
            try:
                await self._sleep(wait_s)
            except asyncio.CancelledError:  # nothing of it will go
                self._give_back(size_bytes, requests)
                raise

    def _give_back(self, size_bytes: int, requests: int) -> None:
        if self._rates.bytes_per_s is not None:
            self._bytes.give_back(size_bytes, self._rates.bytes_per_s)
        if self._rates.requests_per_s is not None:
            self._requests.give_back(requests, self._rates.requests_per_s)

    def tell(self, files: int, size_bytes: int) -> None:
        """Within one process whoever copies tells of it directly."""

    async def leave(self, *, is_done: bool = False) -> None:
        """Nothing is held."""
