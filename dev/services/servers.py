"""One server, described; and the hand that makes such servers run: what runs and is as described is left alone."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dev.services import processes
from dev.services.folder import ServicesFolder
from dev.services.processes import MARK, Process
from dev.services.trouble import ServicesError
from dev.services.waiting import GaveUp, until

PASSED_ON = ("HOME", "JAVA_HOME", "LANG", "TMPDIR", "TZ")  # of the caller's environment: servers need little else
SICK_AFTER_S = 10.0  # a server that ran before and does not answer for so long is started anew
LOG_LINES = 25


@dataclass(frozen=True, slots=True)
class Server:
    """How to start one server and how to see that it works. A changed command or environment means a new start."""

    name: str
    command: tuple[str, ...]
    is_healthy: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    health_timeout_s: float = 60.0
    stop_signal: int = int(signal.SIGTERM)
    stop_timeout_s: float = 10.0
    user: tuple[int, int] | None = None
    leaves: tuple[str, ...] = ()
    prepare: Callable[[], None] = lambda: None  # just before a start, when nothing of an earlier one runs any more

    @property
    def fingerprint(self) -> str:
        said = json.dumps([self.command, sorted(self.environment.items()), self.user])
        return hashlib.sha256(said.encode()).hexdigest()


class Servers:
    """The servers of one folder. Safe to use from several threads for different servers."""

    def __init__(self, folder: ServicesFolder, tell: Callable[[str], None], cancelled: threading.Event) -> None:
        self._folder = folder
        self._tell = tell
        self._cancelled = cancelled

    def is_running(self, name: str) -> bool:
        process = Process.read(self._folder.pid(name))
        return process is not None and process.is_alive

    def ensure(self, server: Server) -> bool:
        """Makes it run and answer; False if it already did."""
        process = Process.read(self._folder.pid(server.name))
        if process is not None and process.is_alive:
            if process.fingerprint == server.fingerprint and self._recovers(server, process):
                return False
            self._tell(f"{server.name}: starting it anew, because it does not answer or its settings changed")
        self.stop(server.name)
        self._start(server)
        return True

    def stop(self, name: str) -> bool:
        """Ends a server and its children; False if it did not run."""
        record = self._folder.pid(name)
        process = Process.read(record)
        was_up = process is not None and process.is_alive
        if process is not None:
            processes.stop(process)
        was_up = bool(processes.kill_marked(self._mark(name))) or was_up
        record.unlink(missing_ok=True)
        return was_up

    def kill(self, name: str) -> bool:
        """As if it had died: it stays on record. Returns when it is gone; False if it did not run."""
        return bool(processes.kill_marked(self._mark(name)))

    def recorded(self) -> list[str]:
        """The names of all that were started and not stopped."""
        return sorted(record.stem for record in self._folder.pids.glob("*.json"))

    def _mark(self, name: str) -> str:
        return f"{self._folder.path.resolve()}:{name}"

    def _recovers(self, server: Server, process: Process) -> bool:
        try:
            self._await_health(server, process, SICK_AFTER_S)
        except GaveUp:
            return False
        return True

    def _await_health(self, server: Server, process: Process, timeout_s: float) -> None:
        until(
            server.is_healthy,
            timeout_s=timeout_s,
            is_possible=lambda: process.is_alive,
            cancelled=self._cancelled,
        )

    def _start(self, server: Server) -> None:
        server.prepare()
        log = self._folder.log(server.name)
        pid = processes.launch(
            server.command,
            environment={**base_environment(), **server.environment, MARK: self._mark(server.name)},
            log=log,
            folder=Path("/") if server.user else self._folder.data(server.name),
            user=server.user,
        )
        born = processes.birth(pid)
        if born is None:
            raise ServicesError(f"{server.name} ended at once; its log {log} ends with\n{tail(log)}")
        process = Process(pid, born, server.fingerprint, server.stop_signal, server.stop_timeout_s, server.leaves)
        process.write(self._folder.pid(server.name))
        try:
            self._await_health(server, process, server.health_timeout_s)
        except GaveUp as err:
            self.stop(server.name)
            raise ServicesError(f"{server.name} did not start: {err}; its log {log} ends with\n{tail(log)}") from err


def base_environment() -> dict[str, str]:
    """What every server gets: the programs of this Python's environment first, no cloud credentials, no proxies."""
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {**kept, "PATH": f"{bin_folder()}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def bin_folder() -> Path:
    """Where the programs of the pinned packages are."""
    return Path(sys.executable).parent


def tail(log: Path, lines: int = LOG_LINES) -> str:
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else "(no log)"
    return "\n".join(f"    {line[:300]}" for line in text.splitlines()[-lines:])
