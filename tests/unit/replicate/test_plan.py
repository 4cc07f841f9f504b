"""Planning: live files of added manifests that removed ones did not hold, in segments of bounded size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakemirror.errors import PermanentError, SourceVanishedError
from lakemirror.formats.iceberg.avro_walk import native_module
from lakemirror.model.table import TableRef
from lakemirror.replicate import manifests, segments
from lakemirror.replicate import plan as planning
from lakemirror.replicate.change import MANIFESTS, Change
from lakemirror.replicate.plan import FACT, ITEM, PackSegments, Rows, Segment
from lakemirror.replicate.stage import LocalEngine, sum_requests
from lakemirror.storage.port import ObjectNotFound, Overwrite
from lakemirror.storage.wrappers.count import CountingStore
from tests.avro_bytes import header_size
from tests.iceberg_files import (
    DATA,
    DELETED,
    EQUALITY_DELETES,
    EXISTING,
    PATH_ID,
    POSITION_DELETES,
    bounds,
    entry,
    manifest,
)
from tests.unit.replicate.conftest import Bench

DELETES = {"content": "deletes"}


def row(bench: Bench, name: str, state: str, data: bytes, **more: Any) -> dict[str, Any]:
    place = bench.target(name) if state == "removed" else bench.source(name)
    bench.store.put(place, data)
    fields = {"has_deletes": False, "carries_over": True, "state": state, "snapshots": [1], "target_length": len(data)}
    lengths = {"source_length": len(data)}
    return {"source": bench.source(name), "target": bench.target(name), **lengths, **fields, **more}


def change(bench: Bench, *rows: dict[str, Any], statistics: tuple[tuple[str, int], ...] = ()) -> Change:
    return Change(
        table=TableRef.parse("ns.t"),
        plan_id="p",
        epoch="u-1",
        version=2,
        from_version=1,
        parent_checksum="x",
        demoted=(3, 7),
        dropped=0,
        lift=0,
        source_metadata_location="s3://src/meta.json",
        source_fingerprint="f",
        head=1,
        retained=(1,),
        referenced=(1,),
        new_lists=(),
        statistics=statistics,
        known_statistics=frozenset(),
        dangling=(),
        files_at_most=0,
        lane="task",
        rules=bench.paths.rules,
        private=("s3://private",),
        generation="g1",
        left_out=("one thing",),
        manifests=pa.Table.from_pylist(list(rows), MANIFESTS),
    )


def _rows(bench: Bench, segment: Segment) -> pa.Table:
    return segments.read(bench.store, segment.uri, FACT if segment.role == "fact" else ITEM)


def made(bench: Bench, *rows: dict[str, Any], **more: Any) -> dict[str, list[Any]]:
    """Targets of the plan's segments by role."""
    plan = planning.make(change(bench, *rows, **more), bench.context(), LocalEngine(2))
    found: dict[str, list[Any]] = {}
    for segment in plan.segments:
        names = [uri.rsplit("/", 1)[-1] for uri in _rows(bench, segment)["target"].to_pylist()]
        found.setdefault(segment.role, []).extend(names)
    return {role: sorted(names) for role, names in found.items()}


def test_new_live_files_are_copied_deleted_ones_are_not(bench: Bench) -> None:
    added = manifest([entry(bench.source("a")), entry(bench.source("b"), status=DELETED)])
    assert made(bench, row(bench, "m1", "added", added)) == {"copy": ["a"]}


def test_entries_are_planned_by_path_whatever_their_snapshot(bench: Bench) -> None:
    """An entry that was carried over from an expired snapshot is as alive as any other."""
    added = manifest([entry(bench.source("a"), status=EXISTING, snapshot_id=-77)])
    assert made(bench, row(bench, "m1", "added", added)) == {"copy": ["a"]}


def test_what_removed_manifests_held_is_known_from_the_mirror(bench: Bench) -> None:
    added = manifest([entry(bench.source("a"), status=EXISTING), entry(bench.source("b"))])
    removed = manifest([entry(bench.target("a")), entry(bench.target("c"))])
    rows = row(bench, "m2", "added", added), row(bench, "m1", "removed", removed)
    assert made(bench, *rows) == {"copy": ["b"]}


@pytest.mark.parametrize("content", [DATA, EQUALITY_DELETES])
def test_a_known_file_with_another_size_is_a_stop(bench: Bench, content: int) -> None:
    """Somebody used its name again: the mirror has the old bytes."""
    meta = {} if content == DATA else DELETES
    added = manifest([entry(bench.source("a"), content=content, size=11)], meta=meta)
    removed = manifest([entry(bench.target("a"), content=content, size=10)], meta=meta)
    with pytest.raises(PermanentError, match=r"another size \(want 10 bytes, got 11\)") as caught:
        made(bench, row(bench, "m2", "added", added), row(bench, "m1", "removed", removed))
    assert caught.value.subject == bench.source("a")
    assert bench.objects().keys() == {"m1"}


def test_removed_manifests_are_not_read_if_nothing_was_carried_over(bench: Bench) -> None:
    added = row(bench, "m2", "added", manifest([entry(bench.source("b"))]), carries_over=False)
    removed = row(bench, "m1", "removed", b"unreadable")
    assert made(bench, added, removed) == {"copy": ["b"]}


def test_a_file_named_twice_is_planned_once(bench: Bench) -> None:
    data = manifest([entry(bench.source("a")), entry(bench.source("a"))])
    assert made(bench, row(bench, "m1", "added", data), row(bench, "m2", "added", data)) == {"copy": ["a"]}


def test_new_position_deletes_are_rewritten_known_ones_keep_the_mirrors_facts(bench: Bench) -> None:
    def delete(path: str, size: int, of: str) -> dict[str, Any]:
        edge = bounds({PATH_ID: of.encode()})
        return entry(path, content=POSITION_DELETES, size=size, lower_bounds=edge, upper_bounds=edge)

    added = [delete(bench.source("d1"), 10, bench.source("a")), delete(bench.source("d2"), 20, bench.source("a"))]
    removed = manifest([delete(bench.target("d1"), 33, bench.target("a"))], meta=DELETES)
    rows = (
        row(bench, "m2", "added", manifest(added, meta=DELETES), has_deletes=True),
        row(bench, "m1", "removed", removed, has_deletes=True),
    )
    plan = planning.make(change(bench, *rows), bench.context(), LocalEngine(2))
    by_role = {segment.role: _rows(bench, segment).to_pylist() for segment in plan.segments}
    assert by_role == {
        "delete": [
            {
                "source": bench.source("d2"),
                "target": bench.target("d2"),
                "size": 20,
                "kind": "position_delete",
                "format": "PARQUET",
            }
        ],
        "fact": [
            {
                "target": bench.target("d1"),
                "size": 33,
                "lower": bench.target("a").encode(),
                "upper": bench.target("a").encode(),
                "vectors": None,
            }
        ],
    }
    assert (plan.files, plan.bytes, plan.manifests_read) == (1, 20, 2)


def test_statistics_files_are_copied(bench: Bench) -> None:
    assert made(bench, statistics=((bench.source("s.puffin"), 5),)) == {"copy": ["s.puffin"]}


def test_no_manifests_no_files(bench: Bench) -> None:
    assert made(bench) == {}


def test_segments_are_bounded_by_count_and_bytes(bench: Bench) -> None:
    entries = [entry(bench.source(f"f{n}"), size=size) for n, size in enumerate((500, 60, 50, 40, 1, 1, 1, 1))]
    context = bench.context(bin_files=3, bin_bytes=100)
    rows = row(bench, "m1", "added", manifest(entries))
    plan = planning.make(change(bench, rows), context, LocalEngine(2))
    assert sorted((segment.files, segment.bytes) for segment in plan.segments) == [(1, 500), (2, 51), (2, 61), (3, 42)]


def test_the_plan_is_found_again_only_when_complete(bench: Bench) -> None:
    rows = row(bench, "m1", "added", manifest([entry(bench.source("a"))]))
    assert planning.load(bench.store, bench.layout.plan("p")) is None
    plan = planning.make(change(bench, rows), bench.context(), LocalEngine(2))
    found = planning.load(bench.store, bench.layout.plan("p"))
    assert found == replace(plan, requests=sum_requests([]))  # a plan that is found costs nothing again


def test_a_source_manifest_that_is_gone_is_transient_the_mirrors_own_is_not(bench: Bench) -> None:
    added = row(bench, "m2", "added", manifest([entry(bench.source("a"), status=EXISTING)]))
    removed = row(bench, "m1", "removed", manifest([entry(bench.target("a"))]))
    bench.store.delete([bench.target("m1")])
    with pytest.raises(ObjectNotFound) as caught:
        made(bench, added, removed)
    assert caught.value.subject == bench.target("m1")
    bench.store.delete([bench.source("m2")])
    with pytest.raises(SourceVanishedError) as gone:
        made(bench, added)
    assert gone.value.subject == bench.source("m2")


@pytest.mark.parametrize("blocks_kept", [0, 1])
def test_a_manifest_cut_between_blocks_is_told_by_its_length(bench: Bench, blocks_kept: int) -> None:
    """As Avro it is whole: without its length it would be a smaller, or an empty, manifest."""
    data = manifest([entry(bench.source("a")), entry(bench.source("b"))], blocks=2, codec="null")
    step = (len(data) - header_size(data)) // 2
    cut = data[: header_size(data) + blocks_kept * step]
    added = row(bench, "m1", "added", cut, source_length=len(data))
    with pytest.raises(PermanentError, match=rf"it is cut \(want {len(data)} bytes, got {len(cut)}\)"):
        made(bench, added)
    assert bench.objects() == {}


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("{home}//x", "it holds '//'"),
        ("{home}/a/../x", "climbs"),
        ("s3://other/x", "no known root"),
        ("{home}/_ready/x", "own"),
    ],
)
def test_keys_that_cannot_be_are_refused_before_anything_is_written(bench: Bench, path: str, says: str) -> None:
    wrong = path.format(home=bench.source("")[:-1])
    added = row(bench, "m1", "added", manifest([entry(bench.source("fine")), entry(wrong)]))
    with pytest.raises(PermanentError, match=says):
        made(bench, added)
    assert bench.objects() == {}


@pytest.mark.parametrize("status", [1, DELETED])
def test_statistics_and_tombstones_of_unknown_roots_too(bench: Bench, status: int) -> None:
    fine = row(bench, "m1", "added", manifest([entry(bench.source("fine"))]))
    wrong = row(bench, "m2", "added", manifest([entry("s3://other/x", status=status)]))
    with pytest.raises(PermanentError, match="no known root"):
        made(bench, fine, wrong)
    with pytest.raises(PermanentError, match="no known root"):
        made(bench, fine, statistics=(("s3://other/x", 1),))
    assert bench.objects() == {}


def test_each_manifest_is_read_once(bench: Bench) -> None:
    added = row(bench, "m1", "added", manifest([entry(bench.source("a"), status=EXISTING)]))
    removed = row(bench, "m0", "removed", manifest([entry(bench.target("b"))]))
    source, mirror = CountingStore(bench.store), CountingStore(bench.store)
    planning.make(change(bench, added, removed), bench.context(source=source, mirror=mirror), LocalEngine(2))
    assert (source.counts["get"], mirror.counts["get"]) == (1, 1)


def entries_read(bench: Bench, data: bytes, *, is_source: bool, **more: Any) -> pa.Table:
    uri = bench.source("m") if is_source else bench.target("m")
    bench.store.put(uri, data, Overwrite())
    rows = pa.RecordBatch.from_pylist([{"uri": uri, "length": len(data), "is_source": is_source}], planning.TO_READ)
    return pa.Table.from_batches(planning.ReadEntries(bench.context(**more))(iter([rows])), planning.ENTRY)


@pytest.mark.parametrize("is_source", [True, False])
@pytest.mark.parametrize("whole_bytes", [0, 1 << 20])
@pytest.mark.parametrize("odd", [None, "a/b#c", "ü"])
def test_entries_are_the_same_by_every_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_source: bool, whole_bytes: int, odd: str | None
) -> None:
    """Streamed or whole, in columns or as objects, by either walker."""
    monkeypatch.setattr(manifests, "WHOLE_BYTES", whole_bytes)
    monkeypatch.setattr(planning, "BATCH_ROWS", 3)
    place = bench.source if is_source else bench.target
    names = [f"data/{n}.parquet" for n in range(7)] + ([] if odd is None else [odd])
    entries = [entry(place(name), size=n, status=DELETED if n == 2 else EXISTING) for n, name in enumerate(names)]
    data = manifest(entries, blocks=3)
    answers = []
    for walker in ("c", "python") if native_module(None, {}) else ("python",):
        monkeypatch.setenv("LAKEMIRROR_WALKER", walker)
        if odd is not None and "#" in odd:
            with pytest.raises(PermanentError, match="it holds '#'"):
                entries_read(bench, data, is_source=is_source)
            continue
        answers.append(entries_read(bench, data, is_source=is_source).combine_chunks())
        assert answers[-1]["target"].to_pylist() == [bench.target(name) for n, name in enumerate(names) if n != 2]
        assert answers[-1]["source"].to_pylist() == [place(name) for n, name in enumerate(names) if n != 2]
        assert answers[-1]["size"].to_pylist() == [n for n in range(len(names)) if n != 2]
        assert set(answers[-1]["kind"].to_pylist()) == {"data"}
    assert all(answer == answers[0] for answer in answers)


def test_nothing_to_pack_is_nothing(bench: Bench) -> None:
    assert list(PackSegments(bench.context())(iter([]))) == []


def test_a_change_is_read_back_as_it_was_saved(bench: Bench) -> None:
    from lakemirror.replicate import change as changes

    one = change(bench, row(bench, "m1", "added", b"x"), statistics=(("s3://x", 1),))
    one = replace(
        one,
        new_lists=((1, "s3://l", "0af"),),
        known_statistics=frozenset({("b", 1), ("a", 2)}),
        head=None,
        parent_checksum=None,
    )
    one = replace(one, plan_id=one.expected_plan_id)
    loaded = changes.load(bench.store, one.save(bench.store, bench.layout))
    assert loaded == one
    assert loaded.rows("added").num_rows == 1


def test_rows_are_taken_from_several_batches_in_the_order_asked_for() -> None:
    parts = [pa.record_batch({"n": pa.array(range(first, first + 3))}) for first in (0, 3, 6)]
    rows = Rows.of(pa.Table.from_batches(parts))
    for wanted in ([], [4], [8, 0, 3, 5, 1], [2, 2, 7]):
        assert rows.take(wanted)["n"].to_pylist() == wanted
