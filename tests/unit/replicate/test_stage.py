"""The engine of threads: every row once, errors as they are, entries joined by their place in the mirror."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from lakemirror.errors import PermanentError
from lakemirror.replicate.plan import ENTRY
from lakemirror.replicate.stage import LocalEngine, first_of_each, gathered, sum_requests

NUMBER = pa.schema([pa.field("n", pa.int64())])


def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pylist([{"n": row["n"] * 2} for row in batch.to_pylist()], NUMBER)


@pytest.mark.parametrize("count", [0, 1, 20])
def test_run_works_on_every_row_and_tells_how_far_it_is(count: int) -> None:
    told: list[tuple[int, int]] = []
    rows = pa.Table.from_pylist([{"n": n} for n in range(count)], NUMBER)
    out = LocalEngine(3).run(doubled, rows, NUMBER, lambda done, total: told.append((done, total)))
    assert sorted(out["n"].to_pylist()) == [n * 2 for n in range(count)]
    assert told == [(n, count) for n in range(1, count + 1)]


def test_run_raises_what_a_stage_raises() -> None:
    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise PermanentError("read", "x", "no", "hint")

    with pytest.raises(PermanentError, match="read x: no; hint"):
        LocalEngine(2).run(fails, pa.Table.from_pylist([{"n": 1}], NUMBER), NUMBER)


def entries(*rows: tuple[str, int, bytes | None]) -> pa.Table:
    made = [
        {"target": t, "source": f"s-{t}", "size": n, "kind": "data", "lower": low, "upper": low} for t, n, low in rows
    ]
    return pa.Table.from_pylist(made, ENTRY)


def test_first_of_each_keeps_one_row_for_each_target() -> None:
    found = first_of_each(entries(("a", 1, None), ("b", 2, b"x"), ("a", 1, None)))
    assert sorted((row["target"], row["size"], row["lower"]) for row in found.to_pylist()) == [
        ("a", 1, None),
        ("b", 2, b"x"),
    ]
    assert found.schema == ENTRY


def test_diff_joins_new_entries_with_what_was_known() -> None:
    sides = {1: entries(("a", 1, None), ("b", 2, None)), 2: entries(("b", 9, b"z"), ("c", 3, None))}

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from sides[row["n"]].combine_chunks().to_batches()

    seen: list[dict[str, object]] = []

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            seen.extend(batch.select(["target", "size", "known_size", "known_lower"]).to_pylist())
        yield from ()

    new, old = (pa.Table.from_pylist([{"n": n}], NUMBER) for n in (1, 2))
    LocalEngine(2).diff(read, ENTRY, new, old, pack, NUMBER)
    assert sorted(seen, key=str) == [
        {"target": "a", "size": 1, "known_size": None, "known_lower": None},
        {"target": "b", "size": 2, "known_size": 9, "known_lower": b"z"},
    ]


def test_diff_with_nothing_known() -> None:
    """The same columns as with a join, with nothing in them; a file that two manifests name comes once."""
    sides = {1: entries(("a", 1, None), ("b", 2, b"x"), ("a", 1, None)), 2: entries()}

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from sides[row["n"]].to_batches()

    seen: list[pa.RecordBatch] = []

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen.extend(batches)
        yield from ()

    new, old = (pa.Table.from_pylist([{"n": n}], NUMBER) for n in (1, 2))
    LocalEngine(2).diff(read, ENTRY, new, old, pack, NUMBER)
    known = [pa.field(f"known_{name}", ENTRY.field(name).type) for name in ("size", "lower", "upper")]
    found = pa.Table.from_batches(seen)
    assert found.schema == pa.schema([*ENTRY, *known])
    assert sorted((row["target"], row["known_size"]) for row in found.to_pylist()) == [("a", None), ("b", None)]


def test_batches_are_gathered() -> None:
    def batch(*numbers: int) -> pa.RecordBatch:
        return pa.record_batch([pa.array(numbers, pa.int64())], ["n"])

    found = gathered([batch(1), batch(), batch(2, 3), batch(4, 5, 6, 7), batch(8)], 3)
    assert [one["n"].to_pylist() for one in found] == [[1, 2, 3], [4, 5, 6, 7], [8]]
    assert list(gathered([batch()], 3)) == []


def test_requests_are_summed_by_side_and_verb() -> None:
    total = sum_requests([{"source": {"get": 1}}, {"source": {"get": 2}, "mirror": {"put": 5}}])
    assert (total["source"]["get"], total["mirror"]["put"], total["mirror"]["get"]) == (3, 5, 0)
