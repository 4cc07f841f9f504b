"""The stores of a run keep to its rates: every process to its share, requests to both sides in one line."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, create_autospec

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakemirror.app import utc_now
from lakemirror.config.loader import load_config
from lakemirror.replicate.change import Change
from lakemirror.replicate.plan import Plan, Segment
from lakemirror.replicate.stage import LocalEngine, sum_requests
from lakemirror.replicate.transfer import work_rows
from lakemirror.spark.engine import SparkEngine
from lakemirror.storage.port import ObjectStore
from lakemirror.usecases.mirror import MirrorRun
from lakemirror.usecases.ports import Ports
from tests.lake import ORDERS, Lake, rows

REQUESTS_PER_S = 20


class TwoProcesses(LocalEngine):
    def narrow(self, most: int) -> tuple[LocalEngine, int]:
        return self, 2


class TwoWithTwins(TwoProcesses):
    attempts = 2


RunOf = Callable[..., MirrorRun]


@pytest.fixture
def run_of(tmp_path: Path) -> RunOf:
    def made(**defaults: Any) -> MirrorRun:
        lake = Lake(tmp_path, defaults={"rate_limit": 1.0, **defaults})
        lake.create().append(rows(3))
        config = load_config(lake.config_path)
        return MirrorRun(ORDERS, Ports(config), config.knobs_for(ORDERS), utc_now, time.monotonic)

    return made


@pytest.fixture
def run(run_of: RunOf) -> MirrorRun:
    return run_of(peak_requests_per_s=REQUESTS_PER_S)


def spent_s(source: ObjectStore, mirror: ObjectStore, there: str, requests: int) -> float:
    """By so many requests, half of them to each side."""
    start = time.monotonic()
    for _ in range(requests // 2):
        source.head(there)
        mirror.head(there)
    return time.monotonic() - start


def test_requests_for_metadata_and_the_mirrors_own_files_keep_to_the_rate(run: MirrorRun) -> None:
    """A second's worth may go at once; the lease waits for nobody."""
    there = str(run.bench.sides.catalog.head(ORDERS))
    most = REQUESTS_PER_S + 10
    assert spent_s(run.bench.sides.source, run.bench.mirror, there, most) >= 10 / REQUESTS_PER_S * 0.95
    assert run.counts["source"]["head"] == run.counts["mirror"]["head"] == most // 2
    at_once = run.bench.mirror_at_once
    assert spent_s(at_once, at_once, there, 5 * REQUESTS_PER_S) < 4


@pytest.mark.parametrize(("engine", "at_once"), [(TwoProcesses(), 2), (TwoWithTwins(), 4)])
def test_tasks_in_two_processes_have_half_of_it_each(run: MirrorRun, engine: LocalEngine, at_once: int) -> None:
    change = run.detect()
    assert isinstance(change, Change)
    context, _ = run.bench.for_tasks(change, engine, 2)
    assert context.copying.shares * context.copying.attempts == at_once
    there = change.source_metadata_location
    context = pickle.loads(pickle.dumps(context))  # as it comes to a task
    assert spent_s(context.source, context.mirror, there, 6) >= 6 / (REQUESTS_PER_S / at_once) * 0.95


def session_of(cores: int, **conf: str) -> MagicMock:
    session: MagicMock = create_autospec(SparkSession, instance=True)
    session.sparkContext.defaultParallelism = cores
    session.sparkContext.getConf.return_value.get.side_effect = conf.get
    return session


def test_spark_that_speculates_may_have_two_attempts_at_work() -> None:
    speculates = [session_of(8, **{"spark.speculation": word}) for word in ("true", "TRUE", "false")]
    assert [SparkEngine(session).attempts for session in (*speculates, session_of(8))] == [2, 2, 1, 1]


def tasks_of(engine: Any, session: MagicMock, rows: int) -> int:
    engine._spread(pa.table({"weight": [1] * rows}), lambda batches: batches)
    tasks: int = session.sparkContext.parallelize.call_args.args[1]
    return tasks


def plan_of(**sizes: int) -> Plan:
    segments = (Segment(f"memory://mirror/_plan/{role}.parquet", role, 1, size, "") for role, size in sizes.items())
    return Plan(tuple(segments), 0, sum_requests([]))


@pytest.mark.parametrize("limit", [{}, {"peak_bandwidth_bytes_per_s": 10**9}, {"peak_requests_per_s": 1000}])
def test_one_large_file_is_shared_by_all_processes(run_of: RunOf, limit: dict[str, int]) -> None:
    """Each range of it is a row of work: 100 GiB are 200 of them."""
    run, session = run_of(max_concurrency=64, **limit), session_of(8)
    change, plan = run.detect(), plan_of(split=100 * 1024**3)
    assert isinstance(change, Change)
    context, engine = run.bench.for_copy(change, SparkEngine(session), plan)
    assert (context.copying.shares, context.copying.settings.concurrency) == (8, 8)
    assert (work_rows(plan, context), tasks_of(engine, session, 200)) == (200, 8)


def test_executors_that_come_later_have_no_more_requests_in_flight(run_of: RunOf) -> None:
    run, session = run_of(max_concurrency=64), session_of(2)
    change = run.detect()
    assert isinstance(change, Change)
    plan = Plan(plan_of(copy=1).segments * 100, 0, sum_requests([]))
    context, engine = run.bench.for_copy(change, SparkEngine(session), plan)
    session.sparkContext.defaultParallelism = 32
    assert tasks_of(engine, session, 100) * context.copying.settings.concurrency == 64


def test_no_more_processes_share_the_line_than_there_is_work(run_of: RunOf) -> None:
    run, session = run_of(max_concurrency=64), session_of(8)
    change, plan = run.detect(), plan_of(split=1024**3, copy=3)
    assert isinstance(change, Change)
    context, engine = run.bench.for_copy(change, SparkEngine(session), plan)
    assert (context.copying.shares, context.copying.settings.concurrency) == (3, 21)
    assert tasks_of(engine, session, work_rows(plan, context)) == 3
