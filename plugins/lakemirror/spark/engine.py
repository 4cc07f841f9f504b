"""The engine that spreads stages over Spark tasks.

Spark never touches the buckets and needs no jars: tasks read and write with the library's own stores, Spark distributes
rows and joins what tasks return. Only small rows come back to the driver. An error of the library that a task meets
travels to the driver as data and is raised there as what it was, so that its family is not lost in a stack trace.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakemirror import errors
from lakemirror.errors import LakemirrorError
from lakemirror.replicate.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ENVELOPE = pa.schema([pa.field("payload", pa.binary()), pa.field("error", pa.string())])
_ENVELOPE_DDL = "payload binary, error string"
_ERROR_KIND = "!error"  # a row of entries that carries an error through the join; no real entry has this kind
_MANIFESTS_PER_PART = 4
_MAX_PARTS = 1000
_POLL_S = 0.5


class SparkEngine:
    """Runs stages on a session; the session is the caller's."""

    name = "spark"

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def run(
        self, stage: Stage, rows: pa.Table, out: pa.Schema, progress: Callable[[int, int], None] | None = None
    ) -> pa.Table:
        if rows.num_rows == 0:
            return out.empty_table()
        with self._watched(rows.num_rows, progress):
            return _open(self._spread(rows, _Enveloped(stage), _ENVELOPE_DDL), out)

    def diff(
        self, read: Stage, entry: pa.Schema, new: pa.Table, old: pa.Table, pack: Stage, out: pa.Schema
    ) -> pa.Table:
        if new.num_rows == 0:
            return out.empty_table()
        from pyspark.sql.pandas.types import from_arrow_schema

        parts = max(1, min(_MAX_PARTS, new.num_rows // _MANIFESTS_PER_PART + 1))
        self._session.conf.set("spark.sql.shuffle.partitions", str(parts))  # the default of 200 is for large joins
        ddl = from_arrow_schema(entry)
        wanted = self._spread(new, _Poisoned(read, entry), ddl).dropDuplicates(["target"])
        if old.num_rows:
            known = self._spread(old, _Poisoned(read, entry), ddl).dropDuplicates(["target"])
            known = known.select("target", "size", "lower", "upper", "kind").toDF(*_KNOWN)
        else:
            known = self._session.createDataFrame(
                [], f"{_KNOWN[0]} string, {_KNOWN[1]} long, {_KNOWN[2]} binary, {_KNOWN[3]} binary, {_KNOWN[4]} string"
            )
        # full outer, because an error row of the old side must arrive too; other rows only the old side has are dropped
        joined = wanted.join(known, "target", "full_outer")
        joined = joined.where("kind is not null or known_kind = '!error'")
        packed = joined.repartition(parts, "target").mapInArrow(_Enveloped(_Unpoisoned(pack)), _ENVELOPE_DDL)
        return _open(packed, out)

    def _spread(self, rows: pa.Table, stage: Stage, ddl: Any) -> DataFrame:
        """One Spark task for each row; the rows travel with the task, as Arrow bytes."""
        count = rows.num_rows
        return self._session.range(0, count, 1, count).mapInArrow(_Sliced(stage, _to_bytes(rows)), ddl)

    @contextmanager
    def _watched(self, total: int, progress: Callable[[int, int], None] | None) -> Iterator[None]:
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
                    if info is not None:
                        progress(min(info.numCompletedTasks, total), total)

        watcher = threading.Thread(target=watch, name="lakemirror-spark-progress", daemon=True)
        watcher.start()
        try:
            yield
            progress(total, total)
        finally:
            finished.set()
            watcher.join()


_KNOWN = ("target", "known_size", "known_lower", "known_upper", "known_kind")


class _Sliced:
    """Turns a task's row number into the row itself."""

    def __init__(self, stage: Stage, rows: bytes) -> None:
        self._stage, self._rows = stage, rows

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = _from_bytes(self._rows)
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
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


class _Poisoned:
    """Entries, or one row that carries the error through the join."""

    def __init__(self, stage: Stage, entry: pa.Schema) -> None:
        self._stage, self._entry = stage, entry

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._stage(iter(batches))
        except LakemirrorError as err:
            row = {"target": f"{_ERROR_KIND}{_describe(err)}", "kind": _ERROR_KIND}
            yield pa.RecordBatch.from_pylist([row], self._entry)


class _Unpoisoned:
    """Raises the error that a joined row carries, before anything is packed."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = list(batches)
        for batch in parts:
            for target in batch.column("target").to_pylist():
                if target.startswith(_ERROR_KIND):
                    raise _revive(target.removeprefix(_ERROR_KIND))
        yield from self._stage(iter(parts))


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
    if failures:
        raise sorted(failures, key=lambda err: isinstance(err, errors.TransientError))[0]
    return pa.concat_tables([out.empty_table(), *tables])


def _describe(err: LakemirrorError) -> str:
    return json.dumps([type(err).__name__, *err.args])


def _revive(text: str) -> LakemirrorError:
    name, *args = json.loads(text)
    known = getattr(errors, name, None)
    family = known if isinstance(known, type) and issubclass(known, LakemirrorError) else errors.PermanentError
    return family(*args)


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _from_bytes(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
