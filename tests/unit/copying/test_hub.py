"""The hub: one line for all tasks together, shares where it is not heard of, and nothing for strangers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

import pytest
import uvloop

from lakemirror.copying import hub as hubs
from lakemirror.copying.hub import FIRST, LEAST_SHARE, REPEATED, Hub, HubAddress, HubPace, Ledger
from lakemirror.copying.pace import Rates
from lakemirror.errors import TransientError
from tests.leases import Lease, last_goes_at
from tests.unit.copying.conftest import Run

HERE = ("127.0.0.1", "127.0.0.1")


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run[Any]:
    """On both event loops: copies use uvloop, which tells of broken lines in its own way."""

    def on_loop(work: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(work)

    return on_loop


NOWHERE = HubAddress("127.0.0.1", 1, b"s")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def ledger(tasks: int, processes: int, rates: Rates | None = None, attempts: int = 1) -> tuple[Ledger, Clock]:
    clock = Clock()
    return Ledger(rates or Rates(bytes_per_s=100.0), tasks, processes, attempts, clock), clock


def test_all_who_ask_stand_in_one_line() -> None:
    line, clock = ledger(2, 2)
    line.joined("a", "1", 0, FIRST)
    line.joined("b", "2", 0, FIRST)
    assert [line.lease(100, 1), line.lease(50, 1), line.lease(0, 1)] == [1.0, 1.5, 1.5]
    clock.now = 10.0
    assert line.lease(100, 1) == 0.5  # no more is saved up than may be caught up


def test_those_who_are_not_heard_of_keep_their_share() -> None:
    """Four may work and one is here: three others may be copying at a quarter each."""
    line, _ = ledger(tasks=8, processes=4)
    line.joined("a", "1", 0, FIRST)
    assert line.share == 0.25
    for name in "234":
        line.joined(name, name, 0, FIRST)
    assert line.share == 1.0


def test_the_last_ones_have_the_whole_line() -> None:
    line, _ = ledger(tasks=3, processes=3)
    line.joined("a", "1", 0, FIRST)
    done(line, "b", "2")
    done(line, "c", "2")  # a twin says it again
    assert line.share == 0.5
    done(line, "d", "3")
    assert line.share == 1.0


def done(line: Ledger, who: str, task: str, step: int = 0) -> None:
    line.joined(who, task, step, FIRST)
    line.finished(who, task)
    line.left(who)


def test_those_who_finish_large_files_are_expected_again() -> None:
    """One of two is heard of; the other one has its share of the line, as it had in the step before."""
    line, _ = ledger(tasks=2, processes=2)
    line.joined("late", "2", 0, FIRST)
    done(line, "a", "1")
    done(line, "b", "2")
    line.expect(1, 2)
    line.joined("c", "1", 1, FIRST)
    assert line.share == 0.5
    line.finished("late", "2")  # a twin of the step before tells nothing of this one
    line.left("late")
    assert line.share == 0.5
    done(line, "d", "2", step=1)
    assert line.share == 1.0


def test_attempts_at_one_task_count_once() -> None:
    line, _ = ledger(tasks=4, processes=2, attempts=2)
    line.joined("a", "1", 0, FIRST)
    line.joined("b", "1", 0, REPEATED)
    assert line.share == 0.5
    line.left("a")  # it asks nobody else for bytes, and may come back
    assert line.share == 0.5
    line.joined("c", "1", 0, FIRST)
    assert line.share == 0.5


def test_a_twin_does_not_get_the_share_of_a_first_attempt_that_was_not_heard_of() -> None:
    """It may be at work, with the share of its task."""
    line, _ = ledger(tasks=2, processes=2, attempts=2)
    line.joined("twin", "2", 0, REPEATED)
    assert line.share == LEAST_SHARE  # two others may have all of the rate, as far as the hub can tell
    line.joined("a", "1", 0, FIRST)
    assert line.share == 0.5
    line.finished("twin", "2")  # the first attempt is at work until Spark ends it
    assert line.share == 0.5


def test_where_there_are_no_twins_who_comes_after_the_first_has_its_share() -> None:
    line, _ = ledger(tasks=2, processes=2)
    line.joined("a", "1", 0, FIRST)
    line.joined("b", "2", 0, REPEATED)
    assert line.share == 1.0


def test_who_comes_back_from_a_step_before_is_not_taken_for_one_of_this_step() -> None:
    line, _ = ledger(tasks=2, processes=2)
    line.joined("a", "1", 0, FIRST)
    line.expect(1, 2)
    line.joined("b", "2", 1, FIRST)
    line.joined("a", "1", 0, FIRST)
    line.finished("a", "1")
    assert line.share == 0.5


def test_what_was_not_used_is_given_back() -> None:
    line, _ = ledger(1, 1)
    line.joined("a", "1", 0, FIRST)
    assert line.lease(100, 0) == 1.0
    line.give_back(100, 0)
    assert line.lease(100, 0) == 1.0


async def join(address: HubAddress, rates: Rates, task: str) -> HubPace:
    pace = await HubPace.join(address, rates, task)
    assert pace is not None
    return pace


def noting(hub: Hub, clock: Callable[[], float]) -> list[Lease]:
    """The bytes that it lets go from now on."""
    noted, lease = [], hub.ledger.lease

    def wait_s(size_bytes: int, requests: int) -> float:
        at, wait_s = clock(), lease(size_bytes, requests)
        noted.append(Lease(at, wait_s, size_bytes))
        return wait_s

    hub.ledger.lease = wait_s  # type: ignore[method-assign]
    return noted


@pytest.mark.parametrize("tasks", [1, 5])
def test_the_rate_holds_for_all_tasks_together_within_a_tenth(run: Run[Any], tasks: int) -> None:
    limit = 2_000_000.0
    hub = Hub(HERE, Rates(bytes_per_s=limit), tasks, tasks)

    async def copy(pace: HubPace, number: int, until: float) -> int:
        taken = 0
        while time.monotonic() < until:
            await pace.take(5_000 + 1_000 * number)
            taken += 5_000 + 1_000 * number
        await pace.leave(is_done=True)
        return taken

    async def work(address: HubAddress) -> float:
        paces = [await join(address, Rates(bytes_per_s=limit), str(number)) for number in range(tasks)]
        while hub.ledger.share < 1.0:
            await asyncio.sleep(0.01)
        start = time.monotonic()
        taken = await asyncio.gather(*(copy(pace, number, start + 1.5) for number, pace in enumerate(paces)))
        return sum(taken) / (time.monotonic() - start)

    with hub as address:
        assert address is not None
        leases = noting(hub, time.monotonic)
        taken = run(work(address))
    assert taken <= 1.1 * limit
    assert last_goes_at(leases, 1.1 * limit) <= leases[-1].goes_at <= last_goes_at(leases, 0.9 * limit)


@pytest.mark.parametrize("rates", [Rates(1e9, None), Rates(None, 1e5), Rates(1e9, 1e5)])
def test_small_wishes_share_a_lease_whatever_is_limited(run: Run[Any], rates: Rates) -> None:
    hub, asked = Hub(HERE, rates, 1, 1), []
    lease = hub.ledger.lease

    def counting(size_bytes: int, requests: int) -> float:
        asked.append((size_bytes, requests))
        return lease(size_bytes, requests)

    hub.ledger.lease = counting  # type: ignore[method-assign]

    async def work(address: HubAddress) -> None:
        pace = await join(address, rates, "t")
        for _ in range(200):
            await pace.take(64 * 1024)
            await pace.take(0)
        await pace.leave()

    with hub as address:
        assert address is not None
        run(work(address))
    assert len(asked) <= 2  # bytes or requests first, then both at once


class Line:
    """What a task says to the hub."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def write(self, data: bytes) -> None:
        self.said.append(data.decode())

    async def drain(self) -> None:
        """It is said."""

    def close(self) -> None:
        """Nothing is open."""

    @property
    def transport(self) -> Line:
        return self

    def abort(self) -> None:
        self.said.append("hung up")

    def is_closing(self) -> bool:
        return "hung up" in self.said


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_an_answer_that_nobody_waited_for_is_not_taken_for_the_next_one(run: Run[Any]) -> None:
    rates, line = Rates(bytes_per_s=20.0), Line()

    async def work() -> None:
        answers = asyncio.StreamReader()
        pace = HubPace(NOWHERE, (answers, cast(asyncio.StreamWriter, line)), rates, "t")
        first = asyncio.create_task(pace.take(100))
        await settled()
        first.cancel()
        answers.feed_data(b"0.0\n")
        second = asyncio.create_task(pace.take(150))
        await settled()
        assert not second.done()  # what has come is the answer to the first
        answers.feed_data(b"0.0\n")
        await asyncio.wait_for(second, 5)
        await pace.take(100)  # what the first did not use
        await pace.leave()

    run(work())
    assert line.said == ["lease\t100\t0\n", "lease\t150\t0\n", "back\t0\t0\n"]


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_lease_that_is_not_waited_for_is_given_back(run: Run[Any], is_answered: bool) -> None:
    rates, line = Rates(bytes_per_s=20.0), Line()

    async def work() -> None:
        answers = asyncio.StreamReader()
        pace = HubPace(NOWHERE, (answers, cast(asyncio.StreamWriter, line)), rates, "t")
        if is_answered:
            answers.feed_data(b"3600.0\n")
        first = asyncio.create_task(pace.take(100))
        await settled()
        first.cancel()
        await asyncio.wait([first])
        await pace.leave()

    run(work())
    given = [int(said.split("\t")[1]) for said in line.said if said.startswith("back")]
    assert (line.said[0], sum(given)) == ("lease\t100\t0\n", 100)


def test_a_hub_that_is_silent_is_hung_up_on_and_called_again(run: Run[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "ANSWER_S", 0.0)
    monkeypatch.setattr(hubs, "REJOIN_S", 0.0)
    rates, line = Rates(bytes_per_s=20.0), Line()

    async def work() -> None:
        pace = HubPace(NOWHERE, (asyncio.StreamReader(), cast(asyncio.StreamWriter, line)), rates, "t")
        for _ in range(2):
            with pytest.raises(TransientError, match="it was lost"):
                await pace.take(100)

    run(work())
    assert line.said[:2] == ["lease\t100\t0\n", "hung up"]


@pytest.mark.parametrize("asked", [(0, 0), (0, 1)])
def test_who_asks_for_nothing_that_is_limited_waits_for_nobody(run: Run[Any], asked: tuple[int, int]) -> None:
    rates, line = Rates(bytes_per_s=20.0), Line()

    async def work() -> None:
        answers = asyncio.StreamReader()
        answers.feed_data(b"3600.0\n")
        pace = HubPace(NOWHERE, (answers, cast(asyncio.StreamWriter, line)), rates, "t")
        first = asyncio.create_task(pace.take(100))
        await settled()
        await asyncio.wait_for(pace.take(*asked), 5)
        first.cancel()

    run(work())


def test_strangers_are_not_answered(run: Run[Any]) -> None:
    async def work(address: HubAddress) -> tuple[HubPace | None, bytes]:
        wrong = await HubPace.join(replace(address, secret=b"0" * 32), Rates(), "t")
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"lease\t1\t1\n" * 100)
        said = await reader.read()
        writer.transport.abort()
        return wrong, said[16:]

    with Hub(HERE, Rates(bytes_per_s=1.0), 1, 1) as address:
        assert address is not None
        wrong, said = run(work(address))
    assert wrong is None
    assert len(said) <= 32  # its own proof, which tells nothing, and no lease


def hang_up_on_all(hub: Hub) -> None:
    assert hub._loop is not None
    for writer in [*hub._talking.values()]:
        hub._loop.call_soon_threadsafe(writer.transport.abort)


def test_who_loses_the_hub_calls_again_and_goes_on_in_its_line(run: Run[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "REDIAL_S", 0.01)
    rates = Rates(bytes_per_s=1e6)
    hub = Hub(HERE, rates, 1, 1)

    async def work(address: HubAddress) -> None:
        pace = await join(address, rates, "t")
        for _ in range(5):
            await pace.take(60_000)
            await asyncio.to_thread(hang_up_on_all, hub)
        await pace.take(60_000)
        await pace.leave(is_done=True)

    with hub as address:
        assert address is not None
        leases = noting(hub, time.monotonic)
        run(work(address))
    assert len(leases) >= 6
    assert leases[-1].goes_at >= leases[0].asked_at + 0.35  # all of it went through the line


def test_a_hub_that_does_not_come_back_ends_the_run_as_transient(
    run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that went on by itself could be one too many: Spark may have begun another attempt at it."""
    monkeypatch.setattr(hubs, "REDIAL_S", 0.01)
    monkeypatch.setattr(hubs, "REJOIN_S", 0.05)
    rates = Rates(bytes_per_s=1e9)

    async def work(hub: Hub, address: HubAddress) -> None:
        pace = await join(address, rates, "t")
        await pace.take(10**9 // 1000)
        await asyncio.to_thread(hub.__exit__)
        with pytest.raises(TransientError, match="it was lost"):
            await pace.take(10**9)
        await pace.leave()

    hub = Hub(HERE, rates, 1, 1)
    address = hub.__enter__()
    assert address is not None
    run(work(hub, address))


def test_a_line_that_breaks_is_no_trouble_where_there_are_no_limits(run: Run[Any]) -> None:
    """Nothing is asked of the hub then; it only hears how far tasks are."""

    async def work(hub: Hub, address: HubAddress) -> None:
        pace = await join(address, Rates(), "t")
        await asyncio.to_thread(hub.__exit__)
        for _ in range(20):
            pace.tell(1, 10)
            await pace.take(10**9)
            await asyncio.sleep(0.01)
        await pace.leave(is_done=True)

    hub = Hub(HERE, Rates(), 1, 1)
    address = hub.__enter__()
    assert address is not None
    run(work(hub, address))


def test_a_hub_that_hangs_up_on_every_call_is_given_up(run: Run[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "REDIAL_S", 0.01)
    monkeypatch.setattr(hubs, "REJOIN_S", 0.3)
    rates = Rates(bytes_per_s=1e9)
    hub = Hub(HERE, rates, 1, 1)

    def hang_up(size_bytes: int, requests: int) -> float:
        raise ValueError("not today")

    async def work(address: HubAddress) -> None:
        pace = await join(address, rates, "t")
        with pytest.raises(TransientError, match="it was lost"):
            await asyncio.wait_for(pace.take(10), 5)
        pace.tell(1, 1)
        with pytest.raises(TransientError, match="it was lost"):
            await pace.take(10)
        await pace.leave()

    with hub as address:
        assert address is not None
        hub.ledger.lease = hang_up  # type: ignore[method-assign]
        run(work(address))


def test_it_hears_how_far_tasks_are(run: Run[Any]) -> None:
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
