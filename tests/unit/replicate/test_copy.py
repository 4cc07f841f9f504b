"""The copy stage: segments and ranges of large files, each written down, and nothing copied twice."""

from __future__ import annotations

import json
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from lakemirror.errors import PermanentError, SourceVanishedError
from lakemirror.replicate import segments
from lakemirror.replicate.copy import WORK, CopySegments
from lakemirror.replicate.ledger import ledger_folder, read_ledger
from lakemirror.replicate.plan import ITEM
from lakemirror.storage.port import ObjectStore, Overwrite
from lakemirror.storage.wrappers.count import CountingStore
from tests.unit.replicate.conftest import Bench

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


def ran(bench: Bench, batch: pa.RecordBatch, *, resumes: bool, source: ObjectStore | None = None) -> dict[str, Any]:
    context = bench.context(copying=bench.copying(source))
    (result,) = CopySegments(context, resumes)(iter([batch]))
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
