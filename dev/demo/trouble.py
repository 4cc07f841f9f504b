"""Where to look when a task failed: its log, made readable, and the path of the file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def task_log(logs: Path, task: Mapping[str, Any]) -> Path:
    folder = logs / f"dag_id={task['dag_id']}" / f"run_id={task['dag_run_id']}" / f"task_id={task['task_id']}"
    return folder / f"attempt={task['try_number']}.log"


def readable_tail(log: Path, lines: int = 25) -> str:
    """Airflow's task logs are JSON lines; what is none is shown as it is."""
    if not log.exists():
        return "(the task left no log)"
    readable = [part for line in log.read_text(errors="replace").splitlines() for part in _readable(line)]
    return "\n".join(readable[-lines:])


def _readable(line: str) -> list[str]:
    try:
        entry = json.loads(line)
    except ValueError:
        return [line]
    if not isinstance(entry, dict):
        return [line]
    text = f"{entry.get('level', ''):<8}{entry.get('event', '')}"
    details = entry.get("error_detail") or []
    errors = [f"        {error.get('exc_type', '')}: {error.get('exc_value', '')}" for error in details]
    return [*text.splitlines(), *errors]
