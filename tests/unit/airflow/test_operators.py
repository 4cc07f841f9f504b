"""Each operator over a fake application: what it asks, what it hands on, when it skips, when it emits an event."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import ANY, MagicMock, patch

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
)

from lakemirror.airflow import assets, tables_file
from lakemirror.airflow.operators import (
    DetectChangeOperator,
    FollowOperator,
    PublishVersionOperator,
    ResolveTablesOperator,
)
from lakemirror.app import App
from lakemirror.config.models import Config
from lakemirror.errors import LostRaceError, PermanentError, TableBusyError, TransientError, UsageError
from lakemirror.model.results import Detected, FollowResult, Lane, MirrorResult, PlanResult
from lakemirror.model.table import TableRef

ORDERS = TableRef.parse("sales.orders")
PUBLISHED = MirrorResult(
    ORDERS, 8, 42, "task", 3, 1200, seconds={"total": 1.5}, marker="file:///m/_ready/v8.ready.json"
)
PLAN_URI = "file:///m/sales/orders/_plan/p8"
SOURCE_NAME = "s3://onprem/orders/metadata/9.json"


def _detected(lane: Lane) -> Detected:
    plan_uri = None if lane == "none" else PLAN_URI
    return Detected(ORDERS, lane, 7, 8, 42, files_at_most=3, plan_uri=plan_uri, source_name=SOURCE_NAME)


def _detect_task() -> DetectChangeOperator:
    with DAG("d", schedule=None, start_date=datetime(2025, 1, 1, tzinfo=UTC)):
        detect = DetectChangeOperator(task_id="detect_change", table="sales.orders", config_path="/c.yaml")
        publish = PublishVersionOperator(task_id="publish_version", table="sales.orders", plan_uri="x")
        detect >> publish
    return detect


def _events(context: Any) -> list[Any]:
    return list(context["outlet_events"][assets.ready_alias(ORDERS)].asset_alias_events)


class TestDetect:
    def test_nothing_to_do_skips_the_task_and_with_it_the_rest(self, app: MagicMock, context: Any) -> None:
        app.detect.return_value = _detected("none")
        with pytest.raises(AirflowSkipException, match="nothing to do"):
            _detect_task().execute(context)
        app.mirror.assert_not_called()
        assert _events(context) == []

    def test_another_run_at_work_skips_it_too(self, app: MagicMock, context: Any) -> None:
        app.detect.side_effect = TableBusyError("take lease", "x", "somebody works on this table", "run again")
        with pytest.raises(AirflowSkipException, match="somebody works on this table"):
            _detect_task().execute(context)
        app.mirror.assert_not_called()

    def test_a_run_that_lost_its_lease_is_tried_again(self, app: MagicMock, context: Any) -> None:
        app.detect.return_value = _detected("task")
        app.mirror.side_effect = LostRaceError("keep lease", "x", "b took it over", "run again")
        with pytest.raises(AirflowException) as caught:
            _detect_task().execute(context)
        assert not isinstance(caught.value, AirflowFailException | AirflowSkipException)

    def test_leases_are_taken_for_the_run_with_all_its_tasks(self, app: MagicMock, context: Any) -> None:
        app.detect.return_value = _detected("none")
        with pytest.raises(AirflowSkipException):
            _detect_task().execute(context)
        name = "airflow mirror__shop__orders r1 2026-01-02T00:00:00+00:00"
        assert App.load.call_args.kwargs["owner"] == name  # type: ignore[attr-defined]  # it is patched

    def test_a_small_change_is_done_here_and_the_rest_is_skipped(self, app: MagicMock, context: Any) -> None:
        app.detect.return_value = _detected("task")
        app.mirror.return_value = PUBLISHED
        with pytest.raises(DownstreamTasksSkipped) as skipped:
            _detect_task().execute(context)
        assert skipped.value.tasks == ["publish_version"]
        app.mirror.assert_called_once_with(ORDERS, detected=app.detect.return_value, full_verify=False)
        pushed = {call.kwargs["key"]: call.kwargs["value"] for call in context["ti"].xcom_push.call_args_list}
        assert pushed["return_value"] == {
            "table": "sales.orders",
            "lane": "task",
            "version": 8,
            "snapshot_id": "42",
            "copied_files": 3,
            "copied_bytes": 1200,
        }

    def test_a_small_change_emits_the_ready_event(self, app: MagicMock, context: Any) -> None:
        app.detect.return_value = _detected("task")
        app.mirror.return_value = PUBLISHED
        with pytest.raises(DownstreamTasksSkipped):
            _detect_task().execute(context)
        (event,) = _events(context)
        assert event.dest_asset_key.uri == assets.ready_asset(ORDERS).uri
        assert event.extra == {
            "table": "sales.orders",
            "version": 8,
            "snapshot_id": "42",
            "marker": "file:///m/_ready/v8.ready.json",
        }

    def test_a_large_change_hands_on_where_the_plan_is_and_emits_nothing(self, app: MagicMock, context: Any) -> None:
        app.detect.return_value = _detected("spark")
        names = {"plan_uri": PLAN_URI, "source_name": SOURCE_NAME}
        assert _detect_task().execute(context) == {"lane": "spark", "version": 8, **names}
        app.mirror.assert_not_called()
        assert _events(context) == []

    def test_a_dry_run_only_plans(self, app: MagicMock, context: Any) -> None:
        context["params"]["dry_run"] = True
        app.plan.return_value = PlanResult(ORDERS, 7, 42, 3, 1200, 1, 1, 0, "task")
        with pytest.raises(DownstreamTasksSkipped) as skipped:
            _detect_task().execute(context)
        assert skipped.value.tasks == ["publish_version"]
        app.detect.assert_not_called()
        app.mirror.assert_not_called()
        assert _events(context) == []

    def test_the_form_reaches_the_library(self, app: MagicMock, context: Any) -> None:
        context["params"] |= {"target_snapshot_id": "8830000000000000001", "full_verify": True}
        app.detect.return_value = _detected("task")
        app.mirror.return_value = PUBLISHED
        with pytest.raises(DownstreamTasksSkipped):
            _detect_task().execute(context)
        app.detect.assert_called_once_with(ORDERS, target_snapshot_id=8830000000000000001, progress=ANY)
        assert app.mirror.call_args.kwargs["full_verify"] is True

    def test_a_misspelt_parameter_starts_nothing(self, app: MagicMock, context: Any) -> None:
        context["dag_run"].conf = {"dryrun": True}
        with pytest.raises(AirflowFailException, match="did you mean dry_run"):
            _detect_task().execute(context)
        app.detect.assert_not_called()

    def test_the_other_run_was_first_and_nothing_is_left_to_do(self, app: MagicMock, context: Any) -> None:
        app.detect.return_value = _detected("task")
        app.mirror.return_value = MirrorResult(ORDERS, 8, 42, "none")
        with pytest.raises(AirflowSkipException, match="nothing to do"):
            _detect_task().execute(context)
        assert _events(context) == []

    @pytest.mark.parametrize("has_begun", [False, True])
    def test_a_version_that_an_earlier_try_published_is_still_told(
        self, app: MagicMock, context: Any, has_begun: bool
    ) -> None:
        """The marker was put, and the try died before Airflow took its event: nothing else would tell of it."""
        context["ti"].try_number = 2
        app.detect.return_value = _detected("task" if has_begun else "none")
        app.mirror.return_value = MirrorResult(ORDERS, 8, 42, "none", marker=PUBLISHED.marker)
        with pytest.raises(DownstreamTasksSkipped) as skipped:
            _detect_task().execute(context)
        assert skipped.value.tasks == ["publish_version"]
        (event,) = _events(context)
        assert event.dest_asset_key.uri == assets.ready_asset(ORDERS).uri
        assert event.extra == {
            "table": "sales.orders",
            "version": 8,
            "snapshot_id": "42",
            "marker": "file:///m/_ready/v8.ready.json",
        }

    def test_a_later_try_that_finds_no_version_tells_nothing(self, app: MagicMock, context: Any) -> None:
        context["ti"].try_number = 2
        app.detect.return_value = _detected("none")
        app.mirror.return_value = MirrorResult(ORDERS, None, None, "none")
        with pytest.raises(AirflowSkipException, match="nothing to do"):
            _detect_task().execute(context)
        assert _events(context) == []

    @pytest.mark.parametrize(
        ("err", "is_retried"),
        [
            (TransientError("load", "catalog", "timed out"), True),
            (LostRaceError("publish", "v8", "another run was first"), True),
            (PermanentError("read", "m.avro", "truncated"), False),
        ],
    )
    def test_errors(self, app: MagicMock, context: Any, err: Exception, is_retried: bool) -> None:
        app.detect.side_effect = err
        with pytest.raises(AirflowException) as caught:
            _detect_task().execute(context)
        assert isinstance(caught.value, AirflowFailException) is not is_retried
        app.close.assert_called_once_with()


class TestPublish:
    task_id = "publish_version"

    def _task(self) -> PublishVersionOperator:
        return PublishVersionOperator(task_id=self.task_id, table="sales.orders", plan_uri=PLAN_URI, config_path="/c")

    def test_it_publishes_the_plan_and_says_so_in_its_event(self, app: MagicMock, context: Any) -> None:
        context["params"]["full_verify"] = True
        app.publish.return_value = PUBLISHED
        assert self._task().execute(context)["version"] == 8
        app.publish.assert_called_once_with(ORDERS, PLAN_URI, full_verify=True)
        assert context["outlet_events"][assets.ready_asset(ORDERS)].extra["version"] == 8

    def test_after_a_lost_race_the_same_plan_is_not_tried_again(self, app: MagicMock, context: Any) -> None:
        app.publish.side_effect = LostRaceError("publish", "v8", "another run was first")
        with pytest.raises(AirflowFailException, match="the next run makes a new one"):
            self._task().execute(context)


class TestFollow:
    def _task(self) -> FollowOperator:
        return FollowOperator(task_id="follow_marker", table="sales.orders", config_path="/c")

    def test_a_commit_emits_the_visible_event(self, app: MagicMock, context: Any) -> None:
        app.follow.return_value = FollowResult(ORDERS, 8, 42, committed=True)
        assert self._task().execute(context) == {"table": "sales.orders", "version": 8, "snapshot_id": "42"}
        (event,) = context["outlet_events"][assets.visible_alias(ORDERS)].asset_alias_events
        assert event.dest_asset_key.uri == assets.visible_asset(ORDERS).uri

    def test_a_commit_that_an_earlier_try_could_not_record_emits_the_event_too(
        self, app: MagicMock, context: Any
    ) -> None:
        app.follow.return_value = FollowResult(ORDERS, 8, 42, committed=False, first_seen=True)
        assert self._task().execute(context)["version"] == 8
        (event,) = context["outlet_events"][assets.visible_alias(ORDERS)].asset_alias_events
        assert event.extra == {"table": "sales.orders", "version": 8, "snapshot_id": "42"}

    def test_a_later_try_tells_of_what_it_finds(self, app: MagicMock, context: Any) -> None:
        """The try before it may have died between its record and Airflow's."""
        context["ti"].try_number = 2
        app.follow.return_value = FollowResult(ORDERS, 8, 42, committed=False)
        assert self._task().execute(context)["version"] == 8
        (event,) = context["outlet_events"][assets.visible_alias(ORDERS)].asset_alias_events
        assert event.extra == {"table": "sales.orders", "version": 8, "snapshot_id": "42"}
        app.follow.return_value = FollowResult(ORDERS, None, None, committed=False)
        with pytest.raises(AirflowSkipException, match="nothing to do"):
            self._task().execute(context)

    @pytest.mark.parametrize("version", [8, None])
    def test_nothing_to_do_is_skipped_without_an_event(self, app: MagicMock, context: Any, version: int | None) -> None:
        app.follow.return_value = FollowResult(ORDERS, version, 42, committed=False)
        with pytest.raises(AirflowSkipException, match="nothing to do"):
            self._task().execute(context)
        assert not context["outlet_events"][assets.visible_alias(ORDERS)].asset_alias_events

    def test_a_foreign_commit_is_not_retried(self, app: MagicMock, context: Any) -> None:
        app.follow.side_effect = PermanentError("commit", "sales.orders", "head is foreign")
        with pytest.raises(AirflowFailException, match="head is foreign"):
            self._task().execute(context)


class TestResolve:
    def _run(
        self, app: MagicMock, context: Any, path: Path, found: list[str], refused: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        mirror = {"catalog": {"name": "m", "type": "sql"}, "location": "file:///m"}
        tables = [{"match": "sales.*", "exclude": ["*.tmp_*"]}]
        app.config = Config.model_validate({"mirror": mirror, "tables": tables})
        app.resolve_patterns.return_value = tuple(TableRef.parse(name) for name in found)
        app.refused_tables.return_value = {name: UsageError("find table", name, "no folder") for name in refused}
        task = ResolveTablesOperator(task_id="resolve_tables", config_path="/c", tables_path=str(path))
        answer: dict[str, Any] = task.execute(context)
        return answer

    def test_the_first_time_the_list_is_written(self, app: MagicMock, context: Any, tmp_path: Path) -> None:
        path = tmp_path / "t.json"
        found = ["sales.b", "sales.a", "sales.tmp_x", "crm.c"]
        assert self._run(app, context, path, found) == {"tables": 2, "added": 2, "removed": 0}
        assert tables_file.read(str(path)) == ("sales.a", "sales.b")

    def test_a_name_that_cannot_be_mirrored_is_warned_of(self, app: MagicMock, context: Any, tmp_path: Path) -> None:
        path = tmp_path / "t.json"
        with patch.object(ResolveTablesOperator, "log") as log:
            self._run(app, context, path, ["sales.a"], ("sales._b", "sales._c"))
        warnings = [call.args[0] % call.args[1:] for call in log.warning.call_args_list]
        assert [line for line in warnings if "Task Runner" not in line] == [
            "not mirrored: find table sales._b: no folder",
            "not mirrored: find table sales._c: no folder",
        ]
        assert tables_file.read(str(path)) == ("sales.a",)

    def test_an_unchanged_list_is_not_touched(self, app: MagicMock, context: Any, tmp_path: Path) -> None:
        path = tmp_path / "t.json"
        tables_file.write(str(path), ["sales.a"])
        before = path.stat().st_ino
        self._run(app, context, path, ["sales.a"])
        assert path.stat().st_ino == before

    def test_a_dropped_table_stays_and_one_that_left_the_configuration_goes(
        self, app: MagicMock, context: Any, tmp_path: Path
    ) -> None:
        path = tmp_path / "t.json"
        tables_file.write(str(path), ["sales.dropped", "crm.left"])
        self._run(app, context, path, ["sales.new"])
        assert tables_file.read(str(path)) == ("sales.dropped", "sales.new")

    def test_an_unreachable_catalog_keeps_the_list(self, app: MagicMock, context: Any, tmp_path: Path) -> None:
        path = tmp_path / "t.json"
        tables_file.write(str(path), ["sales.a"])
        app.resolve_patterns.side_effect = TransientError("list tables", "catalog", "timed out")
        task = ResolveTablesOperator(task_id="resolve_tables", config_path="/c", tables_path=str(path))
        with pytest.raises(AirflowException, match="timed out"):
            task.execute(context)
        assert tables_file.read(str(path)) == ("sales.a",)
