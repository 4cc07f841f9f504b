"""A large file by several tasks: one upload, found again by whoever comes, finished once, or dropped."""

from __future__ import annotations

import asyncio
import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from lakemirror.copying.bins import FILE_COST_BYTES, Range
from lakemirror.copying.model import CopyItem
from lakemirror.copying.ports import CopyPorts, opened
from lakemirror.errors import PermanentError, SourceVanishedError, TransientError
from lakemirror.replicate.copy import ranges_folder
from lakemirror.replicate.ledger import ledger_folder, read_ledger
from lakemirror.replicate.plan import ITEM, PackSegments, Plan, Segment
from lakemirror.replicate.split import FLUSH_PARTS, PARTS, SplitFile
from lakemirror.replicate.stage import LocalEngine, StageContext, sum_requests
from lakemirror.replicate.transfer import _work, copy_objects
from lakemirror.storage.md5_tags import Md5Tag, md5s_of
from lakemirror.storage.port import CREATE, Condition, ConditionFailed, ObjectNotFound, ObjectStore, Overwrite, Written
from lakemirror.storage.wire import Part, Stored
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.forward import ForwardingStore
from tests.unit.replicate.conftest import Bench
from tests.unit.replicate.test_copy import Unwritable
from tests.wires import Act, FaultyWire, WireFault, md5_tag, wire_over

BODY = bytes(range(256)) * 4
CRC = int(google_crc32c.value(BODY))
BOUNDS: dict[str, Any] = {"part_bytes": 50, "memory_bytes": 200}


def context(bench: Bench, **changes: Any) -> StageContext:
    made = {"copying": bench.copying(**BOUNDS), "split_bytes": 300, "bin_bytes": 10_000, **changes}
    return bench.context(**made)


def planned(bench: Bench, sizes: dict[str, int]) -> Plan:
    items = []
    for name, size in sizes.items():
        bench.store.put(bench.source(name), (BODY * 2)[:size], Overwrite())
        items.append({"source": bench.source(name), "target": bench.target(name), "size": size, "kind": "data"})
    table = pa.Table.from_pylist(items, ITEM)
    rows = [row for batch in PackSegments(context(bench)).write("copy", table) for row in batch.to_pylist()]
    return Plan(tuple(Segment(**row) for row in rows), 0, sum_requests([]))


def copied(bench: Bench, plan: Plan, **changes: Any) -> tuple[int, int, int]:
    made = copy_objects(plan, context(bench, **changes), LocalEngine(), f"{bench.layout.root}/started")
    return made.files, made.bytes, made.skipped


def in_ledger(bench: Bench, plan: Plan) -> dict[str, tuple[int, int]]:
    return {
        row["target"].rsplit("/", 1)[-1]: (row["size"], row["crc32c"])
        for role in ("copy", "split")
        for segment in plan.of(role)
        for row in read_ledger(bench.store, ledger_folder(bench.layout.ledger("p"), segment.uri))
    }


def files(bench: Bench) -> dict[str, bytes]:
    return {name: data for name, data in bench.objects().items() if not name.startswith(("_", "started"))}


def test_files_above_the_bound_are_segments_of_their_own(bench: Bench) -> None:
    plan = planned(bench, {"a": 1024, "b": 300, "c": 301, "d": 1})
    assert sorted((one.role, one.files, one.bytes) for one in plan.segments) == [
        ("copy", 2, 301),
        ("split", 1, 301),
        ("split", 1, 1024),
    ]
    work, finishing = _work(plan, context(bench))
    steps = [(row["step"], row["first_part"], row["parts"]) for row in work]
    ranges = [("range", 1, 6), ("range", 7, 5), ("range", 12, 5), ("range", 17, 5)]
    assert sorted(steps, key=str) == sorted([*ranges, ("range", 1, 4), ("range", 5, 3), ("files", None, None)], key=str)
    assert [row["step"] for row in finishing] == ["finish", "finish"]
    weights = sorted(row["weight"] - FILE_COST_BYTES for row in work)
    assert weights == [150, 200, 250, 250, 250, 300, 301 + FILE_COST_BYTES]
    assert sorted(row["weight"] - FILE_COST_BYTES for row in finishing) == [301, 1024]


def test_ranges_meet_in_one_object_with_the_sum_of_the_whole(bench: Bench) -> None:
    plan = planned(bench, {"large": len(BODY), "small": 10})
    assert copied(bench, plan) == (2, len(BODY) + 10, 0)
    assert files(bench) == {"large": BODY, "small": BODY[:10]}
    assert in_ledger(bench, plan)["large"] == (len(BODY), CRC)
    assert len(bench.memory.uploads) == 0


def test_a_large_file_that_its_store_copies_by_itself_is_not_shared(bench: Bench) -> None:
    plan = planned(bench, {"large": len(BODY), "small": 10})
    source = CountingStore(bench.store)
    copying = replace(bench.copying(source, **BOUNDS), is_one_store=True)
    assert copied(bench, plan, copying=copying) == (2, len(BODY) + 10, 0)
    assert (files(bench), source.counts["get"]) == ({"large": BODY, "small": BODY[:10]}, 0)
    assert in_ledger(bench, plan)["large"] == (len(BODY), CRC)
    assert copied(bench, plan, copying=copying) == (0, 0, 2)


def test_a_second_run_copies_nothing(bench: Bench) -> None:
    plan = planned(bench, {"large": len(BODY), "small": 10})
    copied(bench, plan)
    source = CountingStore(bench.store)
    assert copied(bench, plan, copying=bench.copying(source, **BOUNDS)) == (0, 0, 2)
    assert sum(source.counts.values()) == 0


class Breaking(CountingStore):
    """A source that gives out after so many reads."""

    def __init__(self, inner: ObjectStore, reads: int, error: Exception) -> None:
        super().__init__(inner)
        self._left, self._error = reads, error

    def get(self, uri: str, **options: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise self._error
        return super().get(uri, **options)


def cut() -> TransientError:
    return TransientError("get", "x", "the line is cut", "run again")


def parts_written_down(bench: Bench, plan: Plan) -> int:
    """One that was sent as the run was cut may not be among them."""
    (segment,) = plan.of("split")
    return len(list(read_ledger(bench.store, f"{ranges_folder(bench.layout.ledger('p'), segment.uri)}/parts", PARTS)))


def test_a_run_that_was_cut_goes_on_with_the_same_upload(bench: Bench) -> None:
    plan = planned(bench, {"large": len(BODY)})
    source = Breaking(bench.store, 9, cut())
    with pytest.raises(TransientError):
        copied(bench, plan, copying=bench.copying(source, **BOUNDS, attempts=1))
    assert (files(bench), len(bench.memory.uploads)) == ({}, 1)
    written = parts_written_down(bench, plan)
    assert 0 < written <= 9
    again = CountingStore(bench.store)
    assert copied(bench, plan, copying=bench.copying(again, **BOUNDS))[0] == 1
    assert again.counts["get"] == 21 - written
    assert (files(bench), len(bench.memory.uploads)) == ({"large": BODY}, 0)


def test_parts_that_cannot_be_written_down_do_not_hide_why_a_range_failed(bench: Bench) -> None:
    bench.store.put(bench.source("large"), BODY)
    item = CopyItem(bench.source("large"), bench.target("large"), len(BODY))
    folder = ranges_folder(bench.layout.ledger("p"), "segment.parquet")
    source = Breaking(bench.store, 5, ObjectNotFound("get", bench.source("large"), "there is none", "look"))

    async def work() -> None:
        async with opened(bench.copying(source, part_bytes=50, memory_bytes=100), "t") as made:
            split = SplitFile(made.copier, Unwritable(bench.store), folder, item, 50)
            await split.copy_range(Range(1, 21), lambda size: None, looks_first=False)

    with pytest.raises(SourceVanishedError) as caught:
        asyncio.run(work())
    assert "503" in caught.value.notes[0]


def test_parts_are_written_down_while_a_range_is_under_way(bench: Bench) -> None:
    """A task that is killed in the middle of a range loses a few parts, not all of them."""
    size = 2 * FLUSH_PARTS + 8
    bench.store.put(bench.source("large"), BODY[:size])
    item = CopyItem(bench.source("large"), bench.target("large"), size)
    folder = ranges_folder(bench.layout.ledger("p"), "segment.parquet")
    written: list[int] = []

    def look(size_bytes: int) -> None:
        written.append(len(list(read_ledger(bench.store, f"{folder}/parts", PARTS))))

    async def work() -> None:
        one_at_a_time = bench.copying(part_bytes=1, memory_bytes=2)
        async with opened(one_at_a_time, "t") as made:
            await SplitFile(made.copier, bench.store, folder, item, 1).copy_range(
                Range(1, size), look, looks_first=False
            )

    asyncio.run(work())
    look(0)
    assert written == [0, *(sent // FLUSH_PARTS * FLUSH_PARTS for sent in range(size)), size]


def test_an_upload_that_was_dropped_meanwhile_is_begun_anew(bench: Bench) -> None:
    plan = planned(bench, {"large": len(BODY)})
    with pytest.raises(TransientError):
        copied(bench, plan, copying=bench.copying(Breaking(bench.store, 9, cut()), **BOUNDS, attempts=1))
    bench.memory.uploads.clear()
    with pytest.raises(TransientError, match="its upload was dropped"):
        copied(bench, plan)
    assert copied(bench, plan)[0] == 1
    assert files(bench) == {"large": BODY}


def test_an_upload_that_was_dropped_with_all_its_parts_is_begun_anew(bench: Bench) -> None:
    plan = planned(bench, {"large": len(BODY)})
    copying = bench.copying(**BOUNDS, attempts=1)

    def mirror() -> FaultyWire:
        return FaultyWire(copying.mirror(), [WireFault("finish", Act.FAIL, 1, 1000)])

    with pytest.raises(TransientError):
        copied(bench, plan, copying=replace(copying, mirror=mirror))
    bench.memory.uploads.clear()
    with pytest.raises(TransientError, match="its upload was dropped"):
        copied(bench, plan)
    assert copied(bench, plan)[0] == 1
    assert files(bench) == {"large": BODY}


def test_parts_that_the_store_has_no_more_are_dropped_and_sent_anew(bench: Bench) -> None:
    """A twin of the task has sent one again, and was killed before it wrote down the store's new tag."""
    plan = planned(bench, {"large": len(BODY)})
    copying = bench.copying(**BOUNDS)

    class Refusing(FaultyWire):
        async def finish(self, uri: str, upload: str, parts: Sequence[Part], crc32c: int) -> Stored:
            raise ObjectNotFound("finish", uri, "there is no such part", "check the URI")

    with pytest.raises(TransientError, match="its upload was dropped"):
        copied(bench, plan, copying=replace(copying, mirror=lambda: Refusing(copying.mirror())))
    assert (files(bench), len(bench.memory.uploads)) == ({}, 0)
    assert copied(bench, plan)[0] == 1
    assert (files(bench), len(bench.memory.uploads)) == ({"large": BODY}, 0)


@pytest.mark.parametrize("named", [{"crc32c": CRC}, {"crc32": zlib.crc32(BODY)}], ids=["crc32c", "crc32"])
@pytest.mark.parametrize(("flips", "reads"), [(1, 42), (1000, 84)])
def test_parts_that_are_not_those_of_the_source_are_dropped_and_copied_again(
    bench: Bench, flips: int, reads: int, named: dict[str, int]
) -> None:
    plan = planned(bench, {"large": len(BODY)})
    wires: list[FaultyWire] = []

    def source() -> FaultyWire:
        faults = [WireFault("read", Act.FLIP, 1, flips)] if flips > 1 or not wires else []
        wires.append(FaultyWire(wire_over(bench.store, bench.memory), faults))
        wires[-1].sums[bench.source("large")] = named
        return wires[-1]

    copying = replace(bench.copying(**BOUNDS), source=source)
    if flips > 1:
        with pytest.raises(TransientError, match="damaged on the way"):
            copied(bench, plan, copying=copying)
        assert files(bench) == {}
    else:
        assert copied(bench, plan, copying=copying)[0] == 1
        assert files(bench) == {"large": BODY}
        assert in_ledger(bench, plan)["large"] == (len(BODY), CRC)
    assert (sum(wire.count("read") for wire in wires), len(bench.memory.uploads)) == (reads, 0)
    if flips > 1:
        assert copied(bench, plan)[0] == 1  # begun anew: nothing of the bad upload counts
        assert files(bench) == {"large": BODY}


def test_other_parts_by_the_configuration_begin_anew(bench: Bench) -> None:
    plan = planned(bench, {"large": len(BODY)})
    with pytest.raises(TransientError):
        copied(bench, plan, copying=bench.copying(Breaking(bench.store, 9, cut()), **BOUNDS, attempts=1))
    assert copied(bench, plan, copying=bench.copying(part_bytes=64, memory_bytes=200))[0] == 1
    assert (files(bench), len(bench.memory.uploads)) == ({"large": BODY}, 0)


def test_finished_but_not_written_down_is_adopted(bench: Bench) -> None:
    plan = planned(bench, {"large": len(BODY)})
    copied(bench, plan)
    bench.store.delete(
        [one.uri for one in bench.store.list(ledger_folder(bench.layout.ledger("p"), plan.segments[0].uri))]
    )
    assert copied(bench, plan) == (0, 0, 1)
    assert in_ledger(bench, plan)["large"] == (len(BODY), CRC)


def test_a_foreign_object_under_the_key_is_a_stop_and_drops_the_upload(bench: Bench) -> None:
    plan = planned(bench, {"large": len(BODY)})
    bench.store.put(bench.target("large"), b"x" * len(BODY))
    with pytest.raises(PermanentError, match="another object lies under this key"):
        copied(bench, plan)
    assert (files(bench), len(bench.memory.uploads)) == ({"large": b"x" * len(BODY)}, 0)


@pytest.mark.parametrize("is_gone", [True, False])
def test_what_was_sent_of_a_large_file_outlives_the_failure_of_another(bench: Bench, is_gone: bool) -> None:
    """A stop is looked at, and the same plan goes on; where a source file is gone, another plan takes its place."""
    plan = planned(bench, {"large": len(BODY), "small": 10})
    bench.store.delete([bench.source("small")])
    if not is_gone:
        bench.store.put(bench.source("small"), b"another size")
    with pytest.raises(SourceVanishedError if is_gone else PermanentError):
        copied(bench, plan, copying=bench.copying(**BOUNDS, concurrency=5))  # all ranges are begun, and the small one
    assert (files(bench), len(bench.memory.uploads)) == ({}, 0 if is_gone else 1)
    bench.store.put(bench.source("small"), BODY[:10], Overwrite())
    source = CountingStore(bench.store)
    assert copied(bench, plan, copying=bench.copying(source, **BOUNDS))[0] == 2
    assert source.counts["get"] == (22 if is_gone else 1)


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_source_that_changes_between_two_runs_is_a_stop(bench: Bench, is_gone: bool) -> None:
    """Parts of two versions would make a file that never was."""
    plan = planned(bench, {"large": len(BODY)})
    with pytest.raises(TransientError):
        copied(bench, plan, copying=bench.copying(Breaking(bench.store, 9, cut()), **BOUNDS, attempts=1))
    if is_gone:
        bench.store.delete([bench.source("large")])
    else:
        bench.store.put(bench.source("large"), BODY[::-1], Overwrite())
    with pytest.raises(SourceVanishedError if is_gone else PermanentError, match=r"is gone|has changed under its name"):
        copied(bench, plan)
    assert (files(bench), len(bench.memory.uploads)) == ({}, 0)


def test_a_record_of_another_file_is_refused(bench: Bench) -> None:
    plan = planned(bench, {"large": len(BODY)})
    with pytest.raises(TransientError):
        copied(bench, plan, copying=bench.copying(Breaking(bench.store, 9, cut()), **BOUNDS, attempts=1))
    uri = f"{ranges_folder(bench.layout.ledger('p'), plan.segments[0].uri)}/upload.json"
    record = json.loads(bench.store.get(uri).data)
    bench.store.put(uri, json.dumps({**record, "target": "file:///elsewhere"}).encode(), Overwrite())
    with pytest.raises(PermanentError, match="not as it was written"):
        copied(bench, plan)


def tag_of(data: bytes, part_bytes: int | None = None) -> Md5Tag:
    """What S3 makes of an object that was sent at once, or in parts of this size."""
    if part_bytes is None:
        return Md5Tag(hashlib.md5(data, usedforsecurity=False).digest(), 0)
    md5s = md5s_of(data, part_bytes)
    return Md5Tag(hashlib.md5(md5s, usedforsecurity=False).digest(), len(md5s) // 16, part_bytes)


def text_of(tag: Md5Tag) -> str:
    return f'"{tag.md5.hex()}{f"-{tag.parts}" if tag.parts else ""}"'


class TaggedWire(FaultyWire):
    """A source that names nothing but the ETags of S3: a read names the same one as the look before it."""

    def __init__(self, bench: Bench, tag: Md5Tag, faults: Sequence[WireFault] = ()) -> None:
        super().__init__(wire_over(bench.store, bench.memory), faults)
        self.sums[bench.source("large")] = {"e_tag": text_of(tag), "md5": tag}
        self.starts: list[int] = []
        self._tag = tag

    async def read(
        self, uri: str, start: int, length: int, *, e_tag: str | None = None, size_bytes: int | None = None
    ) -> bytes:
        assert e_tag == text_of(self._tag)
        self.starts.append(start)
        return await super().read(uri, start, length, size_bytes=size_bytes)


MD5_BOUNDS: dict[str, Any] = {"part_bytes": 50, "memory_bytes": 375}


@pytest.mark.parametrize(
    ("part_bytes", "sent_in"),
    [(None, 21), (1024, 21), (50, 21), (25, 21), (40, 13), (100, 11), (101, 21)],
    ids=["at once", "one part", "ours", "half of ours", "ours are two of its", "twice ours", "too large for memory"],
)
@pytest.mark.parametrize("flipped", [0, 1, 11])
def test_parts_that_are_not_those_of_an_etag_are_found(
    bench: Bench, part_bytes: int | None, sent_in: int, flipped: int
) -> None:
    """Over plain HTTP nothing else guards what is read: by several tasks where each has whole parts of the source's."""
    plan = planned(bench, {"large": len(BODY)})
    wires: list[TaggedWire] = []

    reading = 0 if part_bytes in (25, 40, 50, 100) else 1  # the tasks of ranges, or the one that finishes

    def source() -> TaggedWire:
        faults = [WireFault("read", Act.FLIP, flipped, flipped)] if flipped and len(wires) == reading else []
        wires.append(TaggedWire(bench, tag_of(BODY, part_bytes), faults))
        return wires[-1]

    copying = replace(bench.copying(**MD5_BOUNDS), source=source)
    files_, bytes_, skipped = copied(bench, plan, copying=copying)
    assert (files_, bytes_, skipped) == (1, len(BODY), 0)
    assert files(bench) == {"large": BODY}
    assert (in_ledger(bench, plan)["large"], len(bench.memory.uploads)) == ((len(BODY), CRC), 0)
    reads = sum(wire.count("read") for wire in wires)
    assert reads == sent_in + (21 if flipped else 0)  # what was damaged is read again by one task


@pytest.mark.parametrize("part_bytes", [25, 40, 100])
@pytest.mark.parametrize("flipped", [0, 1, 5])
def test_parts_that_are_the_sources_are_hashed_by_the_mirror(
    bench: Bench, part_bytes: int, flipped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Smaller ones than are asked for, too. What they tell of a damaged read, one task reads again and hashes."""
    plan = planned(bench, {"large": len(BODY)})
    wires: list[TaggedWire] = []
    if not flipped:
        monkeypatch.setattr("lakemirror.copying.proving.md5s_of", lambda *_: pytest.fail("hashed here"))

    def source() -> TaggedWire:
        faults = [WireFault("read", Act.FLIP, flipped, flipped)] if flipped and not wires else []
        wires.append(TaggedWire(bench, tag_of(BODY, part_bytes), faults))
        return wires[-1]

    def mirror() -> FaultyWire:
        wire = FaultyWire(wire_over(bench.store, bench.memory))
        wire.part_tag = md5_tag
        return wire

    copying = replace(bench.copying(**MD5_BOUNDS), source=source, mirror=mirror)
    assert copied(bench, plan, copying=copying) == (1, len(BODY), 0)
    assert (files(bench), in_ledger(bench, plan)["large"]) == ({"large": BODY}, (len(BODY), CRC))
    assert len(bench.memory.uploads) == 0
    own = range(0, len(BODY), part_bytes)
    assert sorted(wires[0].starts) == list(own)
    assert sum(wire.count("read") for wire in wires) == len(own) + (21 if flipped else 0)


def test_an_etag_of_parts_is_compared_with_what_an_earlier_run_read(bench: Bench) -> None:
    plan = planned(bench, {"large": len(BODY)})
    tag = tag_of(BODY, 40)

    def source(*faults: WireFault) -> CopyPorts:
        copying = bench.copying(**MD5_BOUNDS, attempts=1)
        return replace(copying, source=lambda: TaggedWire(bench, tag, faults))

    flipped, cut_off = WireFault("read", Act.FLIP, 2, 2), WireFault("read", Act.FAIL, 7, 1000)
    with pytest.raises(TransientError):
        copied(bench, plan, copying=source(flipped, cut_off))
    assert (files(bench), len(bench.memory.uploads)) == ({}, 1)
    assert copied(bench, plan, copying=source())[0] == 1
    assert (files(bench), len(bench.memory.uploads)) == ({"large": BODY}, 0)


def test_a_run_that_was_cut_goes_on_with_parts_of_the_sources_size(bench: Bench) -> None:
    plan = planned(bench, {"large": len(BODY)})
    wires: list[TaggedWire] = []

    def source(*faults: WireFault) -> CopyPorts:
        wires.append(TaggedWire(bench, tag_of(BODY, 40), faults))
        return replace(bench.copying(**MD5_BOUNDS, attempts=1), source=lambda: wires[-1])

    with pytest.raises(TransientError):
        copied(bench, plan, copying=source(WireFault("read", Act.FAIL, 7, 1000)))
    sent = sum(len(one.parts) for one in bench.memory.uploads.values())
    assert 0 < sent <= 6
    assert copied(bench, plan, copying=source())[0] == 1
    assert files(bench) == {"large": BODY}
    assert 13 - sent <= wires[-1].count("read") <= 13  # one that was sent may not have been written down
    assert all(start % 80 == 0 for wire in wires for start in wire.starts)


def test_an_etag_that_is_none_is_taken_after_a_second_read(bench: Bench) -> None:
    plan = planned(bench, {"large": len(BODY)})
    wires: list[TaggedWire] = []

    def source() -> TaggedWire:
        wires.append(TaggedWire(bench, tag_of(BODY[::-1], 50)))
        return wires[-1]

    assert copied(bench, plan, copying=replace(bench.copying(**MD5_BOUNDS), source=source))[0] == 1
    assert (files(bench), sum(wire.count("read") for wire in wires)) == ({"large": BODY}, 42)


@pytest.mark.parametrize("was_begun", [True, False])
def test_a_file_that_one_task_must_read_drops_what_several_began(bench: Bench, was_begun: bool) -> None:
    """Its parts fitted into memory before the configuration changed."""
    plan = planned(bench, {"large": len(BODY)})
    tag = tag_of(BODY, 100)

    def source(memory_bytes: int, part_bytes: int, *faults: WireFault) -> CopyPorts:
        copying = bench.copying(part_bytes=part_bytes, memory_bytes=memory_bytes, attempts=1)
        return replace(copying, source=lambda: TaggedWire(bench, tag, faults))

    if was_begun:
        with pytest.raises(TransientError):
            copied(bench, plan, copying=source(600, 50, WireFault("read", Act.FAIL, 4, 1000)))
        assert len(bench.memory.uploads) == 1
    assert copied(bench, plan, copying=source(400, 40))[:2] == (1, len(BODY))
    assert (files(bench), len(bench.memory.uploads)) == ({"large": BODY}, 0)


@pytest.mark.parametrize("change", [{"part_bytes": 0}, {"part_bytes": 49}, {"wanted_bytes": 0}, {"md5_part_bytes": 0}])
def test_a_record_of_parts_that_nobody_would_make_is_refused(bench: Bench, change: dict[str, int]) -> None:
    plan = planned(bench, {"large": len(BODY)})
    with pytest.raises(TransientError):
        copied(bench, plan, copying=bench.copying(Breaking(bench.store, 9, cut()), **BOUNDS, attempts=1))
    uri = f"{ranges_folder(bench.layout.ledger('p'), plan.segments[0].uri)}/upload.json"
    record = json.loads(bench.store.get(uri).data)
    bench.store.put(uri, json.dumps({**record, **change}).encode(), Overwrite())
    with pytest.raises(PermanentError, match="not as it was written"):
        copied(bench, plan)


def test_a_first_try_reads_nothing_of_what_other_ranges_wrote_down(bench: Bench) -> None:
    """Each range would read what all others wrote: with the square of a file's size."""
    plan = planned(bench, {"large": len(BODY)})
    store = Noting(bench.store)
    copied(bench, plan, mirror=store)
    ranges = 4
    assert store.counts["list"] == 1  # by who finishes
    read = [uri for uri in store.read if "/parts/" in uri]
    assert len(read) == len(set(read)) >= ranges  # by him, too


class Noting(CountingStore):
    """Notes what is read."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.read: list[str] = []

    def get(self, uri: str, **options: Any) -> Any:
        self.read.append(uri)
        return super().get(uri, **options)


class LosesAnswers(ForwardingStore):
    """The answer to each second write of a record is lost, as a retry of the store's own sees it: it meets itself."""

    def put(self, uri: str, body: Any, condition: Condition = CREATE) -> Written:
        written = super().put(uri, body, condition)
        if uri.endswith("upload.json"):
            raise ConditionFailed("put", uri, "the object has changed", "read it again, and decide")
        return written


def test_an_upload_that_was_written_down_without_an_answer_is_kept(bench: Bench) -> None:
    plan = planned(bench, {"large": len(BODY)})
    open_wire = bench.copying().mirror
    wires: list[FaultyWire] = []

    def mirror() -> FaultyWire:
        wires.append(FaultyWire(open_wire()))
        return wires[-1]

    copying = replace(bench.copying(**BOUNDS), mirror=mirror)
    assert copied(bench, plan, mirror=LosesAnswers(bench.store), copying=copying)[0] == 1
    assert sum(wire.count("abort") for wire in wires) <= 3  # of the ranges that began beside it, and came too late
    assert files(bench) == {"large": BODY}
