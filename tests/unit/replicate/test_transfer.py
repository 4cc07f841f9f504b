"""The copy stage of a run: who is first, and what is left after a failure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakemirror.copying.hub import LEAST_SHARE, Ledger
from lakemirror.copying.pace import Rates
from lakemirror.errors import PermanentError, TransientError
from lakemirror.replicate.plan import ITEM, PackSegments, Plan, Segment
from lakemirror.replicate.stage import LocalEngine, sum_requests
from lakemirror.replicate.transfer import _is_first, copy_objects
from lakemirror.storage.abilities import AMAZON
from lakemirror.storage.port import CREATE, Condition, ObjectStore, Written
from lakemirror.storage.wire import WireCapabilities, open_wire
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.forward import ForwardingStore
from lakemirror.storage.wrappers.retry import RetryingStore
from tests.unit.replicate import test_split as splits
from tests.unit.replicate.conftest import Bench
from tests.wires import FaultyWire


class LosesOne(ForwardingStore):
    """The first put fails; `is_lost`: only its answer."""

    def __init__(self, inner: ObjectStore, *, is_lost: bool) -> None:
        super().__init__(inner)
        self._is_due, self._is_lost = True, is_lost

    def put(self, uri: str, body: object, condition: Condition = CREATE) -> Written:
        is_due, self._is_due = self._is_due, False
        if is_due and self._is_lost:
            super().put(uri, body, condition)  # type: ignore[arg-type]
        if is_due:
            raise TransientError("put", uri, "the line is cut", "run again")
        return super().put(uri, body, condition)  # type: ignore[arg-type]


def planned(bench: Bench, **roles: list[str]) -> Plan:
    """Segments of files of one byte."""
    found = []
    for role, names in roles.items():
        rows = [{"source": bench.source(n), "target": bench.target(n), "size": 1, "kind": "data"} for n in names]
        for row in rows:
            bench.store.put(row["source"], b"x")
        batches = PackSegments(bench.context()).write(role, pa.Table.from_pylist(rows, ITEM))
        found += [row for batch in batches for row in batch.to_pylist()]
    return Plan(tuple(Segment(**row) for row in found), 0, sum_requests([]))


class Spoiling(FaultyWire):
    """A wire to a store that does not keep some characters."""

    def capabilities(self, uri: str) -> WireCapabilities:
        return replace(super().capabilities(uri), spoiled="|\\:")


def test_the_wire_tells_what_its_store_spoils() -> None:
    wire = open_wire({}, abilities=replace(AMAZON, spoiled="\\"))
    uris = ("s3://b/k", "gs://b/k", "file:///b/k")
    assert [wire.capabilities(uri).spoiled for uri in uris] == ["\\", "\\", ""]


@pytest.mark.parametrize("roles", [{"copy": ["a", "b", "c|d"]}, {"copy": ["a"], "delete": ["e\\f"]}])
def test_a_key_that_the_store_would_spoil_is_refused_before_anything_is_copied(
    bench: Bench, roles: dict[str, list[str]]
) -> None:
    """Also one of a delete file, which is written after all others. The `:` of the URI is not in a key."""
    plan = planned(bench, **roles)
    copying = bench.copying()
    context = bench.context(copying=replace(copying, mirror=lambda: Spoiling(copying.mirror())))
    with pytest.raises(PermanentError, match="cannot hold this key: it does not keep") as caught:
        copy_objects(plan, context, LocalEngine(), f"{bench.layout.root}/started")
    assert caught.value.subject == bench.target(next(iter(roles.values()))[-1] if len(roles) == 1 else "e\\f")
    assert [name for name in bench.objects() if not name.startswith("_")] == []


def test_keys_that_the_store_keeps_need_no_look(bench: Bench) -> None:
    plan = planned(bench, copy=["c|d", "day=1 %/ü"])
    assert [segment.odd for segment in plan.segments] == [" %:=|ü"]
    store = CountingStore(bench.store)
    copied = copy_objects(plan, bench.context(mirror=store), LocalEngine(), f"{bench.layout.root}/started")
    assert (copied.files, store.counts["get"]) == (2, 1)  # of the segment, by the task that copies it


def test_only_one_run_is_the_first_whatever_the_line_does(bench: Bench) -> None:
    uri = f"{bench.layout.root}/_ledger/v1.started"

    def run(store: ObjectStore) -> bool:
        return _is_first(RetryingStore(store, sleep=lambda seconds: None), uri)

    assert run(LosesOne(bench.store, is_lost=True))  # it finds its own mark again
    assert not run(bench.store)
    assert not run(LosesOne(bench.store, is_lost=False))  # what it finds is not its own


class Elsewhere(LocalEngine):
    """Workers in other processes, as far as this one can tell; `driver` is where a hub may listen for them."""

    name = "elsewhere"

    def __init__(self, driver: tuple[str, str] | None) -> None:
        super().__init__(threads=1)
        self.driver = driver


@pytest.mark.parametrize("driver", [None, ("127.0.0.1", "127.0.0.1")])
def test_a_large_file_is_told_when_it_is_finished(bench: Bench, driver: tuple[str, str] | None) -> None:
    told: list[tuple[int, int]] = []
    plan = splits.planned(bench, {"large": len(splits.BODY), "small": 10})
    finish, at_finish = splits.SplitFile.finish, []

    async def finishing(self: splits.SplitFile) -> Any:
        at_finish.append(told[-1][0])
        return await finish(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits.SplitFile, "finish", finishing)
        copy_objects(
            plan,
            splits.context(bench),
            Elsewhere(driver),
            f"{bench.layout.root}/started",
            lambda stage, done, total, size, whole: told.append((done, size)),
        )
    assert (at_finish, told[-1]) == ([1], (2, len(splits.BODY) + 10))


class Again(Elsewhere):
    """Spark speculates, and begins each task a second time."""

    attempts = 2

    @staticmethod
    def is_repeated() -> bool:
        return True


def copying_again(bench: Bench, called: str) -> None:
    context = splits.context(bench)
    settings = replace(context.copying.settings, object_deadline_s=0.05)
    copying = replace(context.copying, settings=settings, rates=Rates(bytes_per_s=1e9), attempts=Again.attempts)
    plan = splits.planned(bench, {"small": 10})
    engine = Again(("127.0.0.1", called))
    copy_objects(plan, replace(context, copying=copying), engine, f"{bench.layout.root}/started")


def test_a_second_attempt_that_cannot_reach_the_hub_copies_nothing(bench: Bench) -> None:
    with pytest.raises(TransientError, match="beside its first attempt"):
        copying_again(bench, "127.0.0.2")  # nobody listens there


def test_the_hub_knows_a_second_attempt_for_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first attempt was not heard of, and may have the share of the task."""
    shares: list[float] = []
    lease = Ledger.lease

    def noting(self: Ledger, size_bytes: int, requests: int) -> float:
        shares.append(self.share)
        return lease(self, size_bytes, requests)

    monkeypatch.setattr(Ledger, "lease", noting)
    copying_again(bench, "127.0.0.1")
    assert set(shares) == {LEAST_SHARE}
