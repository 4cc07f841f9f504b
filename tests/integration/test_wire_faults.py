"""Faults on the wire to real servers: the mirror's head stays old or becomes new, whole, and the next run converges."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from dev.services import Services, ServicesFolder, stop, up
from dev.services.cleaning import clean
from dev.services.layout import MIRROR_CATALOG, MIRROR_STORE, SOURCE_CATALOG, SOURCE_STORE
from tests.faults import rules
from tests.faults.proxy import FaultProxy, deaf_url
from tests.faults.rules import Rule, expired, storm
from tests.faults.scene import PART_BYTES, SERVERS, SPLIT_BYTES, FaultyLake, faulty_lake
from tests.faults.surviving import BOUND_S, sends_damaged_writes_again, survives

pytestmark = [pytest.mark.integration, pytest.mark.waits, pytest.mark.timeout(180)]
STORES = SERVERS[:2]


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


DATA = r"/data/.*\.parquet"
READS = {  # by server, a request of every run whose answer has a body of some length
    "source store": ("GET", DATA),
    "mirror store": ("GET", ""),
    "source catalog": ("GET", r"/tables/orders"),
    "mirror catalog": ("GET", r"/tables/orders"),
}
DEEDS = {  # and the one that matters most there
    "source store": ("GET", DATA),
    "mirror store": ("PUT", DATA),
    "source catalog": ("GET", r"/tables/orders"),
    "mirror catalog": ("POST", r"/tables/orders$"),
}
SENDS = {server: aim for server, aim in DEEDS.items() if aim[0] != "GET"}
Aim = tuple[str, str]
FAULTS: dict[str, tuple[dict[str, Aim], Callable[[str, str], Rule]]] = {
    "reset": (DEEDS, lambda method, target: Rule(rules.Reset(), method, target, times=2)),
    "an answer that is lost": (DEEDS, lambda method, target: Rule(rules.LoseAnswer(), method, target, times=2)),
    "500s": (DEEDS, lambda method, target: storm(500, times=3, method=method, target=target)),
    "429s that ask for time": (
        DEEDS,
        lambda method, target: storm(429, times=3, retry_after_s=1, method=method, target=target),
    ),
    "a stall": (DEEDS, lambda method, target: Rule(rules.Stall(30), method, target, times=1)),
    "cut in the middle of a request": (SENDS, lambda method, target: Rule(rules.CutRequest(10), method, target)),
    "cut in the middle of an answer": (
        READS,
        lambda method, target: Rule(rules.CutAnswer(100), method, target, times=2),
    ),
}
UNSURE = ("reset", "500s", "cut in the middle of a request")


@pytest.mark.parametrize(("fault", "server"), [(fault, one) for fault, (aims, _) in FAULTS.items() for one in aims])
def test_a_passing_fault(lake: FaultyLake, fault: str, server: str) -> None:
    """The same run gets over it; but a commit that may have taken effect is left to the next one."""
    aims, rule = FAULTS[fault]
    is_unsure = server == "mirror catalog" and fault in UNSURE
    survives(lake, server, [rule(*aims[server])], must_end_well=not is_unsure)


@pytest.mark.parametrize("server", SERVERS)
def test_a_stall_in_the_middle_of_an_answer(lake: FaultyLake, server: str) -> None:
    stall = Rule(rules.StallInAnswer(100, 30), *READS[server], times=1)
    survives(lake, server, [stall], config=lake.write("short.yaml", patience_s=2))


@pytest.mark.parametrize("server", SERVERS)
def test_a_drip(lake: FaultyLake, server: str) -> None:
    """A byte in half a second: never silent for long, and never done."""
    patience_s = 2 if server == "source store" else 1  # its file comes after much else, which must not fail
    config = lake.write("drip.yaml", patience_s=patience_s, knobs={"object_deadline_seconds": 3})
    drip = Rule(rules.Drip(2.0), *READS[server], times=None)
    assert survives(lake, server, [drip], config=config).startswith("transient")


@pytest.mark.parametrize("server", SERVERS)
def test_a_storm_that_does_not_pass(lake: FaultyLake, server: str) -> None:
    assert survives(lake, server, [storm(503, times=None)]).startswith("transient")


@pytest.mark.parametrize("skip", [0, 3])
@pytest.mark.parametrize("server", STORES)
def test_credentials_expire_in_the_middle(lake: FaultyLake, server: str, skip: int) -> None:
    """A small commit asks the source's store four times: for metadata, list, manifest and file."""
    assert survives(lake, server, [expired(skip=skip)]).startswith("transient")


def test_a_token_of_a_catalog_expires_in_the_middle(lake: FaultyLake) -> None:
    """The mirror's is renewed."""
    refused = Rule(rules.Answer(401), "GET", r"/tables/orders", times=1)
    survives(lake, "mirror catalog", [refused], must_end_well=True)
    logins = [target for _, target in lake.proxies["mirror catalog"].requests if "oauth" in target]
    assert len(logins) >= 2


def test_bytes_that_are_wrong_when_they_arrive(lake: FaultyLake) -> None:
    """The sum that goes with every object and part tells the store, which refuses; it is sent again."""
    flip = Rule(rules.FlipRequest(500), method="PUT", target=DATA, times=1)
    survives(lake, "mirror store", [flip], must_end_well=True)


def test_metadata_that_is_wrong_when_it_arrives(lake: FaultyLake) -> None:
    sends_damaged_writes_again(lake)


def test_bytes_that_are_wrong_when_they_are_read(lake: FaultyLake) -> None:
    flip = Rule(rules.FlipAnswer(500), method="GET", target=DATA, times=1)
    survives(lake, "source store", [flip], must_end_well=True)


@pytest.mark.parametrize("server", STORES)
def test_answers_that_say_they_are_shorter(lake: FaultyLake, server: str) -> None:
    survives(lake, server, [Rule(rules.ShortenAnswer(100), method="GET", times=1)])


METADATA = {  # what a run reads of each store besides data
    "source store": (r"\.metadata\.json", r"/snap-[^/]*\.avro", r"-m\d+\.avro"),
    "mirror store": (r"/_ledger/index/", r"/_ready/v[^/]*\.json"),
}
SPOILED: dict[str, rules.Fault] = {
    "cut": rules.CutAnswer(100),
    "shorter": rules.ShortenAnswer(100),
    "a flipped bit": rules.FlipAnswer(100),
}


@pytest.mark.parametrize("fault", SPOILED)
@pytest.mark.parametrize("server", STORES)
def test_metadata_that_is_spoiled_when_it_is_read(lake: FaultyLake, server: str, fault: str) -> None:
    spoiled = [Rule(SPOILED[fault], "GET", target, times=1) for target in METADATA[server]]
    survives(lake, server, spoiled, must_end_well=True)


PLACES = [*(("no such host", server) for server in SERVERS), ("one that is deaf", "mirror catalog")]


@pytest.mark.parametrize(("place", "server"), PLACES)
def test_no_such_host(lake: FaultyLake, server: str, place: str) -> None:
    """Its name is not known; or connecting to it never ends."""
    old = list(lake.rows)
    lake.append()
    with deaf_url() as deaf:
        url = "http://nowhere.invalid:9" if place == "no such host" else deaf
        config = lake.write("lost.yaml", patience_s=1, knobs=None, **{server.replace(" ", "_"): url})
        start = time.monotonic()
        assert lake.run(config).startswith("transient")
        assert time.monotonic() - start < BOUND_S
    assert lake.mirrored() == old
    assert lake.run() == "ok"
    assert lake.mirrored() == lake.rows


@pytest.mark.parametrize("name", [SOURCE_STORE, MIRROR_STORE, SOURCE_CATALOG, MIRROR_CATALOG])
def test_a_server_restarts(lake: FaultyLake, services_folder: ServicesFolder, name: str) -> None:
    """In the middle of a run, which is slow because the source drips."""
    old = list(lake.rows)
    lake.append(600)
    drip = Rule(rules.Drip(100_000), method="GET", target=DATA, times=None)
    lake.proxies["source store"].rules.append(drip)
    outcomes: list[str] = []
    run = threading.Thread(target=lambda: outcomes.append(lake.run()))
    run.start()
    assert drip.seen.wait(BOUND_S), "the run is in the middle of a file, for about five seconds"
    assert run.is_alive()
    stop(name, folder=services_folder)
    up(folder=services_folder)
    run.join(BOUND_S)
    assert not run.is_alive()
    assert [outcome.partition(":")[0] for outcome in outcomes] in (["ok"], ["transient"])
    assert lake.mirrored() in (old, lake.rows)
    lake.proxies["source store"].rules.clear()
    assert lake.run() == "ok"
    assert lake.mirrored() == lake.rows
    assert lake.unfinished_uploads() == 0


@contextmanager
def silence(*proxies: FaultProxy) -> Iterator[None]:
    """Connections are taken, and nothing is ever said."""
    hold = rules.Hold()
    for proxy in proxies:
        proxy.rules.append(Rule(hold, times=None))
    try:
        yield
    finally:
        hold.released.set()
        for proxy in proxies:
            proxy.rules.clear()


def test_silence_ends_with_a_test_that_fails() -> None:
    held: list[rules.Fault] = []

    def fail(proxy: FaultProxy) -> None:
        with silence(proxy):
            held.append(proxy.rules[0].fault)
            raise AssertionError

    with FaultProxy("http://127.0.0.1:9") as proxy:
        with pytest.raises(AssertionError):
            fail(proxy)
        assert proxy.rules == []
    assert [fault.released.is_set() for fault in held if isinstance(fault, rules.Hold)] == [True]


@contextmanager
def cut_off(*proxies: FaultProxy) -> Iterator[None]:
    with ExitStack() as stack:
        for proxy in proxies:
            stack.enter_context(proxy.cut_off())
        yield


@pytest.mark.parametrize("by", [cut_off, silence])
@pytest.mark.parametrize("side", ["source", "mirror"])
def test_a_side_that_cannot_be_reached_for_many_commits(
    lake: FaultyLake, side: str, by: Callable[..., AbstractContextManager[None]]
) -> None:
    """After healing one run converges, by one step to the newest version."""
    old = list(lake.rows)
    before = len(lake.mirror.load_table("shop.orders").metadata.snapshots)
    config = lake.write("short.yaml", patience_s=1)
    with by(lake.proxies[f"{side} store"], lake.proxies[f"{side} catalog"]):
        for _ in range(10):
            lake.append(20)
        start = time.monotonic()
        assert lake.run(config).startswith("transient")
        assert time.monotonic() - start < BOUND_S
        assert lake.mirrored() == old
    assert lake.run() == "ok"
    assert lake.mirrored() == lake.rows
    assert len(lake.mirror.load_table("shop.orders").metadata.snapshots) == before + 1


ROW_BYTES = 8000
PART = ("PUT", r"partNumber=2&")
FINISH = ("POST", r"uploadId=")
NEVER = "parts that are never taken"
MISREAD = "a part that is damaged when it is read"
IN_PARTS: dict[str, Callable[[], Rule]] = {
    "a part that is reset": lambda: Rule(rules.Reset(), *PART, times=2),
    "a part that is cut": lambda: Rule(rules.CutRequest(200_000), *PART),
    "a part that is damaged": lambda: Rule(rules.FlipRequest(200_000), *PART),
    MISREAD: lambda: Rule(rules.FlipAnswer(200_000), "GET", DATA),
    "a finish whose answer is lost": lambda: Rule(rules.LoseAnswer(), *FINISH),
    NEVER: lambda: storm(503, times=None, method=PART[0], target=PART[1]),
}


LARGE = [("parts", PART_BYTES, fault) for fault in IN_PARTS]
LARGE += [("ranges", SPLIT_BYTES, fault) for fault in ("a finish whose answer is lost", NEVER)]


@pytest.mark.parametrize(("size_bytes", "fault"), [pytest.param(*case, id=f"{by}-{case[1]}") for by, *case in LARGE])
def test_a_large_file(lake: FaultyLake, size_bytes: int, fault: str) -> None:
    """In parts, or in ranges of parts, all by one process; of several: `tests/e2e/test_lost_workers.py`.

    These come last: what they add to the table makes every later look at it slower.
    """
    rows = int(1.2 * size_bytes / ROW_BYTES)
    server = "source store" if fault == MISREAD else "mirror store"
    outcome = survives(
        lake,
        server,
        [IN_PARTS[fault]()],
        append=lambda lake: lake.append(rows, row_bytes=ROW_BYTES),
        moves=fault == NEVER,
    )
    assert (outcome == "ok") is (fault != NEVER), outcome
