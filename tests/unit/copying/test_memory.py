"""The bound on bytes holds whatever is asked, in order, and survives those who stop waiting."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemirror.copying.memory import ByteLimit
from lakemirror.errors import PermanentError
from tests.unit.copying.conftest import run


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 100), max_size=60), st.sets(st.integers(0, 59)))
def test_never_more_than_the_bound_is_held(sizes: list[int], cancelled: set[int]) -> None:
    async def work() -> ByteLimit:
        limit = ByteLimit(100)

        async def hold(size: int) -> None:
            async with limit.hold(size):
                assert limit.held_bytes <= 100
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(hold(size)) for size in sizes]
        await asyncio.sleep(0)
        for number in cancelled:
            if number < len(tasks):
                tasks[number].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return limit

    limit = run(work())
    assert (limit.held_bytes, limit.peak_bytes <= 100) == (0, True)


def test_a_large_wish_is_not_passed_by_small_ones() -> None:
    async def work() -> list[str]:
        limit, order = ByteLimit(10), []
        await limit.acquire(6)

        async def hold(name: str, size: int) -> None:
            async with limit.hold(size):
                order.append(name)

        tasks = [asyncio.create_task(hold("large", 8)), asyncio.create_task(hold("small", 1))]
        await asyncio.sleep(0)
        limit.release(6)
        await asyncio.gather(*tasks)
        return order

    assert run(work()) == ["large", "small"]


def test_what_can_never_fit_is_refused_rather_than_waited_for() -> None:
    with pytest.raises(PermanentError, match="do not fit into memory"):
        run(ByteLimit(10).acquire(11))
