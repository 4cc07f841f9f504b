"""Whole DAG runs in a real Airflow (`dag.test()` and its database) over a played application.

What only Airflow itself can show: which tasks are skipped, and which asset events are recorded.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import MagicMock, create_autospec, patch

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.exceptions import ParamValidationError
from airflow.utils.session import create_session

from lakemirror.airflow.spark import SparkJobOperator
from lakemirror.app import App
from lakemirror.errors import LostRaceError, PermanentError
from lakemirror.model.results import Detected, FollowResult, Lane, MirrorResult, PlanResult
from lakemirror.model.table import TableRef
from tests.dags.airflow_home import ROOT
from tests.dags.conftest import write_config

ORDERS = TableRef.parse("sales.orders")
PLAN_URI = "file:///m/sales/orders/_plan/p8"
NEW_PLAN_URI = "file:///m/sales/orders/_plan/p9"
SOURCE_NAME = "s3://onprem/orders/metadata/9.json"
MIRROR_TASKS = ["detect_change", "plan_diff", "copy_objects", "rewrite_metadata", "publish_version"]


class Ran(NamedTuple):
    """What Airflow's database says of a run."""

    state: str
    tasks: dict[str, str]
    events: list[tuple[str, dict[str, Any]]]


@pytest.fixture(scope="session", autouse=True)
def airflow_database() -> None:
    command = [sys.executable, "-m", "airflow", "db", "migrate"]
    subprocess.run(command, env={**os.environ}, check=True, capture_output=True, timeout=110)


@pytest.fixture
def app() -> Iterator[MagicMock]:
    fake: MagicMock = create_autospec(App, instance=True)
    with patch.object(App, "load", autospec=True, return_value=fake):
        yield fake


@pytest.fixture
def dags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, DAG]:
    config = write_config(tmp_path / "lm.yaml", [{"name": "sales.orders", "retries": 0}])
    monkeypatch.setenv("LAKEMIRROR_CONFIG", str(config))
    bag = DagBag(dag_folder=str(ROOT / "dags"))
    assert bag.import_errors == {}
    return bag.dags


def _run(dag: DAG, conf: dict[str, Any] | None = None) -> Ran:
    from airflow.models.asset import AssetEvent

    run = dag.test(run_conf=conf)
    with create_session() as session:
        found = session.query(AssetEvent).filter(AssetEvent.source_run_id == run.run_id).all()
        events = [(event.asset.uri, event.extra) for event in found]
    tasks = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    order = [*MIRROR_TASKS, "await_ready", "follow_marker"]
    return Ran(str(run.state), {name: tasks[name] for name in order if name in tasks}, events)


def _detected(lane: Lane) -> Detected:
    plan_uri = None if lane == "none" else PLAN_URI
    return Detected(ORDERS, lane, 7, 8, 42, files_at_most=3, plan_uri=plan_uri, source_name=SOURCE_NAME)


def _published(lane: Lane) -> MirrorResult:
    return MirrorResult(ORDERS, 8, 42, lane, seconds={"total": 1.0}, marker="file:///m/_ready/v8.ready.json")


READY = (
    "x-lakemirror://ready/table__sales__orders",
    {"table": "sales.orders", "version": 8, "snapshot_id": "42", "marker": "file:///m/_ready/v8.ready.json"},
)


def test_nothing_to_do(app: MagicMock, dags: dict[str, DAG]) -> None:
    app.detect.return_value = _detected("none")
    assert _run(dags["mirror__sales__orders"]) == Ran("success", dict.fromkeys(MIRROR_TASKS, "skipped"), [])


def test_a_small_change_is_one_task_and_one_event(app: MagicMock, dags: dict[str, DAG]) -> None:
    app.detect.return_value = _detected("task")
    app.mirror.return_value = _published("task")
    tasks = {**dict.fromkeys(MIRROR_TASKS, "skipped"), "detect_change": "success"}
    assert _run(dags["mirror__sales__orders"]) == Ran("success", tasks, [READY])


def test_a_large_change_goes_through_every_task_and_emits_at_the_end(app: MagicMock, dags: dict[str, DAG]) -> None:
    app.detect.return_value = _detected("spark")
    app.publish.return_value = _published("spark")
    submitted: list[tuple[str, str, str | None]] = []

    def submit(task: SparkJobOperator, context: Any) -> dict[str, str]:
        """Copying finds that a source file is gone, and goes on with a new plan."""
        submitted.append((task.task_id, task.plan_uri, task.source_name))
        return {"plan_uri": NEW_PLAN_URI if task.task_id == "copy_objects" else task.plan_uri}

    with patch.object(SparkJobOperator, "execute", autospec=True, side_effect=submit):
        ran = _run(dags["mirror__sales__orders"], {"full_verify": True})
    assert ran == Ran("success", dict.fromkeys(MIRROR_TASKS, "success"), [READY])
    assert submitted == [
        ("plan_diff", PLAN_URI, SOURCE_NAME),
        ("copy_objects", PLAN_URI, None),
        ("rewrite_metadata", NEW_PLAN_URI, None),
    ]
    app.publish.assert_called_once_with(ORDERS, NEW_PLAN_URI, full_verify=True)


def test_a_dry_run_reports_and_emits_nothing(app: MagicMock, dags: dict[str, DAG]) -> None:
    app.plan.return_value = PlanResult(ORDERS, 7, 42, 3, 1200, 1, 1, 0, "spark")
    tasks = {**dict.fromkeys(MIRROR_TASKS, "skipped"), "detect_change": "success"}
    conf = {"dry_run": True, "target_snapshot_id": "8830000000000000001"}
    assert _run(dags["mirror__sales__orders"], conf) == Ran("success", tasks, [])
    app.plan.assert_called_once_with(ORDERS, target_snapshot_id=8830000000000000001)
    app.detect.assert_not_called()


def test_a_failed_publish_emits_nothing(app: MagicMock, dags: dict[str, DAG]) -> None:
    app.detect.return_value = _detected("spark")
    app.publish.side_effect = LostRaceError("publish", "v8", "another run was first")
    with patch.object(SparkJobOperator, "execute", autospec=True, return_value={"plan_uri": PLAN_URI}):
        ran = _run(dags["mirror__sales__orders"])
    assert ran == Ran("failed", {**dict.fromkeys(MIRROR_TASKS, "success"), "publish_version": "failed"}, [])


def test_a_failed_detect_stops_the_run(app: MagicMock, dags: dict[str, DAG]) -> None:
    app.detect.side_effect = PermanentError("read", "m.avro", "truncated")
    tasks = {**dict.fromkeys(MIRROR_TASKS, "upstream_failed"), "detect_change": "failed"}
    assert _run(dags["mirror__sales__orders"]) == Ran("failed", tasks, [])


@pytest.mark.parametrize("conf", [{"dry_run": "yes"}, {"target_snapshot_id": "v7"}])
def test_bad_parameters_start_no_run(app: MagicMock, dags: dict[str, DAG], conf: dict[str, Any]) -> None:
    with pytest.raises((ParamValidationError, ValueError), match="Invalid input for param"):
        dags["mirror__sales__orders"].test(run_conf=conf)
    app.detect.assert_not_called()


def test_the_follower_tells_who_reads_the_mirror(app: MagicMock, dags: dict[str, DAG]) -> None:
    app.follow.return_value = FollowResult(ORDERS, 8, 42, committed=True)
    extra = {"table": "sales.orders", "version": 8, "snapshot_id": "42"}
    event = ("x-lakemirror://visible/table__sales__orders", extra)
    assert _run(dags["follow__sales__orders"]) == Ran("success", {"follow_marker": "success"}, [event])


def test_a_follower_with_nothing_to_do_is_skipped(app: MagicMock, dags: dict[str, DAG]) -> None:
    app.follow.return_value = FollowResult(ORDERS, 8, 42, committed=False)
    assert _run(dags["follow__sales__orders"]) == Ran("success", {"follow_marker": "skipped"}, [])
