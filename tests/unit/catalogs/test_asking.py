"""One question about many: bounded in number and in failures, and each answer belongs to who was asked."""

from __future__ import annotations

import threading

import pytest

from lakemirror.catalogs.asking import FAILURES_AT_MOST, ask_all
from lakemirror.errors import PermanentError, TransientError

AWAY = TransientError("read head", "shop", "away")


def test_never_more_calls_at_once_than_workers() -> None:
    lock, running, most = threading.Lock(), [0], [0]
    gate = threading.Barrier(3)

    def ask(number: int) -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        if number < 3:
            gate.wait(timeout=10)  # three do run at once
        with lock:
            running[0] -= 1
        return -number

    assert [*ask_all(ask, range(50), 3).told.items()] == [(number, -number) for number in range(50)]
    assert most[0] == 3


@pytest.mark.parametrize("count", [1, 9])
def test_who_fails_in_passing_keeps_nobody_back(count: int) -> None:
    def ask(number: int) -> int:
        if number % 3 == 0:
            raise AWAY
        return number

    found = ask_all(ask, range(count), 4)
    assert found.told == {number: number for number in range(count) if number % 3}
    assert found.failed == {number: AWAY for number in range(count) if number % 3 == 0}


def test_who_goes_away_in_the_middle_is_not_asked_for_ever() -> None:
    """What was told before that counts; the rest is neither told nor failed."""
    asked: list[int] = []

    def ask(number: int) -> int:
        asked.append(number)
        if number >= 100:
            raise AWAY
        return number

    found = ask_all(ask, range(10_000), 4)
    assert [*found.told] == [*range(100)]
    assert FAILURES_AT_MOST <= len(found.failed) < FAILURES_AT_MOST + 4
    assert len(asked) == 100 + len(found.failed)


@pytest.mark.parametrize("count", [1, 100])
def test_any_other_error_ends_it(count: int) -> None:
    asked: list[int] = []

    def ask(number: int) -> None:
        asked.append(number)
        raise PermanentError("read head", "shop", "broken")

    with pytest.raises(PermanentError, match="broken"):
        ask_all(ask, range(count), 2)
    assert len(asked) <= 2
