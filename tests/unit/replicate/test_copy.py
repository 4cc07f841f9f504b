"""Copying: each file once, its checksum on the way, and nothing taken for copied by its name."""

from __future__ import annotations

from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from lakemirror.errors import PermanentError, SourceVanishedError, TransientError
from lakemirror.replicate import segments
from lakemirror.replicate.copy import CopySegments, copy_file, ledger_folder, read_ledger
from lakemirror.replicate.plan import ITEM, SEGMENT
from lakemirror.storage.port import ObjectStore, Overwrite
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.fault import Action, Fault, FaultyStore
from tests.unit.replicate.conftest import Bench

BODY = b"some bytes"
CRC = google_crc32c.value(BODY)


def item(bench: Bench, name: str = "a ü=%+,.parquet", size: int = len(BODY)) -> dict[str, Any]:
    return {"source": bench.source(name), "target": bench.target(name), "size": size, "kind": "data"}


def test_copies_and_tells_the_checksum(bench: Bench) -> None:
    bench.store.put(bench.source("a ü=%+,.parquet"), BODY)
    row = copy_file(bench.store, bench.store, item(bench))
    assert row == {**item(bench), "crc32c": CRC, "e_tag": row["e_tag"], "adopted": False}
    assert bench.store.get(bench.target("a ü=%+,.parquet")).data == BODY


def test_an_empty_file_is_a_file(bench: Bench) -> None:
    bench.store.put(bench.source("empty"), b"")
    assert copy_file(bench.store, bench.store, item(bench, "empty", 0))["crc32c"] == 0
    assert bench.objects() == {"empty": b""}


@pytest.mark.parametrize("looks_first", [False, True])
def test_adopts_what_is_there_only_with_size_and_checksum(bench: Bench, looks_first: bool) -> None:
    bench.store.put(bench.source("f"), BODY)
    bench.store.put(bench.target("f"), BODY)
    row = copy_file(bench.store, bench.store, item(bench, "f"), looks_first=looks_first)
    assert (row["crc32c"], row["adopted"]) == (CRC, True)


@pytest.mark.parametrize("looks_first", [False, True])
@pytest.mark.parametrize("foreign", [b"other byte", b"short", b""])
def test_a_foreign_object_under_the_key_is_a_stop_naming_both(bench: Bench, looks_first: bool, foreign: bytes) -> None:
    bench.store.put(bench.source("f"), BODY)
    bench.store.put(bench.target("f"), foreign)
    with pytest.raises(PermanentError, match="another object lies under this key") as caught:
        copy_file(bench.store, bench.store, item(bench, "f"), looks_first=looks_first)
    assert f"want {len(BODY)} bytes with crc32c {CRC:08x}" in caught.value.message
    assert f"got {len(foreign)} with {google_crc32c.value(foreign):08x}" in caught.value.message
    assert bench.store.get(bench.target("f")).data == foreign


@pytest.mark.parametrize("size", [0, len(BODY) - 1, len(BODY) + 1])
def test_a_size_that_is_not_the_manifests_is_a_stop_and_writes_nothing(bench: Bench, size: int) -> None:
    bench.store.put(bench.source("f"), BODY)
    with pytest.raises(PermanentError, match=rf"want {size}, got") as caught:
        copy_file(bench.store, bench.store, item(bench, "f", size))
    assert caught.value.subject == bench.source("f")
    assert bench.objects() == {}


@pytest.mark.parametrize("looks_first", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_source_file_that_is_gone_is_transient(bench: Bench, looks_first: bool, is_there: bool) -> None:
    if is_there:
        bench.store.put(bench.target("f"), BODY)
    with pytest.raises(SourceVanishedError) as caught:
        copy_file(bench.store, bench.store, item(bench, "f"), looks_first=looks_first)
    assert (caught.value.kind, caught.value.subject) == ("transient", bench.source("f"))


def test_a_stream_that_breaks_is_tried_again(bench: Bench) -> None:
    bench.store.put(bench.source("f"), BODY)
    source = FaultyStore(bench.store, [Fault("stream", Action.CUT)])
    assert copy_file(source, bench.store, item(bench, "f"))["crc32c"] == CRC
    assert source.met


def test_a_stream_that_always_breaks_is_transient_and_writes_nothing(bench: Bench) -> None:
    bench.store.put(bench.source("f"), BODY)
    source = FaultyStore(bench.store, [Fault("stream", Action.CUT, nth=n) for n in range(1, 20)])
    with pytest.raises(TransientError):
        copy_file(source, bench.store, item(bench, "f"))
    assert bench.objects() == {}


def test_a_put_that_took_effect_but_failed_is_adopted(bench: Bench) -> None:
    bench.store.put(bench.source("f"), BODY)
    mirror = FaultyStore(bench.store, [Fault("put", Action.FAIL_AFTER)])
    assert copy_file(bench.store, mirror, item(bench, "f"))["crc32c"] == CRC


def planned(bench: Bench, names: list[str]) -> pa.RecordBatch:
    for name in names:
        bench.store.put(bench.source(name), BODY, Overwrite())
    table = pa.Table.from_pylist([item(bench, name) for name in names], ITEM)
    uri = segments.write(bench.store, bench.layout.plan("p"), "copy", table)
    row = {"uri": uri, "role": "copy", "files": len(names), "bytes": len(BODY) * len(names)}
    return pa.RecordBatch.from_pylist([row], SEGMENT)


def ran(bench: Bench, batch: pa.RecordBatch, *, resumes: bool, **stores: ObjectStore) -> dict[str, Any]:
    (result,) = CopySegments(bench.context(**stores), resumes)(iter([batch]))
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
    assert ledger(bench, batch) == ["a"]
    bench.store.put(bench.source("b"), BODY)
    assert ran(bench, batch, resumes=True) == {"files": 3, "bytes": 30, "skipped": 1}


def test_a_permanent_failure_is_told_rather_than_a_transient_one(bench: Bench) -> None:
    batch = planned(bench, ["a", "b"])
    bench.store.delete([bench.source("a")])
    bench.store.put(bench.source("b"), b"another size", Overwrite())
    with pytest.raises(PermanentError, match="its size is not what its manifest says"):
        ran(bench, batch, resumes=False)


def test_files_that_were_copied_but_not_written_down_are_adopted(bench: Bench) -> None:
    batch = planned(bench, ["a", "b", "c"])
    bench.store.put(bench.target("a"), BODY)
    assert ran(bench, batch, resumes=True) == {"files": 2, "bytes": 20, "skipped": 1}
    assert ledger(bench, batch) == ["a", "b", "c"]
