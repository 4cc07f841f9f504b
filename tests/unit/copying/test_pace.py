"""The pace of one process: who is cut off while it waits leaves the line to others."""

from __future__ import annotations

import asyncio

import pytest

from lakemirror.copying.pace import OwnPace, Rates
from tests.unit.copying.conftest import Slept, run


def test_who_is_cut_off_while_it_waits_gives_its_turn_back() -> None:
    time = Slept()
    naps: list[float] = []

    async def sleep(seconds: float) -> None:
        naps.append(seconds)
        await asyncio.Event().wait()

    async def work() -> None:
        pace = OwnPace(Rates(bytes_per_s=10.0, requests_per_s=2.0), time.clock, sleep)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pace.take(100), 0.01)

    run(work())
    assert naps == [10.0] * 3


def test_what_was_waited_for_is_not_given_back() -> None:
    time = Slept()

    async def work() -> None:
        pace = OwnPace(Rates(bytes_per_s=10.0), time.clock, time.sleep)
        for _ in range(3):
            await pace.take(100)

    run(work())
    assert time.now == 30.0
