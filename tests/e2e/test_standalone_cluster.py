"""The Spark lane on a standalone cluster whose executors have nothing of lakemirror but the archive that is shipped."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import cluster as clusters
from tests.e2e.cluster import Cluster
from tests.e2e.installation import Installation
from tests.e2e.processes import environment, small_jvm
from tests.judge import ROOT, Judge, TableOf

pytestmark = pytest.mark.timeout(180)

# No site packages by themselves, hence no editable installs; then those of this environment by name.
BARE_PYTHON = """#!/bin/sh
echo "$@" >> "$0.calls"
PYTHONPATH="$PYTHONPATH:{packages}" exec {python} -S "$@"
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with clusters.start(tmp_path) as cluster:
        cluster.start_worker(cores=2)
        yield cluster


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    script = tmp_path / "bare-python"
    script.write_text(BARE_PYTHON.format(packages=sysconfig.get_path("purelib"), python=sys.executable))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def test_executors_run_the_shipped_library(judge: Judge, cluster: Cluster, bare_python: Path, tmp_path: Path) -> None:
    hidden = subprocess.run(
        [bare_python, "-c", "import pyarrow, lakemirror"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert "No module named 'lakemirror'" in hidden.stderr, "the executors could import it from elsewhere"
    source = judge.open_lake("onprem_cluster", tmp_path / "onprem")
    conf = {**small_jvm(), "spark.executor.memory": "512m", "spark.pyspark.python": str(bare_python)}
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
    assert "pyspark.daemon" in bare_python.with_suffix(".calls").read_text(), "the executors ran another Python"
    assert list(cluster.work.glob("app-*/0/lakemirror_lib/lakemirror/replicate/copy.py")), "the archive was unpacked"
    assert judge.differences(table, installation.theirs("db.t")) == []
