"""Programs that a test starts, watches and ends, together with all that they started themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from dev.spark_classes import java_options
from tests.judge import ROOT

BIN = Path(sys.executable).parent
POLL_S = 0.005


def small_jvm() -> dict[str, str]:
    """Settings of a Spark for small jobs: a quick start is worth more than fast code."""
    return {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": java_options(),
        "spark.executor.extraJavaOptions": java_options(),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }


def until(is_true: Callable[[], bool], what: str, *, timeout_s: float, poll_s: float = POLL_S) -> None:
    """Wait for a condition, for so long and no longer."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline:
            raise AssertionError(f"gave up after {timeout_s:g} s: {what}")
        time.sleep(poll_s)


def kill_group(group: int, *, but: Collection[int] = ()) -> None:
    """All processes of a group and what they have just started, save these; the leader first: it shall not see it."""

    def is_gone() -> bool:
        found = [pid for pid in members(group) if pid not in but]
        for pid in sorted(found, key=lambda pid: pid != group):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    until(is_gone, f"all of group {group} die", timeout_s=30)


def parent_of(pid: int) -> int:
    return int(_stat(Path(f"/proc/{pid}/stat"))[1])


def _stat(path: Path) -> list[str]:
    """From the state on."""
    return path.read_text(errors="replace").rpartition(")")[2].split()


def members(group: int) -> list[int]:
    """Those that are not yet dead."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended since
            state, _, of_group, *_ = _stat(stat)
            if state not in "ZX" and int(of_group) == group:
                found.append(int(stat.parent.name))
    return found


class Program:
    """A process in a session of its own; ending it ends its whole session, by whatever process group."""

    def __init__(self, command: Sequence[str | Path], log: Path, *, cwd: Path, env: Mapping[str, str] | None = None):
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                cwd=cwd,
                env={**environment(), **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Of the process, which leads a group and a session of this number."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> int:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as err:
            self.kill()
            raise AssertionError(f"not done after {timeout_s:g} s\n{self.output()[-4000:]}") from err

    def kill(self) -> int:
        """kill -9, at once and for all: the group first, then what has left the group (Spark's Python workers do)."""
        if self.is_running:
            os.killpg(self._process.pid, signal.SIGKILL)
        exit_code = self._process.wait(10)
        until(self._is_session_gone, f"processes of {self._process.pid} do not die", timeout_s=20, poll_s=0.02)
        return exit_code

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def _is_session_gone(self) -> bool:
        left = _session(self._process.pid)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return not left


def environment() -> dict[str, str]:
    """This project's programs first, and nothing of the caller's that decides what is imported, or how fast."""
    unwanted = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYSPARK_PYTHON", "LAKEMIRROR_CONFIG")
    inherited = {name: value for name, value in os.environ.items() if name not in unwanted}
    path = f"{BIN}{os.pathsep}{inherited.get('PATH', os.defpath)}"
    return {**inherited, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}


def spark_submit(
    job: str | Path, conf: Mapping[str, str], *arguments: str, master: str = "local[2]"
) -> list[str | Path]:
    """The command that submits one of `spark_jobs/`, by its name, or another program by its path."""
    python = {"spark.pyspark.python": sys.executable}
    script = job if isinstance(job, Path) else ROOT / "spark_jobs" / f"{job}.py"
    flags = [part for key, value in {**python, **conf}.items() for part in ("--conf", f"{key}={value}")]
    return [BIN / "spark-submit", "--master", master, *flags, script, *arguments]


def _session(leader: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):  # it ended while we looked
            continue
        if int(session) == leader and state != "Z":
            found.append(int(stat.parent.name))
    return found
