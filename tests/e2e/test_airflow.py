"""The whole way through a real Airflow: scheduler, api-server, triggerer, spark-submit; judged at the end of each test.

One Airflow serves all tests here. Schedules are daily unless a test needs more: a new DAG runs once at
once, and then nothing happens that a test did not ask for.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dev import sessions
from dev.airflow_api import AirflowApi, Refused
from dev.airflow_standalone import AirflowStandalone, Settings, tail
from dev.demo.trouble import readable_tail, task_log
from lakemirror.model.table import TableRef
from tests.e2e.installation import Installation, objects
from tests.e2e.processes import parent_of, small_jvm, until
from tests.judge import ROOT, Judge, TableOf
from tests.listening import HERE, addresses

pytestmark = pytest.mark.timeout(300)

ORDERS, CUSTOMERS, RETURNS, CLICKS, LATE, STOCK = (
    "sales.orders",
    "sales.customers",
    "sales.returns",
    "web.clicks",
    "sales.late",
    "far.stock",
)
SPARK_TASKS = ("plan_diff", "copy_objects", "rewrite_metadata", "publish_version")
SMALL_CHANGE_FILES = 10
END_STATES = ("success", "failed")
VIEW = "web.top"  # the pattern matches its name, but there is nothing to mirror
# Connections in Airflow's database: there workers and triggerer ask for them, and a Spark driver must be told of them.
LAKE_CONNECTION, FAR_CONNECTION = "lake_cloud", "far_cloud"
SECRET = "a-key-that-nobody-may-see"  # pragma: allowlist secret

# A follower shares an Airflow with others here, but nothing else: its configuration knows no source.
FOLLOWER_DAGS = """
from pathlib import Path
from lakemirror.airflow.factory import follow_dags, read_setup

for dag in follow_dags(read_setup(Path(__file__).parent, {{"LAKEMIRROR_CONFIG": {config!r}}}), "A follower elsewhere."):
    globals()[dag.dag_id] = dag
"""


@dataclass(frozen=True)
class Stage:
    """Airflow, the lake that it mirrors, and a second pair: a mirror run by hand and its follower in Airflow."""

    judge: Judge
    airflow: AirflowStandalone
    api: AirflowApi
    lake: Installation
    elsewhere: Installation

    def source(self, name: str) -> TableOf:
        installation = self.elsewhere if name == STOCK else self.lake
        assert installation.source is not None
        return TableOf(installation.source, name)

    def write(self, name: str, first: int, last: int, files: int) -> None:
        """Append rows to a table, in so many files; the table is made if it is not there."""
        sql, table = self.judge.spark.sql, self.source(name).sql
        sql(f"CREATE TABLE IF NOT EXISTS {table} (id BIGINT, part INT) USING iceberg PARTITIONED BY (part)")
        sql(f"INSERT INTO {table} SELECT id, CAST(id % {files} AS INT) FROM range({first}, {last})")

    def is_mirrored(self, name: str) -> bool:
        """Whether the mirror's readers see the source's head, by the snapshot that the metadata names."""
        mirror = (self.elsewhere if name == STOCK else self.lake).theirs(name)
        heads = [_head(table.metadata_uri) for table in (self.source(name), mirror)]
        return heads[0] is not None and heads[0] == heads[1]

    def await_mirrored(self, *names: str, timeout_s: float = 120) -> None:
        self._until(lambda: all(self.is_mirrored(name) for name in names), f"{names} mirrored", timeout_s)

    def await_dags(self, *dag_ids: str, timeout_s: float = 60) -> None:
        """Wait until they are there, and unpause them; a schedule's first run starts then."""
        self._until(lambda: {*dag_ids} <= {*self.api.dag_ids()}, f"{dag_ids} appear", timeout_s)
        self.api.unpause_all()

    def run(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> tuple[str, dict[str, str]]:
        """Trigger a run through the api-server; its state and its tasks' states when it has ended."""
        run_id = self.api.trigger(dag_id, conf)
        return self.end_of(dag_id, run_id)

    def listening_until_end(self, dag_id: str, run_id: str) -> set[str]:
        """All addresses that anything listens on that Airflow has started, until a run ends."""
        found: set[str] = set()
        session = self.airflow.session
        assert session is not None

        def is_over() -> bool:
            found.update(addresses(sessions.living(session)))
            return self._state(dag_id, run_id) in END_STATES

        until(is_over, f"{dag_id} {run_id} ends", timeout_s=120, poll_s=0.2)
        return found

    def end_of(self, dag_id: str, run_id: str) -> tuple[str, dict[str, str]]:
        until(lambda: self._state(dag_id, run_id) in END_STATES, f"{dag_id} {run_id} ends", timeout_s=120, poll_s=0.5)
        return self._state(dag_id, run_id), self.task_states(dag_id, run_id)

    def _state(self, dag_id: str, run_id: str) -> str:
        return str(next(run["state"] for run in self.api.runs(dag_id) if run["dag_run_id"] == run_id))

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str]:
        return {task["task_id"]: str(task["state"]) for task in self.api.task_instances(dag_id, run_id)}

    def drivers(self, job: str) -> list[int]:
        """The JVMs that Airflow's tasks have started for one of `spark_jobs/`."""
        session = self.airflow.session
        assert session is not None
        return [pid for pid in sessions.living(session) if _submits(pid, job)]

    def log(self, dag_id: str, run_id: str, task_id: str) -> str:
        tasks = self.api.task_instances(dag_id, run_id)
        task = next(task for task in tasks if task["task_id"] == task_id)
        return readable_tail(task_log(self.airflow.task_logs, task), lines=200)

    def scheduled_run(self, dag_id: str) -> str:
        """The id of the only run that the scheduler made, or is about to make."""

        def made() -> list[dict[str, Any]]:
            return [run for run in self.api.runs(dag_id) if run["run_type"] == "scheduled"]

        self._until(lambda: bool(made()), f"{dag_id} is scheduled", 30)
        (run,) = made()
        return str(run["dag_run_id"])

    def check_followed_by_event(self, name: str) -> None:
        (run,) = [run for run in self.api.runs(_dag(name, "follow")) if run["state"] in (*END_STATES, "running")]
        assert run["run_type"] == "asset_triggered"
        assert self.judge.differences(self.source(name), self.lake.theirs(name)) == []

    def _until(self, is_true: Any, what: str, timeout_s: float) -> None:
        try:
            until(is_true, what, timeout_s=timeout_s, poll_s=0.5)
        except AssertionError as err:
            trouble = [task for task in self.api.task_instances() if task["state"] in ("failed", "up_for_retry")]
            logs = [f"{task['dag_id']}: {readable_tail(task_log(self.airflow.task_logs, task))}" for task in trouble]
            raise AssertionError("\n".join([str(err), *self.api.import_errors(), *logs])) from err


@pytest.fixture(scope="module")
def stage(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("airflow")
    lake = Installation(
        folder / "lakemirror.yaml",
        judge.open_lake("onprem_air", folder / "onprem"),
        judge.open_lake("cloud_air", folder / "cloud"),
        tables=[{"name": ORDERS}, {"name": CUSTOMERS}, {"name": RETURNS, "schedule": None}, {"match": "web.*"}],
        defaults={"schedule": "@daily", "follow_schedule": None, "small_change_files": SMALL_CHANGE_FILES}
        | {"retry_delay_seconds": 1},
        spark={"conn_id": "spark_default", "conf": small_jvm()},
        mirror_conn_id=LAKE_CONNECTION,
    ).write()
    elsewhere = Installation(
        folder / "elsewhere.yaml",
        judge.open_lake("onprem_far", folder / "far_onprem"),
        judge.open_lake("cloud_far", folder / "far_cloud"),
        tables=[{"name": STOCK}],
        defaults={"follow_trigger": "sensor", "follow_schedule": "@daily"},
    ).write()
    follower = replace(elsewhere, config=folder / "follower.yaml", source=None, mirror_conn_id=FAR_CONNECTION).write()
    bundle = folder / "follower_dags"
    bundle.mkdir()
    (bundle / "follower.py").write_text(FOLLOWER_DAGS.format(config=str(follower.config)))
    environment = _with_bundles({"dags-folder": None, "follower": bundle})
    airflow = AirflowStandalone(Settings(folder / "home", ROOT, lake.config, environment=environment))
    judge.spark.sql("CREATE NAMESPACE onprem_air.sales")
    judge.spark.sql("CREATE NAMESPACE onprem_air.web")
    judge.spark.sql("CREATE NAMESPACE onprem_far.far")
    with airflow:
        made = Stage(judge, airflow, AirflowApi(airflow.url, airflow.username, ""), lake, elsewhere)
        made.write(ORDERS, 0, 600, files=24)
        made.write(CUSTOMERS, 0, 100, files=2)
        made.write(CLICKS, 0, 100, files=3)
        judge.spark.sql(f"CREATE VIEW onprem_air.{VIEW} AS SELECT id FROM onprem_air.{CLICKS}")
        airflow.start()
        api = airflow.api()
        api.post("/connections", _connection(LAKE_CONNECTION, lake))
        api.post("/connections", _connection(FAR_CONNECTION, elsewhere))
        yield replace(made, api=api)
        airflow.stop(timeout_s=3)  # nobody needs a clean end
    shutil.rmtree(folder / "home" / "logs", ignore_errors=True)


def test_the_scheduler_mirrors_small_tables_in_the_task(stage: Stage) -> None:
    """An exact name and a pattern; the followers are woken by events."""
    stage.await_dags(*(_dag(name, concern) for name in (ORDERS, CUSTOMERS) for concern in ("mirror", "follow")))
    stage.await_dags(*(_dag(CLICKS, concern) for concern in ("mirror", "follow")))
    for name in (CUSTOMERS, CLICKS):
        stage.await_mirrored(name)
        states = stage.task_states(_dag(name), stage.scheduled_run(_dag(name)))
        assert states == {"detect_change": "success", **dict.fromkeys(SPARK_TASKS, "skipped")}
        stage.check_followed_by_event(name)
    assert not {_dag(VIEW), _dag(VIEW, "follow")} & {*stage.api.dag_ids()}


def test_an_unchanged_table_is_skipped(stage: Stage) -> None:
    stage.await_mirrored(CUSTOMERS)
    before = objects(stage.lake.folder(CUSTOMERS))
    run_id = stage.api.trigger(_dag(CUSTOMERS))
    state, tasks = stage.end_of(_dag(CUSTOMERS), run_id)
    assert (state, set(tasks.values())) == ("success", {"skipped"})
    assert "sales.customers: nothing to do: the source has not changed (newest version v1)" in stage.log(
        _dag(CUSTOMERS), run_id, "detect_change"
    )
    assert objects(stage.lake.folder(CUSTOMERS)) == before


def test_a_run_with_params(stage: Stage) -> None:
    """Dry run, then an older snapshot with a full verify, then the head: a table that only people start."""
    stage.write(RETURNS, 0, 50, files=2)
    older = _head(stage.source(RETURNS).metadata_uri)
    stage.write(RETURNS, 50, 100, files=2)
    stage.await_dags(_dag(RETURNS), _dag(RETURNS, "follow"))
    assert stage.api.runs(_dag(RETURNS)) == []

    state, tasks = stage.run(_dag(RETURNS), {"dry_run": True})
    assert (state, tasks) == ("success", {"detect_change": "success", **dict.fromkeys(SPARK_TASKS, "skipped")})
    assert objects(stage.lake.folder(RETURNS)) == {}

    state, _ = stage.run(_dag(RETURNS), {"target_snapshot_id": str(older), "full_verify": True})
    assert state == "success"
    mirror = stage.lake.theirs(RETURNS)
    until(lambda: _head(mirror.metadata_uri) == older, "the older snapshot is followed", timeout_s=60, poll_s=0.5)
    assert stage.judge.rows(mirror) == stage.judge.rows(stage.source(RETURNS), older)

    state, _ = stage.run(_dag(RETURNS))
    assert state == "success"
    stage.await_mirrored(RETURNS)
    assert stage.judge.differences(stage.source(RETURNS), mirror) == []


@pytest.mark.parametrize(
    ("conf", "reason"),
    [
        ({"dry_run": "yes please"}, "'yes please' is not of type 'boolean'"),
        ({"target_snapshot_id": "v7"}, "'v7' does not match '^[0-9]{1,19}$'"),
        ({"full_verify": None}, "None is not of type 'boolean'"),
    ],
)
def test_bad_params_are_refused_by_the_api_server(stage: Stage, conf: dict[str, Any], reason: str) -> None:
    stage.await_dags(_dag(RETURNS), _dag(RETURNS, "follow"))
    before = stage.api.runs(_dag(RETURNS))
    with pytest.raises(Refused) as refused:
        stage.api.trigger(_dag(RETURNS), conf)
    assert 400 <= refused.value.status < 500
    assert reason in json.loads(refused.value.body)["detail"]
    assert stage.api.runs(_dag(RETURNS)) == before


def test_a_misspelt_param_does_not_start_a_real_run(stage: Stage) -> None:
    stage.await_mirrored(CUSTOMERS)
    run_id = stage.api.trigger(_dag(CUSTOMERS), {"dryrun": True})
    state, tasks = stage.end_of(_dag(CUSTOMERS), run_id)
    assert (state, tasks["detect_change"]) == ("failed", "failed")
    assert "did you mean dry_run?" in stage.log(_dag(CUSTOMERS), run_id, "detect_change")


def test_a_table_added_to_the_configuration_is_mirrored_without_a_restart(stage: Stage) -> None:
    stage.await_dags(_dag(CUSTOMERS))
    assert _dag(LATE) not in stage.api.dag_ids()
    stage.write(LATE, 0, 10, files=1)
    replace(stage.lake, tables=[*stage.lake.tables, {"name": LATE}]).write()
    stage.await_dags(_dag(LATE), _dag(LATE, "follow"))
    stage.await_mirrored(LATE)
    assert stage.judge.differences(stage.source(LATE), stage.lake.theirs(LATE)) == []


def test_a_follower_that_knows_no_source(stage: Stage) -> None:
    """Its deferred sensor watches the bucket, which is all that it shares with whoever mirrors."""
    dag_id = _dag(STOCK, "follow")
    stage.await_dags(dag_id)
    assert _dag(STOCK) not in stage.api.dag_ids(), "there is nothing to mirror from"
    run_id = stage.scheduled_run(dag_id)
    until(
        lambda: stage.task_states(dag_id, run_id).get("await_ready") == "deferred",
        "the sensor waits in the triggerer",
        timeout_s=60,
        poll_s=0.5,
    )
    stage.write(STOCK, 0, 10, files=2)
    stage.elsewhere.app().mirror(TableRef.parse(STOCK))
    stage.await_mirrored(STOCK)
    state, tasks = stage.end_of(dag_id, run_id)
    assert (state, tasks) == ("success", {"await_ready": "success", "follow_marker": "success"})
    assert stage.judge.differences(stage.source(STOCK), stage.elsewhere.theirs(STOCK)) == []


def test_the_scheduler_mirrors_a_large_table_by_spark_submit(stage: Stage) -> None:
    """It has been on its way since the first test: three Spark jobs, one after the other."""
    stage.await_mirrored(ORDERS, timeout_s=180)
    run_id = stage.scheduled_run(_dag(ORDERS))
    states = stage.task_states(_dag(ORDERS), run_id)
    assert states == dict.fromkeys(("detect_change", *SPARK_TASKS), "success")
    stage.check_followed_by_event(ORDERS)
    report = stage.log(_dag(ORDERS), run_id, "publish_version")
    assert "sales.orders: published v1" in report
    assert "copied 24 files" in report


def test_cleared_tasks_of_a_run_by_spark_find_their_work_done(stage: Stage) -> None:
    """Once alone, the last one, and once with a Spark job before it; what readers see and can see is not touched.

    While that job works, nobody outside this machine can connect to anything that Airflow has started.
    """
    stage.await_mirrored(ORDERS, timeout_s=180)
    dag_id = _dag(ORDERS)
    run_id = stage.scheduled_run(dag_id)
    stage.end_of(dag_id, run_id)
    parts = [stage.lake.folder(ORDERS) / part for part in ("data", "metadata", "_ready")]
    before, head = [objects(part) for part in parts], stage.lake.theirs(ORDERS).metadata_uri
    for cleared in (("publish_version",), ("rewrite_metadata", "publish_version")):
        tries = _tries(stage, dag_id, run_id)
        stage.api.clear(dag_id, run_id, *cleared)
        if "rewrite_metadata" in cleared:
            assert stage.listening_until_end(dag_id, run_id) == HERE
        state, tasks = stage.end_of(dag_id, run_id)
        assert (state, tasks) == ("success", dict.fromkeys(("detect_change", *SPARK_TASKS), "success"))
        again = {task for task, number in _tries(stage, dag_id, run_id).items() if number > tries[task]}
        assert again == {*cleared}
    assert [objects(part) for part in parts] == before
    assert stage.lake.theirs(ORDERS).metadata_uri == head


def test_a_spark_task_that_is_killed_and_then_cleared_at_work(stage: Stage) -> None:
    """kill -9 of the task and of its Spark job; the next try is cleared before it is done, and Airflow ends its job."""
    stage.await_mirrored(ORDERS, timeout_s=180)
    dag_id, data = _dag(ORDERS), stage.lake.folder(ORDERS) / "data"
    stage.end_of(dag_id, stage.scheduled_run(dag_id))
    before = len(objects(data))
    as_they_are = [*stage.lake.tables, {"name": LATE}]
    slow = {"name": ORDERS, "peak_requests_per_s": 4}
    replace(stage.lake, tables=[slow, *(one for one in as_they_are if one != {"name": ORDERS})]).write()
    stage.write(ORDERS, 600, 1_200, files=24)
    run_id = stage.api.trigger(dag_id)
    until(lambda: len(objects(data)) > before, "it copies", timeout_s=90)
    (first,) = stage.drivers("copy_objects")
    for pid in (parent_of(first), first):
        os.kill(pid, signal.SIGKILL)
    until(lambda: bool({*stage.drivers("copy_objects")} - {first}), "the next try", timeout_s=90)
    (second,) = {*stage.drivers("copy_objects")} - {first}
    replace(stage.lake, tables=as_they_are).write()
    stage.api.clear(dag_id, run_id, "copy_objects")
    until(lambda: bool({*stage.drivers("copy_objects")} - {first, second}), "it begins anew", timeout_s=60)
    assert second not in stage.drivers("copy_objects")
    state, tasks = stage.end_of(dag_id, run_id)
    assert (state, tasks) == ("success", dict.fromkeys(("detect_change", *SPARK_TASKS), "success"))
    stage.await_mirrored(ORDERS)
    assert stage.judge.differences(stage.source(ORDERS), stage.lake.theirs(ORDERS)) == []
    assert sorted(objects(stage.lake.folder(ORDERS) / "_ready")) == ["v1.ready.json", "v2.ready.json"]
    until(lambda: not stage.drivers("copy_objects"), "nothing is left of it", timeout_s=60)


def test_a_secret_of_a_connection_is_left_nowhere(stage: Stage) -> None:
    """Not in the logs of tasks, triggers and Spark jobs, not in the bucket, not in a catalog."""
    stage.await_mirrored(ORDERS, timeout_s=180)
    places = (stage.airflow.task_logs, stage.lake.mirror.folder, stage.elsewhere.mirror.folder)
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    assert len(files) > 50
    assert [path for path in [*files, stage.airflow.log_file] if SECRET.encode() in path.read_bytes()] == []


def test_airflow_is_healthy_at_the_end(stage: Stage) -> None:
    assert stage.airflow.is_running(), tail(stage.airflow.log_file)
    assert stage.api.import_errors() == []


def _dag(name: str, concern: str = "mirror") -> str:
    return TableRef.parse(name).dag_id(concern)


def _submits(pid: int, job: str) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it ended while we looked
        return False
    program, _, arguments = command.partition(b"\0")
    # not the shells before it, nor the JVM that works out its command
    is_driver = program.endswith(b"java") and b"launcher.Main" not in arguments
    return is_driver and f"spark_jobs/{job}.py".encode() in arguments


def _tries(stage: Stage, dag_id: str, run_id: str) -> dict[str, int]:
    return {task["task_id"]: int(task["try_number"]) for task in stage.api.task_instances(dag_id, run_id)}


def _head(metadata_uri: str | None) -> int | None:
    """The current snapshot by the metadata.json itself."""
    if metadata_uri is None:
        return None
    found = json.loads(Path("/" + metadata_uri.removeprefix("file:").lstrip("/")).read_text())["current-snapshot-id"]
    return None if found == -1 else int(found)


def _connection(conn_id: str, installation: Installation) -> dict[str, str]:
    """What the configuration leaves out of the mirror's catalog, and a secret, as the api-server wants it."""
    properties = installation.mirror.properties
    database = properties["uri"].removeprefix("sqlite:///")
    extra = json.dumps({"warehouse": properties["warehouse"], "s3.secret-access-key": SECRET})
    return {"connection_id": conn_id, "conn_type": "sqlite", "host": database, "extra": extra}


def _with_bundles(folders: Mapping[str, Path | None]) -> dict[str, str]:
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [
        {"name": name, "classpath": local, "kwargs": {} if folder is None else {"path": str(folder)}}
        for name, folder in folders.items()
    ]
    return {"AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles)}
