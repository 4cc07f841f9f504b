"""Airflow with a home of its own: nothing of the developer's is read, no examples, no database needed."""

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, create_autospec, patch

import pytest

from lakemirror.app import App
from tests.dags.airflow_home import use_private_airflow_home

use_private_airflow_home()


STARTED = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def app() -> Iterator[MagicMock]:
    """What every hook hands out in place of the real application."""
    fake: MagicMock = create_autospec(App, instance=True)
    with patch.object(App, "load", autospec=True, return_value=fake):
        yield fake


@pytest.fixture
def context() -> dict[str, Any]:
    """As much of a task's context as the operators look at, with Airflow's own record of asset events."""
    from airflow.sdk.execution_time.context import OutletEventAccessors
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    ti = create_autospec(RuntimeTaskInstance, instance=True)
    ti.run_id, ti.try_number, ti.map_index = "manual__1", 1, -1
    params = {"dry_run": False, "target_snapshot_id": None, "full_verify": False}
    return {
        "ti": ti,
        "params": params,
        "dag_run": SimpleNamespace(dag_id="mirror__shop__orders", run_id="r1", start_date=STARTED, conf={}),
        "outlet_events": OutletEventAccessors(),
    }
