"""kill -9 of every task of the Spark lane between REST catalogs and S3: each goes on when it is run again.

A task is killed by the proxy through which it speaks to the mirror: when it has written something of its own and before
it hears of that. Publishing and following, which decide what is ready and what readers see, are killed just before that
as well.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from dev.services import Services
from dev.services.cleaning import clean
from lakemirror import bridge
from lakemirror.app import App
from lakemirror.model.layout import TableLayout
from lakemirror.replicate.ledger import read_ledger
from lakemirror.spark.library import build_archive, spark_conf
from lakemirror.storage.objects import ObstoreStore
from tests.e2e.processes import Program, small_jvm, spark_submit, until
from tests.faults.rules import Kill, Rule
from tests.faults.scene import NAME, TABLE, FaultyLake, Row, faulty_lake

pytestmark = pytest.mark.timeout(400)
APPENDS = 6
JOB_S = 120
KNOBS = {"ledger_flush_files": 1, "bin_files": 2, "max_concurrency": 2, "small_change_files": 0}
START = multiprocessing.get_context("forkserver")
FIRST_WRITES = {
    "plan_diff": r"/_plan/.*copy-.*\.parquet",
    "copy_objects": r"/_ledger/.*part-.*\.parquet",
    "rewrite_metadata": r"/metadata/.*\.avro",
}


@pytest.fixture
def lake(services: Services, tmp_path: Path) -> Iterator[FaultyLake]:
    clean(services)
    START.set_forkserver_preload(["lakemirror.cli.__main__", "lakemirror.usecases.stages"])
    with patch.dict(os.environ, services.environment()), faulty_lake(services, tmp_path, knobs=KNOBS) as lake:
        yield lake


def publish(config: str, plan_uri: str) -> None:
    with App.load(config, owner="run") as app:
        app.publish(TABLE, plan_uri)


def follow(config: str) -> None:
    with App.load(config) as app:
        app.follow(TABLE)


class Run:
    """The tasks of one run, each in a process of its own."""

    def __init__(self, lake: FaultyLake) -> None:
        self.lake = lake
        with App.load(str(lake.config), owner="run") as app:
            found = app.detect(TABLE)
        assert found.lane == "spark"
        self.plan_uri, self._source_name = str(found.plan_uri), str(found.source_name)
        self._conf = {**small_jvm(), **spark_conf(build_archive(lake.folder))}
        self.store = ObstoreStore(lake.services.mirror_store.properties)
        self.layout = TableLayout.of(lake.services.mirror_location, TABLE)

    def stage(self, name: str) -> None:
        """A Spark job that is killed, and the same once more."""
        result, log = self.lake.folder / f"{name}.json", self.lake.folder / f"{name}.log"
        words = ["--config", str(self.lake.config), "--table", NAME, "--plan-uri", self.plan_uri, "--owner", "run"]
        words += ["--source-name", self._source_name] if name == "plan_diff" else []
        command = spark_submit(name, self._conf, *words, "--result-uri", result.as_uri())
        with Program(command, log, cwd=self.lake.folder) as job:
            rule = self._killing("mirror store", "PUT", FIRST_WRITES[name], job.pid, is_after=True)
            until(lambda: rule.met > 0 or not job.is_running, f"{name} writes nothing: {log}", timeout_s=JOB_S)
            assert (rule.met > 0, job.kill()) == (True, -signal.SIGKILL), job.output()[-3000:]
        self._forget_rules()
        assert not result.exists()
        assert self.mirrored() is None
        with Program(command, log, cwd=self.lake.folder) as job:
            assert job.wait(JOB_S) == 0, job.output()[-3000:]
        assert json.loads(result.read_text())["ok"]

    def killed(self, target: object, *args: str, at: tuple[str, str, str], is_after: bool) -> None:
        """A task of one process that is killed at this request."""
        process = START.Process(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        process.start()
        rule = self._killing(*at, int(process.pid or 0), is_after=is_after)
        process.join(JOB_S)
        assert (rule.met, process.exitcode) == (1, -signal.SIGKILL)
        self._forget_rules()

    def written_down(self) -> Counter[str]:
        """How often the ledger has each file."""
        parts = [one.uri for one in self.store.list(f"{self.layout.root}/_ledger") if "/part-" in one.uri]
        return Counter(row["target"] for row in read_ledger(self.store, self.layout.root, parts=parts))

    def ready(self) -> int | None:
        return bridge.published(self.store, self.layout).newest

    def mirrored(self) -> list[Row] | None:
        with suppress(NoSuchTableError, NoSuchNamespaceError):
            return self.lake.mirrored()
        return None

    def _killing(self, server: str, method: str, target: str, pid: int, *, is_after: bool) -> Rule:
        def kill() -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL) if os.getpgid(pid) != pid else os.killpg(pid, signal.SIGKILL)

        rule = Rule(Kill(kill, is_after), method, target)
        self.lake.proxies[server].rules.append(rule)
        return rule

    def _forget_rules(self) -> None:
        for proxy in self.lake.proxies.values():
            proxy.rules.clear()


def test_every_task_of_the_spark_lane(lake: FaultyLake) -> None:
    for _ in range(APPENDS):
        lake.append(20)
    run = Run(lake)
    for name in FIRST_WRITES:
        run.stage(name)
    assert [*run.written_down().values()] == [1] * APPENDS, "what the ledger has is not copied again"

    marker = ("mirror store", "PUT", r"/_ready/v1\.ready\.json")
    for is_after, version in ((False, None), (True, 1)):
        run.killed(publish, str(lake.config), run.plan_uri, at=marker, is_after=is_after)
        assert (run.ready(), run.mirrored()) == (version, None)
    publish(str(lake.config), run.plan_uri)

    register = ("mirror catalog", "POST", "/register")
    for is_after, rows in ((False, None), (True, lake.rows)):
        run.killed(follow, str(lake.config), at=register, is_after=is_after)
        assert run.mirrored() == rows
    follow(str(lake.config))
    assert (run.ready(), run.mirrored()) == (1, lake.rows)
    assert lake.unfinished_uploads() == 0
