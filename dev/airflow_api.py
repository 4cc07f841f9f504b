"""The few calls of Airflow's REST API that watching and driving a local Airflow takes."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Mapping
from typing import Any

CONFLICT, SERVER_ERROR = 409, 500
# on SQLite the server answers 500 while another of Airflow's processes holds the database
TRIES = 8
PAUSE_S = 1.0


class Refused(Exception):
    """Airflow answered, and the answer is no."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body}")
        self.status = status
        self.body = body


class AirflowApi:
    """One user at one api-server; logs in when first needed. Raises `Refused` or `OSError`, never waits for long."""

    def __init__(self, url: str, username: str, password: str, timeout_s: float = 30) -> None:
        self._url = url
        self._login = {"username": username, "password": password}
        self._timeout_s = timeout_s
        self._token: str | None = None

    def get(self, path: str, **query: Any) -> Any:
        suffix = f"?{urllib.parse.urlencode(query, doseq=True)}" if query else ""
        return self._call("GET", f"/api/v2{path}{suffix}")

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._call("POST", f"/api/v2{path}", body)

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Starts a run now and returns its id; conf is checked against the DAG's Params by the server.

        The id is ours, so that a second try after a server error cannot start a second run.
        """
        run_id = f"manual__{uuid.uuid4()}"
        body = {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf or {})}
        try:
            self.post(f"/dags/{dag_id}/dagRuns", body)
        except Refused as err:
            if err.status != CONFLICT:
                raise
        return run_id

    def clear(self, dag_id: str, run_id: str, *task_ids: str) -> None:
        """Let these tasks of a run be done again, whatever came of them or is coming."""
        body = {"dry_run": False, "only_failed": False, "dag_run_id": run_id, "task_ids": task_ids}
        self.post(f"/dags/{dag_id}/clearTaskInstances", body)

    def dag_ids(self) -> list[str]:
        return sorted(dag["dag_id"] for dag in self.get("/dags", limit=1000)["dags"])

    def unpause_all(self) -> None:
        """Every DAG that is known now; later ones come as `dags_are_paused_at_creation` says."""
        query = urllib.parse.urlencode({"dag_id_pattern": "%", "update_mask": "is_paused", "limit": 1000})
        self._call("PATCH", f"/api/v2/dags?{query}", {"is_paused": False})

    def import_errors(self) -> list[str]:
        errors = self.get("/importErrors")["import_errors"]
        return [f"{error['filename']}: {error['stack_trace'].strip().splitlines()[-1]}" for error in errors]

    def runs(self, dag_id: str = "~") -> list[dict[str, Any]]:
        """Newest first."""
        return list(self.get(f"/dags/{dag_id}/dagRuns", order_by="-run_after", limit=100)["dag_runs"])

    def count_runs(self, *states: str) -> int:
        """Of all DAGs, in these states or in any: much less work for the server than telling of each."""
        return int(self.get("/dags/~/dagRuns", limit=1, **({"state": states} if states else {}))["total_entries"])

    def task_instances(self, dag_id: str = "~", run_id: str = "~") -> list[dict[str, Any]]:
        """Newest first."""
        found = self.get(f"/dags/{dag_id}/dagRuns/{_quoted(run_id)}/taskInstances", order_by="-start_date", limit=200)
        return list(found["task_instances"])

    def returned(self, dag_id: str, run_id: str, task_id: str) -> Any:
        """What the task returned, or None if it returned nothing."""
        path = f"/dags/{dag_id}/dagRuns/{_quoted(run_id)}/taskInstances/{task_id}/xcomEntries/return_value"
        try:
            value = self.get(path)["value"]
        except Refused as err:
            if err.status == 404:
                return None
            raise
        return json.loads(value) if isinstance(value, str) else value

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        if self._token is None:
            self._token = str(self._send("POST", "/auth/token", self._login, None)["access_token"])
        for _ in range(TRIES - 1):
            try:
                return self._send(method, path, body, self._token)
            except Refused as err:
                if err.status < SERVER_ERROR:
                    raise
            time.sleep(PAUSE_S)
        return self._send(method, path, body, self._token)

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None, token: str | None) -> Any:
        request = urllib.request.Request(self._url + path, method=method)
        request.add_header("Content-Type", "application/json")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data=data, timeout=self._timeout_s) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as err:
            raise Refused(err.code, err.read().decode(errors="replace")) from err


def _quoted(run_id: str) -> str:
    return urllib.parse.quote(run_id, safe="~")
