"""Jobs side by side, each in its place in memory; of several failures the one to tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from lakemirror.copying.memory import ByteLimit
from lakemirror.errors import PermanentError, SourceVanishedError, TransientError

T = TypeVar("T")
Job = Callable[[], Coroutine[Any, Any, T]]


async def all_within(memory: ByteLimit, jobs: Iterable[tuple[int, Job[T]]]) -> list[T]:
    """What the jobs give, in their order; each is begun when its bytes are free. The first failure ends the others.

    Whoever calls this must hold no memory himself: he would wait for his own.
    """

    def releases(size_bytes: int) -> Callable[[asyncio.Task[T]], None]:
        return lambda task: memory.release(size_bytes)

    begun: list[asyncio.Task[T]] = []
    try:
        async with asyncio.TaskGroup() as group:
            for size_bytes, job in jobs:
                await memory.acquire(size_bytes)
                task = group.create_task(job())
                task.add_done_callback(releases(size_bytes))  # also of one that is cancelled before it begins
                begun.append(task)
    except BaseExceptionGroup as errors:
        raise weightiest(errors.exceptions) from None
    return [task.result() for task in begun]


def all_told(errors: Sequence[BaseException]) -> BaseException:
    """The weightiest, with the others as its notes."""
    chosen = weightiest(errors)
    for other in errors:
        if other is not chosen:
            chosen.add_note(f"also: {other}")
    return chosen


def weightiest(errors: Sequence[BaseException]) -> BaseException:
    """The one to tell: what is no error of ours, what must be looked at, what needs a new plan, what may pass."""

    def weight(err: BaseException) -> int:
        if isinstance(err, TransientError):
            return 2 if isinstance(err, SourceVanishedError) else 3
        return 1 if isinstance(err, PermanentError) else 0

    flat: list[BaseException] = []
    for err in errors:
        flat.append(weightiest(err.exceptions) if isinstance(err, BaseExceptionGroup) else err)
    return min(flat, key=weight)
