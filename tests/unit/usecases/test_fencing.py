"""The lease of a run, as its stages use it, and that of a swap which compares nothing."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakemirror.config.knobs import Knobs
from lakemirror.errors import LostRaceError, PermanentError, TableBusyError, TransientError, UnsettledError
from lakemirror.model.layout import TableLayout
from lakemirror.model.lease import Lease
from lakemirror.replicate.process import name_of_this_process
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectNotFound
from lakemirror.usecases.fencing import RunLease, fence_of, swapping

STORE = ObstoreStore({})
NOW = datetime(2026, 1, 2, tzinfo=UTC)
KNOBS = Knobs(lease_seconds=60, clock_skew_seconds=5)


@pytest.fixture
def layout(tmp_path: Path) -> TableLayout:
    return TableLayout(f"file://{tmp_path}/m/shop/orders")


def shown(uri: str) -> Lease:
    return Lease.from_bytes(STORE.get(uri).data, uri)


def lease_of(layout: TableLayout, owner: str = "run", holder: str = "task 1", **knobs: bool) -> RunLease:
    return RunLease(fence_of(STORE, layout, KNOBS.model_copy(update=knobs), lambda: NOW, owner, holder))


def test_the_knobs_make_the_fence(layout: TableLayout) -> None:
    lease_of(layout).take("p1")
    found = shown(layout.lease)
    assert (found.owner, found.holder, found.plan_id) == ("run", "task 1", "p1")
    assert found.expires_at == NOW + timedelta(seconds=60)


def test_switched_off_nothing_is_written(layout: TableLayout) -> None:
    lease = lease_of(layout, fence=False)
    with lease.whole_run("p1"):
        lease.go_on("p2")
    assert lease.held.token is None
    with pytest.raises(ObjectNotFound):
        STORE.get(layout.lease)


@pytest.mark.parametrize("error", [None, PermanentError("a", "b", "c"), TransientError("a", "b", "c"), OSError()])
def test_a_whole_run_gives_it_back_however_it_ends(layout: TableLayout, error: Exception | None) -> None:
    lease = lease_of(layout)
    lease.take("p1")
    with suppress(PermanentError, TransientError, OSError), lease.whole_run("p1"):
        assert (shown(layout.lease).is_released, shown(layout.lease).token) == (False, 1)
        lease.go_on("p2")
        if error is not None:
            raise error
    assert (shown(layout.lease).is_released, shown(layout.lease).plan_id) == (True, "p2")
    lease_of(layout, "other").take("p3")


@pytest.mark.parametrize(
    ("error", "is_released"),
    [(None, False), (PermanentError("a", "b", "c"), True), (TransientError("a", "b", "c"), False)],
)
def test_a_stage_leaves_it_to_the_next_one(layout: TableLayout, error: Exception | None, is_released: bool) -> None:
    """What may be tried again keeps it: the next try has the same owner."""
    try:
        with lease_of(layout).one_stage("p1"):
            if error is not None:
                raise error
    except (PermanentError, TransientError):
        assert error is not None
    assert shown(layout.lease).is_released == is_released
    if not is_released:
        with pytest.raises(TableBusyError):
            lease_of(layout, "other").take("p1")
    with lease_of(layout, "run", "task 2").one_stage("p1"):
        assert shown(layout.lease).token == 2


def test_a_stage_that_was_shut_out_says_so_at_its_end(layout: TableLayout) -> None:
    def work() -> None:
        with lease_of(layout).one_stage("p1"):
            lease_of(layout, "run", "second try").take("p1")

    with pytest.raises(LostRaceError, match="run took it over"):
        work()
    assert not shown(layout.lease).is_released


def test_a_process_of_this_machine_that_is_gone_is_not_waited_for(layout: TableLayout) -> None:
    alive = name_of_this_process()
    gone = alive.replace(f":{os.getpid()}:", ":4000000000:")
    lease_of(layout, gone).take("p1")
    lease_of(layout, alive).take("p1")
    with pytest.raises(TableBusyError):
        lease_of(layout, "other").take("p1")


def test_swaps_come_one_at_a_time_and_beside_runs(layout: TableLayout) -> None:
    lease_of(layout).take("p1")
    with swapping(STORE, layout, KNOBS, lambda: NOW, "one") as held:
        held.check()
        with pytest.raises(TableBusyError), swapping(STORE, layout, KNOBS, lambda: NOW, "two"):
            raise AssertionError("two at once")
        held.check()
    with swapping(STORE, layout, KNOBS, lambda: NOW, "two") as held:
        held.check()
    assert shown(layout.swap_lease).token == 2
    assert shown(layout.lease).token == 1


@pytest.mark.parametrize(
    ("error", "is_released"),
    [
        (LostRaceError("a", "b", "c"), True),
        (PermanentError("a", "b", "c"), True),
        (UnsettledError("a", "b", "c"), False),
        (KeyboardInterrupt(), False),
        (OSError(), False),
    ],
)
def test_a_swap_whose_outcome_is_not_known_is_not_followed_by_another(
    layout: TableLayout, error: BaseException, is_released: bool
) -> None:
    """Also if its process is gone: the request may still arrive."""
    gone = name_of_this_process().replace(f":{os.getpid()}:", ":4000000000:")
    with suppress(type(error)), swapping(STORE, layout, KNOBS, lambda: NOW, gone):
        raise error
    found = shown(layout.swap_lease)
    assert found.is_released == is_released
    if not is_released:
        with pytest.raises(TableBusyError), swapping(STORE, layout, KNOBS, lambda: found.expires_at, "two"):
            raise AssertionError("two at once")
    end = found.expires_at + timedelta(seconds=KNOBS.clock_skew_seconds)
    with swapping(STORE, layout, KNOBS, lambda: end, "two") as held:
        held.check()


def test_a_swap_that_used_up_its_lease_waiting_keeps_others_out_for_another(layout: TableLayout) -> None:
    moments = [NOW]
    with suppress(UnsettledError), swapping(STORE, layout, KNOBS, lambda: moments[-1], "one"):
        moments.append(NOW + timedelta(seconds=240))
        raise UnsettledError("a", "b", "c")
    assert shown(layout.swap_lease).expires_at == NOW + timedelta(seconds=300)
