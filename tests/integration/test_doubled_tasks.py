"""Tries of one Airflow task in real processes: two that live at once, and one that comes after a death.

Airflow takes a task for dead whose heartbeats it misses, and starts the next try while the first one may be alive.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakemirror.model.lease import Lease
from tests.e2e.processes import Program, until
from tests.integration.looking import check_whole
from tests.judge import ROOT
from tests.lake import ORDERS, Lake, rows

pytestmark = [pytest.mark.integration, pytest.mark.waits, pytest.mark.timeout(240)]

FILES = 8
TRY_S = 90  # for Airflow to be imported, and a few files to be copied, on a busy machine


class Scene:
    """A lake, and tries of the one task over it; a `slow` one needs some seconds for the copy."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.started: list[Program] = []
        self._slow = lake.folder / "slow.yaml"
        document = yaml.safe_load(lake.config_path.read_text())
        document["defaults"] |= {"peak_bandwidth_bytes_per_s": 3000, "rate_limit": 1.0, "max_concurrency": 1}
        self._slow.write_text(yaml.safe_dump(document), encoding="utf-8")
        orders = lake.create()
        for number in range(FILES):
            orders.append(rows(1, number))

    def start(self, number: int, *words: str, slow: bool = False) -> Program:
        config = self._slow if slow else self.lake.config_path
        command = [sys.executable, "-m", "tests.integration.one_try", str(config), str(number), *words]
        log = self.lake.folder / f"{len(self.started)}.log"
        env = {"TMPDIR": str(self.lake.folder)}  # one that dies does not clean up
        self.started.append(Program(command, log, cwd=ROOT, env=env))
        return self.started[-1]

    def copied(self) -> int:
        return len([*(self.lake.mirror_folder / ORDERS.folder).glob("data/**/*.parquet")])

    def token(self) -> int:
        path = self.lake.mirror_folder / ORDERS.folder / "_control" / "lease.json"
        return Lease.from_bytes(path.read_bytes(), str(path)).token

    def is_in_step(self) -> bool:
        self.lake.follow()
        check_whole(self.lake)
        return self.lake.mirror_rows() == self.lake.source_rows()


def ended(run: Program) -> dict[str, Any]:
    assert run.wait(TRY_S) == 0, run.output()
    found: dict[str, Any] = json.loads(run.output().splitlines()[-1])
    return found


@pytest.fixture(params=[True, False], ids=["fence", "no-fence"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(Lake(tmp_path, defaults={"fence": request.param, "lease_seconds": 120}))
    yield made
    for run in made.started:
        run.kill()


@pytest.mark.parametrize("scene", [True], ids=["fence"], indirect=True)
def test_of_two_tries_that_live_at_once_the_later_one_publishes(scene: Scene) -> None:
    """It does not wait for the lease, which is of its own run. The earlier one makes no other version: it finds its own
    marker there, or, where it looks at its lease before (it does so every half of its time), that it was overtaken.
    """
    first = scene.start(1, slow=True)
    until(lambda: 0 < scene.copied() < FILES, "the first one copies", timeout_s=TRY_S)
    os.killpg(first.pid, signal.SIGSTOP)  # so that it is in the middle for as long as the other one works
    second = scene.start(2)
    assert ended(second) == {"ended": "success", "message": "", "told": [1]}
    os.killpg(first.pid, signal.SIGCONT)
    assert (scene.lake.ready(), scene.token()) == (["v1.ready.json"], 2)
    told = ended(first)
    is_shut_out = told["ended"] == "AirflowException" and "took it over" in told["message"]
    assert is_shut_out or (told["ended"], told["told"]) == ("success", [1]), told
    assert scene.lake.ready() == ["v1.ready.json"]
    assert scene.is_in_step()


@pytest.mark.parametrize("scene", [False], ids=["no-fence"], indirect=True)
def test_without_a_fence_two_tries_make_one_version(scene: Scene) -> None:
    first, second = scene.start(1), scene.start(2)
    for run in (first, second):
        assert ended(run)["ended"] in ("success", "skipped")
    assert scene.lake.ready() == ["v1.ready.json"]
    assert scene.is_in_step()


def test_a_version_whose_event_died_with_its_try_is_told_by_the_next(scene: Scene) -> None:
    assert scene.start(1, "dies").wait(TRY_S) == -9
    assert scene.lake.ready() == ["v1.ready.json"]
    assert ended(scene.start(2)) == {"ended": "success", "message": "", "told": [1]}
    assert ended(scene.start(1))["ended"] == "skipped", "the next run has nothing to tell"
    assert scene.lake.ready() == ["v1.ready.json"]
    assert scene.is_in_step()
