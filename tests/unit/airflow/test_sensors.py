from datetime import timedelta
from typing import Any
from unittest.mock import MagicMock

import pytest
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferralError,
    TaskDeferred,
)

from lakemirror.airflow.sensors import ReadyMarkerSensor
from lakemirror.airflow.triggers import ReadyEvent
from lakemirror.errors import PermanentError, TransientError


def _sensor(**kwargs: Any) -> ReadyMarkerSensor:
    return ReadyMarkerSensor(task_id="await_ready", table="sales.orders", config_path="/c", **kwargs)


def test_what_is_ready_already_needs_no_waiting(app: MagicMock, context: Any) -> None:
    app.newest_ready_version.return_value = 8
    assert _sensor(after_version=7).execute(context) == 8


def test_otherwise_it_defers_with_a_bound(app: MagicMock, context: Any) -> None:
    app.newest_ready_version.return_value = 7
    with pytest.raises(TaskDeferred) as deferred:
        _sensor(after_version="7", poke_interval=5, timeout=600).execute(context)
    assert deferred.value.timeout == timedelta(seconds=600)
    assert deferred.value.method_name == "execute_complete"
    assert deferred.value.trigger.serialize()[1] == {
        "table": "sales.orders",
        "after_version": 7,
        "config_path": "/c",
        "poll_interval_s": 5.0,
    }


@pytest.mark.parametrize(("head", "after"), [(7, 7), (None, 0)])
def test_without_a_version_it_waits_for_one_above_the_mirrors(
    app: MagicMock, context: Any, head: int | None, after: int
) -> None:
    app.mirror_version.return_value = head
    app.newest_ready_version.return_value = None
    with pytest.raises(TaskDeferred) as deferred:
        _sensor().execute(context)
    assert deferred.value.trigger.after_version == after
    app.mirror_version.assert_called_once()


def test_it_resumes_with_the_version_found(context: Any) -> None:
    event = ReadyEvent(status="ready", version=8, error=None)
    assert _sensor().resume_execution("execute_complete", {"event": event}, context) == 8


@pytest.mark.parametrize(
    ("err", "is_retried"),
    [(TransientError("list", "x", "timed out"), True), (PermanentError("list", "x", "denied"), False)],
)
def test_an_error_met_while_waiting_is_an_error(context: Any, err: Any, is_retried: bool) -> None:
    event = ReadyEvent(status="error", version=None, error=err.as_json())
    with pytest.raises(AirflowException, match="list x") as caught:
        _sensor().resume_execution("execute_complete", {"event": event}, context)
    assert isinstance(caught.value, AirflowFailException) is not is_retried


def test_if_nothing_came_the_task_is_skipped(context: Any) -> None:
    """`__fail__` and its reason are what Airflow sends when the deferral's timeout has passed."""
    with pytest.raises(AirflowSkipException, match="no new version within 600 s"):
        _sensor(timeout=600).resume_execution("__fail__", {"error": "Trigger timeout"}, context)


def test_a_trigger_that_broke_is_an_error(context: Any) -> None:
    with pytest.raises(TaskDeferralError):
        _sensor().resume_execution("__fail__", {"error": "Trigger failure"}, context)


def test_without_a_triggerer_it_pokes(app: MagicMock, context: Any) -> None:
    app.newest_ready_version.side_effect = [7, 8]
    assert _sensor(after_version=7, deferrable=False, poke_interval=0).execute(context) == 8


def test_poking_is_bounded_too(app: MagicMock, context: Any) -> None:
    app.newest_ready_version.return_value = 7
    with pytest.raises(AirflowSkipException, match="no new version"):
        _sensor(after_version=7, deferrable=False, poke_interval=0, timeout=0).execute(context)
