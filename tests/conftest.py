"""What tests of several folders share: the judge, what to do when this machine cannot run it, seeds of histories.

Where processes run test files side by side, those that may take longest come first, so that none is left over for one
process at the end; after each that waits come two that compute, so that the processors are busy all the time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dev.services import Services
    from tests.blms_double import BlmsDouble
    from tests.judge import Judge

pytest_plugins = ["tests.services.fixtures"]
COMPUTING_BESIDE = 2  # files that compute, for each that waits


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--history-seed", type=int, help="repeat the random histories of this seed")
    parser.addoption("--history-steps", type=int, help="so many steps in each Spark history")


@pytest.hookimpl(trylast=True)  # when all marks are given
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        longest_first(items)


def longest_first(items: list[pytest.Item]) -> None:
    """File by file, by the largest time limit in each, and one that waits beside two others; none moves in its file."""
    limits: dict[Path, float] = {}
    for item in items:
        wanted = item.get_closest_marker("timeout")
        limits[item.path] = max(limits.get(item.path, 0.0), wanted.args[0] if wanted and wanted.args else 0.0)
    waiting = {item.path for item in items if item.get_closest_marker("waits")}
    places: dict[Path, float] = {}
    for path in sorted(limits, key=lambda path: -limits[path]):
        is_waiting = path in waiting
        nth = sum((other in waiting) == is_waiting for other in places)
        places[path] = COMPUTING_BESIDE * nth - 0.5 if is_waiting else nth
    items.sort(key=lambda item: places[item.path])


@pytest.fixture
def history_seed(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> int:
    """A new one in every run, unless one is asked for; said aloud, because nothing else repeats a history."""
    asked = request.config.getoption("--history-seed")
    chosen = time.time_ns() % 2**31 if asked is None else int(asked)
    said = f"{request.node.name}: --history-seed={chosen}"
    print(said)  # pytest shows it with a failure
    with capsys.disabled():  # and in any case, unless tests run side by side
        print(f"\n{said}")
    return chosen


@pytest.fixture
def history_steps(request: pytest.FixtureRequest) -> int | None:
    asked = request.config.getoption("--history-steps")
    return None if asked is None else int(asked)


@pytest.fixture
def blms(services: Services) -> Iterator[BlmsDouble]:
    """A double of BLMS in front of the mirror's REST server."""
    from tests.blms_double import blms_double

    with blms_double(services.mirror_properties, services.mirror_location) as double:
        yield double


@pytest.fixture(scope="session")
def judge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """One JVM for the whole run. In CI a judge that cannot sit is a failure; elsewhere its cases are skipped."""
    from tests.judge import Judge, what_is_missing

    missing = what_is_missing()
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    judge = Judge(tmp_path_factory.mktemp("judge"))
    yield judge
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{judge.duckdb.told()}")
    judge.close()
