"""The engine that spreads stages over Spark tasks.

Spark never touches the buckets and needs no jars: tasks read and write with the library's own stores, Spark distributes
rows and joins what tasks return. Only small rows come back to the driver. An error of the library that a task meets
travels to the driver as data and is raised there as what it was, so that its family is not lost in a stack trace.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror import errors
from lakemirror.copying.bins import deal
from lakemirror.copying.together import weightiest
from lakemirror.errors import LakemirrorError
from lakemirror.replicate.stage import Report, Stage
from lakemirror.spark.worker import forget_archives

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ENVELOPE = pa.schema([pa.field("payload", pa.binary()), pa.field("error", pa.string())])
_ENVELOPE_DDL = "payload binary, error string"
_ERROR_KIND = "!error"  # of a row of entries that carries an error; no real entry has this kind
_IS_ERROR = f"kind = '{_ERROR_KIND}'"
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
        with self._watched(rows.num_rows, progress):
            return _open(self._spread(rows, _Enveloped(stage), _ENVELOPE_DDL), out)

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
        parts = min(_MAX_PARTS, 1 + (_weight(new) or 0) // _PART_BYTES)
        self._session.conf.set("spark.sql.shuffle.partitions", str(parts))  # the default of 200 is for large joins
        with ExitStack() as stack:
            with self._watched(new.num_rows, progress):
                wanted = self._entries(stack, read, entry, new)
            entries = self._entries(stack, read, entry, old)
            known = entries.select("target", "size", "lower", "upper").toDF(*_KNOWN)
            late_errors = entries.where(_IS_ERROR)  # of manifests that are read again because their executor was lost
            joined = wanted.join(known, "target", "left").unionByName(late_errors, allowMissingColumns=True)
            packed = joined.repartition(parts, "target").mapInArrow(_Enveloped(_WithoutErrors(pack)), _ENVELOPE_DDL)
            return _open(packed, out)

    def _entries(self, stack: ExitStack, read: Stage, entry: pa.Schema, manifests: pa.Table) -> DataFrame:
        """The entries of these manifests, read once; an error that a task met is raised before anybody uses them."""
        from pyspark import StorageLevel
        from pyspark.sql.pandas.types import from_arrow_schema

        ddl = from_arrow_schema(entry)
        if manifests.num_rows == 0:
            return self._session.createDataFrame([], ddl)
        entries = self._spread(manifests, _ErrorsAsRows(read, entry), ddl).persist(StorageLevel.MEMORY_AND_DISK)
        stack.callback(entries.unpersist)
        met = entries.where(_IS_ERROR).select("target").toArrow()
        _raise_weightiest([_revive(text) for text in met["target"].to_pylist()])
        return entries.dropDuplicates(["target"])

    def _spread(self, rows: pa.Table, stage: Stage, ddl: Any) -> DataFrame:
        """One Spark task for each row, or for several, as heavy as others; rows travel with them, as Arrow bytes."""
        tasks = self._tasks(rows)
        dealt = _Dealt(stage, _to_bytes(rows), deal(_weights(rows, (*_LENGTHS, _WEIGHT)) or [1] * rows.num_rows, tasks))
        return self._session.range(0, tasks, 1, tasks).mapInArrow(dealt, ddl)

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


_KNOWN = ("target", "known_size", "known_lower", "known_upper")


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

    def __init__(self, stage: Stage, rows: bytes, dealt: list[list[int]]) -> None:
        self._stage, self._rows, self._dealt = stage, rows, dealt

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = _from_bytes(self._rows)
        tasks = [task for batch in batches for task in batch.column(0).to_pylist()]
        numbers = [number for task in tasks for number in self._dealt[task]]
        parts = (part for number in numbers for part in table.slice(number, 1).combine_chunks().to_batches())
        yield from self._stage(parts)


class _Enveloped:
    """Result batches as bytes, or the error that was met."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._stage(iter(batches)):
                yield _envelope(_to_bytes(pa.Table.from_batches([batch])), None)
        except LakemirrorError as err:
            yield _envelope(None, _describe(err))
        forget_archives()


class _ErrorsAsRows:
    """Entries, or one row that carries the error to the driver."""

    def __init__(self, stage: Stage, entry: pa.Schema) -> None:
        self._stage, self._entry = stage, entry

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._stage(iter(batches))
        except LakemirrorError as err:
            yield pa.RecordBatch.from_pylist([{"target": _describe(err), "kind": _ERROR_KIND}], self._entry)
        forget_archives()


class _WithoutErrors:
    """Raises the error that a row carries: entries that were lost with their executor are read again, and may fail."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self._stage(map(self._checked, batches))

    @staticmethod
    def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
        kinds = batch.column(batch.schema.get_field_index("kind"))
        met = batch.filter(pc.equal(kinds, _ERROR_KIND))
        _raise_weightiest([_revive(text) for text in met["target"].to_pylist()])
        return batch


def _envelope(payload: bytes | None, error: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"payload": payload, "error": error}], _ENVELOPE)


def _open(envelopes: DataFrame, out: pa.Schema) -> pa.Table:
    tables = []
    failures = []
    for row in envelopes.toArrow().to_pylist():
        if row["error"] is not None:
            failures.append(_revive(row["error"]))
        else:
            tables.append(_from_bytes(row["payload"]))
    _raise_weightiest(failures)
    return pa.concat_tables([out.empty_table(), *tables])


def _raise_weightiest(failures: list[LakemirrorError]) -> None:
    if failures:
        raise weightiest(failures)


def _describe(err: LakemirrorError) -> str:
    """By the nearest class that `errors` has: a store's own kinds of error are families of these."""
    known = next(kind.__name__ for kind in type(err).__mro__ if getattr(errors, kind.__name__, None) is kind)
    return json.dumps([known, err.args, err.notes])


def _revive(text: str) -> LakemirrorError:
    name, args, notes = json.loads(text)
    known = getattr(errors, name, None)
    family = known if isinstance(known, type) and issubclass(known, LakemirrorError) else errors.PermanentError
    revived = family(*args)
    for note in notes:
        revived.add_note(note)
    return revived


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _from_bytes(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
