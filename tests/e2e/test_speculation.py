"""Spark starts a twin of a copy task that does not get on: both work in the end, and every file is made once."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from lakemirror.model.table import TableRef
from lakemirror.replicate.stage import LocalEngine
from lakemirror.spark.library import build_archive, spark_conf
from tests.e2e import cluster as clusters
from tests.e2e.asking import tasks_below
from tests.e2e.cluster import Cluster
from tests.e2e.installation import Installation, objects
from tests.e2e.processes import Program, small_jvm, spark_submit, until
from tests.judge import Judge, TableOf

NAME = "db.t"
TABLE = TableRef.parse(NAME)
INSERTS, PARTITIONS = 8, 4
FILES = INSERTS * PARTITIONS
JOB_TIMEOUT_S = 150
KNOBS = {"ledger_flush_files": 1, "bin_files": 4, "max_concurrency": 2, "small_change_files": 0}
SLOW = {"peak_requests_per_s": 8}  # so that there is a middle; so few bytes a second would make one task of it
HOSTS = ("127.0.0.1", "127.0.0.2")  # a twin never runs on the host of the first
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",  # of two tasks one is done
    "spark.speculation.multiplier": "1.1",
    "spark.log.level": "INFO",  # which task is started where
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # no task before both executors are there
}
TWIN = ".1 in stage"  # the second attempt of a task, whichever


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with clusters.start(tmp_path) as cluster:
        for host in HOSTS:
            cluster.start_worker(host=host)
        yield cluster


@pytest.mark.timeout(300)
def test_a_task_that_hangs_and_its_twin(judge: Judge, cluster: Cluster, tmp_path: Path) -> None:
    source = judge.open_lake("onprem_twin", tmp_path / "onprem")
    mirror = judge.open_lake("cloud_twin", tmp_path / "cloud")
    installation = Installation(tmp_path / "lakemirror.yaml", source, mirror, defaults=KNOBS).write()
    table = TableOf(source, NAME)
    _write(judge, table)
    app = installation.app(owner="run")
    detected = app.detect(TABLE)
    plan_uri = str(detected.plan_uri)
    app.plan_diff(TABLE, plan_uri, str(detected.source_name), LocalEngine(2))
    replace(installation, defaults={**KNOBS, **SLOW}).write()
    result, log = tmp_path / "copy.json", tmp_path / "copy.log"
    conf = {**small_jvm(), **spark_conf(build_archive(tmp_path)), "spark.executor.memory": "512m", **SPECULATION}
    arguments = ["--config", str(installation.config), "--table", NAME, "--plan-uri", plan_uri, "--owner", "run"]
    command = spark_submit("copy_objects", conf, *arguments, "--result-uri", result.as_uri(), master=cluster.master)
    folder = installation.folder(NAME)
    with Program(command, log, cwd=tmp_path) as job:
        until(lambda: bool(_ledger(folder)), f"it does not begin: {log}", timeout_s=JOB_TIMEOUT_S)
        until(
            lambda: bool(tasks_below(cluster.workers[1].pid)), f"it has no second task: {log}", timeout_s=JOB_TIMEOUT_S
        )
        with _held(cluster.workers[1]):
            until(lambda: _has_twin(log), f"it gets no twin: {log}", timeout_s=JOB_TIMEOUT_S)
            before = objects(folder / "data")
        assert job.wait(JOB_TIMEOUT_S) == 0, job.output()[-3000:]

    answer = json.loads(result.read_text())
    assert (answer["ok"], answer["files"] + answer["skipped_files"]) == (True, FILES)
    after = objects(folder / "data")
    assert (len(after), {name: after[name] for name in before}) == (FILES, before), "nothing is written a second time"
    rows = _ledger(folder)
    sums = {(row["target"], row["size"], row["crc32c"]) for row in rows}
    assert len(sums) == len({row["target"] for row in rows}) == FILES
    made = Counter(row["target"] for row in rows if not row["adopted"])
    assert set(made.values()) == {1}
    app = installation.write().app(owner="run")
    app.rewrite_metadata(TABLE, plan_uri, LocalEngine(2))
    assert app.publish(TABLE, plan_uri).version == 1
    app.follow(TABLE)
    assert judge.differences(table, installation.theirs(NAME)) == []


def _write(judge: Judge, table: TableOf) -> None:
    judge.spark.sql(f"CREATE NAMESPACE {table.lake.name}.db")
    judge.spark.sql(f"CREATE TABLE {table.sql} (id BIGINT, text STRING, part INT) USING iceberg PARTITIONED BY (part)")
    for number in range(INSERTS):
        judge.spark.sql(
            f"INSERT INTO {table.sql} SELECT id, sha2(CAST(id AS STRING), 512), CAST(id % {PARTITIONS} AS INT) "
            f"FROM range({number * 400}, {number * 400 + 400})"
        )


@contextmanager
def _held(worker: Program) -> Iterator[None]:
    """The tasks stand still; their executor lives on, and takes them to be at work."""
    tasks = tasks_below(worker.pid)
    for one in tasks:
        one.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for one in tasks:
            with suppress(psutil.NoSuchProcess):  # its twin was done first
                one.send_signal(signal.SIGCONT)


def _has_twin(log: Path) -> bool:
    return any("Starting task" in line and TWIN in line for line in log.read_text(errors="replace").splitlines())


def _ledger(folder: Path) -> list[dict[str, object]]:
    """Of copied files; a part that is being written has another name."""
    parts = (folder / "_ledger").rglob("part-*.parquet")
    return [row for part in sorted(parts) for row in pq.ParquetFile(part).read().to_pylist()]
