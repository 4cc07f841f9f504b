"""The state machine: a table made by hand lives on, the mirror follows now and then, and is held against it each time.

    run(123)

A failure tells the shortest steps that were found to lead to it; `replay` takes them.
"""

from __future__ import annotations

import shutil
import time

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.histories.actions import LIMIT
from tests.histories.mirroring import SyntheticHistory
from tests.histories.shortening import Trace, new_folder, shortest

NUMBERS = st.integers(0, LIMIT)
EXAMPLES, STEPS = 20, 50  # of one seed
SHORTEN_S = 120.0


class HistoryMachine(RuleBasedStateMachine):
    """One rule, so that every action keeps its weight in every history."""

    steps = 0  # of all machines in this process
    trace: Trace  # of the last one

    def __init__(self) -> None:
        super().__init__()
        self.folder = new_folder()
        self.history: SyntheticHistory | None = None

    @initialize(
        version=st.sampled_from((2, 3, 1)),
        spelling=st.integers(0, 2),
        history_versions=st.sampled_from((1000, 1, 0)),
        small_change_files=st.sampled_from((10_000, 0)),
    )
    def begin(self, version: int, spelling: int, **knobs: int) -> None:
        HistoryMachine.trace = Trace(version, spelling, knobs)
        self.history = SyntheticHistory(self.folder, version, spelling, knobs)

    @rule(what=st.sampled_from(SyntheticHistory.weighted()), a=NUMBERS, b=NUMBERS, c=NUMBERS)
    def step(self, what: str, a: int, b: int, c: int) -> None:
        assert self.history is not None
        HistoryMachine.trace.steps.append((what, a, b, c))
        HistoryMachine.steps += self.history.act(what, a, b, c)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


def run(number: int, *, examples: int = EXAMPLES, steps: int = STEPS, shorten_s: float = SHORTEN_S) -> None:
    """So many histories of so many steps, by this seed; a failure is an exception that tells the short way to it."""
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    try:
        run_state_machine_as_test(seed(number)(type("History", (HistoryMachine,), {})), settings=chosen)
    except Exception as err:
        short = shortest(HistoryMachine.trace, type(err), time.monotonic() + shorten_s)
        err.add_note(f"The same in {len(short.steps)} steps: {short}")
        raise
