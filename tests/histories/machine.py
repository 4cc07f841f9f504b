"""The state machine: a table made by hand lives on, the mirror follows now and then, and is held against it each time.

    run(lambda history: history.end(duckdb), 123)

What is given judges the end of each. A failure tells the shortest steps that were found to lead to it; `replay` takes
them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.histories import seeded
from tests.histories.mirroring import SyntheticHistory
from tests.histories.seeded import NUMBERS, SHORTEN_S, TracedMachine, new_folder
from tests.histories.shortening import Trace

EXAMPLES, STEPS = 20, 50  # of one seed
Finish = Callable[[SyntheticHistory], None]


@dataclass(frozen=True)
class Opening:
    version: int
    spelling: int
    knobs: dict[str, int] = field(default_factory=dict)


class HistoryMachine(TracedMachine):
    """One rule, so that every action keeps its weight in every history."""

    finish: ClassVar[Finish]
    length: ClassVar[int]

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
        type(self).trace = Trace(Opening(version, spelling, knobs))
        self.history = SyntheticHistory(self.folder, version, spelling, knobs)

    @rule(what=st.sampled_from(SyntheticHistory.weighted()), a=NUMBERS, b=NUMBERS, c=NUMBERS)
    def step(self, what: str, a: int, b: int, c: int) -> None:
        assert self.history is not None
        self.trace.steps.append((what, a, b, c))
        self.history.act(what, a, b, c)
        if len(self.trace.steps) == self.length:
            type(self).finish(self.history)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


def replay(finish: Finish, trace: Trace) -> None:
    """The same history to its end; steps that its state does not allow are left out, as they were the first time."""
    folder, opening = new_folder(), trace.opening
    try:
        history = SyntheticHistory(folder, opening.version, opening.spelling, opening.knobs)
        for step in trace.steps:
            history.act(*step)
        finish(history)
    finally:
        shutil.rmtree(folder)


def run(
    finish: Finish, number: int, *, examples: int = EXAMPLES, steps: int = STEPS, shorten_s: float = SHORTEN_S
) -> None:
    """So many histories of so many steps, by this seed; a failure is an exception that tells the short way to it."""
    machine = type("History", (HistoryMachine,), {"finish": staticmethod(finish), "length": steps})
    seeded.run(machine, number, partial(replay, finish), examples=examples, steps=steps, shorten_s=shorten_s)
