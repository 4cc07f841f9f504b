"""A bound on bytes in memory: whoever wants to read waits until so many are free. First come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lakemirror.errors import PermanentError


class ByteLimit:
    """Lets so many bytes be held at once, by the tasks of one event loop; a large wish is not passed by small ones."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.held_bytes = 0
        self.peak_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncIterator[None]:
        await self.acquire(size_bytes)
        try:
            yield
        finally:
            self.release(size_bytes)

    async def acquire(self, size_bytes: int) -> None:
        if size_bytes > self.capacity_bytes:
            raise PermanentError(
                "copy",
                f"{size_bytes} bytes at once",
                f"they do not fit into memory (want at most {self.capacity_bytes})",
                "raise copy_memory_bytes, or lower copy_part_bytes",
            )
        if not self._waiting and self.held_bytes + size_bytes <= self.capacity_bytes:
            self._take(size_bytes)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was given in the same moment: give it back
                self.release(size_bytes)
            else:
                self._waiting = deque(one for one in self._waiting if one[1] is not turn)
                self._wake()
            raise

    def release(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        self._wake()

    def _take(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def _wake(self) -> None:
        while self._waiting and self.held_bytes + self._waiting[0][0] <= self.capacity_bytes:
            size_bytes, turn = self._waiting.popleft()
            if not turn.done():
                self._take(size_bytes)
                turn.set_result(None)
