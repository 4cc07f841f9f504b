"""Two Airflow installations serve one table: when one dies, the other publishes within a lease time and a poll.

Before that, its task is killed and tried again, and cleared while it runs. Of the one that dies a task is left, asleep
in its work: it wakes when all is done, and harms nothing. Both poll each minute. The first one copies slowly, so that
there is a middle; the second one does not.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from dev import sessions
from dev.airflow_standalone import PARSED_ONCE, AirflowStandalone, Settings
from lakemirror.model.lease import Lease
from lakemirror.replicate.process import has_ended
from tests.e2e.processes import parent_of, until
from tests.integration.looking import check_whole
from tests.judge import ROOT
from tests.lake import ORDERS, SCHEMA, Lake

pytestmark = pytest.mark.timeout(900)

LEASE_S, POLL_S = 30, 60
AT_MOST_S = 120  # for what a busy machine needs for one step
START_S = 30  # for a scheduled task to start and to copy, beside another Airflow
FILES = 120
MIRROR, FOLLOW = "mirror__shop__orders", "follow__shop__orders"


@dataclass
class Installed:
    """One of the two, and what it is asked."""

    airflow: AirflowStandalone

    def __post_init__(self) -> None:
        self._api = self.airflow.api()

    def unpause(self) -> None:
        """One DAG at a time becomes known; a busy server may not answer at once."""

        def is_done() -> bool:
            try:
                if not {MIRROR, FOLLOW} <= {*self._api.dag_ids()}:
                    return False
                self._api.unpause_all()
            except OSError:
                return False
            return True

        until(is_done, "the DAGs appear", timeout_s=AT_MOST_S, poll_s=0.5)

    def says(self, text: str) -> bool:
        """In the log of any of its detections."""
        logs = self.airflow.task_logs.rglob("task_id=detect_change/*.log")
        return any(text in log.read_text(errors="replace") for log in logs)

    def clear_running(self) -> bool:
        """False if the server is too busy to answer."""
        try:
            self._clear_running()
        except OSError:
            return False
        return True

    def _clear_running(self) -> None:
        tasks = self._api.task_instances(MIRROR)
        (task,) = [one for one in tasks if (one["task_id"], one["state"]) == ("detect_change", "running")]
        self._api.clear(MIRROR, task["dag_run_id"], "detect_change")


@dataclass(frozen=True)
class Stage:
    lake: Lake
    first: Installed
    second: Installed

    @property
    def folder(self) -> Path:
        return self.lake.mirror_folder / ORDERS.folder

    def lease(self) -> Lease | None:
        path = self.folder / "_control" / "lease.json"
        return Lease.from_bytes(path.read_bytes(), str(path)) if path.exists() else None

    def copied(self) -> int:
        return len([*self.folder.glob("data/**/*.parquet")])

    def await_work(self, token: int) -> Lease:
        """Somebody works under this token, or a later one: it has the lease, and files come."""
        until(lambda: (self.lease() or _NONE).token >= token, f"token {token}", timeout_s=AT_MOST_S, poll_s=0.05)
        before = self.copied()
        until(lambda: self.copied() > before, f"copies under token {token}", timeout_s=AT_MOST_S, poll_s=0.05)
        found = self.lease()
        assert found is not None
        assert found.token >= token
        assert self.copied() < FILES, "there is no middle"
        return found


_NONE = Lease.from_bytes(
    b'{"format": 1, "token": 1, "owner": "", "holder": "", "expires_at": "2026-01-01T00:00:00+00:00", '
    b'"plan_id": null, "writes": 1, "released": true}',
    "none",
)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    knobs = {
        "schedule": "* * * * *",
        "follow_schedule": None,
        "retries": 3,
        "retry_delay_seconds": 1,
        "lease_seconds": LEASE_S,
        "clock_skew_seconds": 0,
    }
    lake = Lake(tmp_path, defaults=knobs)
    parts = [f"part {number}" for number in range(FILES) for _ in range(200)]
    lake.create(partitioned_by=["city"]).append(pa.table([pa.array(range(len(parts))), pa.array(parts)], schema=SCHEMA))
    document = yaml.safe_load(lake.config_path.read_text())
    document["defaults"] |= {"max_concurrency": 1, "peak_bandwidth_bytes_per_s": 1200, "rate_limit": 1.0}
    slow = tmp_path / "slow.yaml"
    slow.write_text(yaml.safe_dump(document), encoding="utf-8")
    homes = [(tmp_path / "first", slow), (tmp_path / "second", lake.config_path)]
    both = [AirflowStandalone(Settings(home, ROOT, config, environment=PARSED_ONCE)) for home, config in homes]
    with both[0], both[1]:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda one: one.start(timeout_s=240), both))
        yield Stage(lake, *(Installed(one) for one in both))
        for one in both:
            one.stop(timeout_s=3)  # nobody needs a clean end


def test_one_dies_and_the_other_publishes(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.first.unpause()
    started = stage.await_work(1)
    assert started.owner.startswith(f"airflow {MIRROR} ")

    # The task's process dies: Airflow tries it again, in the name of the same run, which need not wait.
    os.kill(int(started.holder.split(":")[1]), signal.SIGKILL)
    retried = stage.await_work(2)
    assert retried.owner == started.owner
    assert (retried.plan_id, retried.holder == started.holder) == (started.plan_id, False)

    # Somebody clears the running task: what is left of the old try is shut out.
    until(stage.first.clear_running, "it is cleared", timeout_s=AT_MOST_S, poll_s=0.5)
    cleared = stage.await_work(3)
    assert cleared.plan_id == started.plan_id

    # The second one polls meanwhile, and is told that there is a run at work.
    stage.second.unpause()
    told = f"{cleared.owner} works on this table, until"
    until(lambda: stage.second.says(told), "the second one asks", timeout_s=POLL_S + AT_MOST_S, poll_s=0.5)
    assert stage.lake.ready() == []

    session = stage.first.airflow.session
    left = stage.lease()
    assert session is not None
    assert left is not None
    # With its supervisor: the kernel wakes and ends a task that sleeps in a group of its own and loses its parent.
    sleeper = int(left.holder.split(":")[1])
    asleep = (sleeper, parent_of(sleeper))
    for pid in asleep:
        os.kill(pid, signal.SIGSTOP)
    sessions.kill(session, but=asleep)
    died = datetime.now(UTC)
    assert not has_ended(left.holder)
    left = stage.lease()  # it may have been renewed at the last moment
    assert left is not None
    until(
        lambda: stage.lake.ready() == ["v1.ready.json"],
        "the second one publishes",
        timeout_s=LEASE_S + POLL_S + AT_MOST_S,
        poll_s=0.1,
    )
    published = datetime.fromtimestamp((stage.folder / "_ready" / "v1.ready.json").stat().st_mtime, UTC)
    late_s = (published - left.expires_at).total_seconds()
    with capsys.disabled():
        print(f"\npublished {(published - died).total_seconds():.1f} s after the death, {late_s:.1f} s after the lease")
    assert late_s > 0, "nobody waited for the lease of one that may come back"
    assert left.expires_at <= died + timedelta(seconds=LEASE_S)
    assert late_s <= POLL_S + START_S
    until(lambda: stage.lake.mirror_head() is not None, "and follows", timeout_s=AT_MOST_S, poll_s=0.5)
    token = json.loads((stage.folder / "_ready" / "v1.ready.json").read_text())["fence_token"]
    assert token == left.token + 1
    for pid in asleep:
        os.kill(pid, signal.SIGCONT)
    until(lambda: has_ended(left.holder), "the sleeper ends", timeout_s=AT_MOST_S, poll_s=0.1)
    sessions.kill(session)  # a supervisor that waits for its api-server
    assert stage.lake.ready() == ["v1.ready.json"]
    assert stage.lake.mirror_rows() == stage.lake.source_rows()
    check_whole(stage.lake)
