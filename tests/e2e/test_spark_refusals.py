"""Tables that Spark writes and that break: told by name, and the mirror is as it was; or passed in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import create_autospec

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no stubs

from lakemirror.errors import LakemirrorError, PermanentError, SourceVanishedError, TransientError
from lakemirror.model.table import TableRef
from lakemirror.spark.engine import SparkEngine
from lakemirror.spark.failures import EscapedError, describe
from lakemirror.spark.job import JobArgs, _unforeseen
from tests.e2e.history import COLUMNS, History, numbers
from tests.e2e.installation import objects
from tests.judge import Judge


@pytest.mark.parametrize(
    ("damaged", "damage", "error", "said"),
    [
        ("data/dt=2026-01-02/*.parquet", Path.unlink, SourceVanishedError, "the source file is gone"),
        (
            "data/dt=2026-01-02/*.parquet",
            lambda path: path.write_bytes(b"PAR1"),
            PermanentError,
            "its size is not what",
        ),
        ("metadata/*-m0.avro", lambda path: path.write_bytes(path.read_bytes()[:-40]), PermanentError, "read manifest"),
    ],
    ids=["a file that vanished", "a file of another size", "a manifest that was cut"],
)
def test_a_source_that_is_damaged(
    history: History, damaged: str, damage: Callable[[Path], object], error: type[LakemirrorError], said: str
) -> None:
    """What a task meets on an executor is told by its own name; the mirror keeps the version it has."""
    history.create(COLUMNS, partitioned_by="dt")
    history.insert(numbers(0, 10))
    history.check("a sound version", is_deep=True)
    rows = history.judge.rows(history.table)
    before = {*history.source.folder.rglob(damaged)}
    history.insert(numbers(10, 20))
    (victim,) = {*history.source.folder.rglob(damaged)} - before
    damage(victim)
    there = {lane: objects(one.mirror.folder / "warehouse") for lane, one in history.lanes.items()}
    for lane, installation in history.lanes.items():
        with pytest.raises(error, match=said) as raised:
            installation.sync(history.name)
        assert type(raised.value) is error
        assert raised.value.subject.endswith(victim.name)
        assert [path.name for path in installation.folder(history.name).glob("_ready/*")] == ["v1.ready.json"]
        assert history.judge.rows(installation.theirs(history.name)) == rows
        if victim.suffix == ".avro":  # seen while planning: not even a plan was written
            now = objects(installation.mirror.folder / "warehouse")
            lease = f"{history.name.replace('.', '/')}/_control/lease.json"  # taken to plan, and given back
            assert {**now, lease: None} == {**there[lane], lease: None}


def test_what_a_task_did_not_foresee_is_a_defect_and_what_escaped_it_is_what_it_was(judge: Judge) -> None:
    """As Spark itself words them: a driver knows them by their text."""
    engine, rows = SparkEngine(judge.spark), pa.table({"uri": ["a", "b"]})
    told = describe(TransientError("copy", "s3://b/g", 'a "quoted"\nanswer: 503', "run again"))

    def forgets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from ()
        raise KeyError("target")

    def lets_escape(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from ()
        raise EscapedError(told)

    with pytest.raises(Py4JJavaError) as caught:
        engine.run(forgets, rows, rows.schema)
    args = create_autospec(JobArgs, instance=True, table="db.t")
    unforeseen = _unforeseen("copy_objects", args, caught.value)
    assert (type(unforeseen), "KeyError: 'target'" in str(unforeseen)) == (PermanentError, True)
    with pytest.raises(TransientError, match="answer: 503") as passing:
        engine.run(lets_escape, rows, rows.schema)
    assert (type(passing.value), passing.value.subject) == (TransientError, "s3://b/g")


def test_a_file_that_vanishes_between_plan_and_copy_is_planned_anew(history: History) -> None:
    """What one task of several meets on an executor reaches the driver as what it is, and the same run goes on."""
    history.create(COLUMNS, partitioned_by="dt")
    history.insert(numbers(0, 10))
    table, installation = TableRef.parse(history.name), history.lanes["spark"]
    engine, app = SparkEngine(history.judge.spark), installation.app(owner="run")
    detected = app.detect(table)
    planned = str(app.plan_diff(table, str(detected.plan_uri), str(detected.source_name), engine).plan_uri)
    history.sql(f"DELETE FROM {history.t} WHERE dt = DATE'2026-01-02'")
    history.call("expire_snapshots", "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1")
    copied = app.copy_objects(table, planned, engine)
    assert (copied.plan_uri == planned, copied.files + copied.skipped_files) == (False, 2)
    app.rewrite_metadata(table, copied.plan_uri, engine)
    assert app.publish(table, copied.plan_uri).version == 1
    app.follow(table)
    assert history.judge.differences(history.table, installation.theirs(history.name)) == []
