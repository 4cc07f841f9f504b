"""A worker of the services' cluster is killed -9 while its tasks wait for a store, in each stage: the job goes on.

Both catalogs are REST servers, both stores S3. Requests of the tasks are held by the proxies in front of the stores, so
that there is a middle: it is known which worker waits for which answer, and that one is killed. Of the files one is so
large that several tasks copy it.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from dev.services import Services, ServicesFolder, kill, running, up
from dev.services.cleaning import clean
from dev.services.spark_cluster import WORKERS
from lakemirror.app import App
from lakemirror.replicate.ledger import read_ledger
from lakemirror.spark.library import build_archive, spark_conf
from lakemirror.storage.objects import ObstoreStore
from tests.e2e.asking import tasks_asking
from tests.e2e.large_objects import in_parts
from tests.e2e.processes import Program, small_jvm, spark_submit, until
from tests.e2e.services_way import RestTable
from tests.faults.rules import Hold, Rule
from tests.faults.scene import NAME, SPLIT_BYTES, TABLE, FaultyLake, faulty_lake
from tests.judge import Judge

pytestmark = pytest.mark.timeout(400)
APPENDS, ROW_BYTES = 8, 8000
JOB_S = 150
KNOBS = {"ledger_flush_files": 1, "bin_files": 4, "small_change_files": 0}
CONF = {
    "spark.executor.memory": "512m",
    "spark.cores.max": "4",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # no task before both workers are there
    "spark.log.level": "INFO",  # which executor was lost, and which task with it
}
# Spark's words differ by what it hears of first: the executor's end, or its worker's
TASK_IS_LOST = re.compile(
    r"task \S+ in stage .* failed because while it was being computed, its executor exited"
    r"|Lost task \S+ in stage .*: ExecutorLostFailure"
)
Gate = tuple[str, str, str]  # server, method, target
MANIFESTS: Gate = ("source store", "GET", r"-m\d+\.avro")
PARTS: Gate = ("mirror store", "PUT", r"/data/.*partNumber=")


@pytest.fixture
def lake(spark_services: Services, tmp_path: Path) -> Iterator[FaultyLake]:
    clean(spark_services)
    environment = spark_services.environment()
    with (
        patch.dict(os.environ, environment),
        faulty_lake(spark_services, tmp_path, knobs=KNOBS, patience_s=60) as lake,
    ):
        yield lake


class Run:
    """The stages of one run as jobs on the cluster, and what they have left behind."""

    def __init__(self, lake: FaultyLake, folder: ServicesFolder) -> None:
        self._lake, self._services_folder = lake, folder
        with App.load(str(lake.config), owner="run") as app:
            found = app.detect(TABLE)
        self.plan_uri = str(found.plan_uri)
        self._source_name = str(found.source_name)
        self._conf = {**small_jvm(), **spark_conf(build_archive(lake.folder)), **CONF}

    def stage(self, name: str, *gates: Gate, copied: int = 0) -> None:
        """Both workers come to the first gate; one of those who wait at the last is lost there, and they open."""
        holds = [self._held(*gate) for gate in gates]
        result = self._lake.folder / f"{name}.json"
        words = ["--config", str(self._lake.config), "--table", NAME, "--plan-uri", self.plan_uri, "--owner", "run"]
        if name == "plan_diff":
            words += ["--source-name", self._source_name]
        master = str(self._lake.services.spark_master_uri)
        command = spark_submit(name, self._conf, *words, "--result-uri", result.as_uri(), master=master)
        with Program(command, log := self._lake.folder / f"{name}.log", cwd=self._lake.folder) as job:

            def is_in_the_middle() -> bool:
                assert job.is_running, job.output()[-3000:]
                waiting = [self._waiting(hold) for hold in holds]
                return waiting[0] == [*WORKERS] and waiting[-1] != [] and len(self.written_down()) >= copied

            until(is_in_the_middle, f"{name} is not at work on both workers: {log}", timeout_s=JOB_S, poll_s=0.05)
            assert kill(self._waiting(holds[-1])[0], folder=self._services_folder)
            up(folder=self._services_folder)
            for hold, (server, *_) in zip(holds, gates, strict=True):
                hold.released.set()
                self._lake.proxies[server].rules.clear()
            assert job.wait(JOB_S) == 0, job.output()[-3000:]
        assert json.loads(result.read_text())["ok"]
        said = job.output()
        assert "Lost executor" in said
        assert TASK_IS_LOST.search(said), said[-3000:]

    def written_down(self) -> Counter[str]:
        """How often the ledger has each file, by its name."""
        services = self._lake.services
        store, folder = ObstoreStore(services.mirror_store.properties), f"{services.mirror_location}/{TABLE.folder}"
        parts = [one.uri for one in store.list(f"{folder}/_ledger") if "/part-" in one.uri]
        rows = read_ledger(store, folder, parts=parts) if parts else ()
        return Counter(row["target"].rpartition("/")[2] for row in rows)

    def _held(self, server: str, method: str, target: str) -> Hold:
        self._lake.proxies[server].rules.append(Rule(hold := Hold(), method, target, times=None))
        return hold

    def _waiting(self, hold: Hold) -> list[str]:
        """The workers whose tasks wait for this answer."""
        pids = running(folder=self._services_folder)
        return [worker for worker in WORKERS if tasks_asking(pids[worker], hold.ports)]


def test_a_worker_is_lost_in_each_stage(judge: Judge, lake: FaultyLake, services_folder: ServicesFolder) -> None:
    services = lake.services
    judge.open_rest("rest_source", services.source_catalog, services.source_store)
    judge.open_rest("rest_mirror", services.mirror_catalog, services.mirror_store)
    ours = RestTable("rest_source", services.source_catalog, NAME)
    lake.append(int(1.2 * SPLIT_BYTES / ROW_BYTES), row_bytes=ROW_BYTES)
    for _ in range(APPENDS):
        lake.append(20)
    files = [task.file for task in lake.source.load_table(NAME).scan().plan_files()]
    small = min(files, key=lambda file: file.file_size_in_bytes).file_path.rpartition("/")[2]
    large = max(files, key=lambda file: file.file_size_in_bytes).file_path
    in_parts(services.source_store, large.removeprefix(f"{services.source_store.uri}/"))
    judge.spark.sql(f"ALTER TABLE {ours.sql} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    judge.spark.sql(f"DELETE FROM {ours.sql} WHERE id % 10 = 7")

    run = Run(lake, services_folder)
    run.stage("plan_diff", MANIFESTS)
    run.stage("copy_objects", PARTS, ("source store", "GET", small), copied=APPENDS - 1)
    run.stage("rewrite_metadata", MANIFESTS)

    assert [*run.written_down().values()] == [1] * (APPENDS + 1), "what the ledger has is not copied again"
    sent = [target for _, target in lake.proxies["mirror store"].requests if re.search(PARTS[2], target)]
    uploads = {target.partition("uploadId=")[2] for target in sent}
    assert len(uploads) == 1, "all ranges go into one upload"
    with App.load(str(lake.config), owner="run") as app:
        assert app.publish(TABLE, run.plan_uri).version == 1
        app.follow(TABLE)
    assert lake.unfinished_uploads() == 0
    assert judge.differences(ours, RestTable("rest_mirror", services.mirror_catalog, NAME)) == []
