"""Nothing but watchers starts runs here: no schedule, no person. A real scheduler, triggerer and api-server.

The source's head wakes the replicator; the marker in the bucket wakes a follower that shares nothing else with it, by
a look at the folder, by a message of SQS, or by one of Pub/Sub.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.airflow_api import AirflowApi
from dev.airflow_standalone import AirflowStandalone, Settings, tail
from dev.demo.trouble import readable_tail, task_log
from lakemirror.app import App
from tests import notifying
from tests.e2e.processes import until
from tests.judge import ROOT
from tests.lake import ORDERS, Lake, rows
from tests.notifying import Bucket

MIRROR, FOLLOW = ORDERS.dag_id("mirror"), ORDERS.dag_id("follow")
WATCHED: dict[str, Any] = {
    "schedule": None,
    "follow_schedule": None,
    "mirror_trigger": "watch",
    "retries": 20,  # a scheduler that is up before its api-server loses some
    "retry_delay_seconds": 1,
}


@dataclass
class Stage:
    """A source in files, and an Airflow whose mirror and whose watchers are other ones after each `use`.

    The DAGs are read again every few seconds, so that needs no restart.
    """

    lake: Lake
    airflow: AirflowStandalone

    @property
    def api(self) -> AirflowApi:
        return self.airflow.api()

    def use(self, bucket: Bucket, follow_trigger: str) -> None:
        """This mirror, with a catalog of its own, and a follower that is woken so."""
        document = yaml.safe_load(self.lake.config_path.read_text())
        database = self.lake.folder / f"{bucket.location.partition(':')[0]}.db"
        document["mirror"] = {
            "catalog": {"name": "cloud", "type": "sql", "uri": f"sqlite:///{database}", **bucket.properties},
            "location": bucket.location,
            "weaker_create": "look_then_write",
        }
        document["defaults"] = {**WATCHED, "follow_trigger": follow_trigger}
        document["events"] = {"poll_seconds": 1, **bucket.events}
        self.lake.config_path.write_text(yaml.safe_dump(document))

    def commit(self, count: int) -> None:
        self.lake.source.load_table(str(ORDERS)).append(rows(count))

    def is_mirrored(self) -> bool:
        """By what both catalogs name."""
        with App.load(str(self.lake.config_path)) as app:
            found = app.status(ORDERS)
        return found.mirror_snapshot_id is not None and found.mirror_snapshot_id == found.source_snapshot_id

    def await_mirrored(self) -> None:
        self.until(self.is_mirrored, "the mirror shows the source's head")

    def await_dags(self) -> None:
        self.until(lambda: {MIRROR, FOLLOW} <= {*self.api.dag_ids()}, "the DAGs appear")
        self.api.unpause_all()

    def until(self, is_true: Callable[[], bool], what: str) -> None:
        try:
            until(is_true, what, timeout_s=180, poll_s=0.5)
        except AssertionError as err:
            tasks = [f"{one['dag_id']} {one['task_id']}: {one['state']}" for one in self.api.task_instances()]
            logs = [readable_tail(task_log(self.airflow.task_logs, one)) for one in self.api.task_instances()[:3]]
            said = [*self.api.import_errors(), *tasks, *logs, tail(self.airflow.log_file)]
            raise AssertionError("\n".join([str(err), *said])) from err

    def stop(self) -> None:
        """Once all is done: a task that is cut in its last moment would be tried again."""
        self.settle()
        self.airflow.stop()

    def settle(self) -> None:
        self.until(lambda: {state for _, state in self.runs(MIRROR) + self.runs(FOLLOW)} == {"success"}, "all end well")

    def runs(self, dag_id: str) -> list[tuple[str, str]]:
        return [(str(run["run_type"]), str(run["state"])) for run in self.api.runs(dag_id)]


@pytest.fixture
def s3() -> Iterator[Bucket]:
    with notifying.aws() as endpoint:
        yield notifying.s3_with_sqs(endpoint)


@pytest.fixture
def gcs(tmp_path: Path) -> Iterator[Bucket]:
    with notifying.google() as endpoints, notifying.gcs_with_pubsub(endpoints, tmp_path.name) as bucket:
        yield bucket


@pytest.fixture
def stage(s3: Bucket, gcs: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    environment = {**s3.environment, **gcs.environment}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    lake = Lake(tmp_path, defaults=WATCHED)
    lake.create().append(rows(3))
    with AirflowStandalone(Settings(tmp_path / "home", ROOT, lake.config_path, environment=environment)) as airflow:
        yield Stage(lake, airflow)
        airflow.stop(timeout_s=3)  # nobody needs a clean end


@pytest.mark.timeout(900)
def test_watchers_start_both_sides_and_a_restart_loses_nothing(stage: Stage, s3: Bucket, gcs: Bucket) -> None:
    stage.use(s3, "bucket")
    stage.airflow.start()
    stage.await_dags()
    stage.await_mirrored()
    stage.commit(2)
    stage.await_mirrored()
    extras = [event["extra"] for event in stage.api.get("/assets/events")["asset_events"]]
    assert {extra["payload"]["table"] for extra in extras if "payload" in extra} == {str(ORDERS)}

    stage.stop()
    assert s3.left() > 0, "the bucket sends messages"
    stage.commit(4)  # while nobody watches
    stage.use(s3, "sqs")
    stage.airflow.start()
    stage.await_mirrored()
    stage.commit(1)
    stage.await_mirrored()
    stage.until(lambda: s3.left() == 0, "all messages of SQS are done with")

    stage.use(gcs, "pubsub")  # a mirror that has nothing yet
    stage.commit(1)
    stage.await_mirrored()
    stage.commit(5)
    stage.await_mirrored()

    stage.settle()
    for dag_id in (MIRROR, FOLLOW):
        runs = stage.runs(dag_id)
        assert {kind for kind, _ in runs} == {"asset_triggered"}
        assert 6 <= len(runs) <= 10, "one for each version, and at worst a look too many after each restart"
