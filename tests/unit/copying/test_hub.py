"""The hub: one line for all tasks together, shares where it is not heard of, and nothing for strangers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from lakemirror.copying.hub import Hub, HubAddress, HubPace, Ledger
from lakemirror.copying.pace import OwnPace, Rates
from tests.unit.copying.conftest import Slept, run

HERE = ("127.0.0.1", "127.0.0.1")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def ledger(tasks: int, processes: int, rates: Rates | None = None) -> tuple[Ledger, Clock]:
    clock = Clock()
    return Ledger(rates or Rates(bytes_per_s=100.0), tasks, processes, clock), clock


def test_all_who_ask_stand_in_one_line() -> None:
    line, clock = ledger(2, 2)
    line.joined("a", "1")
    line.joined("b", "2")
    assert [line.lease(100, 1), line.lease(50, 1), line.lease(0, 1)] == [1.0, 1.5, 1.5]
    clock.now = 10.0
    assert line.lease(100, 1) == 0.5  # no more is saved up than may be caught up


def test_those_who_are_not_heard_of_keep_their_share() -> None:
    """Four may work and one is here: three others may be copying at a quarter each."""
    line, _ = ledger(tasks=8, processes=4)
    line.joined("a", "1")
    assert line.share == 0.25
    for name in "234":
        line.joined(name, name)
    assert line.share == 1.0


def test_the_last_ones_have_the_whole_line() -> None:
    line, _ = ledger(tasks=3, processes=3)
    line.joined("a", "1")
    line.finished("2")
    line.finished("2")  # a twin says it again
    assert line.share == 0.5
    line.finished("3")
    assert line.share == 1.0


def test_twins_of_one_task_count_once() -> None:
    line, _ = ledger(tasks=4, processes=2)
    line.joined("a", "1")
    line.joined("b", "1")
    assert line.share == 0.5
    line.left("a")
    assert line.share == 0.5


def test_what_was_not_used_is_given_back() -> None:
    line, _ = ledger(1, 1)
    line.joined("a", "1")
    assert line.lease(100, 0) == 1.0
    line.give_back(100, 0)
    assert line.lease(100, 0) == 1.0


async def join(address: HubAddress, rates: Rates, task: str, own: OwnPace | None = None) -> OwnPace | HubPace:
    return await HubPace.join(address, rates, own or OwnPace(rates, time.monotonic), task)


@pytest.mark.parametrize("tasks", [1, 5])
def test_the_rate_holds_for_all_tasks_together_within_a_tenth(tasks: int) -> None:
    rates = Rates(bytes_per_s=2_000_000)

    async def copy(pace: OwnPace | HubPace, number: int, until: float) -> int:
        taken = 0
        while time.monotonic() < until:
            await pace.take(5_000 + 1_000 * number)
            taken += 5_000 + 1_000 * number
        await pace.leave(is_done=True)
        return taken

    async def work(address: HubAddress) -> float:
        paces = [await join(address, rates, str(number)) for number in range(tasks)]
        await asyncio.sleep(0.05)
        start = time.monotonic()
        taken = await asyncio.gather(*(copy(pace, number, start + 1.5) for number, pace in enumerate(paces)))
        return sum(taken) / (time.monotonic() - start)

    with Hub(HERE, rates, tasks, tasks) as address:
        assert address is not None
        rate = run(work(address))
    assert 0.85 * 2_000_000 <= rate <= 1.1 * 2_000_000


def test_strangers_are_not_answered() -> None:
    async def work(address: HubAddress) -> tuple[object, bytes]:
        own = OwnPace(Rates(), Slept().clock)
        wrong = await HubPace.join(replace(address, secret=b"0" * 32), Rates(), own, "t")
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"lease\t1\t1\n" * 100)
        said = await reader.read()
        writer.transport.abort()
        return wrong is own, said[16:]

    with Hub(HERE, Rates(bytes_per_s=1.0), 1, 1) as address:
        assert address is not None
        is_own, said = run(work(address))
    assert is_own
    assert len(said) <= 32  # its own proof, which tells nothing, and no lease


def test_a_hub_that_cannot_be_reached_leaves_the_share() -> None:
    time_ = Slept()
    rates = Rates(bytes_per_s=100.0)

    async def work() -> None:
        own = OwnPace(rates.divided(4), time_.clock, time_.sleep)
        pace = await HubPace.join(HubAddress("127.0.0.1", 1, b"s"), rates, own, "t")
        assert pace is own
        await pace.take(100)

    run(work())
    assert time_.now == 4.0


def test_a_hub_that_is_lost_midway_leaves_the_share() -> None:
    time_ = Slept()
    rates = Rates(bytes_per_s=1e9)

    async def work(hub: Hub, address: HubAddress) -> None:
        pace = await join(address, rates, "t", OwnPace(Rates(bytes_per_s=10.0), time_.clock, time_.sleep))
        await pace.take(10**9 // 1000)
        assert time_.now == 0.0
        await asyncio.to_thread(hub.__exit__)
        for _ in range(100):
            await pace.take(10**9)
            if time_.now:
                break
        assert time_.now > 0
        await pace.leave()

    hub = Hub(HERE, rates, 1, 1)
    address = hub.__enter__()
    assert address is not None
    run(work(hub, address))


def test_it_hears_how_far_tasks_are() -> None:
    heard: list[tuple[int, int]] = []

    async def work(address: HubAddress) -> None:
        one, two = await join(address, Rates(), "1"), await join(address, Rates(), "2")
        one.tell(2, 20)
        await one.leave(is_done=True)
        two.tell(1, 5)
        await two.leave(is_done=True)

    with Hub(HERE, Rates(), 2, 2, on_progress=lambda files, size: heard.append((files, size))) as address:
        assert address is not None
        run(work(address))
        end = time.monotonic() + 5
        while len(heard) < 2 and time.monotonic() < end:
            time.sleep(0.01)
    assert heard[-1] == (3, 25)


def test_no_place_to_listen_is_no_hub() -> None:
    with Hub(("192.0.2.1", "192.0.2.1"), Rates(), 1, 1) as address:
        assert address is None
    with Hub(None, Rates(), 1, 1) as address:
        assert address is None


def test_its_secret_is_not_shown() -> None:
    assert "abc" not in repr(HubAddress("h", 1, b"abc"))
