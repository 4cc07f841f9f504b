"""The fence: one holder at a time, a token that only rises, and nothing lost where an answer is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakemirror.errors import LostRaceError, PermanentError, TransientError
from lakemirror.model.layout import TableLayout
from lakemirror.model.lease import Lease
from lakemirror.replicate.fence import Fence, Held, NoFence
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import CREATE, Condition, ConditionFailed, ObjectStore, Overwrite, Written
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.forward import ForwardingStore
from lakemirror.storage.wrappers.retry import RetryingStore
from tests.unit.markers import marker, written

TTL_S, SKEW_S = 60.0, 5.0


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class LosesAnswers(ForwardingStore):
    """Writes, and then says that it does not know; `left` times."""

    def __init__(self, inner: ObjectStore, left: int) -> None:
        super().__init__(inner)
        self.left = left

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        done = super().put(uri, body, condition)
        if self.left:
            self.left -= 1
            raise TransientError("put", uri, "the answer was lost", "try again")
        return done


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def layout(tmp_path: Path) -> TableLayout:
    return TableLayout(f"file://{tmp_path}/m/shop/orders")


@pytest.fixture
def store() -> ObjectStore:
    return ObstoreStore({})


def fence(store: ObjectStore, layout: TableLayout, clock: Clock, owner: str = "a", holder: str = "") -> Fence:
    return Fence(store, layout, owner, clock, TTL_S, SKEW_S, holder)


def shown(store: ObjectStore, layout: TableLayout) -> Lease:
    return Lease.from_bytes(store.get(layout.lease).data, layout.lease)


def test_the_lease_names_who_what_and_until_when(store: ObjectStore, layout: TableLayout, clock: Clock) -> None:
    held = fence(store, layout, clock).acquire("plan-1")
    assert (held.token, layout.lease) == (1, f"{layout.root}/_control/lease.json")
    assert shown(store, layout) == Lease(1, "a", clock.now + timedelta(seconds=TTL_S), "plan-1", "a")


def test_a_live_lease_keeps_others_out_by_name_and_time(store: ObjectStore, layout: TableLayout, clock: Clock) -> None:
    fence(store, layout, clock, "the first").acquire("plan-1")
    clock.pass_s(TTL_S + SKEW_S - 1)
    with pytest.raises(LostRaceError, match="the first works on this table, until 2026-01-02T03:05:10") as caught:
        fence(store, layout, clock, "b").acquire("plan-2")
    assert (caught.value.exit_code, shown(store, layout).owner) == (5, "the first")


def test_an_expired_lease_is_taken_over_under_a_higher_token(
    store: ObjectStore, layout: TableLayout, clock: Clock
) -> None:
    first = fence(store, layout, clock).acquire("plan-1")
    clock.pass_s(TTL_S + SKEW_S)
    second = fence(store, layout, clock, "b").acquire("plan-2")
    assert (second.token, shown(store, layout).plan_id) == (2, "plan-2")
    for act in (first.check, first.confirm, first.renew):
        with pytest.raises(LostRaceError, match="b took it over") as caught:
            act()
        assert caught.value.exit_code == 5
    first.release()
    assert shown(store, layout).owner == "b"
    assert not shown(store, layout).is_released
    second.check()


def test_a_sleeper_notices_at_its_next_border(store: ObjectStore, layout: TableLayout, clock: Clock) -> None:
    first = fence(store, layout, clock).acquire()
    clock.pass_s(TTL_S + SKEW_S)
    fence(store, layout, clock, "b").acquire()
    with pytest.raises(LostRaceError):
        first.confirm()


def test_confirm_asks_only_when_half_of_its_time_is_over(store: ObjectStore, layout: TableLayout, clock: Clock) -> None:
    counting = CountingStore(store)
    held = fence(counting, layout, clock).acquire()
    asked = counting.counts["get"]
    clock.pass_s(TTL_S / 2 - 1)
    held.confirm()
    assert counting.counts["get"] == asked
    clock.pass_s(1)
    held.confirm()
    assert counting.counts["get"] == asked + 1
    held.confirm()
    assert counting.counts["get"] == asked + 1
    clock.pass_s(-3600)  # a clock that was set back proves nothing
    held.confirm()
    assert counting.counts["get"] == asked + 2


def test_it_is_over_by_its_own_clock_and_asks_nobody(store: ObjectStore, layout: TableLayout, clock: Clock) -> None:
    held = fence(store, layout, clock).acquire("plan-1")
    store.delete([layout.lease])
    clock.pass_s(TTL_S - 1)
    assert not held.is_over()
    clock.pass_s(1)
    assert held.is_over(), "others wait longer, by what clocks may differ"


def test_renewing_keeps_it(store: ObjectStore, layout: TableLayout, clock: Clock) -> None:
    held = fence(store, layout, clock).acquire("plan-1")
    for _ in range(5):
        clock.pass_s(TTL_S - 1)
        held.renew()
    clock.pass_s(TTL_S - 1)
    with pytest.raises(LostRaceError):
        fence(store, layout, clock, "b").acquire()
    held.renew("plan-2")
    assert (shown(store, layout).plan_id, shown(store, layout).token) == ("plan-2", 1)
    held.check()


def test_a_release_that_is_refused_for_good_does_not_undo_what_was_done(
    store: ObjectStore, layout: TableLayout, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The version is ready by then; the lease ends by itself."""

    class Refuses(ForwardingStore):
        def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
            if condition == CREATE:
                return super().put(uri, body, condition)
            raise PermanentError("put", uri, "access denied", "check the login")

    held = fence(Refuses(store), layout, clock).acquire()
    held.release()
    assert "will expire" in caplog.text
    assert not shown(store, layout).is_released


def test_a_release_lets_the_next_in_at_once_and_keeps_the_token(
    store: ObjectStore, layout: TableLayout, clock: Clock
) -> None:
    held = fence(store, layout, clock).acquire()
    held.release()
    held.release()
    assert fence(store, layout, clock, "b").acquire().token == 2
    held.release()
    assert shown(store, layout).owner == "b"


def test_a_cycle_costs_three_requests(store: ObjectStore, layout: TableLayout, clock: Clock) -> None:
    fence(store, layout, clock).acquire().release()
    counting = CountingStore(store)
    held = fence(counting, layout, clock, "b").acquire()
    held.confirm()
    held.release()
    assert counting.counts == {"get": 1, "head": 0, "list": 0, "put": 2, "copy": 0, "delete": 0}


def test_a_later_task_of_the_same_run_goes_on_and_shuts_the_earlier_one_out(
    store: ObjectStore, layout: TableLayout, clock: Clock
) -> None:
    zombie = fence(store, layout, clock, "run", "first try").acquire("plan-1")
    retry = fence(store, layout, clock, "run", "second try").acquire("plan-1")
    assert retry.token == 2
    with pytest.raises(LostRaceError):
        zombie.check()
    retry.check()


def test_a_try_is_the_first_unless_the_lease_before_was_for_the_same_plan(
    store: ObjectStore, layout: TableLayout, clock: Clock
) -> None:
    first = fence(store, layout, clock).acquire("plan-1")
    assert first.is_first
    first.renew()
    assert first.is_first
    first.renew("plan-2")
    assert not first.is_first  # nobody knows what was tried of it
    first.release()
    again = fence(store, layout, clock, "b").acquire("plan-2")
    assert not again.is_first
    again.release()
    assert fence(store, layout, clock, "c").acquire("plan-3").is_first
    assert not fence(store, layout, clock, "c").acquire("plan-3").is_first
    assert not NoFence().acquire("plan-4").is_first


def test_of_many_at_once_one_takes_it(store: ObjectStore, layout: TableLayout, clock: Clock) -> None:
    start = threading.Barrier(8)
    taken: list[Held] = []

    def take(name: str) -> None:
        start.wait(20)
        try:
            taken.append(fence(store, layout, clock, name).acquire())
        except LostRaceError:
            return

    for token in (1, 2, 3):
        threads = [threading.Thread(target=take, args=(f"{token} {number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert [held.token for held in taken] == [token]
        taken.pop().check()
        clock.pass_s(TTL_S + SKEW_S)


@pytest.mark.parametrize("by", ["retry", "caller"])
def test_a_lost_answer_loses_no_lease(store: ObjectStore, layout: TableLayout, clock: Clock, by: str) -> None:
    losing = LosesAnswers(store, 0)
    used = RetryingStore(losing, sleep=lambda _: None) if by == "retry" else losing
    held = fence(used, layout, clock).acquire()
    for act in (held.renew, held.release):
        losing.left = 1
        if by == "caller" and act == held.renew:
            with pytest.raises(TransientError):
                act()
        act()
        assert shown(store, layout).token == 1
    assert shown(store, layout).is_released


def test_a_lost_answer_to_the_first_write(store: ObjectStore, layout: TableLayout, clock: Clock) -> None:
    used = RetryingStore(LosesAnswers(store, 1), sleep=lambda _: None)
    fence(used, layout, clock).acquire().check()
    clock.pass_s(TTL_S + SKEW_S)
    used = RetryingStore(LosesAnswers(store, 1), sleep=lambda _: None)
    fence(used, layout, clock, "b").acquire().check()
    assert shown(store, layout).token == 2


def test_a_release_that_fails_fails_nothing(store: ObjectStore, layout: TableLayout, clock: Clock) -> None:
    losing = LosesAnswers(store, 0)
    held = fence(losing, layout, clock).acquire()
    losing.left = 9
    held.release()
    clock.pass_s(TTL_S + SKEW_S)
    assert fence(store, layout, clock, "b").acquire().token == 2


def test_a_deleted_lease_is_lost_and_tokens_go_on_from_the_markers(
    store: ObjectStore, layout: TableLayout, clock: Clock
) -> None:
    held = fence(store, layout, clock).acquire()
    store.delete([layout.lease])
    with pytest.raises(LostRaceError, match="somebody deleted it"):
        held.check()
    made = marker(layout, 3)
    store.put(layout.ready(3), made.to_bytes(created_at=clock.now, producer="x", fence_token=7))
    assert fence(store, layout, clock).acquire().token == 8
    store.delete([layout.lease])
    store.put(layout.staged(4), made.to_bytes(created_at=clock.now, producer="x", fence_token=11))
    store.put(layout.staged(5), b"damaged")
    store.put(layout.staged(6), written(made))
    assert fence(store, layout, clock).acquire().token == 12


def test_a_damaged_lease_stops_the_run(store: ObjectStore, layout: TableLayout, clock: Clock) -> None:
    store.put(layout.lease, b"{}", Overwrite())
    with pytest.raises(PermanentError, match="not a lease") as caught:
        fence(store, layout, clock).acquire()
    assert "delete it" in caught.value.hint


def test_the_keeper_renews_until_it_is_over(store: ObjectStore, layout: TableLayout) -> None:
    renewed = threading.Event()

    class Notices(ForwardingStore):
        def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
            done = super().put(uri, body, condition)
            if Lease.from_bytes(bytes(body), uri).writes > 2:  # type: ignore[arg-type]
                renewed.set()
            return done

    held = Fence(Notices(store), layout, "a", lambda: datetime.now(UTC), 0.06, 0.0).acquire()
    with held.kept():
        assert renewed.wait(30)
    held.check()
    threads = [thread.name for thread in threading.enumerate()]
    assert "lease" not in threads


@pytest.mark.parametrize("fault", [PermanentError("put", "x", "denied", "ask"), ConditionFailed("put", "x", "no", "y")])
def test_a_keeper_that_cannot_renew_is_noticed(store: ObjectStore, layout: TableLayout, fault: Exception) -> None:
    failed = threading.Event()

    class Denies(ForwardingStore):
        def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
            if not isinstance(condition, type(CREATE)):
                failed.set()
                raise fault
            return super().put(uri, body, condition)

    held = Fence(Denies(store), layout, "a", lambda: datetime.now(UTC), 0.06, 0.0).acquire()
    with held.kept():
        assert failed.wait(30)
    with pytest.raises(LostRaceError):
        held.confirm()


def test_two_of_one_run_that_write_the_same_time_are_told_apart(
    store: ObjectStore, layout: TableLayout, clock: Clock
) -> None:
    """Both would write equal bytes but for the holder; the one whose answer says no must not take the other's."""
    first = fence(store, layout, clock, "run", "one").acquire("p")
    theirs = shown(store, layout)
    store.put(layout.lease, replace(theirs, holder="two").to_bytes(), Overwrite())
    with pytest.raises(LostRaceError):
        first.renew()


def test_no_fence_holds_always_and_writes_nothing(layout: TableLayout) -> None:
    held = NoFence().acquire("plan-1")
    with held.kept():
        held.check()
        held.confirm()
        held.renew()
    held.release()
    assert held.token is None
