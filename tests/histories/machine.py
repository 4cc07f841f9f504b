"""The state machine: a table made by hand lives on, the mirror follows now and then, and is held against it each time.

    run(123)

A failure is shrunk and printed as the steps that lead to it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.histories.actions import LIMIT
from tests.histories.mirroring import SyntheticHistory

MEMORY = Path("/dev/shm")  # where there is one, nothing waits for a disk
NUMBERS = st.integers(0, LIMIT)
EXAMPLES, STEPS = 10, 50  # of one seed


class HistoryMachine(RuleBasedStateMachine):
    """One rule, so that every action keeps its weight in every history."""

    steps = 0  # of all machines in this process

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="history-", dir=MEMORY if MEMORY.is_dir() else None))
        self.history: SyntheticHistory | None = None

    @initialize(
        version=st.sampled_from((2, 3, 1)),
        spelling=st.integers(0, 2),
        history_versions=st.sampled_from((1000, 1, 0)),
        small_change_files=st.sampled_from((10_000, 0)),
    )
    def begin(self, version: int, spelling: int, **knobs: int) -> None:
        self.history = SyntheticHistory(self.folder, version, spelling, knobs)

    @rule(what=st.sampled_from(SyntheticHistory.weighted()), a=NUMBERS, b=NUMBERS, c=NUMBERS)
    def step(self, what: str, a: int, b: int, c: int) -> None:
        assert self.history is not None
        HistoryMachine.steps += self.history.act(what, a, b, c)

    def teardown(self) -> None:
        try:
            if self.history is not None:
                self.history.sync(0, 0, 0)
        finally:
            shutil.rmtree(self.folder)


def run(number: int, *, examples: int = EXAMPLES, steps: int = STEPS, is_shrunk: bool = True) -> None:
    """So many histories of so many steps, by this seed; a failure is an exception that tells the shortest way to it."""
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, *([Phase.shrink] if is_shrunk else [])),
    )
    run_state_machine_as_test(seed(number)(type("History", (HistoryMachine,), {})), settings=chosen)
