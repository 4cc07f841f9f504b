"""The state machine over a table that Spark writes, mirrored in both lanes and judged: one history for each seed.

    run(judge, 123)

The session is the judge's, and stays open from one history to the next. A failure tells the shortest steps that were
found to lead to it; `replay` takes them.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import ClassVar

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.e2e.history import start_history
from tests.histories import seeded
from tests.histories.seeded import NUMBERS, SHORTEN_S, TracedMachine, new_folder
from tests.histories.shortening import Trace
from tests.histories.spark_history import SparkHistory
from tests.histories.spark_table import ELSEWHERE, Shape, shapes
from tests.judge import Judge

STEPS = 14


class SparkMachine(TracedMachine):
    """One rule, so that every action keeps its weight in every history; it draws from those that the state allows."""

    judge: ClassVar[Judge]
    length: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self.folder = new_folder()
        self.table: SparkHistory | None = None

    @initialize(is_random=st.booleans(), shape=shapes())
    def begin(self, is_random: bool, shape: Shape) -> None:
        assume(is_random)  # Hypothesis first tries the simplest of everything: the same append again and again
        type(self).trace = Trace(shape)
        self.table = begin(self.judge, self.folder, shape)

    def allowed(self) -> list[str]:
        assert self.table is not None
        return self.table.allowed()

    @rule(
        what=st.runner().flatmap(lambda machine: st.sampled_from(machine.allowed())),
        a=NUMBERS,
        b=NUMBERS,
        c=NUMBERS,
    )
    def step(self, what: str, a: int, b: int, c: int) -> None:
        assert self.table is not None
        self.trace.steps.append((what, a, b, c))
        self.table.act(what, a, b, c)
        if len(self.trace.steps) == self.length:
            self.table.end()

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


def begin(judge: Judge, folder: Path, shape: Shape) -> SparkHistory:
    roots = {"meta": str(folder / "onprem" / ELSEWHERE)} if shape.is_elsewhere else {}
    return SparkHistory(start_history(judge, folder, roots), shape)


def replay(judge: Judge, trace: Trace) -> None:
    """The same history to its end; steps that its state does not allow are left out."""
    folder = new_folder()
    try:
        table = begin(judge, folder, trace.opening)
        for step in trace.steps:
            table.act(*step)
        table.end()
    finally:
        shutil.rmtree(folder)


def run(judge: Judge, number: int, *, steps: int = STEPS, shorten_s: float = SHORTEN_S) -> None:
    """The history of a seed, to its end and its last, deep comparison.

    One and no more, so that a seed is replayed at the cost of one history.
    """
    machine = type("SparkHistory", (SparkMachine,), {"judge": judge, "length": steps})
    seeded.run(machine, number, partial(replay, judge), examples=1, steps=steps, shorten_s=shorten_s)
