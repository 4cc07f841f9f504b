"""Faults on the wire as Spark's tasks meet them, on the way from S3 to GCS, whole and in parts."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.services import Services
from dev.services.cleaning import clean
from lakemirror.spark.engine import SparkEngine
from tests.e2e.asking import tasks_asking
from tests.e2e.large_objects import in_parts
from tests.e2e.processes import until
from tests.e2e.services_way import RestTable
from tests.faults.rules import Hold, Reset, Rule, storm
from tests.faults.scene import NAME, SPLIT_BYTES, FaultyLake, faulty_lake
from tests.judge import Judge
from tests.judged_stores import GcsStore

KNOBS = {"small_change_files": 0, "bin_files": 2}
ROW_BYTES = 8000
DATA, PART = r"/data/.*\.parquet", r"/data/.*partNumber="
RUN_S = 100


@pytest.fixture
def lake(gcs_services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyLake]:
    clean(gcs_services)
    for name, value in gcs_services.environment().items():
        monkeypatch.setenv(name, value)
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP"):  # nobody asks a cloud who we are
        monkeypatch.setenv(name, "127.0.0.1:1")
    with faulty_lake(gcs_services, tmp_path, knobs=KNOBS, patience_s=60, is_on_gcs=True) as lake:
        yield lake


def test_resets_and_a_storm_while_tasks_copy(judge: Judge, lake: FaultyLake) -> None:
    """The parts are held until two tasks have sent some: both copy the one file."""
    services, endpoint = lake.services, str(lake.services.gcs_endpoint)
    judge.open_rest("rest_source", services.source_catalog, services.source_store)
    judge.open_rest("gcs_mirror", services.mirror_catalog, GcsStore(endpoint))
    lake.append(int(1.2 * SPLIT_BYTES / ROW_BYTES), row_bytes=ROW_BYTES)
    [large] = [task.file.file_path for task in lake.source.load_table(NAME).scan().plan_files()]
    in_parts(services.source_store, large.removeprefix(f"{services.source_store.uri}/"))
    for _ in range(4):
        lake.append(20)
    source, mirror = lake.proxies["source store"], lake.proxies["mirror store"]
    faults = [Rule(Reset(), "GET", DATA, times=3), storm(503, times=6, method="PUT", target=DATA)]
    source.rules.append(faults[0])
    mirror.rules += [faults[1], Rule(hold := Hold(), "PUT", PART, times=None)]

    outcomes: list[str] = []
    run = threading.Thread(target=lambda: outcomes.append(lake.run(engine=SparkEngine(judge.spark))))
    run.start()
    try:
        until(
            lambda: len(tasks_asking(os.getpid(), hold.ports)) == 2 or not run.is_alive(),
            "two tasks send parts of one file",
            timeout_s=RUN_S,
            poll_s=0.05,
        )
    finally:
        hold.released.set()
        run.join(RUN_S)
    assert outcomes == ["ok"]
    assert [rule.met for rule in faults] == [3, 6]
    assert len(hold.ports) >= 2
    ours = RestTable("rest_source", services.source_catalog, NAME)
    assert judge.differences(ours, RestTable("gcs_mirror", services.mirror_catalog, NAME)) == []
    assert lake.unfinished_uploads() == 0
