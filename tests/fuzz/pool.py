"""Children that run hostile inputs: started as needed, watched, and replaced when one dies or takes too long.

What an input may take is judged by the CPU time of its child, because other work on the machine is not its fault.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

PROJECT = Path(__file__).resolve().parents[2]
Job = dict[str, Any]
Answer = dict[str, Any]
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one input may take: seconds of CPU, seconds by the clock, and memory beyond what its child had before."""

    cpu_s: float = 20.0
    wall_s: float = 120.0
    grown_bytes: int = 600 << 20


class Child:
    def __init__(self, limits: Limits, *, is_cold: bool = False) -> None:
        """A cold one is ready sooner; its first input takes longer."""
        self._limits = limits
        environment = {**os.environ, "PYTHONPATH": f"{PROJECT / 'plugins'}:{PROJECT}"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", *(["--cold"] if is_cold else [])],
            cwd=PROJECT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._rest = b""
        self.job: Job | None = None
        self._started, self._cpu = time.monotonic(), 0.0
        self.is_ready = False

    @property
    def output(self) -> IO[bytes]:
        return cast(IO[bytes], self._process.stdout)

    def give(self, job: Job) -> None:
        self.job = job
        self._started, self._cpu = time.monotonic(), self._cpu_s()
        stdin = cast(IO[bytes], self._process.stdin)
        stdin.write(json.dumps(job).encode() + b"\n")
        stdin.flush()

    def answers(self) -> Iterator[Answer]:
        """What it said; call when its output can be read."""
        piece = os.read(self.output.fileno(), 1 << 16)
        if not piece:
            code = self._process.wait()
            yield {"outcome": "finding", "signature": f"the process died ({code})", "text": "", "dead": True}
            return
        *lines, self._rest = (self._rest + piece).split(b"\n")
        yield from (json.loads(line) for line in lines)

    def overdue(self) -> str | None:
        if self.job is None and self.is_ready:
            return None
        if self.job is not None and self._cpu_s() - self._cpu > self._limits.cpu_s:
            return f"more than {self._limits.cpu_s:g} s of CPU"
        return "no answer" if time.monotonic() - self._started > self._limits.wall_s else None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.output.close()
        cast(IO[bytes], self._process.stdin).close()

    def _cpu_s(self) -> float:
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(") ")[2].split()
        except OSError:
            return time.monotonic()
        return (int(fields[11]) + int(fields[12])) / _TICKS


def run(
    jobs: Iterable[Job],
    children: int,
    limits: Limits,
    on_answer: Callable[[Job, Answer], None],
    seconds: float | None = None,
    *,
    is_cold: bool = False,
) -> None:
    """Every job, or as many as there is time for in so many seconds from the first on, one child each at a time."""
    until: float | None = None
    todo = iter(jobs)
    alive = [Child(limits, is_cold=is_cold) for _ in range(children)]
    is_over = False
    try:
        while alive:
            readable, _, _ = select.select([child.output for child in alive], [], [], 0.2)
            for child in list(alive):
                said = list(child.answers()) if child.output in readable else []
                late = child.overdue() if not said else None
                if late is not None:
                    said = [{"outcome": "finding", "signature": late, "text": "", "dead": True}]
                for answer in said:
                    if child.job is not None:
                        on_answer(child.job, _judged(answer, limits))
                    elif answer.get("dead"):
                        raise RuntimeError("a child of the fuzzer does not start")
                    child.job, child.is_ready = None, True
                if any(answer.get("dead") for answer in said):
                    child.kill()
                    alive.remove(child)
                    if not is_over:
                        alive.append(Child(limits, is_cold=is_cold))
                    continue
                if child.job is None and child.is_ready:
                    if until is None and seconds is not None:
                        until = time.monotonic() + seconds
                    is_over = is_over or (until is not None and time.monotonic() > until)
                    job = None if is_over else next(todo, None)
                    if job is None:
                        is_over = True
                        child.kill()
                        alive.remove(child)
                    else:
                        child.give(job)
    finally:
        for child in alive:
            child.kill()


def _judged(answer: Answer, limits: Limits) -> Answer:
    grown = answer.get("grown_bytes", 0)
    if answer["outcome"] != "finding" and grown > limits.grown_bytes:
        return {**answer, "outcome": "finding", "signature": f"{grown >> 20} MiB of memory: {answer['text'][:80]}"}
    return answer
