"""What tests of several folders share: the judge, what to do when this machine cannot run it, seeds of histories."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.judge import Judge

pytest_plugins = ["tests.services.fixtures"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--history-seed", type=int, help="repeat the random histories of this seed")
    parser.addoption("--history-steps", type=int, help="so many steps in each Spark history")
    parser.addoption("--history-skip", default="", help="steps of a Spark history to leave out, as 3,5,8-12")


@pytest.fixture
def history_seed(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> int:
    """A new one in every run, unless one is asked for; said aloud, because nothing else repeats a history."""
    asked = request.config.getoption("--history-seed")
    chosen = time.time_ns() % 2**31 if asked is None else int(asked)
    with capsys.disabled():
        print(f"\n{request.node.name}: --history-seed={chosen}")
    return chosen


@pytest.fixture
def history_steps(request: pytest.FixtureRequest) -> int | None:
    asked = request.config.getoption("--history-steps")
    return None if asked is None else int(asked)


@pytest.fixture
def history_skip(request: pytest.FixtureRequest) -> frozenset[int]:
    """The steps that `--history-skip` leaves out."""
    parts = [part.split("-") for part in request.config.getoption("--history-skip").split(",") if part]
    return frozenset(number for part in parts for number in range(int(part[0]), int(part[-1]) + 1))


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """One JVM for the whole run. In CI a judge that cannot sit is a failure; elsewhere its cases are skipped."""
    from tests.judge import Judge, what_is_missing

    missing = what_is_missing()
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    judge = Judge(tmp_path_factory.mktemp("judge"))
    yield judge
    judge.close()
