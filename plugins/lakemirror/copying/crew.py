"""One event loop for one task: jobs side by side, as many as there are workers, until all are done or one has failed.

After a failure no new job is begun, and those under way may end: what they complete is not lost. Whoever is cut off
waits for all of them to clean up, within a bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from lakemirror.copying.together import weightiest

Job = Callable[[], Awaitable[None]]
T = TypeVar("T")
END_S: Final = 40.0
"""What jobs that are cut off may take to clean up; longer than aborting an upload may."""


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on an event loop of its own: the faster one where it is installed."""
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        return runner.run(work)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def work_off(jobs: AsyncIterator[Job], workers: int) -> BaseException | None:
    """The failure to tell, if there was any; a failure of `jobs` itself counts too."""
    failures: list[BaseException] = []
    turn = asyncio.Lock()

    async def next_job() -> Job | None:
        async with turn:
            return None if failures else await anext(jobs, None)

    async def work() -> None:
        try:
            while (job := await next_job()) is not None:
                await job()
        except asyncio.CancelledError:
            raise
        except BaseException as err:  # noqa: BLE001 - told to the caller, who raises it
            failures.append(err)

    crew = [asyncio.create_task(work()) for _ in range(workers)]
    try:
        await asyncio.wait(crew)
    except asyncio.CancelledError:
        for worker in crew:
            worker.cancel()
        await asyncio.wait(crew, timeout=END_S)
        raise
    return weightiest(failures) if failures else None
