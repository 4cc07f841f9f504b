"""What every stage shares: the ports and limits a task needs, and how the work is spread.

A stage is a plain function over record batches. The same function runs in threads of one process (the small-change
lane) and in Spark tasks; only the engine differs. Work comes in as few small rows (segments, manifests) and goes out
as few small rows; lists of files stay in segments next to the table.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.copying.ports import CopyPorts
from lakemirror.model.paths import PrefixMap
from lakemirror.model.results import SIDES, VERBS
from lakemirror.storage.port import ObjectStore
from lakemirror.storage.wrappers.count import CountingStore

Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Progress = Callable[[str, int, int, int, int], None]  # stage, done, total, bytes done, bytes in all
Report = Callable[[int, int], None]  # rows done, rows in all
Requests = dict[str, dict[str, int]]
KNOWN = ["target", "size", "lower", "upper"]  # of an old entry all that a new one is held against


@dataclass(frozen=True, slots=True)
class StageContext:
    """All that a task needs to work on its part; pickles, so that it can travel to an executor."""

    source: ObjectStore
    mirror: ObjectStore
    paths: PrefixMap
    plan_uri: str
    ledger_uri: str
    copying: CopyPorts
    bin_files: int
    bin_bytes: int
    split_bytes: int
    ledger_flush_files: int
    on_file: Callable[[int, int], None] | None = None  # told files and bytes as they are copied; only in one process


class Engine(Protocol):
    """Spreads stages over workers. Order of results is not promised; every row is worked on at least once."""

    name: str

    @property
    def driver(self) -> tuple[str, str] | None:
        """Where this process may listen for workers, and the name by which they call it; None: they are in it."""

    @property
    def attempts(self) -> int:
        """How many at one task may be at work at once."""

    @staticmethod
    def is_repeated() -> bool:
        """Asked by a task where it works: another attempt at it was begun before, and may have left something."""

    def narrow(self, most: int) -> tuple[Engine, int]:
        """An engine that never works in more processes at once than the number beside it, which is `most` or less."""

    def run(self, stage: Stage, rows: pa.Table, out: pa.Schema, progress: Report | None = None) -> pa.Table:
        """Apply a stage to each row; few rows in, few rows out."""

    def diff(
        self,
        read: Stage,
        entry: pa.Schema,
        new: pa.Table,
        old: pa.Table,
        pack: Stage,
        out: pa.Schema,
        progress: Report | None = None,
    ) -> pa.Table:
        """Read the entries of both sides, left-join new with old by `target`, and hand the result to `pack`."""


class LocalEngine:
    """Threads of this process."""

    name = "task"
    driver: tuple[str, str] | None = None
    attempts = 1

    def __init__(self, threads: int = 8) -> None:
        self._threads = threads

    @staticmethod
    def is_repeated() -> bool:
        return False  # who fails here fails the run

    def narrow(self, most: int) -> tuple[Engine, int]:
        return self, 1

    def run(self, stage: Stage, rows: pa.Table, out: pa.Schema, progress: Report | None = None) -> pa.Table:
        parts = [rows.slice(position, 1).combine_chunks().to_batches() for position in range(rows.num_rows)]
        batches: list[pa.RecordBatch] = []
        with ThreadPoolExecutor(max_workers=max(1, min(self._threads, len(parts) or 1))) as pool:
            for done, produced in enumerate(pool.map(lambda part: list(stage(iter(part))), parts), start=1):
                batches += produced
                if progress is not None:
                    progress(done, len(parts))
        return pa.Table.from_batches(batches, out)

    def diff(
        self,
        read: Stage,
        entry: pa.Schema,
        new: pa.Table,
        old: pa.Table,
        pack: Stage,
        out: pa.Schema,
        progress: Report | None = None,
    ) -> pa.Table:
        batches = beside_known(self.run(read, new, entry, progress), self.run(read, old, entry))
        return pa.Table.from_batches(pack(handed(batches)), out)


def beside_known(new: pa.Table, old: pa.Table) -> list[pa.RecordBatch]:
    """One row for each target of the new entries, beside what the old ones tell of it."""
    known = first_of_each(old.select(KNOWN))
    known = known.rename_columns(["target", "known_size", "known_lower", "known_upper"])
    found: list[pa.RecordBatch] = _joined(first_of_each(new), known).to_batches()
    return found


def _joined(wanted: pa.Table, known: pa.Table) -> pa.Table:
    """What is wanted beside what is known of it; where nothing is, without a join, which would copy everything."""
    if known.num_rows:
        return wanted.join(known, keys="target", join_type="left outer")
    for name in known.schema.names[1:]:
        field = known.schema.field(name)
        wanted = wanted.append_column(field, pa.nulls(wanted.num_rows, field.type))
    return wanted


def handed(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One after the other, each given away: a million entries are hundreds of megabytes, not to be held twice."""
    batches.reverse()
    while batches:
        yield batches.pop()


def gathered(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at least so many, but for the last; empty ones are left out."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
        if count >= rows:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, count = [], 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def first_of_each(entries: pa.Table) -> pa.Table:
    """One row for each target: the same file may be named by several manifests."""
    if _are_distinct(entries["target"]):
        return entries
    names = [name for name in entries.schema.names if name != "target"]
    grouped = (
        entries.combine_chunks().group_by("target", use_threads=False).aggregate([(name, "first") for name in names])
    )
    return grouped.rename_columns(["target", *names]).select(entries.schema.names).cast(entries.schema)


def _are_distinct(texts: pa.ChunkedArray) -> bool:
    """Surely so; by hashes, because counting the texts themselves would hold them all once more."""
    hashes = array("q")
    for chunk in texts.chunks:
        hashes.extend(map(hash, chunk.to_pylist()))
    found = pa.Array.from_buffers(pa.int64(), len(hashes), [None, pa.py_buffer(hashes)])
    return bool(pc.count_distinct(found).as_py() == len(texts))


class Counted:
    """The two stores of a context with their requests counted, for one row of work."""

    def __init__(self, context: StageContext) -> None:
        self.source = CountingStore(context.source)
        self.mirror = CountingStore(context.mirror)

    @property
    def requests(self) -> str:
        """The requests made so far, as the text that a result row carries."""
        return json.dumps({"source": dict(self.source.counts), "mirror": dict(self.mirror.counts)})


def sum_requests(parts: Sequence[Mapping[str, Mapping[str, int]]]) -> Requests:
    total = {side: dict.fromkeys(VERBS, 0) for side in SIDES}
    for part in parts:
        for side, counts in total.items():
            made = part.get(side, {})
            for verb in counts:
                counts[verb] += made.get(verb, 0)
    return total


def requests_of(rows: pa.Table, column: str = "requests") -> Requests:
    return sum_requests([json.loads(text) for text in rows[column].to_pylist()])
