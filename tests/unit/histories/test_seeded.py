"""The machine that takes Spark's tables through random histories, over a table that is only counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.histories import spark_machine
from tests.histories.actions import Actions, action
from tests.histories.seeded import HistoryFailed
from tests.histories.spark_machine import replay, run
from tests.histories.spark_table import Shape

STEPS = 30
NOBODY: Any = None  # instead of the judge


class Counted(Actions):
    """Wrong after some of its expiries, if it comes to one: that takes two appends."""

    begun: ClassVar[list[Counted]] = []

    def __init__(self, folder: Path) -> None:
        assert folder.is_dir()
        self.begun.append(self)
        self.done: list[str] = []
        self.appends, self.is_wrong = 0, False

    def act(self, name: str, a: int, b: int, c: int) -> bool:
        self.done.append(name)
        return super().act(name, a, b, c)

    @action(weight=3)
    def append(self, a: int, b: int, c: int) -> None:
        self.appends += 1

    @action(when=lambda self: self.appends > 1)
    def expire(self, a: int, b: int, c: int) -> None:
        self.is_wrong = a > 40

    @action()
    def sync(self, a: int, b: int, c: int) -> None:
        assert not self.is_wrong

    def end(self) -> None:
        self.done.append("end")
        assert not self.is_wrong


class Right(Counted):
    @action(when=lambda self: self.appends > 1)
    def expire(self, a: int, b: int, c: int) -> None:
        assert self.appends > 1


@pytest.fixture(autouse=True)
def _count_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "begun", [])


def drive(monkeypatch: pytest.MonkeyPatch, kind: type[Counted]) -> None:
    def begin(judge: object, folder: Path, shape: Shape) -> Counted:
        return kind(folder)

    monkeypatch.setattr(spark_machine, "begin", begin)


def test_a_seed_is_one_history_of_so_many_steps_and_a_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    drive(monkeypatch, Right)
    for seed in range(5):
        run(NOBODY, seed, steps=STEPS)
    assert [len(one.done) for one in Counted.begun] == [STEPS + 1] * 5
    assert {one.done[-1] for one in Counted.begun} == {"end"}
    assert len({tuple(one.done) for one in Counted.begun}) == 5
    assert {name for one in Counted.begun for name in one.done} == {"append", "expire", "sync", "end"}


def test_a_failure_is_told_and_shortened_and_its_seed_leads_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drive(monkeypatch, Counted)
    with pytest.raises(HistoryFailed, match=r"seed 7: Trace\(") as first:
        run(NOBODY, 7, steps=STEPS)
    with pytest.raises(HistoryFailed) as second:
        run(NOBODY, 7, steps=STEPS, shorten_s=0)
    assert first.value.trace == second.value.trace
    assert [name for name, *_ in first.value.short.steps] == ["append", "append", "expire"]
    assert f"The same in 3 steps: {first.value.short}" in str(first.value)
    with pytest.raises(AssertionError):
        replay(NOBODY, first.value.short)
