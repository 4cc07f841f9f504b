"""The limits of a run over two real Spark executors, each a JVM with Python tasks of its own, when they are saturated.

What is measured is what arrived: from the first to the last file in the mirror, by the file system's clock. The start
of the job is not in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, IntegerType, NestedField

from lakemirror.app import App
from lakemirror.model.table import TableRef
from lakemirror.replicate.stage import LocalEngine
from lakemirror.spark.library import build_archive, spark_conf
from tests.e2e import cluster as clusters
from tests.e2e.processes import Program, small_jvm, spark_submit
from tests.perf.row import Row

NAME = "lake.files"
TABLE = TableRef.parse(NAME)
FILES, FILE_BYTES = 480, 512 * 1024
BYTES_PER_S, REQUESTS_PER_S = 8_000_000, 45  # less would make one task of it
NEAREST, FARTHEST = 0.9, 1.1
JOB_TIMEOUT_S = 300
SCHEMA = Schema(NestedField(1, "part", IntegerType()), NestedField(2, "data", BinaryType()))


def measure_limits(folder: Path) -> list[Row]:
    """Bytes per second under one limit, requests per second under the other."""
    write(folder, FILES)
    found = []
    with clusters.start(folder) as cluster:
        cluster.start_worker()
        cluster.start_worker()
        knobs = {"peak_bandwidth_bytes_per_s": BYTES_PER_S}
        files, answer = _copied(folder / "bytes", folder, cluster.master, knobs)
        found.append(_row("bandwidth", _sizes_per_s(files), BYTES_PER_S, "B/s"))
        knobs = {"peak_requests_per_s": REQUESTS_PER_S}
        files, answer = _copied(folder / "requests", folder, cluster.master, knobs)
        requests = sum(answer[side][verb] for side in ("source", "mirror") for verb in ("get", "put"))
        found.append(_row("requests", requests / len(files) * _files_per_s(files), REQUESTS_PER_S, "/s"))
    return found


def _row(what: str, got: float, limit: int, unit: str) -> Row:
    share = got / limit
    return Row(
        f"limit of {what} over two Spark executors ({limit:,} {unit})",
        f"{got:,.0f} {unit} = {share:.1%}",
        f"{NEAREST:.0%}–{FARTHEST:.0%}",
        NEAREST <= share <= FARTHEST,
    )


def write(folder: Path, files: int) -> None:
    """One append of a file for each partition."""
    catalog = SqlCatalog("onprem", uri=f"sqlite:///{folder}/source.db", warehouse=(folder / "warehouse").as_uri())
    catalog.create_namespace("lake")
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "part"))
    table = catalog.create_table(NAME, SCHEMA, partition_spec=spec)
    data = [os.urandom(FILE_BYTES) for _ in range(files)]
    table.append(pa.table({"part": pa.array(range(files), pa.int32()), "data": pa.array(data, pa.large_binary())}))


def planned(home: Path, folder: Path, knobs: Mapping[str, int]) -> list[str]:
    """Everything up to the copy stage, for a mirror of its own in `home`; the words of a job that copies."""
    home.mkdir()
    document = {
        "source": {
            "catalog": {
                "name": "onprem",
                "type": "sql",
                "uri": f"sqlite:///{folder}/source.db",
                "warehouse": (folder / "warehouse").as_uri(),
            }
        },
        "mirror": {
            "catalog": {"name": "cloud", "type": "sql", "uri": f"sqlite:///{home}/mirror.db"},
            "location": (home / "mirror").as_uri(),
        },
        "defaults": {"small_change_files": 0, "rate_limit": 1.0, **knobs},
        "tables": [{"name": NAME}],
    }
    config = home / "lake.yaml"
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    with App.load(str(config), owner="run") as app:
        detected = app.detect(TABLE)
        app.plan_diff(TABLE, str(detected.plan_uri), str(detected.source_name), LocalEngine(2))
    words = ["--config", str(config), "--table", NAME, "--plan-uri", str(detected.plan_uri), "--owner", "run"]
    return [*words, "--result-uri", (home / "copy.json").as_uri()]


def _copied(home: Path, folder: Path, master: str, knobs: Mapping[str, int]) -> tuple[list[os.stat_result], Requests]:
    """The copy stage as a Spark job to a mirror of its own; what it made, in the order of time, and its requests."""
    words = planned(home, folder, {"bin_files": FILES // 8, **knobs})
    conf = {**small_jvm(), **spark_conf(build_archive(home)), "spark.executor.memory": "512m"}
    command = spark_submit("copy_objects", conf, *words, master=master)
    with Program(command, home / "copy.log", cwd=home) as job:
        if job.wait(JOB_TIMEOUT_S) != 0:
            raise RuntimeError(job.output()[-3000:])
    files = arrived(home)
    if len(files) != FILES:
        raise RuntimeError(f"want {FILES} files, got {len(files)}")
    return files, json.loads((home / "copy.json").read_text())["requests"]


def arrived(home: Path) -> list[os.stat_result]:
    """The data files of the mirror, in the order of time."""
    made = [path.stat() for path in (home / "mirror").rglob("*.parquet") if "data" in path.parent.parent.parts]
    return sorted(made, key=lambda one: one.st_mtime_ns)


Requests = dict[str, dict[str, int]]


def _span_s(files: list[os.stat_result]) -> float:
    return (files[-1].st_mtime_ns - files[0].st_mtime_ns) / 1e9


def _files_per_s(files: list[os.stat_result]) -> float:
    return (len(files) - 1) / _span_s(files)


def _sizes_per_s(files: list[os.stat_result]) -> float:
    """The first file had its bytes before the span began."""
    return sum(one.st_size for one in files[1:]) / _span_s(files)
