"""A whole, real Airflow in a home of its own: free ports of this machine, LocalExecutor on SQLite, stopped whole.

Its parts are those of `airflow standalone`, but for the servers of task logs: those listen to the whole network, and no
setting keeps them from it. Who reads logs here reads files.

Airflow and everything it starts (workers, tasks, Spark's JVMs) are one session. It gets one SIGTERM, and SIGKILL when
it is not gone within a bound: signalling the parent alone would leave orphans behind. The session's id is kept in
`<home>/airflow.session`, so that one left running on purpose can be found and stopped later.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from dev import sessions
from dev.airflow_api import AirflowApi

# It ends with the first part that does, so that this is told at once, not as an Airflow that is never healthy. Between
# the braces bash does not look by itself who has ended; `wait -n` would never hear of those.
PARTS = """
airflow db migrate || exit
{
    airflow scheduler --skip-serve-logs &
    airflow triggerer --skip-serve-logs &
    airflow dag-processor &
    airflow api-server &
    wait -n
}
"""
# For DAGs that do not change while it runs: parsing them again and again takes a sixth of a core.
PARSED_ONCE = {
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "600",
}
COMPONENTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")
PASSWORDS = "simple_auth_manager_passwords.json.generated"  # pragma: allowlist secret


class AirflowDidNotStart(RuntimeError):
    """Airflow ended or was not healthy in time; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What differs between one Airflow and another. `config` is lakemirror's configuration file."""

    home: Path
    project: Path
    config: Path
    spark_master: str = "local[2]"
    parallelism: int = 4
    environment: Mapping[str, str] = field(default_factory=dict)


class AirflowStandalone:
    """Start, ask, stop. A context manager that always stops what it started."""

    username = "admin"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_file = settings.home / "standalone.log"

    @property
    def password(self) -> str:
        return str(json.loads((self._settings.home / PASSWORDS).read_text())[self.username])

    @property
    def session(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def task_logs(self) -> Path:
        return self._settings.home / "logs"

    def api(self) -> AirflowApi:
        return AirflowApi(self.url, self.username, self.password)

    def start(self, *, timeout_s: float = 120, on_wait: Callable[[str], None] = lambda _: None) -> None:
        """Returns when all components are healthy; `on_wait` hears which are, whenever that changes.

        DAGs are paused until `api().unpause_all()`.
        """
        self._settings.home.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", PARTS],
                cwd=self._settings.home,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _session_file(self._settings.home).write_text(str(self._process.pid))
        deadline = time.monotonic() + timeout_s
        told = ""
        while (healthy := self._healthy()) != set(COMPONENTS):
            if (state := f"healthy: {', '.join(sorted(healthy)) or 'nothing yet'}") != told:
                on_wait(told := state)
            if self._process.poll() is not None:
                raise AirflowDidNotStart(f"airflow ended with {self._process.returncode}\n{tail(self.log_file)}")
            if time.monotonic() > deadline:
                raise AirflowDidNotStart(f"not healthy after {timeout_s:.0f} s ({state})\n{tail(self.log_file)}")
            time.sleep(0.5)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, *, timeout_s: float = 15) -> None:
        """Safe to call at any time and twice."""
        if self._process is not None:
            sessions.stop(self._process.pid, timeout_s=timeout_s, reap=self._process.poll)
            _session_file(self._settings.home).unlink(missing_ok=True)
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _healthy(self) -> set[str]:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v2/monitor/health", timeout=5) as answer:
                found = json.loads(answer.read())
        except (OSError, ValueError):
            return set()
        return {name for name in COMPONENTS if (found.get(name) or {}).get("status") == "healthy"}

    def _environment(self) -> dict[str, str]:
        settings = self._settings
        # What the caller's shell says about another Airflow or Spark, and a wish not to keep bytecode (each task is a
        # new process that would compile all of Airflow again), must not reach this one.
        unwanted = ("AIRFLOW", "SPARK_LOCAL_IP", "PYTHONDONTWRITEBYTECODE")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        return {
            **inherited,
            "PATH": f"{_venv_bin()}{os.pathsep}{inherited.get('PATH', os.defpath)}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",  # where its drivers listen
            "LAKEMIRROR_CONFIG": str(settings.config),
            "AIRFLOW_HOME": str(settings.home),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": settings.spark_master}),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            # The scheduler is up before the api-server, and a task that cannot reach it fails. So nothing may run
            # before all is healthy.
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
            "AIRFLOW__CORE__DAGS_FOLDER": str(settings.project / "dags"),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": str(settings.parallelism),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(settings.project / "plugins"),
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            # Where the web page asks for logs beside the files: nobody is there, no other Airflow either.
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": "1",
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": "1",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
            **settings.environment,
        }


def stop_left_over(home: Path, *, timeout_s: float = 15, reap: Callable[[], object] = lambda: None) -> bool:
    """Stops the Airflow that was left running in this home; False if there is none."""
    file = _session_file(home)
    if not file.exists():
        return False
    session = int(file.read_text())
    mark = f"AIRFLOW_HOME={home}".encode()
    is_ours = any(mark in _environment_of(pid) for pid in sessions.living(session))
    if is_ours:
        sessions.stop(session, timeout_s=timeout_s, reap=reap)
    file.unlink(missing_ok=True)
    return is_ours


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now; all are held until the last is found, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def tail(file: Path, lines: int = 30) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-lines:]) if file.exists() else f"(no {file})"


def _session_file(home: Path) -> Path:
    return home / "airflow.session"


def _environment_of(pid: int) -> bytes:
    """Empty where the process or /proc is not there: then nothing proves that the process is ours."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _venv_bin() -> Path:
    return Path(sys.executable).parent
