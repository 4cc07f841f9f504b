"""One try of the task `detect_change` in a process of its own, as Airflow's worker runs it; prints how it ended.

Arguments: configuration, number of the try, and `dies` if the process is to die before its event is taken. All tries
are of the same task in the same run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec, patch

from tests.dags.airflow_home import use_private_airflow_home

RUN = {"dag_id": "mirror__shop__orders", "run_id": "scheduled__1", "conf": {}}
STARTED = datetime(2026, 1, 2, tzinfo=UTC)


def main(config_path: str, try_number: str, *words: str) -> None:
    use_private_airflow_home()
    from airflow.sdk import DAG
    from airflow.sdk.exceptions import AirflowException, AirflowSkipException, DownstreamTasksSkipped
    from airflow.sdk.execution_time.context import OutletEventAccessors
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    from lakemirror.airflow import assets
    from lakemirror.airflow.operators import DetectChangeOperator, PublishVersionOperator
    from tests.lake import ORDERS

    with DAG("mirror__shop__orders", schedule=None, start_date=STARTED):
        task = DetectChangeOperator(task_id="detect_change", table=str(ORDERS), config_path=config_path)
        task >> PublishVersionOperator(task_id="publish_version", table=str(ORDERS), plan_uri="x")
    ti = create_autospec(RuntimeTaskInstance, instance=True)
    ti.run_id, ti.try_number, ti.map_index = RUN["run_id"], int(try_number), -1
    context: Any = {
        "ti": ti,
        "params": {"dry_run": False, "target_snapshot_id": None, "full_verify": False},
        "dag_run": SimpleNamespace(**RUN, start_date=STARTED),
        "outlet_events": OutletEventAccessors(),
    }
    ended, message = "success", ""
    emit = _die if "dies" in words else assets.emit
    try:
        with patch.object(assets, "emit", emit):
            task.execute(context)
    except DownstreamTasksSkipped:
        pass
    except AirflowSkipException as err:
        ended, message = "skipped", str(err)
    except AirflowException as err:
        ended, message = type(err).__name__, str(err)
    told = context["outlet_events"][assets.ready_alias(ORDERS)].asset_alias_events
    print(json.dumps({"ended": ended, "message": message, "told": [one.extra["version"] for one in told]}))


def _die(*args: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
