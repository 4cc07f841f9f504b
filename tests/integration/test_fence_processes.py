"""Runs of one table in real processes that overlap, die, or sleep past their lease: one publishes, the others say so.

The first run is slow, so that there is a middle: the second one comes while it copies.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from lakemirror.model.lease import Lease
from tests.e2e.processes import Program, until
from tests.integration.looking import check_whole
from tests.judge import ROOT
from tests.lake import ORDERS, SCHEMA, Lake

pytestmark = [pytest.mark.integration, pytest.mark.waits, pytest.mark.timeout(180)]

LEASE_S = 3
COMMAND_S = 60
FILES, ROWS = 8, 400


def much(start: int) -> pa.Table:
    """Rows whose texts do not shrink."""
    texts = [os.urandom(50).hex() for _ in range(ROWS)]
    return pa.table([pa.array(range(start, start + ROWS), pa.int64()), pa.array(texts)], schema=SCHEMA)


@dataclass
class Scene:
    """A lake, and commands over it; `slow` ones need some seconds for the copy."""

    lake: Lake
    started: list[Program] = field(default_factory=list)

    def __post_init__(self) -> None:
        document = yaml.safe_load(self.lake.config_path.read_text())
        document["defaults"] |= {"peak_bandwidth_bytes_per_s": 30_000, "rate_limit": 1.0, "max_concurrency": 1}
        self._slow = self.lake.folder / "slow.yaml"
        self._slow.write_text(yaml.safe_dump(document))
        self.orders = self.lake.create()
        for number in range(FILES):
            self.orders.append(much(number * ROWS))

    @property
    def folder(self) -> Path:
        return self.lake.mirror_folder / ORDERS.folder

    def start(self, command: str = "mirror", *, slow: bool = False) -> Program:
        config = self._slow if slow else self.lake.config_path
        log = self.lake.folder / f"{len(self.started)}.json"
        run = Program(
            [ROOT / "bin" / "lakemirror", "--config", config, "--json", command, str(ORDERS)],
            log,
            cwd=self.lake.folder,
        )
        self.started.append(run)
        return run

    def run(self, command: str = "mirror") -> tuple[int, dict[str, Any]]:
        run = self.start(command)
        return run.wait(COMMAND_S), answer(run)

    def await_copying(self, run: Program) -> None:
        """Some files are there and others are not."""
        until(lambda: self.copied() > 0, f"nothing is copied: {run.log}", timeout_s=COMMAND_S)
        assert self.copied() < FILES, "it was looked at too late"

    def copied(self) -> int:
        return len([*self.folder.glob("data/**/*.parquet")])

    def lease(self) -> Lease:
        path = self.folder / "_control" / "lease.json"
        return Lease.from_bytes(path.read_bytes(), str(path))

    def in_step(self) -> None:
        self.lake.sync()
        assert self.lake.mirror_rows() == self.lake.source_rows()
        check_whole(self.lake)


def answer(run: Program) -> dict[str, Any]:
    text = run.output()
    found: dict[str, Any] = json.loads(text[text.index("{") : text.rindex("}") + 1])
    return found


@pytest.fixture(params=[True, False], ids=["fence", "no-fence"])
def fence(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def lease_s() -> int:
    return LEASE_S


@pytest.fixture
def scene(fence: bool, lease_s: int, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(Lake(tmp_path, defaults={"fence": fence, "lease_seconds": lease_s, "clock_skew_seconds": 0}))
    yield made
    for run in made.started:
        run.kill()


@pytest.mark.parametrize(("fence", "lease_s"), [(True, 120)], indirect=["fence"])
def test_a_doubled_run_is_told_who_is_at_work(scene: Scene) -> None:
    first = scene.start(slow=True)
    scene.await_copying(first)
    os.killpg(first.pid, signal.SIGSTOP)  # so that it is at work for as long as the other one asks
    code, told = scene.run()
    os.killpg(first.pid, signal.SIGCONT)
    assert (code, told["ok"], told["error"]["kind"], told["error"]["op"]) == (5, False, "transient", "take lease")
    assert f"{scene.lease().owner} works on this table, until " in told["error"]["message"]
    assert first.wait(COMMAND_S) == 0
    assert answer(first)["copied_files"] == FILES
    assert scene.lease().is_released
    assert (scene.run()[1]["lane"], scene.lease().token) == ("none", 1)
    scene.in_step()


@pytest.mark.parametrize("fence", [True], indirect=True)
def test_a_run_at_work_renews_its_lease(scene: Scene) -> None:
    first = scene.start(slow=True)
    scene.await_copying(first)
    seen = scene.lease()
    until(lambda: scene.lease().writes > seen.writes, "it renews", timeout_s=COMMAND_S)
    assert scene.lease().expires_at > seen.expires_at
    assert (scene.lease().token, scene.lease().plan_id) == (1, seen.plan_id)
    assert (scene.folder / "_plan" / str(seen.plan_id)).is_dir()
    assert first.wait(COMMAND_S) == 0
    scene.in_step()


def test_a_run_that_was_killed_is_not_waited_for(scene: Scene) -> None:
    """It was of this machine, and is no more."""
    first = scene.start(slow=True)
    scene.await_copying(first)
    left = scene.copied()
    assert first.kill() == -9
    code, told = scene.run()
    assert (code, told["version"]) == (0, 1)
    assert told["skipped_files"] >= left - 1  # the last one may not have been written down
    scene.in_step()


@pytest.mark.parametrize("moved", [False, True], ids=["same-head", "head-moved"])
def test_a_sleeper_is_overtaken_and_harms_nothing(scene: Scene, fence: bool, moved: bool) -> None:
    """It stops in the middle of its copy, another run takes over when the lease is over, and then it wakes."""
    zombie = scene.start(slow=True)
    scene.await_copying(zombie)
    os.killpg(zombie.pid, signal.SIGSTOP)
    stopped_at = time.monotonic()
    if moved:
        scene.orders.append(much(FILES * ROWS))
    told: list[tuple[int, dict[str, Any]]] = []

    def publishes() -> bool:
        told.append(scene.run("sync"))
        return told[-1][0] == 0

    until(publishes, f"nobody takes over: {told[-1:]}", timeout_s=COMMAND_S)
    waited_s = time.monotonic() - stopped_at
    assert {code for code, _ in told[:-1]} <= {5}
    if fence:
        assert scene.lease().token == 2
        assert waited_s < LEASE_S + COMMAND_S
    seen, heads = scene.lake.mirror_rows(), (scene.lake.mirror_head(), scene.lake.ready())
    os.killpg(zombie.pid, signal.SIGCONT)
    code = zombie.wait(COMMAND_S)
    # without a fence it comes as far as the marker: an equal one is success, another one stops it
    assert code == (5 if fence or moved else 0), zombie.output()
    assert (scene.lake.mirror_head(), scene.lake.ready()) == heads
    assert scene.lake.mirror_rows() == seen == scene.lake.source_rows()
    scene.orders.append(much(20 * ROWS))
    scene.in_step()
