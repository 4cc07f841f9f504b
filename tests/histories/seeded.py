"""A Hypothesis state machine, run by a seed; a failure tells the way to it, whole and as short as it was found."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.histories.actions import LIMIT
from tests.histories.shortening import Replay, Trace, shortest

NUMBERS = st.integers(0, LIMIT)
SHORTEN_S = 120.0
MEMORY = Path("/dev/shm")  # where there is one, nothing waits for a disk


def new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="history-", dir=MEMORY if MEMORY.is_dir() else None))


class TracedMachine(RuleBasedStateMachine):
    """One that keeps what was drawn: of the last history that its class ran."""

    trace: ClassVar[Trace]


class HistoryFailed(AssertionError):
    """A history of a seed that failed; its cause is the failure itself."""

    def __init__(self, number: int, trace: Trace, short: Trace) -> None:
        super().__init__(f"seed {number}: {trace}\nThe same in {len(short.steps)} steps: {short}")
        self.trace, self.short = trace, short


def run(
    machine: type[TracedMachine], number: int, replay: Replay, *, examples: int, steps: int, shorten_s: float
) -> None:
    """So many histories of so many steps, drawn by this seed. The first that fails is shortened, and ends it."""
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps + 1,  # the opening is one of them
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    try:
        run_state_machine_as_test(seed(number)(machine), settings=chosen)
    except Exception as err:
        short = shortest(machine.trace, replay, type(err), time.monotonic() + shorten_s)
        raise HistoryFailed(number, machine.trace, short) from err
