"""Rewritten objects are put create-only: equal records are adopted with their own length, others are a stop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from lakemirror.errors import PermanentError, SourceVanishedError
from lakemirror.formats.iceberg import avro, puffin
from lakemirror.replicate import manifests, segments
from lakemirror.replicate.delete_facts import DeleteFacts
from lakemirror.replicate.plan import FACT
from lakemirror.replicate.rewrite import RewriteManifests, Stored, put_or_adopt, read_source, stream_or_adopt
from lakemirror.replicate.stage import requests_of
from lakemirror.storage.port import Overwrite
from tests.avro_bytes import container, header_size, records
from tests.iceberg_files import (
    ADDED,
    EXISTING,
    PATH_ID,
    POS_ID,
    POSITION_DELETES,
    bounds,
    entry,
    manifest,
    position_deletes,
)
from tests.puffin_bytes import deletion_vectors
from tests.unit.replicate.conftest import Bench

SCHEMA = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string", "field-id": 1}]}


def made(text: str, level: int) -> bytes:
    return container(SCHEMA, [[{"a": text * 50}]], level=level)


def put(bench: Bench, data: bytes) -> Stored:
    uri = bench.target("m.avro")
    return put_or_adopt(bench.store, uri, data, lambda left, right: avro.same_records(left, right, uri))


def stored(data: bytes) -> Stored:
    return Stored(len(data), google_crc32c.value(data))


def test_a_new_object_is_created(bench: Bench) -> None:
    assert put(bench, made("x", 9)) == stored(made("x", 9))
    assert bench.objects() == {"m.avro": made("x", 9)}


def test_the_same_bytes_are_the_same_object(bench: Bench) -> None:
    put(bench, made("x", 9))
    assert put(bench, made("x", 9)) == stored(made("x", 9))


def test_equal_records_compressed_otherwise_are_adopted_with_their_length(bench: Bench) -> None:
    there = made("x", 0)
    assert len(there) != len(made("x", 9))
    put(bench, there)
    assert put(bench, made("x", 9)) == stored(there)
    assert bench.objects() == {"m.avro": there}


@pytest.mark.parametrize("there", [made("y", 9), b"garbage", b""])
def test_other_records_are_a_stop_and_stay(bench: Bench, there: bytes) -> None:
    bench.store.put(bench.target("m.avro"), there)
    with pytest.raises(PermanentError, match="another object with other records lies under this key") as caught:
        put(bench, made("x", 9))
    assert caught.value.subject == bench.target("m.avro")
    assert bench.objects() == {"m.avro": there}


def pieces_of(data: bytes) -> Iterator[bytes]:
    return iter([data[at : at + 10] for at in range(0, len(data), 10)])


def stream(bench: Bench, data: bytes) -> Stored:
    return stream_or_adopt(bench.store, bench.target("m.avro"), lambda: pieces_of(data), bench.paths)


def test_a_stream_is_created_or_adopted_likewise(bench: Bench) -> None:
    assert stream(bench, made("x", 0)) == stored(made("x", 0))
    assert bench.objects() == {"m.avro": made("x", 0)}
    assert stream(bench, made("x", 0)) == stored(made("x", 0))
    assert stream(bench, made("x", 9)) == stored(made("x", 0))


@pytest.mark.parametrize("there", [made("y", 9), made("x", 9)[:-1], made("x", 9) + b"\x00", b"garbage", b""])
def test_a_stream_of_other_records_is_a_stop(bench: Bench, there: bytes) -> None:
    bench.store.put(bench.target("m.avro"), there)
    with pytest.raises(PermanentError, match="another object with other records lies under this key"):
        stream(bench, made("x", 9))
    assert bench.objects() == {"m.avro": there}


def test_a_stream_that_breaks_off_writes_nothing(bench: Bench) -> None:
    def broken() -> Iterator[bytes]:
        yield b"Obj"
        raise PermanentError("read manifest", "m", "it is cut")

    with pytest.raises(PermanentError, match="it is cut"):
        stream_or_adopt(bench.store, bench.target("m.avro"), broken, bench.paths)
    assert bench.objects() == {}


def rewritten(bench: Bench, data: bytes, length: int | None = None, **more: Any) -> tuple[Any, dict[str, int]]:
    """The stage's row for one manifest, and the requests to the source."""
    bench.store.put(bench.source("m.avro"), data, Overwrite())
    row = {"source": bench.source("m.avro"), "target": bench.target("m.avro"), "has_deletes": False}
    rows = pa.RecordBatch.from_pylist([{**row, "source_length": length or len(data), "entries": None}])
    (batch,) = RewriteManifests(bench.context(**more), ())(iter([rows]))
    (found,) = batch.to_pylist()
    return found, json.loads(found["requests"])


@pytest.mark.parametrize("blocks", [1, 4])
def test_large_manifests_are_streamed_with_the_same_result(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    data = manifest([entry(bench.source(f"{n}.parquet")) for n in range(8)], blocks=blocks)
    small, requests = rewritten(bench, data)
    assert (requests["source"]["get"], requests["mirror"]["put"]) == (1, 1)
    whole = bench.objects()
    bench.store.delete([bench.target("m.avro")])

    monkeypatch.setattr(manifests, "WHOLE_BYTES", 0)
    large, requests = rewritten(bench, data)
    assert (requests["source"]["get"], requests["mirror"]["put"]) == (1, 1)
    assert (large["target_length"], large["crc32c"]) == (small["target_length"], small["crc32c"])
    assert bench.objects() == whole
    again, _ = rewritten(bench, data)
    assert again["crc32c"] == small["crc32c"]


def test_large_manifests_that_are_cut_or_gone_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "WHOLE_BYTES", 0)
    data = manifest([entry(bench.source("a")), entry(bench.source("b"))], blocks=2, codec="null")
    step = (len(data) - header_size(data)) // 2
    with pytest.raises(PermanentError, match=rf"it is cut \(want {len(data)} bytes, got {len(data) - step}\)"):
        rewritten(bench, data[:-step], len(data))
    assert bench.objects() == {}
    bench.store.delete([bench.source("m.avro")])
    with pytest.raises(SourceVanishedError):
        list(manifests.pieces(bench.store, bench.source("m.avro"), 1, "rewrite", is_source=True))


def test_a_source_object_that_is_gone_is_transient(bench: Bench) -> None:
    with pytest.raises(SourceVanishedError) as caught:
        read_source(bench.store, bench.source("m.avro"), 100)
    assert caught.value.kind == "transient"


@pytest.mark.parametrize(("length_off", "status"), [(0, ADDED), (1, ADDED), (0, EXISTING)])
def test_a_new_entry_for_a_puffin_file_of_an_earlier_version(bench: Bench, length_off: int, status: int) -> None:
    """The plan knows the file's size alone; what it holds is read from the mirror, and only where the entry is new."""
    data = deletion_vectors({bench.target("a"): [1, 5], bench.target("b"): [2]})
    bench.store.put(bench.target("v.puffin"), data)
    (vector,) = (one for one in puffin.vectors(data, "v") if one.referenced_data_file == bench.target("b"))
    named = entry(
        bench.source("v.puffin"),
        status=status,
        content=POSITION_DELETES,
        file_format="PUFFIN",
        size=len(data),
        record_count=1,
        referenced_data_file=bench.source("b"),
        content_offset=vector.offset,
        content_size_in_bytes=vector.length + length_off,
    )
    made = manifest([named], version=3, meta={"content": "deletes"})
    bench.store.put(bench.source("m.avro"), made)
    fact = {"target": bench.target("v.puffin"), "size": len(data)}
    fact_uri = segments.write(bench.store, bench.layout.plan("p"), "fact", pa.Table.from_pylist([fact], FACT))
    row = {"source": bench.source("m.avro"), "target": bench.target("m.avro"), "source_length": len(made)}
    rows = pa.RecordBatch.from_pylist([{**row, "has_deletes": True, "entries": 1}])
    if length_off:
        with pytest.raises(PermanentError, match="no deletion vector for"):
            list(RewriteManifests(bench.context(), (fact_uri,))(iter([rows])))
        return
    (batch,) = RewriteManifests(bench.context(), (fact_uri,))(iter([rows]))
    (found,) = batch.to_pylist()
    assert json.loads(found["requests"])["mirror"]["get"] == (2 if status == ADDED else 1)
    assert records(bench.store.get(bench.target("m.avro")).data)[0]["data_file"]["content_offset"] == vector.offset


def manifest_of_deletes(bench: Bench, *names: str, at: str = "m.avro") -> pa.RecordBatch:
    """A manifest of these position delete files, all for one data file, each with bounds; as a row of work."""
    edge = bounds({PATH_ID: bench.source("a").encode(), POS_ID: b"x"})
    entries = [
        entry(bench.source(name), content=POSITION_DELETES, size=10, lower_bounds=edge, upper_bounds=edge)
        for name in names
    ]
    made = manifest(entries, meta={"content": "deletes"})
    bench.store.put(bench.source(at), made)
    row = {"source": bench.source(at), "target": bench.target(at), "source_length": len(made)}
    return pa.RecordBatch.from_pylist([{**row, "has_deletes": True, "entries": len(names)}])


def facts_of(bench: Bench, *names: str, edge: str | None = None) -> str:
    """A segment of facts; without an edge, of files that an entry without bounds named before."""
    bound = None if edge is None else bench.target(edge).encode()
    rows = [{"target": bench.target(name), "size": 33, "lower": bound, "upper": bound} for name in names]
    return segments.write(bench.store, bench.layout.plan("p"), "fact", pa.Table.from_pylist(rows, FACT))


def test_bounds_do_not_follow_from_who_named_a_file_before(bench: Bench) -> None:
    """An earlier manifest had none: they are those of the mirror's own file."""
    rows = manifest_of_deletes(bench, "d")
    bench.store.put(bench.target("d"), position_deletes([(bench.target("a"), 1), (bench.target("b"), 2)]))
    (batch,) = RewriteManifests(bench.context(), (facts_of(bench, "d"),))(iter([rows]))
    assert json.loads(batch.to_pylist()[0]["requests"])["mirror"]["get"] == 2
    (found,) = records(bench.store.get(bench.target("m.avro")).data)
    assert found["data_file"]["lower_bounds"] == bounds({PATH_ID: bench.target("a").encode(), POS_ID: b"x"})
    assert found["data_file"]["upper_bounds"] == bounds({PATH_ID: bench.target("b").encode(), POS_ID: b"x"})


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many facts are held at a time."""
    found: list[int] = []

    def seen(facts: pa.Table, files: object) -> DeleteFacts:
        found.append(facts.num_rows)
        return DeleteFacts(facts)

    monkeypatch.setattr("lakemirror.replicate.rewrite.DeleteFacts", seen)
    return found


def facts_in_three(bench: Bench) -> tuple[str, ...]:
    return tuple(
        facts_of(bench, *(f"d{number}" for number in range(start, start + 100)), edge="a") for start in (0, 100, 200)
    )


def test_no_more_facts_are_held_than_a_manifest_names(bench: Bench, held: list[int]) -> None:
    rows = manifest_of_deletes(bench, "d7", "d150")
    list(RewriteManifests(bench.context(), facts_in_three(bench))(iter([rows])))
    assert held == [2]


@pytest.mark.parametrize(("at_once", "want"), [(100, [8]), (3, [6, 2]), (1, [2, 2, 2, 2])])
def test_facts_are_read_once_for_manifests_that_are_held_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, held: list[int], at_once: int, want: list[int]
) -> None:
    """They are no more bytes than one may have that is held alone; without deletes they wait for nobody."""
    rows = [manifest_of_deletes(bench, f"d{n}", f"d{n + 150}", at=f"{n}.avro") for n in range(4)]
    sizes = [row["source_length"][0].as_py() for row in rows]
    monkeypatch.setattr(manifests, "WHOLE_BYTES", at_once * max(sizes))
    data = manifest([entry(bench.source("1.parquet"))])
    bench.store.put(bench.source("data.avro"), data)
    row = {"source": bench.source("data.avro"), "target": bench.target("data.avro"), "source_length": len(data)}
    rows.insert(2, pa.RecordBatch.from_pylist([{**row, "has_deletes": False, "entries": 1}], rows[0].schema))

    found = [
        row
        for batch in RewriteManifests(bench.context(), facts_in_three(bench))(iter(rows))
        for row in batch.to_pylist()
    ]

    assert held == want
    requests = requests_of(pa.Table.from_pylist(found))
    assert requests["mirror"]["get"] == 3 * len(want)
    assert (requests["source"]["get"], requests["mirror"]["put"]) == (5, 5)
    written = {row["source"]: bench.store.get(bench.paths.map(row["source"])).data for row in found}
    assert {row["source"]: row["target_length"] for row in found} == {name: len(data) for name, data in written.items()}
    for n in range(4):
        named = [one["data_file"]["file_path"] for one in records(written[bench.source(f"{n}.avro")])]
        assert named == [bench.target(f"d{n}"), bench.target(f"d{n + 150}")]


def test_a_large_manifest_is_alone_and_streamed_once_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, held: list[int]
) -> None:
    rows = [manifest_of_deletes(bench, f"d{n}", at=f"{n}.avro") for n in range(2)]
    monkeypatch.setattr(manifests, "WHOLE_BYTES", 0)
    found = list(RewriteManifests(bench.context(), (facts_of(bench, "d0", "d1", edge="a"),))(iter(rows)))
    assert held == [1, 1]
    assert requests_of(pa.Table.from_batches(found))["source"]["get"] == 4
