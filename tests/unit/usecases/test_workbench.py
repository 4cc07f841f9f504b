"""The stores of a run keep to its rates: every process to its share, requests to both sides in one line."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest

from lakemirror.app import utc_now
from lakemirror.config.loader import load_config
from lakemirror.replicate.change import Change
from lakemirror.replicate.stage import LocalEngine
from lakemirror.storage.port import ObjectStore
from lakemirror.usecases.mirror import MirrorRun
from lakemirror.usecases.ports import Ports
from tests.lake import ORDERS, Lake, rows

REQUESTS_PER_S = 20


class TwoProcesses(LocalEngine):
    def narrow(self, most: int) -> tuple[LocalEngine, int]:
        return self, 2


@pytest.fixture
def run(tmp_path: Path) -> MirrorRun:
    lake = Lake(tmp_path, defaults={"peak_requests_per_s": REQUESTS_PER_S, "rate_limit": 1.0})
    lake.create().append(rows(3))
    config = load_config(lake.config_path)
    return MirrorRun(ORDERS, Ports(config), config.knobs_for(ORDERS), utc_now, time.monotonic)


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


def test_tasks_in_two_processes_have_half_of_it_each(run: MirrorRun) -> None:
    change = run.detect()
    assert isinstance(change, Change)
    context, _ = run.bench.for_tasks(change, TwoProcesses(), 2)
    there = change.source_metadata_location
    context = pickle.loads(pickle.dumps(context))  # as it comes to a task
    assert spent_s(context.source, context.mirror, there, 6) >= 6 / (REQUESTS_PER_S / 2) * 0.95
