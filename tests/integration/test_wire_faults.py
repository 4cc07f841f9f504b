"""Faults on the wire to real servers: the mirror's head stays old or becomes new, whole, and the next run converges."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from dev.services import Services, stop, up
from dev.services.cleaning import clean
from dev.services.layout import MIRROR_CATALOG, MIRROR_STORE, SOURCE_CATALOG, SOURCE_STORE
from tests.faults import rules
from tests.faults.rules import Rule, expired, storm
from tests.faults.scene import SERVERS, FaultyLake, faulty_lake

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
BOUND_S = 120.0
STORES, CATALOGS = SERVERS[:2], SERVERS[2:]


@pytest.fixture(scope="module")
def one_lake(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyLake]:
    """For all tests here: to empty the stores and to probe them anew takes longer than most faults."""
    clean(services)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in services.environment().items():
            patch.setenv(name, value)
        with faulty_lake(services, tmp_path_factory.mktemp("faults")) as lake:
            lake.append()
            yield lake


@pytest.fixture
def lake(one_lake: FaultyLake) -> FaultyLake:
    """Without faults, and at the head, whatever the test before did."""
    for proxy in one_lake.proxies.values():
        proxy.rules.clear()
    assert one_lake.run() == "ok"
    assert one_lake.mirrored() == one_lake.rows
    return one_lake


def survives(lake: FaultyLake, *, must_end_well: bool = False) -> str:
    """A run among faults, then one without: old or new, in bounded time; then new, with nothing left over."""
    old = list(lake.rows)
    lake.append()
    start = time.monotonic()
    outcome = lake.run()
    spent = time.monotonic() - start
    assert lake.mirrored() in (old, lake.rows)
    assert spent < BOUND_S
    if must_end_well:
        assert outcome == "ok"
    for proxy in lake.proxies.values():
        proxy.rules.clear()
    assert lake.run() == "ok"
    assert lake.mirrored() == lake.rows
    assert lake.unfinished_uploads() == 0
    return outcome


FAULTS: dict[str, Callable[[], list[Rule]]] = {
    "reset": lambda: [Rule(rules.Reset(), times=2)],
    "reset later": lambda: [Rule(rules.Reset(), skip=3, times=2)],
    "cut in the middle of an answer": lambda: [Rule(rules.CutAnswer(1000), method="GET", skip=1, times=2)],
    "an answer that is lost": lambda: [Rule(rules.LoseAnswer(), skip=2, times=2)],
    "cut in the middle of a request": lambda: [
        Rule(rules.CutRequest(10), method=one, times=1) for one in ("PUT", "POST")
    ],
    "500s": lambda: [storm(500, times=3)],
    "503s": lambda: [storm(503, times=3)],
    "429s that ask for time": lambda: [storm(429, times=3, retry_after_s=1)],
    "a stall": lambda: [Rule(rules.Stall(30), times=1)],
    "a drip": lambda: [Rule(rules.Drip(200_000), times=None)],
}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_passing_fault(lake: FaultyLake, server: str, fault: str) -> None:
    proxy = lake.proxies[server]
    proxy.rules += FAULTS[fault]()
    survives(lake)


@pytest.mark.parametrize("server", SERVERS)
def test_a_storm_that_does_not_pass(lake: FaultyLake, server: str) -> None:
    lake.proxies[server].rules.append(storm(503, times=None))
    assert survives(lake).startswith("transient")


@pytest.mark.parametrize("skip", [0, 3])
@pytest.mark.parametrize("server", STORES)
def test_credentials_expire_in_the_middle(lake: FaultyLake, server: str, skip: int) -> None:
    """A small commit asks the source's store four times: for metadata, list, manifest and file."""
    rule = expired(skip=skip)
    lake.proxies[server].rules.append(rule)
    assert survives(lake).startswith("transient")
    assert rule.met > 0


def test_bytes_that_are_wrong_when_they_arrive(lake: FaultyLake) -> None:
    """The sum that goes with every object and part tells the store, which refuses; it is sent again."""
    flip = Rule(rules.FlipRequest(500), method="PUT", target=r"/data/.*\.parquet", times=1)
    lake.proxies["mirror store"].rules.append(flip)
    survives(lake, must_end_well=True)
    assert flip.met == 1


def test_bytes_that_are_wrong_when_they_are_read(lake: FaultyLake) -> None:
    flip = Rule(rules.FlipAnswer(500), method="GET", target=r"/data/.*\.parquet", times=1)
    lake.proxies["source store"].rules.append(flip)
    survives(lake, must_end_well=True)
    assert flip.met == 1


@pytest.mark.parametrize("server", STORES)
def test_answers_that_say_they_are_shorter(lake: FaultyLake, server: str) -> None:
    lake.proxies[server].rules.append(Rule(rules.ShortenAnswer(100), method="GET", times=1))
    survives(lake)


@pytest.mark.parametrize("server", SERVERS)
def test_no_such_host(lake: FaultyLake, server: str) -> None:
    old = list(lake.rows)
    lake.append()
    config = lake.write("lost.yaml", **{server.replace(" ", "_"): "http://nowhere.invalid:9"})
    start = time.monotonic()
    assert lake.run(config).startswith("transient")
    assert time.monotonic() - start < BOUND_S
    assert lake.mirrored() == old
    assert lake.run() == "ok"
    assert lake.mirrored() == lake.rows


@pytest.mark.parametrize("name", [SOURCE_STORE, MIRROR_STORE, SOURCE_CATALOG, MIRROR_CATALOG])
def test_a_server_restarts(lake: FaultyLake, name: str) -> None:
    """In the middle of a run, which is slow because the source drips."""
    lake.append(400)
    lake.proxies["source store"].rules.append(Rule(rules.Drip(150_000), times=None))
    outcomes: list[str] = []
    run = threading.Thread(target=lambda: outcomes.append(lake.run()))
    run.start()
    time.sleep(1)
    stop(name)
    up()
    run.join(BOUND_S)
    assert not run.is_alive()
    lake.proxies["source store"].rules.clear()
    assert lake.run() == "ok"
    assert lake.mirrored() == lake.rows


@pytest.mark.parametrize("side", ["source", "mirror"])
def test_a_side_that_cannot_be_reached_for_many_commits(lake: FaultyLake, side: str) -> None:
    """After healing one run converges, by one step to the newest version."""
    old = list(lake.rows)
    before = len(lake.mirror.load_table("shop.orders").metadata.snapshots)
    with lake.proxies[f"{side} store"].cut_off(), lake.proxies[f"{side} catalog"].cut_off():
        for _ in range(10):
            lake.append(20)
        assert lake.run().startswith("transient")
        assert lake.mirrored() == old
    assert lake.run() == "ok"
    assert lake.mirrored() == lake.rows
    assert len(lake.mirror.load_table("shop.orders").metadata.snapshots) == before + 1
