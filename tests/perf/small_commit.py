"""A commit of one file over real servers, with everything warm: seconds, and every request that went over the wire.

The four servers are reached through proxies that count, so that nothing is forgotten: objects and catalogs, both sides.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from pathlib import Path
from unittest.mock import patch

from dev.services import down, running, up
from dev.services.cleaning import clean
from lakemirror.app import App
from lakemirror.replicate.stage import LocalEngine
from tests.faults.scene import TABLE, FaultyLake, faulty_lake
from tests.perf.row import Row

ROUNDS = 5
MOST_REQUESTS, MOST_S = 40, 2.0
ByServer = dict[str, Counter[str]]


def measure_small(folder: Path) -> list[Row]:
    """The median of a few commits, each mirrored and followed without Airflow."""
    before = set(running())
    services = up()
    try:
        clean(services)
        with patch.dict(os.environ, services.environment()), faulty_lake(services, folder) as lake:
            return _measured(lake)
    finally:
        if not before:
            down()


def _measured(lake: FaultyLake) -> list[Row]:
    seconds, requests = small_commits(lake, ROUNDS)
    most = max(requests, key=in_all)
    total = in_all(most)
    spent = statistics.median(seconds)
    told = "; ".join(
        f"{name} {' '.join(f'{count} {verb}' for verb, count in sorted(counts.items()))}"
        for name, counts in most.items()
    )
    return [
        Row("small commit, warm: mirror and follow", f"{spent:.2f} s", f"≤ {MOST_S:g} s", spent <= MOST_S),
        Row(f"small commit, warm: requests ({told})", str(total), f"≤ {MOST_REQUESTS}", total <= MOST_REQUESTS),
    ]


def small_commits(lake: FaultyLake, rounds: int) -> tuple[list[float], list[ByServer]]:
    """Of each commit the seconds that it took to be visible, and its requests by server and verb."""
    seconds: list[float] = []
    requests: list[ByServer] = []
    with App.load(str(lake.config)) as app:
        for number in range(1 + rounds):
            lake.append(10)
            for proxy in lake.proxies.values():
                proxy.requests.clear()
            start = time.perf_counter()
            app.mirror(TABLE, engine=LocalEngine(2))
            app.follow(TABLE)
            if number:  # the first one warms everything up
                seconds.append(time.perf_counter() - start)
                requests.append({name: Counter(verb for verb, _ in one.requests) for name, one in lake.proxies.items()})
    if lake.mirrored() != lake.rows:
        raise RuntimeError("the mirror is not what the source is")
    return seconds, requests


def in_all(requests: ByServer) -> int:
    return sum(counts.total() for counts in requests.values())
