"""Requests of a run, counted in front of all four servers: a bound for small commits, and what results say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.services import Services
from lakemirror.app import App
from lakemirror.replicate.stage import LocalEngine
from tests.faults.rules import storm
from tests.faults.scene import TABLE, FaultyLake, faulty_lake
from tests.perf.small_commit import MOST_REQUESTS, in_all, small_commits

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.fixture
def lake(clean_services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyLake]:
    for name, value in clean_services.environment().items():
        monkeypatch.setenv(name, value)
    with faulty_lake(clean_services, tmp_path) as lake:
        yield lake


def test_a_small_commit_with_everything_warm(lake: FaultyLake) -> None:
    """The bar of `make bench` that needs no clock: mirrored and followed by so few requests to all four servers."""
    _, requests = small_commits(lake, rounds=3)
    assert max(map(in_all, requests)) <= MOST_REQUESTS, requests


def verb_of(method: str, target: str) -> str:
    """Under which a result counts what went over the wire."""
    if method == "GET" and ("list-type=" in target or "?uploads" in target):
        return "list"
    if method == "POST":
        return "delete" if target.endswith("?delete") else "put"
    return method.lower()


def on_the_wire(lake: FaultyLake) -> dict[str, dict[str, int]]:
    """What both stores were asked since the last time, by verb; those that nobody used left out."""
    counted: dict[str, dict[str, int]] = {}
    for side in ("source", "mirror"):
        proxy = lake.proxies[f"{side} store"]
        counted[side] = dict(Counter(verb_of(*request) for request in proxy.requests))
        proxy.requests.clear()
    return counted


def test_results_count_what_goes_over_the_wire(lake: FaultyLake) -> None:
    """All of it: what the probe asks on the first run, and each attempt among storms."""
    lake.append()
    assert mirrored(lake) == on_the_wire(lake)
    lake.append()
    lake.proxies["source store"].rules.append(storm(503, times=3, target=r"\.metadata\.json"))
    lake.proxies["mirror store"].rules += [
        storm(503, times=3, method="GET", target="list-type="),
        storm(503, times=3, method="GET", target="/_ready/v1"),
        storm(429, times=3, method="PUT", target="/_control/lease"),
        storm(503, times=3, method="PUT", target="/metadata/"),
        storm(503, times=3, method="PUT", target="/data/"),
    ]
    counted = mirrored(lake)
    assert all(rule.met == rule.times for proxy in lake.proxies.values() for rule in proxy.rules)
    assert counted == on_the_wire(lake)


def mirrored(lake: FaultyLake) -> dict[str, dict[str, int]]:
    """What a run says that it asked of the stores; a copy is a PUT, too, which nothing but a header tells apart."""
    with App.load(str(lake.config)) as app:
        result = app.mirror(TABLE, engine=LocalEngine(2))
    told = {side: Counter(verbs) for side, verbs in result.requests.items()}
    for counts in told.values():
        counts["put"] += counts.pop("copy")
    return {side: {verb: count for verb, count in counts.items() if count} for side, counts in told.items()}
