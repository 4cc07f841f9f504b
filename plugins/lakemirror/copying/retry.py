"""Tries again what may pass: full jitter between the tries, the store's own wish respected, everything bounded.

Bounds: tries of one request, repeated requests of a whole task (so that a store in trouble is not stormed), and the
patience of whoever asks. Waiting for the line or for a free place does not count as time: only the store's own does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from lakemirror.copying.gate import Gate
from lakemirror.copying.pace import Pace
from lakemirror.errors import SourceVanishedError, TransientError
from lakemirror.storage.metering import metered
from lakemirror.storage.port import ThrottledError

BASE_DELAY_S: Final = 0.2
MAX_DELAY_S: Final = 30.0
MAX_RETRY_AFTER_S: Final = 300.0
T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


class RetryBudget:
    """Repeated requests that are left to a task."""

    def __init__(self, retries: int) -> None:
        self.left = retries

    def take(self) -> bool:
        if self.left <= 0:
            return False
        self.left -= 1
        return True


class Patience:
    """The time that a file, or a part of one, may still take."""

    def __init__(self, subject: str, seconds: float) -> None:
        self.subject, self.whole_s, self.left_s = subject, seconds, seconds

    def anew(self) -> Patience:
        """As much as there was at first, for a piece of the same thing."""
        return Patience(self.subject, self.whole_s)

    def at_end(self) -> TransientError:
        text = f"it took longer than {self.whole_s:g} s"
        return TransientError("copy", self.subject, text, "run again; raise object_deadline_seconds if it is always so")


class Retrying:
    """Runs the requests to one store through its gate, at the pace of the line, again where that can help."""

    def __init__(
        self,
        gate: Gate,
        pace: Pace,
        budget: RetryBudget,
        attempts: int,
        random: Callable[[], float],
        clock: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.gate = gate
        self._pace, self._budget, self._attempts = pace, budget, attempts
        self._random, self._clock, self._sleep = random, clock, sleep

    async def __call__(
        self,
        request: Callable[[], Awaitable[T]],
        patience: Patience,
        *,
        paid_bytes: int = 0,
        again_bytes: int = 0,
        paid_requests: int = 1,
    ) -> T:
        """The answer of the request; `paid_bytes` of it count against the line's rate, each time it is made.

        `again_bytes` count from the second time on: bytes that are sent were paid when they were read, once. What turns
        out to be several requests is paid in full, as soon as that is known.
        """
        failed = owed = 0
        while True:
            await self._pace.take(paid_bytes + (again_bytes if failed else 0), paid_requests + owed)
            try:
                with metered() as made:
                    answer = await self._once(request, patience)
            except SourceVanishedError:
                raise
            except TransientError as err:
                failed += 1
                if failed >= self._attempts:
                    err.add_note(f"gave up after {failed} tries")
                    raise
                if patience.left_s <= 0:
                    raise
                if not self._budget.take():
                    err.add_note("gave up: this task has used up its copy_retry_budget")
                    raise
                delay_s = self._delay_s(err, failed)
                if delay_s >= patience.left_s:
                    raise patience.at_end() from err
                patience.left_s -= delay_s
                owed = max(0, made.total() - paid_requests)
            else:
                self.gate.succeeded()
                if (owed := made.total() - paid_requests) > 0:
                    await self._pace.take(0, owed)
                return answer
            await self._sleep(delay_s)

    async def _once(self, request: Callable[[], Awaitable[T]], patience: Patience) -> T:
        async with self.gate as entered_at:
            start = self._clock()
            try:
                async with asyncio.timeout(max(0.0, patience.left_s)):
                    return await request()
            except TimeoutError as err:
                patience.left_s = 0.0
                raise patience.at_end() from err
            except ThrottledError:
                self.gate.throttled(entered_at)
                raise
            finally:
                patience.left_s -= self._clock() - start

    def _delay_s(self, err: TransientError, failed: int) -> float:
        jittered_s = self._random() * min(MAX_DELAY_S, BASE_DELAY_S * 2.0 ** (failed - 1))
        asked_s = err.retry_after_s if isinstance(err, ThrottledError) else None
        return jittered_s if asked_s is None else min(MAX_RETRY_AFTER_S, asked_s) + jittered_s
