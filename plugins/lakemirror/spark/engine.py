"""The engine that spreads stages over Spark tasks.

Spark never touches the buckets and needs no jars: tasks read and write with the library's own stores, Spark distributes
rows and brings together what belongs together, as bytes: nothing of it is SQL, whose first queries take a JVM seconds.
Only small rows come back to the driver. An error of the library that a task meets travels to the driver as data and is
raised there as what it was, so that its family is not lost in a stack trace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa

from lakemirror.copying.bins import deal
from lakemirror.copying.together import weightiest
from lakemirror.errors import LakemirrorError
from lakemirror.replicate.stage import KNOWN, Report, Stage, beside_known, gathered, handed
from lakemirror.spark.failures import EscapedError, describe, escaped, may_escape, revive
from lakemirror.spark.worker import forget_archives

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

Answer = tuple[bytes | None, str | None]  # a batch as Arrow bytes, or an error that was met, in words
Bundle = tuple[bool, bytes | None, str | None]  # whether it is of new entries, and an answer
_BUNDLE_ROWS = 256  # at least, but for the last of a task: a bundle of a single entry is mostly its schema
_SMALL = pa.ipc.IpcWriteOptions(compression="lz4")  # paths are much alike
_LENGTHS = ("length", "source_length")  # a column of this name says what each row weighs
_WEIGHT = "weight"  # this one too, of rows that are each worth a task of their own if so many may work
_TASK_BYTES = 1 << 24  # rows that weigh less share a task: to start one costs more than a small manifest
_TASKS_PER_CORE = 4  # at least, so that all are busy to the end
_PART_BYTES = 1 << 25  # of manifests: their entries are packed by one task, in its memory
_MAX_PARTS = 1000
_POLL_S = 0.5


class SparkEngine:
    """Runs stages on a session; the session is the caller's."""

    name = "spark"

    def __init__(self, session: SparkSession, at_once: int | None = None) -> None:
        self._session = session
        self._at_once = at_once

    @property
    def driver(self) -> tuple[str, str] | None:
        """Where this process may listen, and the name by which executors call it; as Spark's own driver does."""
        conf = self._session.sparkContext.getConf()
        host = conf.get("spark.driver.host")
        return None if host is None else (conf.get("spark.driver.bindAddress") or host, host)

    @property
    def attempts(self) -> int:
        """Two if Spark starts twins of tasks that are slow; never a third beside them."""
        return 2 if self._session.sparkContext.getConf().get("spark.speculation", "false").lower() == "true" else 1

    @staticmethod
    def is_repeated() -> bool:
        """Of the task that asks: the executor of its first attempt was lost, or it is the twin of one that is slow."""
        from pyspark import TaskContext

        task = TaskContext.get()
        return task is not None and task.attemptNumber() > 0

    def narrow(self, most: int) -> tuple[SparkEngine, int]:
        """Each task is a process, and no more tasks are made than may work at once, whatever the cluster grows to."""
        processes = max(1, min(most, self._session.sparkContext.defaultParallelism))
        return SparkEngine(self._session, processes), processes

    def run(self, stage: Stage, rows: pa.Table, out: pa.Schema, progress: Report | None = None) -> pa.Table:
        if rows.num_rows == 0:
            return out.empty_table()
        with self._watched(rows.num_rows, progress), _told_as_ours():
            return _open(self._spread(rows, _Enveloped(stage, self.attempts)).collect(), out)

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
        if new.num_rows == 0:
            return out.empty_table()
        parts = min(_MAX_PARTS, 1 + ((_weight(new) or 0) + (_weight(old) or 0)) // _PART_BYTES)
        bundles = self._spread(new, _Bundled(read, parts, self.attempts, is_new=True))
        if old.num_rows:
            bundles = bundles.union(self._spread(old, _Bundled(read, parts, self.attempts, is_new=False)))
        # Errors have a part of their own, which is looked at before anything is packed; what was brought together for
        # it is there for the others, too.
        together = bundles.partitionBy(parts + 1, int)
        with self._watched(new.num_rows, progress), _told_as_ours():
            met = self._session.sparkContext.runJob(together, _errors, [parts])
        _raise_weightiest([revive(text) for text in met])
        packing = _Enveloped(_Unbundled(pack, entry), self.attempts)
        with _told_as_ours():
            return _open(self._session.sparkContext.runJob(together, packing, range(parts)), out)

    def _spread(self, rows: pa.Table, work: Callable[[Iterator[pa.RecordBatch]], Iterator[Any]]) -> RDD[Any]:
        """One Spark task for each row, or for several, as heavy as others; rows travel with them, as Arrow bytes."""
        tasks = self._tasks(rows)
        dealt = _Dealt(work, _to_bytes(rows), deal(_weights(rows, (*_LENGTHS, _WEIGHT)) or [1] * rows.num_rows, tasks))
        return self._session.sparkContext.parallelize(range(tasks), tasks).mapPartitions(dealt)

    def _tasks(self, rows: pa.Table) -> int:
        """No more than may work at once, if so many may only."""
        tasks: int = rows.num_rows
        weight = _weight(rows)
        if weight is not None:
            busy = self._session.sparkContext.defaultParallelism * _TASKS_PER_CORE
            tasks = min(tasks, max(busy, 1 + weight // _TASK_BYTES))
        return tasks if self._at_once is None else min(tasks, self._at_once)

    @contextmanager
    def _watched(self, total: int, progress: Report | None) -> Iterator[None]:
        """Tell how many tasks are done, from a thread, while the stage runs."""
        if progress is None:
            yield
            return
        finished = threading.Event()
        tracker = self._session.sparkContext.statusTracker()

        def watch() -> None:
            while not finished.wait(_POLL_S):
                for stage_id in tracker.getActiveStageIds():
                    info = tracker.getStageInfo(stage_id)
                    if info is not None and info.numTasks:
                        progress(total * info.numCompletedTasks // info.numTasks, total)

        watcher = threading.Thread(target=watch, name="lakemirror-spark-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            finished.set()
            watcher.join()
        progress(total, total)


def _weight(rows: pa.Table) -> int | None:
    """What the rows weigh together; None if they do not say."""
    found = _weights(rows, _LENGTHS)
    return None if found is None else sum(found)


def _weights(rows: pa.Table, names: Sequence[str]) -> list[int] | None:
    """What each row weighs, by the first of these columns that there is."""
    found = next((name for name in names if name in rows.column_names), None)
    return None if found is None else [weight or 0 for weight in rows[found].to_pylist()]


class _Dealt:
    """Turns the number of a task into the rows that were dealt to it, one at a time."""

    def __init__(
        self, work: Callable[[Iterator[pa.RecordBatch]], Iterator[Any]], rows: bytes, dealt: list[list[int]]
    ) -> None:
        self._work, self._rows, self._dealt = work, rows, dealt

    def __call__(self, tasks: Iterable[int]) -> Iterator[Any]:
        table = _from_bytes(self._rows)
        numbers = [number for task in tasks for number in self._dealt[task]]
        parts = (part for number in numbers for part in table.slice(number, 1).combine_chunks().to_batches())
        yield from self._work(parts)


@contextmanager
def _told_as_ours() -> Iterator[None]:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no stubs

    try:
        yield
    except Py4JJavaError as err:
        ours = escaped(err)
        if ours is None:
            raise
        raise ours from err


class _Enveloped:
    """Result batches as bytes, or the error that was met; `attempts` at one task may be at work at once."""

    def __init__(self, stage: Callable[[Iterator[Any]], Iterator[pa.RecordBatch]], attempts: int = 1) -> None:
        self._stage, self._attempts = stage, attempts

    def __call__(self, given: Iterable[Any]) -> Iterator[Answer]:
        try:
            for batch in self._stage(iter(given)):
                yield _to_bytes(pa.Table.from_batches([batch])), None
        except LakemirrorError as err:
            yield None, _in_words(err, self._attempts)
        forget_archives()


def _in_words(err: LakemirrorError, attempts: int) -> str:
    """To be handed back; unless the first attempt may be at work, and this one has met what it may not."""
    if attempts > 1 and may_escape(err) and SparkEngine.is_repeated():
        raise EscapedError(describe(err)) from err
    return describe(err)


class _Bundled:
    """Entries in bundles, each with the number of the part that packs it: for Spark few bytes, whatever they hold.

    The same target is always of the same part. Of old entries only what is compared goes along. An error that was met
    goes to the part of errors, and to all others: a task whose work was lost with its executor is done again when they
    are packed already, and nobody asks then.
    """

    def __init__(self, stage: Stage, parts: int, attempts: int = 1, *, is_new: bool) -> None:
        self._stage, self._parts, self._attempts, self._is_new = stage, parts, attempts, is_new

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Bundle]]:
        try:
            for batch in gathered(self._stage(batches), self._parts * _BUNDLE_ROWS):
                batch = batch if self._is_new else batch.select(KNOWN)
                for part, entries in _by_part(batch, self._parts):
                    yield part, (self._is_new, _to_bytes(pa.Table.from_batches([entries]), _SMALL), None)
        except LakemirrorError as err:
            text = _in_words(err, self._attempts)
            for part in range(self._parts + 1):
                yield part, (self._is_new, None, text)
        forget_archives()


def _by_part(entries: pa.RecordBatch, parts: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The entries of each part, by the checksum of their target: alike in every process."""
    if parts == 1:
        yield 0, entries
        return
    targets = entries["target"].cast(pa.binary()).to_pylist()
    chosen: list[list[int]] = [[] for _ in range(parts)]
    for position, target in enumerate(targets):
        chosen[crc32(target) % parts].append(position)
    for part, positions in enumerate(chosen):
        if positions:
            yield part, entries.take(pa.array(positions, pa.int32()))


def _errors(bundles: Iterable[tuple[int, Bundle]]) -> list[str]:
    return [error for _, (_, _, error) in bundles if error is not None]


class _Unbundled:
    """The bundles of one part → what `pack` makes of their entries, the new ones beside what is known of them."""

    def __init__(self, pack: Stage, entry: pa.Schema) -> None:
        self._pack, self._entry = pack, entry

    def __call__(self, bundles: Iterator[tuple[int, Bundle]]) -> Iterator[pa.RecordBatch]:
        sides = {True: [self._entry.empty_table()], False: [self._entry.empty_table().select(KNOWN)]}
        for _, (is_new, payload, error) in bundles:
            if error is not None:
                raise revive(error)
            sides[is_new].append(_from_bytes(payload))
        new, old = (pa.concat_tables(sides.pop(is_new)) for is_new in (True, False))
        return self._pack(handed(beside_known(new, old)))


def _open(answers: Iterable[Answer], out: pa.Schema) -> pa.Table:
    tables = []
    failures = []
    for payload, error in answers:
        if error is not None:
            failures.append(revive(error))
        else:
            tables.append(_from_bytes(payload))
    _raise_weightiest(failures)
    return pa.concat_tables([out.empty_table(), *tables])


def _raise_weightiest(failures: list[LakemirrorError]) -> None:
    if failures:
        raise weightiest(failures)


def _to_bytes(table: pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _from_bytes(data: bytes | None) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
