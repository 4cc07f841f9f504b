"""The copy stage: segments and ranges of large files, each written down, and nothing copied twice."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from lakemirror.copying.copier import Copier
from lakemirror.copying.model import CopiedItem, CopyItem
from lakemirror.copying.pace import OwnPace
from lakemirror.errors import PermanentError, SourceVanishedError, TransientError
from lakemirror.replicate import segments
from lakemirror.replicate.copy import WORK, CopySegments
from lakemirror.replicate.ledger import ledger_folder, read_ledger
from lakemirror.replicate.plan import ITEM
from lakemirror.storage.port import CREATE, Condition, ObjectStore, Overwrite, Written
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.forward import ForwardingStore
from lakemirror.storage.wrappers.limit import RateLimitedStore, TokenBucket
from tests.unit.replicate.conftest import Bench
from tests.wires import Act, FaultyWire, WireFault

BODY = b"some bytes"
CRC = google_crc32c.value(BODY)


def item(bench: Bench, name: str, size: int = len(BODY)) -> dict[str, Any]:
    return {"source": bench.source(name), "target": bench.target(name), "size": size, "kind": "data"}


def planned(bench: Bench, names: list[str]) -> pa.RecordBatch:
    for name in names:
        bench.store.put(bench.source(name), BODY, Overwrite())
    table = pa.Table.from_pylist([item(bench, name) for name in names], ITEM)
    uri = segments.write(bench.store, bench.layout.plan("p"), "copy", table)
    return pa.RecordBatch.from_pylist([{"uri": uri, "step": "files", "part_bytes": 1 << 24}], WORK)


def ran(
    bench: Bench, batch: pa.RecordBatch, *, resumes: bool, again: bool = False, source: ObjectStore | None = None
) -> dict[str, Any]:
    context = bench.context(copying=bench.copying(source))
    (result,) = CopySegments(context, resumes, lambda: again)(iter([batch]))
    row: dict[str, Any] = result.to_pylist()[0]
    return {key: row[key] for key in ("files", "bytes", "skipped")}


def ledger(bench: Bench, batch: pa.RecordBatch) -> list[str]:
    folder = ledger_folder(bench.layout.ledger("p"), batch.to_pylist()[0]["uri"])
    return sorted(row["target"].rsplit("/", 1)[-1] for row in read_ledger(bench.store, folder))


def test_a_segment_is_copied_and_written_down(bench: Bench) -> None:
    batch = planned(bench, ["a", "b", "c"])
    assert ran(bench, batch, resumes=False) == {"files": 3, "bytes": 30, "skipped": 0}
    assert ledger(bench, batch) == ["a", "b", "c"]


def test_what_the_ledger_has_is_not_even_looked_at(bench: Bench) -> None:
    batch = planned(bench, ["a", "b", "c"])
    ran(bench, batch, resumes=False)
    source = CountingStore(bench.store)
    assert ran(bench, batch, resumes=True, source=source) == {"files": 0, "bytes": 0, "skipped": 3}
    assert sum(source.counts.values()) == 0


def test_a_task_that_is_begun_again_in_a_first_run_goes_on_too(bench: Bench) -> None:
    """Its executor was lost: what it had written down is not even looked at."""
    batch = planned(bench, ["a", "b", "c", "d"])
    bench.store.delete([bench.source("d")])
    with pytest.raises(SourceVanishedError):
        ran(bench, batch, resumes=False)
    done = ledger(bench, batch)
    bench.store.put(bench.source("d"), BODY)
    source = CountingStore(bench.store)
    told = ran(bench, batch, resumes=False, again=True, source=source)
    assert (told["skipped"], told["files"]) == (len(done), 4 - len(done))
    assert source.counts["get"] == 4 - len(done)
    assert ledger(bench, batch) == ["a", "b", "c", "d"]


def test_what_succeeded_before_a_failure_is_in_the_ledger(bench: Bench) -> None:
    batch = planned(bench, ["a", "b", "c", "d"])
    bench.store.delete([bench.source("b")])
    with pytest.raises(SourceVanishedError):
        ran(bench, batch, resumes=False)
    assert "b" not in (done := ledger(bench, batch))
    bench.store.put(bench.source("b"), BODY)
    assert ran(bench, batch, resumes=True) == {
        "files": 4 - len(done),
        "bytes": 40 - 10 * len(done),
        "skipped": len(done),
    }


def test_what_is_not_done_at_the_deadline_of_the_run_ends_transient_and_the_next_one_goes_on(bench: Bench) -> None:
    batch = planned(bench, ["a", "b", "c"])
    stall = WireFault("read", Act.STALL, 3, 3)
    copying = bench.copying(deadline_at=1000.25)
    copying = replace(copying, now=lambda: 1000.0, source=lambda: FaultyWire(bench.copying().source(), [stall]))
    start = time.monotonic()
    with pytest.raises(TransientError, match=r"not done when it should be \(copy_deadline_seconds\)") as caught:
        list(CopySegments(bench.context(copying=copying), resumes=False)(iter([batch])))
    assert (type(caught.value), time.monotonic() - start < 30) == (TransientError, True)
    assert len(ledger(bench, batch)) == 2
    assert ran(bench, batch, resumes=True) == {"files": 1, "bytes": 10, "skipped": 2}


def test_after_the_deadline_nothing_is_read(bench: Bench) -> None:
    batch = planned(bench, ["a"])
    source = CountingStore(bench.store)
    copying = replace(bench.copying(source, deadline_at=999.0), now=lambda: 1000.0)
    with pytest.raises(TransientError, match="copy_deadline_seconds"):
        list(CopySegments(bench.context(copying=copying), resumes=False)(iter([batch])))
    assert sum(source.counts.values()) == 0


class Unwritable(ForwardingStore):
    """A mirror whose ledger cannot be written for a while."""

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        if "/_ledger/" in uri and "/upload.json" not in uri:
            raise TransientError("put", uri, "503", "run again")
        return super().put(uri, body, condition)


def test_a_ledger_that_cannot_be_written_does_not_hide_why_the_copy_failed(bench: Bench) -> None:
    """A source file that is gone needs a new plan: as a mere fault of the line it would be tried again as it is."""
    batch = planned(bench, ["a", "gone"])
    bench.store.delete([bench.source("gone")])
    context = bench.context(mirror=Unwritable(bench.store), ledger_flush_files=10)
    with pytest.raises(SourceVanishedError) as caught:
        list(CopySegments(context, resumes=False)(iter([batch])))
    assert caught.value.subject == bench.source("gone")
    assert [note.partition(" ")[0] for note in caught.value.notes] == ["also:"]
    assert "503" in caught.value.notes[0]


def test_a_ledger_that_cannot_be_written_is_a_failure_by_itself(bench: Bench) -> None:
    batch = planned(bench, ["a", "b"])
    context = bench.context(mirror=Unwritable(bench.store), ledger_flush_files=10)
    with pytest.raises(TransientError, match="503"):
        list(CopySegments(context, resumes=False)(iter([batch])))


def test_a_permanent_failure_is_told_rather_than_a_transient_one(bench: Bench) -> None:
    batch = planned(bench, ["a", "b"])
    bench.store.delete([bench.source("a")])
    bench.store.put(bench.source("b"), b"another size", Overwrite())
    with pytest.raises(PermanentError, match="its size is not what its manifest says"):
        ran(bench, batch, resumes=False)


def test_requests_are_told_by_store_and_verb(bench: Bench) -> None:
    batch = planned(bench, ["a", "b", "c"])
    (result,) = CopySegments(bench.context(), resumes=False)(iter([batch]))
    told = json.loads(result.to_pylist()[0]["wire_requests"])
    assert {side: {verb: count for verb, count in verbs.items() if count} for side, verbs in told.items()} == {
        "source": {"get": 3},
        "mirror": {"put": 3},
    }


def test_files_that_were_copied_but_not_written_down_are_adopted(bench: Bench) -> None:
    batch = planned(bench, ["a", "b", "c"])
    bench.store.put(bench.target("a"), BODY)
    assert ran(bench, batch, resumes=True) == {"files": 2, "bytes": 20, "skipped": 1}
    assert ledger(bench, batch) == ["a", "b", "c"]


def test_requests_for_the_ledger_stand_in_the_line_of_the_copies(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lines, each at the full rate, would together be half as much again where each file is written down alone."""
    paid: list[int] = []
    take = OwnPace.take

    async def taking(self: OwnPace, size_bytes: int, requests: int = 1) -> None:
        paid.append(requests)
        await take(self, size_bytes, requests)

    class Closed(TokenBucket):
        def take(self, units: float) -> None:
            raise AssertionError("this line is for what is no copy")

    monkeypatch.setattr(OwnPace, "take", taking)
    batch = planned(bench, ["a", "b", "c"])
    counted = CountingStore(bench.store)
    context = bench.context(mirror=RateLimitedStore(counted, requests=Closed(1.0)), ledger_flush_files=1)
    (result,) = CopySegments(context, resumes=True, is_repeated=lambda: False)(iter([batch]))
    asked = sum(json.loads(result.to_pylist()[0]["wire_requests"])[side][verb] for side, verb in _SIDES_AND_VERBS)
    assert sum(counted.counts.values()) == 1 + 1 + 3  # the segment, its ledger's listing, a ledger for each file
    assert sum(paid) == asked + 5


_SIDES_AND_VERBS = [(side, verb) for side in ("source", "mirror") for verb in ("get", "put", "head")]


def test_nothing_is_kept_of_files_that_were_handed_out(bench: Bench) -> None:
    """A task may have a million of them."""
    names = [f"f{number}" for number in range(20)]
    context = bench.context(copying=bench.copying(concurrency=1))
    batch = planned(bench, names)
    alive: list[int] = []
    copy = Copier.copy

    async def copying(self: Copier, item: CopyItem, *, looks_first: bool = False) -> CopiedItem:
        gc.collect()
        alive.append(sum(isinstance(one, CopyItem) for one in gc.get_objects()))
        return await copy(self, item, looks_first=looks_first)

    gc.freeze()  # what other tests left need not be looked at each time
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Copier, "copy", copying)
            list(CopySegments(context, resumes=False)(iter([batch])))
    finally:
        gc.unfreeze()
    assert max(alive) - min(alive) <= 2
    assert max(alive) <= 3
