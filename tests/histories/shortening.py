"""The steps of a history as data: to take them again, and to find the fewest of them that still fail.

Hypothesis could shorten them too, but takes hundreds of runs for what leaving out halves and quarters does in dozens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

Step = tuple[str, int, int, int]


@dataclass(frozen=True)
class Trace:
    """What was drawn for a history: its opening, and every step; printed as Python that makes it again."""

    opening: Any
    steps: list[Step] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(
            ["Trace(", f"    {self.opening!r},", "    [", *(f"        {one}," for one in self.steps), "    ],", ")"]
        )


Replay = Callable[[Trace], None]  # steps that the state does not allow are left out, as they were the first time


def shortest(trace: Trace, replay: Replay, kind: type[Exception], deadline: float) -> Trace:
    """Fewer steps, and smaller numbers, that fail by the same kind of error; as far as the time allows."""
    size = max(1, len(trace.steps) // 2)
    while size:
        start = 0
        while start < len(trace.steps):
            shorter = replace(trace, steps=trace.steps[:start] + trace.steps[start + size :])
            if time.monotonic() >= deadline:
                return trace
            trace, start = (shorter, start) if _fails(shorter, replay, kind) else (trace, start + size)
        size //= 2
    for place in range(len(trace.steps)):
        for number in (1, 2, 3):
            step = trace.steps[place]
            simpler: Step = (*step[:number], 0, *step[number + 1 :])  # type: ignore[assignment]  # one number is less
            shorter = replace(trace, steps=[*trace.steps[:place], simpler, *trace.steps[place + 1 :]])
            if simpler != step and time.monotonic() < deadline and _fails(shorter, replay, kind):
                trace = shorter
    return trace


def _fails(trace: Trace, replay: Replay, kind: type[Exception]) -> bool:
    try:
        replay(trace)
    except kind:
        return True
    except Exception:  # noqa: BLE001 — another failure: not the one that is looked for
        return False
    return False
