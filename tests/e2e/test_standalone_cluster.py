"""The Spark lane on a standalone cluster whose executors have nothing of lakemirror but the archive that is shipped."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from dev.airflow_standalone import free_ports
from tests.e2e.installation import Installation
from tests.e2e.processes import SMALL_JVM, Program, environment, until
from tests.judge import ROOT, Judge, TableOf

pytestmark = pytest.mark.timeout(180)

# No site packages by themselves, hence no editable installs; then those of this environment by name.
BARE_PYTHON = """#!/bin/sh
echo "$@" >> "$0.calls"
PYTHONPATH="$PYTHONPATH:{packages}" exec {python} -S "$@"
"""


@dataclass(frozen=True)
class Cluster:
    """One master, one worker."""

    master: str
    work: Path
    python: Path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port, web_port, worker_port, worker_web_port = free_ports(4)
    small = {"SPARK_DAEMON_MEMORY": "512m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    deploy = "org.apache.spark.deploy"
    master = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port)]
    ports = ["--port", str(worker_port), "--webui-port", str(worker_web_port)]
    size = ["--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work")]
    worker = [f"{deploy}.worker.Worker", "--host", "127.0.0.1", *ports, *size, f"spark://127.0.0.1:{port}"]
    with ExitStack() as stack:
        for name, command in (("master", master), ("worker", worker)):
            log = tmp_path / f"{name}.log"
            stack.enter_context(Program([spark_class, *command], log, cwd=tmp_path, env=small))
        until(lambda: _workers(web_port) == 1, "the worker joins", timeout_s=60, poll_s=0.2)
        yield Cluster(f"spark://127.0.0.1:{port}", tmp_path / "work", _bare_python(tmp_path))


def test_executors_run_the_shipped_library(judge: Judge, cluster: Cluster, tmp_path: Path) -> None:
    hidden = subprocess.run(
        [cluster.python, "-c", "import pyarrow, lakemirror"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert "No module named 'lakemirror'" in hidden.stderr, "the executors could import it from elsewhere"
    source = judge.open_lake("onprem_cluster", tmp_path / "onprem")
    conf = {**SMALL_JVM, "spark.executor.memory": "512m", "spark.pyspark.python": str(cluster.python)}
    installation = Installation(
        tmp_path / "lakemirror.yaml",
        source,
        judge.open_lake("cloud_cluster", tmp_path / "cloud"),
        defaults={"small_change_files": 0},
        spark={"master": cluster.master, "conf": conf},
    ).write()
    table = TableOf(source, "db.t")
    judge.spark.sql(f"CREATE NAMESPACE {source.name}.db")
    judge.spark.sql(
        f"CREATE TABLE {table.sql} (id BIGINT, part INT) USING iceberg PARTITIONED BY (part) "
        "TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"
    )
    judge.spark.sql(f"INSERT INTO {table.sql} SELECT id, CAST(id % 4 AS INT) FROM range(100)")
    judge.spark.sql(f"DELETE FROM {table.sql} WHERE id % 10 = 7")

    done = subprocess.run(
        [ROOT / "bin" / "lakemirror", "--config", installation.config, "--json", "sync", "db.t"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert (answer["mirror"]["lane"], answer["mirror"]["copied_files"], answer["follow"]["version"]) == ("spark", 4, 1)
    assert "pyspark.daemon" in cluster.python.with_suffix(".calls").read_text(), "the executors ran another Python"
    assert list(cluster.work.glob("app-*/0/lakemirror_lib/lakemirror/replicate/copy.py")), "the archive was unpacked"
    assert judge.differences(table, installation.theirs("db.t")) == []


def _workers(web_port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{web_port}/json/", timeout=5) as answer:
            return int(json.loads(answer.read())["aliveworkers"])
    except OSError:
        return 0


def _bare_python(folder: Path) -> Path:
    script = folder / "bare-python"
    script.write_text(BARE_PYTHON.format(packages=sysconfig.get_path("purelib"), python=sys.executable))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script
