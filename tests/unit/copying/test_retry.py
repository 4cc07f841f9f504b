"""Retries: full jitter, the store's own wish, and every bound: tries, budget, patience, requests in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from lakemirror.copying.gate import Gate
from lakemirror.copying.pace import OwnPace, Rates
from lakemirror.copying.retry import Patience, RetryBudget, Retrying
from lakemirror.errors import PermanentError, SourceVanishedError, TransientError
from lakemirror.storage.metering import mark
from lakemirror.storage.port import ThrottledError
from tests.unit.copying.conftest import Slept, run


def failing(*errors: Exception) -> Callable[[], asyncio.Future[str]]:
    left = list(errors)

    async def request() -> str:
        if left:
            raise left.pop(0)
        return "answer"

    return request  # type: ignore[return-value]


def transient() -> TransientError:
    return TransientError("get", "s3://b/k", "cut", "run again")


def throttled(retry_after_s: float | None = None) -> ThrottledError:
    return ThrottledError("get", "s3://b/k", "slow down", "wait", retry_after_s)


def retrying(time: Slept, *, gate: Gate | None = None, attempts: int = 4, budget: int = 100) -> Retrying:
    pace = OwnPace(Rates(), time.clock, time.sleep)
    return Retrying(gate or Gate(8), pace, RetryBudget(budget), attempts, lambda: 1.0, time.clock, time.sleep)


def patience(seconds: float = 1000.0) -> Patience:
    return Patience("s3://b/k", seconds)


def test_pauses_grow_and_are_cut_by_chance() -> None:
    time = Slept()
    assert run(retrying(time)(failing(transient(), transient(), transient()), patience())) == "answer"
    assert time.naps == [0.2, 0.4, 0.8]


def test_the_stores_own_wish_comes_first() -> None:
    time = Slept()
    run(retrying(time)(failing(throttled(7.0)), patience()))
    assert time.naps == [7.2]


def test_tries_are_bounded() -> None:
    with pytest.raises(TransientError) as caught:
        run(retrying(Slept(), attempts=3)(failing(*(transient() for _ in range(5))), patience()))
    assert caught.value.__notes__ == ["gave up after 3 tries"]


def test_the_budget_of_the_task_is_bounded() -> None:
    tries = retrying(Slept(), budget=3)

    async def work() -> None:
        await tries(failing(transient(), transient()), patience())
        await tries(failing(transient(), transient()), patience())

    with pytest.raises(TransientError) as caught:
        run(work())
    assert caught.value.__notes__ == ["gave up: this task has used up its copy_retry_budget"]


@pytest.mark.parametrize(
    "error", [PermanentError("get", "s3://b/k", "denied"), SourceVanishedError("get", "s3://b/k", "gone")]
)
def test_what_will_not_pass_is_not_tried_again(error: Exception) -> None:
    time = Slept()
    with pytest.raises(type(error)):
        run(retrying(time)(failing(error), patience()))
    assert time.naps == []


def test_a_wish_longer_than_the_patience_ends_it_at_once() -> None:
    time = Slept()
    with pytest.raises(TransientError, match="took longer than 10 s"):
        run(retrying(time)(failing(throttled(60.0)), patience(10.0)))
    assert time.naps == []


def test_no_answer_ends_with_the_patience() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TransientError, match="object_deadline_seconds"):
        run(retrying(Slept())(never, patience(0.01)))


def test_waiting_for_the_line_costs_no_patience() -> None:
    time = Slept()
    slow = OwnPace(Rates(bytes_per_s=1.0), time.clock, time.sleep)
    tries = Retrying(Gate(1), slow, RetryBudget(1), 2, lambda: 1.0, time.clock, time.sleep)
    left = patience(10.0)
    assert run(tries(failing(), left, paid_bytes=100)) == "answer"
    assert (time.now, left.left_s) == (100.0, 10.0)


def test_a_store_that_asks_for_less_gets_half_and_slowly_more() -> None:
    gate = Gate(8)
    tries = retrying(Slept(), gate=gate)

    async def work() -> list[float]:
        limits = []
        await tries(failing(throttled()), patience())
        limits.append(gate.limit)
        for _ in range(40):
            await tries(failing(), patience())
        return [*limits, gate.limit]

    first, last = run(work())
    assert 4.0 <= first < 4.5
    assert last == 8.0


def test_one_storm_halves_once() -> None:
    gate = Gate(8)

    async def work() -> None:
        seen = [await gate.__aenter__() for _ in range(8)]
        for entered_at in seen:
            gate.throttled(entered_at)

    run(work())
    assert gate.limit == 4.0


def test_no_more_are_inside_than_the_limit() -> None:
    gate = Gate(3)
    most = 0

    async def work() -> None:
        nonlocal most
        async with gate:
            most = max(most, gate.inside)
            await asyncio.sleep(0)

    async def all_of_them() -> None:
        tasks = [asyncio.create_task(work()) for _ in range(20)]
        await asyncio.sleep(0)
        tasks[5].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(all_of_them())
    assert (most, gate.inside) == (3, 0)


class Taking(OwnPace):
    """A pace that notes what is taken."""

    def __init__(self, time: Slept) -> None:
        super().__init__(Rates(), time.clock, time.sleep)
        self.taken: list[tuple[int, int]] = []

    async def take(self, size_bytes: int, requests: int = 1) -> None:
        self.taken.append((size_bytes, requests))


def test_every_request_that_a_call_makes_is_paid() -> None:
    """Those beyond the first when it is known how many they were: afterwards, or with the next try."""
    time = Slept()
    pace = Taking(time)
    tries = Retrying(Gate(8), pace, RetryBudget(9), 4, lambda: 1.0, time.clock, time.sleep)
    left = [transient()]

    async def three_requests() -> str:
        for _ in range(3):
            mark("head")
        if left:
            raise left.pop()
        return "answer"

    assert run(tries(three_requests, patience(), paid_bytes=5)) == "answer"
    assert pace.taken == [(5, 1), (5, 3), (0, 2)]
