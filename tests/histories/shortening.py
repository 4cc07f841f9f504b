"""The steps of a history as data: to take them again, and to find the fewest of them that still fail.

Hypothesis could shorten them too, but takes hundreds of runs for what leaving out halves and quarters does in dozens.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.histories.mirroring import SyntheticHistory

MEMORY = Path("/dev/shm")  # where there is one, nothing waits for a disk
Step = tuple[str, int, int, int]


def new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="history-", dir=MEMORY if MEMORY.is_dir() else None))


@dataclass(frozen=True)
class Trace:
    version: int
    spelling: int
    knobs: dict[str, int]
    steps: list[Step] = field(default_factory=list)


def replay(trace: Trace) -> None:
    """The same history; steps that its state does not allow are left out, as they were the first time."""
    folder = new_folder()
    try:
        history = SyntheticHistory(folder, trace.version, trace.spelling, trace.knobs)
        for step in trace.steps:
            history.act(*step)
    finally:
        shutil.rmtree(folder)


def shortest(trace: Trace, kind: type[Exception], deadline: float) -> Trace:
    """Fewer steps, and smaller numbers, that fail by the same kind of error; as far as the time allows."""
    size = max(1, len(trace.steps) // 2)
    while size:
        start = 0
        while start < len(trace.steps):
            shorter = replace(trace, steps=trace.steps[:start] + trace.steps[start + size :])
            if time.monotonic() >= deadline:
                return trace
            trace, start = (shorter, start) if _fails(shorter, kind) else (trace, start + size)
        size //= 2
    for place in range(len(trace.steps)):
        for number in (1, 2, 3):
            step = trace.steps[place]
            simpler: Step = (*step[:number], 0, *step[number + 1 :])  # type: ignore[assignment]  # one number is less
            shorter = replace(trace, steps=[*trace.steps[:place], simpler, *trace.steps[place + 1 :]])
            if simpler != step and time.monotonic() < deadline and _fails(shorter, kind):
                trace = shorter
    return trace


def _fails(trace: Trace, kind: type[Exception]) -> bool:
    try:
        replay(trace)
    except kind:
        return True
    except Exception:  # noqa: BLE001 — another failure: not the one that is looked for
        return False
    return False
