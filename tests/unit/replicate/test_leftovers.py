"""What a killed try, or one whose plan is no longer made, has left unfinished: gone with the next try that copies."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakemirror.copying.model import OpenWire
from lakemirror.errors import LostRaceError, PermanentError, TransientError
from lakemirror.replicate.leftovers import UNFENCED_AGE, Leftovers
from lakemirror.replicate.plan import Plan
from lakemirror.replicate.stage import LocalEngine
from lakemirror.replicate.transfer import Copied, copy_objects
from lakemirror.storage.clients import MemoryUpload
from lakemirror.storage.wire import Upload, Wire
from lakemirror.storage.wires.shelves import MemoryShelf
from lakemirror.storage.wrappers.count import CountingStore
from tests.unit.replicate.conftest import Bench
from tests.unit.replicate.test_split import BODY, BOUNDS, Breaking, context, cut, files, parts_written_down, planned
from tests.wires import Act, FaultyWire, WireFault

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def plan(bench: Bench) -> Plan:
    return planned(bench, {"large": len(BODY)})


def held() -> None:
    """The lease is still ours."""


def copied(
    bench: Bench,
    plan: Plan,
    plan_id: str = "p",
    before: datetime | None = None,
    check: Callable[[], None] = held,
    **changes: Any,
) -> Copied:
    """One try at a version, by the plan of this name, with one large file."""
    here = {"plan_uri": bench.layout.plan(plan_id), "ledger_uri": bench.layout.ledger(plan_id)}
    leftovers = Leftovers(bench.layout.root, before, check)
    started = f"{bench.layout.root}/_ledger/v1.started"
    return copy_objects(plan, context(bench, **here, **changes), LocalEngine(), started, leftovers=leftovers)


def cut_short(bench: Bench, plan: Plan, plan_id: str = "p") -> None:
    with pytest.raises(TransientError):
        copied(bench, plan, plan_id, copying=bench.copying(Breaking(bench.store, 9, cut()), **BOUNDS, attempts=1))
    assert len(bench.memory.uploads) == 1


def left(bench: Bench, folder: str = "mirror", begun_at: datetime = NOW) -> str:
    """As a task leaves the upload of a file when it is killed."""
    uri = f"{bench.folder}/{folder}/other"
    upload = MemoryShelf(bench.memory).begin(uri)
    bench.memory.uploads[upload] = MemoryUpload(uri, begun_at)
    return upload


def test_what_an_earlier_plan_left_is_aborted(bench: Bench, plan: Plan) -> None:
    """The head has moved since: nobody looks at what the old plan wrote down."""
    cut_short(bench, plan, "old")
    assert copied(bench, plan, "new").files == 1
    assert (files(bench), len(bench.memory.uploads)) == ({"large": BODY}, 0)


def test_what_a_killed_task_left_is_aborted_and_what_the_plan_wrote_down_goes_on(bench: Bench, plan: Plan) -> None:
    cut_short(bench, plan)
    written = parts_written_down(bench, plan)
    left(bench)
    again = CountingStore(bench.store)
    assert copied(bench, plan, copying=bench.copying(again, **BOUNDS)).files == 1
    assert again.counts["get"] == 21 - written
    assert len(bench.memory.uploads) == 0


def test_one_whose_key_has_an_object_is_left(bench: Bench, plan: Plan) -> None:
    """It may be what the object was made of, and some servers delete the object's bytes with it."""
    cut_short(bench, plan)
    stays = left(bench)
    bench.store.put(f"{bench.folder}/mirror/other", b"made of it")
    open_wire: OpenWire = bench.copying().mirror

    def unsafe() -> FaultyWire:
        wire = FaultyWire(open_wire())
        wire.aborts_safely = False
        return wire

    copied(bench, plan, copying=replace(bench.copying(**BOUNDS), mirror=unsafe))
    assert list(bench.memory.uploads) == [stays]
    copied(bench, plan)
    assert len(bench.memory.uploads) == 0


def lost() -> None:
    raise LostRaceError("keep lease", "lease.json", "another run took it over", "run again")


@pytest.mark.parametrize("is_first", [True, False], ids=["after the copy", "before it"])
def test_who_has_lost_the_lease_aborts_nothing(bench: Bench, plan: Plan, is_first: bool) -> None:
    """He slept; what is there now is sent by another run."""
    if not is_first:
        cut_short(bench, plan)
    live = left(bench)
    with pytest.raises(LostRaceError):
        copied(bench, plan, "new", check=lost)
    assert live in bench.memory.uploads


def test_a_lease_that_cannot_be_looked_at_stops_nobody_and_aborts_nothing(
    bench: Bench, plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    def unreachable() -> None:
        raise TransientError("get", "lease.json", "the line is cut", "run again")

    live = left(bench)
    with caplog.at_level(logging.WARNING):
        assert copied(bench, plan, check=unreachable).files == 1
    assert "unfinished uploads of earlier tries are left there" in caplog.text
    assert live in bench.memory.uploads


def test_those_of_other_tables_stay(bench: Bench, plan: Plan) -> None:
    cut_short(bench, plan)
    stays = left(bench, "mirror2")
    copied(bench, plan)
    assert list(bench.memory.uploads) == [stays]


def test_without_a_fence_only_what_is_old_is_aborted(bench: Bench, plan: Plan) -> None:
    """Somebody else may be at work, with uploads of his own."""
    cut_short(bench, plan)
    before = NOW - UNFENCED_AGE
    young, old = left(bench, begun_at=before), left(bench, begun_at=before - timedelta(seconds=1))
    copied(bench, plan, before=before)
    assert (young in bench.memory.uploads, old in bench.memory.uploads) == (True, False)


def test_a_first_try_without_parts_lists_nothing(bench: Bench) -> None:
    plan = planned(bench, {"small": 10})
    stays = left(bench)
    assert copied(bench, plan).wire_requests["mirror"]["list"] == 0
    assert list(bench.memory.uploads) == [stays]
    assert copied(bench, plan).wire_requests["mirror"]["list"] == 2
    assert len(bench.memory.uploads) == 0


@pytest.mark.parametrize("size", [300, len(BODY)], ids=["in parts by one task", "by several tasks"])
def test_what_a_repeated_task_or_request_left_in_this_run_is_aborted_at_its_end(bench: Bench, size: int) -> None:
    """The answer to a request to begin is lost, and its upload with it; or a twin of the task was killed."""
    plan = planned(bench, {"large": size})
    open_wire: OpenWire = bench.copying().mirror
    lost = WireFault("begin", Act.FAIL_AFTER, 1, 1)
    copying = replace(bench.copying(**BOUNDS), mirror=lambda: FaultyWire(open_wire(), [lost]))
    made = copied(bench, plan, copying=copying)
    assert (made.files, made.wire_requests["mirror"]["list"]) == (1, 1)
    assert (len(files(bench)["large"]), len(bench.memory.uploads)) == (size, 0)


def test_at_the_end_only_what_is_old_is_aborted_without_a_fence(bench: Bench, plan: Plan) -> None:
    before = NOW - UNFENCED_AGE
    young, old = left(bench, begun_at=before), left(bench, begun_at=before - timedelta(seconds=1))
    copied(bench, plan, before=before)
    assert (young in bench.memory.uploads, old in bench.memory.uploads) == (True, False)


class HalfNamed(FaultyWire):
    """A store in which two uploads were put together, but never named: of this plan's own file, and of another one."""

    def __init__(self, inner: Wire, own: str) -> None:
        super().__init__(inner)
        self._own = own

    async def unnamed(self, prefix_uri: str) -> AsyncIterator[Upload]:
        for name, upload in (("large", self._own[:8]), ("other", "0123456789abcdef:")):
            yield Upload(f"{prefix_uri}/{name}", upload, NOW)


def test_what_lacks_only_its_name_is_found_and_what_the_plan_goes_on_with_stays(bench: Bench, plan: Plan) -> None:
    cut_short(bench, plan)
    (ours,) = bench.memory.uploads
    open_wire: OpenWire = bench.copying().mirror
    wires: list[HalfNamed] = []

    def mirror() -> HalfNamed:
        wires.append(HalfNamed(open_wire(), ours))
        return wires[-1]

    copied(bench, plan, copying=replace(bench.copying(**BOUNDS), mirror=mirror))
    aborted = [uri for wire in wires for verb, uri in wire.calls if verb == "abort"]
    assert aborted == [f"{bench.layout.root}/other"]
    assert files(bench) == {"large": BODY}


class Hiding(FaultyWire):
    async def uploads(self, prefix_uri: str) -> AsyncIterator[Upload]:
        raise PermanentError("uploads", prefix_uri, "access denied", "allow it")
        yield


def test_a_store_that_does_not_list_them_stops_nobody(
    bench: Bench, plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    cut_short(bench, plan, "old")
    open_wire: OpenWire = bench.copying().mirror
    copying = replace(bench.copying(**BOUNDS), mirror=lambda: Hiding(open_wire()))
    with caplog.at_level(logging.WARNING):
        assert copied(bench, plan, "new", copying=copying).files == 1
    assert "unfinished uploads of earlier tries are left there" in caplog.text
