"""The whole way on the services profile: real Airflow between two REST catalogs, from S3 to S3 and from S3 to GCS.

Spark SQL writes three tables in ten rounds; in each the mirror DAGs are triggered by the API, events wake the follow
DAGs, and both judges compare all tables on the mirror's catalog. A small change is mirrored inside the task; for one
round the configuration sends one table through Spark. In that round, on the way to S3, the source is compacted and
expired while Spark copies: the run plans anew, and its log tells that it stood still. On that way Spark is a standalone
cluster, by the connection that says so; on the way to GCS it is local.

On GCS the catalog keeps the mirrors under `gs://`; Spark reads them by Iceberg's GCSFileIO, DuckDB by the XML API.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.airflow_api import AirflowApi
from dev.airflow_standalone import PARSED_ONCE, AirflowStandalone, Settings, tail
from dev.demo.trouble import readable_tail, task_log
from dev.services import Services
from dev.services.cleaning import clean
from dev.services.seaweed import S3Store
from lakemirror.model.table import TableRef
from tests.e2e import cluster as clusters
from tests.e2e.cluster import Cluster
from tests.e2e.processes import small_jvm, until
from tests.e2e.services_rounds import CHANGES, DELETION_VECTORS, TABLES, Rounds
from tests.faults.proxy import FaultProxy
from tests.faults.rules import Hold, Rule
from tests.judge import ROOT, Judge
from tests.judged_stores import GcsStore

ROUNDS = len(CHANGES)
SPARK_ROUND = 6
SPARK_TASKS = ("plan_diff", "copy_objects", "rewrite_metadata", "publish_version")
IN_TASK = {"detect_change": "success", **dict.fromkeys(SPARK_TASKS, "skipped")}
BY_SPARK = dict.fromkeys(("detect_change", *SPARK_TASKS), "success")
START_S, ROUND_S, STOP_S = 60, 240, 3
# files, bytes, rate and time left, of a copy that waits
STOOD_STILL = re.compile(
    r"copy [1-9]\d* of \d+, [\d.]+ \w+ of [\d.]+ \w+, [\d.]+ \w+/s, .* left; nothing has moved for "
)
# Nobody asks a cloud who we are.
NO_CLOUD = {"GCE_METADATA_HOST": "127.0.0.1:1", "GCE_METADATA_IP": "127.0.0.1:1"}


@dataclass(frozen=True)
class Cloud:
    """Where the mirror lies, the judges' name of its catalog, and what the configuration says of it beside the rest."""

    name: str
    services: Services
    store: S3Store | GcsStore
    location: str
    properties: dict[str, str]

    def configure(self, mirror: dict[str, Any]) -> None:
        catalog = {key: value for key, value in mirror["catalog"].items() if not key.startswith("s3.")}
        mirror.update(catalog={**catalog, **self.properties}, location=self.location)


@dataclass(frozen=True)
class Stage:
    """Airflow, its configuration file, and the tables that it mirrors."""

    airflow: AirflowStandalone
    api: AirflowApi
    rounds: Rounds
    config: Path
    cloud: Cloud
    cluster: Cluster | None

    def write_config(self, source_endpoint: str | None = None, **of_one_table: int) -> None:
        """The profile's own configuration, but for the tables and what starts a run; with knobs of one table."""
        document = yaml.safe_load((ROOT / "include" / "config" / "services.yaml").read_text(encoding="utf-8"))
        if source_endpoint is not None:
            document["source"]["catalog"]["s3.endpoint"] = source_endpoint
        self.cloud.configure(document["mirror"])
        document["spark"] = {"conn_id": "spark_default", "conf": {**small_jvm(), "spark.executor.memory": "512m"}}
        document["defaults"] = {"schedule": None, "follow_schedule": None, "retry_delay_seconds": 1}
        knobs = {DELETION_VECTORS: of_one_table}
        document["tables"] = [{"name": name, **knobs.get(name, {})} for name in TABLES]
        self.config.write_text(yaml.safe_dump(document), encoding="utf-8")

    def await_dags(self) -> None:
        wanted = {_dag(name, concern) for name in TABLES for concern in ("mirror", "follow")}
        self._until(lambda: wanted <= {*self.api.dag_ids()}, "the DAGs appear", START_S)
        self.api.unpause_all()

    def mirror(self, number: int, meanwhile: Callable[[dict[str, str]], None] | None = None) -> dict[str, str]:
        """Trigger all mirror DAGs at once; the ids of their runs when all are done, and the follow DAGs, too."""
        started = {name: self.api.trigger(_dag(name, "mirror")) for name in TABLES}
        if meanwhile is not None:
            meanwhile(started)
        self._until(lambda: self._is_done(number), f"round {number} is mirrored and followed", ROUND_S)
        return started

    def mirror_while_files_vanish(self, number: int) -> dict[str, str]:
        """As `mirror`, by Spark; the reads of all files but one wait until the source has lost them."""
        table = self.rounds.ours(DELETION_VECTORS)
        with FaultProxy(self.cloud.services.source_store.endpoint) as source:
            late = Rule(hold := Hold(), "GET", r"/returns/data/.*\.parquet", skip=1, times=None)
            source.rules.append(late)
            self.write_config(source.url, small_change_files=0)

            def compact(run_ids: dict[str, str]) -> None:
                log = partial(self.log, DELETION_VECTORS, run_ids[DELETION_VECTORS], "copy_objects")
                try:
                    self._until(late.seen.is_set, "a file is read", ROUND_S)
                    self._until(lambda: STOOD_STILL.search(log()) is not None, "the log says that it waits", ROUND_S)
                    self.rounds.compact(DELETION_VECTORS)
                finally:
                    hold.released.set()

            run_ids = self.mirror(number, compact)
        dag_id = _dag(DELETION_VECTORS, "mirror")
        returned = partial(self.api.returned, dag_id, run_ids[DELETION_VECTORS])
        assert returned("detect_change")["plan_uri"] != returned("copy_objects")["plan_uri"], table.sql
        return run_ids

    def log(self, name: str, run_id: str, task_id: str) -> str:
        """What a task has said so far."""
        tasks = self.api.task_instances(_dag(name, "mirror"), run_id)
        found = [task for task in tasks if task["task_id"] == task_id]
        return "\n".join(readable_tail(task_log(self.airflow.task_logs, task), lines=1000) for task in found)

    def states(self, name: str, run_id: str) -> dict[str, str]:
        tasks = self.api.task_instances(_dag(name, "mirror"), run_id)
        return {task["task_id"]: str(task["state"]) for task in tasks}

    def _is_done(self, number: int) -> bool:
        """One run of each DAG for each round, and no other."""
        assert not self.api.count_runs("failed"), self._trouble()
        wanted = 2 * len(TABLES) * number
        return self.api.count_runs("success") == wanted == self.api.count_runs()

    def _until(self, is_true: Callable[[], bool], what: str, timeout_s: float) -> None:
        try:
            until(is_true, what, timeout_s=timeout_s, poll_s=1.0)
        except AssertionError as err:
            raise AssertionError(f"{err}\n{self._trouble()}") from err

    def _trouble(self) -> str:
        bad = [task for task in self.api.task_instances() if task["state"] in ("failed", "up_for_retry")]
        logs = [f"{task['dag_id']}: {readable_tail(task_log(self.airflow.task_logs, task))}" for task in bad]
        return "\n".join([*self.api.import_errors(), *logs, tail(self.airflow.log_file)])


@pytest.fixture(params=["s3", "gcs"])
def cloud(request: pytest.FixtureRequest, services: Services) -> Cloud:
    if request.param == "gcs":
        services = request.getfixturevalue("gcs_services")
        assert services.gcs_endpoint is not None
        properties = {"gcs.service.host": "${GCS_ENDPOINT}"}
        store = GcsStore(services.gcs_endpoint)
        found = Cloud("gcs_mirror", services, store, "gs://mirror/warehouse", properties)
    else:
        properties = {key: value for key, value in services.configured("mirror").items() if key.startswith("s3.")}
        found = Cloud("rest_mirror", services, services.mirror_store, services.mirror_location, properties)
    clean(services)
    return found


@pytest.fixture
def cluster(cloud: Cloud, tmp_path: Path) -> Iterator[Cluster | None]:
    if cloud.name == "gcs_mirror":
        yield None
        return
    with clusters.start(tmp_path) as started:
        started.start_worker(cores=2)
        yield started


@pytest.fixture
def stage(cloud: Cloud, cluster: Cluster | None, judge: Judge, tmp_path: Path) -> Iterator[Stage]:
    services = cloud.services
    judge.open_rest("rest_source", services.source_catalog, services.source_store)
    judge.open_rest(cloud.name, services.mirror_catalog, cloud.store)
    rounds = Rounds(judge, services.source_catalog, services.mirror_catalog, cloud.name)
    environment = {**services.environment(), **PARSED_ONCE, **NO_CLOUD}
    settings = Settings(tmp_path / "home", ROOT, tmp_path / "lake.yaml", environment=environment)
    airflow = AirflowStandalone(settings if cluster is None else replace(settings, spark_master=cluster.master))
    api = AirflowApi(airflow.url, airflow.username, "")
    stage = Stage(airflow, api, rounds, settings.config, cloud, cluster)
    stage.write_config()
    with airflow:
        airflow.start()
        yield replace(stage, api=airflow.api())
        airflow.stop(timeout_s=STOP_S)  # nobody needs a clean end


@pytest.mark.timeout(900)
def test_ten_rounds(stage: Stage) -> None:
    """In the Spark round the table with deletion vectors takes the Spark lane: no change is small for it then."""
    stage.await_dags()
    stage.rounds.create()
    for number in range(1, ROUNDS + 1):
        stage.rounds.write(number)
        is_by_spark = number == SPARK_ROUND
        of_one_table = {"small_change_files": 0} if is_by_spark else {}
        stage.write_config(None, **of_one_table)
        vanish = is_by_spark and stage.cloud.name == "rest_mirror"
        run_ids = stage.mirror_while_files_vanish(number) if vanish else stage.mirror(number)
        want = {name: BY_SPARK if is_by_spark and name == DELETION_VECTORS else IN_TASK for name in TABLES}
        assert {name: stage.states(name, run_id) for name, run_id in run_ids.items()} == want, f"round {number}"
        stage.rounds.check(*([DELETION_VECTORS] if number == ROUNDS else []))
    followed = [run["run_type"] for run in stage.api.runs() if run["dag_id"].startswith("follow")]
    assert followed == ["asset_triggered"] * ROUNDS * len(TABLES)
    places = [str(stage.rounds.theirs(name).metadata_uri).rpartition("/metadata/")[0] for name in TABLES]
    assert places == [f"{stage.cloud.location}/{TableRef.parse(name).folder}" for name in TABLES]
    assert stage.airflow.is_running(), tail(stage.airflow.log_file)
    if stage.cluster is not None:
        assert [*stage.cluster.work.glob("app-*/0/lakemirror_lib/lakemirror")], "no executor was sent the library"


def _dag(name: str, concern: str) -> str:
    return TableRef.parse(name).dag_id(concern)
