"""Programs that a test starts, watches and ends, together with all that they started themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dev import sessions
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


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])


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
        """kill -9 of all that it has started, Spark's Python workers among them."""
        sessions.kill(self._process.pid, reap=self._process.poll)
        return self._process.wait(10)

    def output(self) -> str:
        return self.log.read_text(errors="replace")


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
