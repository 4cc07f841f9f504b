"""How many requests are in flight: as many as the store bears, found out by trying.

Additive increase, multiplicative decrease: a round of successes adds one, a store that asks for less halves. Requests
that were sent before the halving and are refused too do not halve again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType


class Gate:
    """`async with gate:` around each request; tasks of one event loop share it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = float(most)
        self.inside = 0
        self.halvings = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> int:
        """Gives the number of halvings so far: what `throttled` wants to know when the request is refused."""
        if self.inside < int(self.limit) and not self._waiting:
            self.inside += 1
            return self.halvings
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            raise
        return self.halvings

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def succeeded(self) -> None:
        if self.limit < self.most:
            self.limit = min(float(self.most), self.limit + 1 / self.limit)
            self._wake()

    def throttled(self, entered_at: int) -> None:
        """The store asks for less, in answer to a request that went in after `entered_at` halvings."""
        if entered_at == self.halvings:
            self.halvings += 1
            self.limit = max(1.0, self.limit / 2)

    def _leave(self) -> None:
        self.inside -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.inside < int(self.limit):
            turn = self._waiting.popleft()
            if not turn.done():
                self.inside += 1
                turn.set_result(None)
