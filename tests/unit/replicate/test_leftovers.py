"""What a killed try, or one whose plan is no longer made, has left unfinished: gone with the next try that copies."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakemirror.copying.model import OpenWire
from lakemirror.errors import PermanentError, TransientError
from lakemirror.replicate.leftovers import UNFENCED_AGE, Leftovers
from lakemirror.replicate.plan import Plan
from lakemirror.replicate.stage import LocalEngine
from lakemirror.replicate.transfer import Copied, copy_objects
from lakemirror.storage.clients import MemoryUpload
from lakemirror.storage.wire import Upload
from lakemirror.storage.wires.shelves import MemoryShelf
from lakemirror.storage.wrappers.count import CountingStore
from tests.unit.replicate.conftest import Bench
from tests.unit.replicate.test_split import BODY, BOUNDS, Breaking, context, cut, files, planned
from tests.wires import FaultyWire

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def plan(bench: Bench) -> Plan:
    return planned(bench, {"large": len(BODY)})


def copied(bench: Bench, plan: Plan, plan_id: str = "p", before: datetime | None = None, **changes: Any) -> Copied:
    """One try at a version, by the plan of this name, with one large file."""
    here = {"plan_uri": bench.layout.plan(plan_id), "ledger_uri": bench.layout.ledger(plan_id)}
    leftovers = Leftovers(bench.layout.root, before)
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
    (ours,) = bench.memory.uploads
    sent = len(bench.memory.uploads[ours].parts)
    left(bench)
    again = CountingStore(bench.store)
    assert copied(bench, plan, copying=bench.copying(again, **BOUNDS)).files == 1
    assert again.counts["get"] == 21 - sent
    assert len(bench.memory.uploads) == 0


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


def test_a_first_try_lists_nothing(bench: Bench, plan: Plan) -> None:
    stays = left(bench)
    assert copied(bench, plan).wire_requests["mirror"]["list"] == 0
    assert list(bench.memory.uploads) == [stays]
    assert copied(bench, plan).wire_requests["mirror"]["list"] == 1
    assert len(bench.memory.uploads) == 0


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
