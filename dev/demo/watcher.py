"""Watches Airflow and the mirror catalog, and tells each change once: tasks that ran, versions that became visible."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pyiceberg.catalog import Catalog

from dev.airflow_api import AirflowApi
from dev.demo.teller import Teller
from dev.demo.verdict import VERSION
from dev.lake import head

SHOWN_STATES = {
    "running": "running",
    "success": "done",
    "skipped": "nothing to do",
    "failed": "FAILED",
    "up_for_retry": "failed, will be tried again",
}


class Watcher:
    """`look` is called again and again. An api-server too busy to answer is asked again at the next look."""

    def __init__(self, api: AirflowApi, mirror: Catalog, tables: tuple[str, ...], teller: Teller) -> None:
        self._api = api
        self._mirror = mirror
        self._tables = tables
        self._teller = teller
        self._states: dict[tuple[str, str, str, int], str] = {}
        self.visible: dict[str, int] = {}
        self.visible_at: dict[str, datetime] = {}
        self.lanes: dict[str, list[str]] = {table: [] for table in tables}
        self.failed_task: Mapping[str, Any] | None = None

    def look(self) -> None:
        with suppress(OSError):
            self._look_at_tasks()
        self._look_at_heads()

    def dag_ids(self) -> set[str]:
        with suppress(OSError):
            return set(self._api.dag_ids())
        return set()

    def import_errors(self) -> str:
        """What stands in the way of the DAGs, one per line, or nothing."""
        return "".join(f"\n{error}" for error in self._api.import_errors())

    def shows(self, wanted: Mapping[str, int | None]) -> bool:
        """Whether the mirror shows these source snapshots, all of them."""
        return all(self.visible.get(table) == snapshot_id for table, snapshot_id in wanted.items())

    def _look_at_tasks(self) -> None:
        for task in reversed(self._api.task_instances()):
            key = (task["dag_id"], task["dag_run_id"], task["task_id"], task["map_index"])
            state, before = str(task["state"]), self._states.get(key)
            # Tasks that are skipped because an earlier one had nothing to do never run and need no line.
            if state == before or state not in SHOWN_STATES or (state == "skipped" and not task["duration"]):
                continue
            if state == "success":
                self._note_lane(task)
            self._states[key] = state
            took = f" in {task['duration']:.1f} s" if task["duration"] and state != "running" else ""
            self._teller.tell(f"{task['dag_id']}: {task['task_id']} {SHOWN_STATES[state]}{took}")
            if state == "failed":
                self.failed_task = task

    def _note_lane(self, task: Mapping[str, Any]) -> None:
        concern, _, rest = task["dag_id"].partition("__")
        table = rest.replace("__", ".")
        if concern != "mirror" or table not in self.lanes:
            return
        value = self._api.returned(task["dag_id"], task["dag_run_id"], task["task_id"])
        lane = value.get("lane") if isinstance(value, dict) else None
        if lane and lane not in self.lanes[table]:
            self.lanes[table].append(lane)

    def _look_at_heads(self) -> None:
        for name in self._tables:
            table = head(self._mirror, name)
            snapshot = table.current_snapshot() if table else None
            if table is None or snapshot is None or snapshot.snapshot_id == self.visible.get(name):
                continue
            self.visible[name] = snapshot.snapshot_id
            self.visible_at[name] = datetime.now(UTC)
            version = table.properties.get(VERSION, "?")
            self._teller.tell(f"{name}: readers of the mirror now see v{version} (snapshot {snapshot.snapshot_id})")
