"""A worker of the cluster is killed -9 in the middle of each stage: the job goes on without it, to the same end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakemirror.model.table import TableRef
from lakemirror.spark.library import build_archive, spark_conf
from tests.e2e import cluster as clusters
from tests.e2e.cluster import Cluster
from tests.e2e.installation import Installation
from tests.e2e.processes import SMALL_JVM, Program, spark_submit, until
from tests.judge import Judge, TableOf

pytestmark = pytest.mark.timeout(400)
NAME = "db.t"
TABLE = TableRef.parse(NAME)
INSERTS, PARTITIONS = 8, 4
JOB_TIMEOUT_S = 150
KNOBS = {"ledger_flush_files": 1, "bin_files": 4, "max_concurrency": 2, "small_change_files": 0}
SLOW = {"peak_bandwidth_bytes_per_s": 60_000}  # so that there is a middle


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with clusters.start(tmp_path) as cluster:
        cluster.start_worker()
        cluster.start_worker()
        yield cluster


def signs(mirror: Path) -> dict[str, Callable[[], bool]]:
    """For each stage, whether its tasks are at work."""
    return {
        "plan_diff": lambda: any((mirror / "_plan").rglob("*")),
        "copy_objects": lambda: any((mirror / "_ledger").rglob("part-*.parquet")),
        "rewrite_metadata": lambda: any(mirror.glob("metadata/*.avro")),
    }


def test_a_worker_is_lost_in_each_stage(judge: Judge, cluster: Cluster, tmp_path: Path) -> None:
    source = judge.open_lake("onprem_lost", tmp_path / "onprem")
    installation = Installation(
        tmp_path / "lakemirror.yaml",
        source,
        judge.open_lake("cloud_lost", tmp_path / "cloud"),
        defaults={**KNOBS, **SLOW},
    ).write()
    table = TableOf(source, NAME)
    judge.spark.sql(f"CREATE NAMESPACE {source.name}.db")
    judge.spark.sql(
        f"CREATE TABLE {table.sql} (id BIGINT, text STRING, part INT) USING iceberg PARTITIONED BY (part) "
        "TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"
    )
    for number in range(INSERTS):
        judge.spark.sql(
            f"INSERT INTO {table.sql} SELECT id, sha2(CAST(id AS STRING), 512), CAST(id % {PARTITIONS} AS INT) "
            f"FROM range({number * 400}, {number * 400 + 400})"
        )
    judge.spark.sql(f"DELETE FROM {table.sql} WHERE id % 100 = 7")
    detected = installation.app().detect(TABLE)
    plan_uri = str(detected.plan_uri)
    conf = {**SMALL_JVM, **spark_conf(build_archive(tmp_path)), "spark.executor.memory": "512m"}
    for stage, is_at_work in signs(installation.folder(NAME)).items():
        result, log = tmp_path / f"{stage}.json", tmp_path / f"{stage}.log"
        arguments = ["--config", str(installation.config), "--table", NAME, "--plan-uri", plan_uri]
        if stage == "plan_diff":
            arguments += ["--source-name", str(detected.source_name)]
        command = spark_submit(stage, conf, *arguments, "--result-uri", result.as_uri(), master=cluster.master)
        with Program(command, log, cwd=tmp_path) as job:
            until(is_at_work, f"{stage} does not begin: {log}", timeout_s=JOB_TIMEOUT_S)
            cluster.kill_worker()
            assert job.is_running, "it was lost too late"
            cluster.start_worker()
            assert job.wait(JOB_TIMEOUT_S) == 0, job.output()[-3000:]
        assert json.loads(result.read_text())["ok"]
    assert installation.app().publish(TABLE, plan_uri).version == 1
    installation.app().follow(TABLE)
    assert judge.differences(table, installation.theirs(NAME)) == []
