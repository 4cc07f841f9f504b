"""Faults on the wire from S3 to GCS, where finishing an upload is several requests: any of them may go wrong.

The same promises as of S3, in `test_wire_faults.py`; what Spark's tasks meet: `tests/e2e/test_spark_wire_faults.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import requests

from dev.services import Services, gcsemu
from dev.services.cleaning import clean
from tests.faults import rules
from tests.faults.rules import Rule, storm
from tests.faults.scene import PART_BYTES, SPLIT_BYTES, FaultyLake, faulty_lake
from tests.faults.surviving import BOUND_S, sends_damaged_writes_again, survives

pytestmark = [pytest.mark.integration, pytest.mark.waits, pytest.mark.timeout(180)]
STORE = "mirror store"
ROW_BYTES = 8000


@pytest.fixture(scope="module")
def one_lake(gcs_services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyLake]:
    clean(gcs_services)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in gcs_services.environment().items():
            patch.setenv(name, value)
        for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP"):  # nobody asks a cloud who we are
            patch.setenv(name, "127.0.0.1:1")
        with faulty_lake(gcs_services, tmp_path_factory.mktemp("faults"), is_on_gcs=True) as lake:
            lake.append()
            yield lake


@pytest.fixture
def lake(one_lake: FaultyLake) -> FaultyLake:
    for proxy in one_lake.proxies.values():
        proxy.rules.clear()
    assert one_lake.run() == "ok"
    assert one_lake.mirrored() == one_lake.rows
    return one_lake


FILE = ("PUT", r"/data/[^?]*\.parquet$")
READ = ("GET", r"%2F%5Fledger%2Findex%2F")
FAULTS: dict[str, Callable[[], Rule]] = {
    "reset": lambda: Rule(rules.Reset(), *FILE, times=2),
    "an answer that is lost": lambda: Rule(rules.LoseAnswer(), *FILE, times=2),
    "500s": lambda: storm(500, times=3, method=FILE[0], target=FILE[1]),
    "429s that ask for time": lambda: storm(429, times=3, retry_after_s=1, method=FILE[0], target=FILE[1]),
    "429s to everybody": lambda: storm(429, times=6),
    "a stall": lambda: Rule(rules.Stall(30), *FILE),
    "cut in the middle of a request": lambda: Rule(rules.CutRequest(10), *FILE),
    "cut in the middle of an answer": lambda: Rule(rules.CutAnswer(100), *READ, times=2),
    "wrong bytes": lambda: Rule(rules.FlipRequest(500), *FILE),
    "a marker whose answer is lost": lambda: Rule(rules.LoseAnswer(), "PUT", r"/_ready/v"),
    "a lease whose answer is lost": lambda: Rule(rules.LoseAnswer(), "PUT", r"/_control/lease"),
    "a manifest whose answer is lost": lambda: Rule(rules.LoseAnswer(), "PUT", r"/metadata/.*-m0\.avro"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_passing_fault(lake: FaultyLake, fault: str) -> None:
    survives(lake, STORE, [FAULTS[fault]()], must_end_well=True)


def test_metadata_that_is_wrong_when_it_arrives(lake: FaultyLake) -> None:
    sends_damaged_writes_again(lake)


def test_a_drip(lake: FaultyLake) -> None:
    """An answer that never ends, to a read; of a write: `tests/unit/storage/test_buckets.py`."""
    drip = Rule(rules.Drip(2.0), *READ, times=None)
    config = lake.write("drip.yaml", patience_s=1)
    assert survives(lake, STORE, [drip], config=config).startswith("transient")


def test_a_token_expires_in_the_middle(lake: FaultyLake) -> None:
    """Nobody renews it here; what it was good for a moment ago may be had again."""
    expired = Rule(rules.Answer(401), *FILE, times=None)
    assert survives(lake, STORE, [expired]).startswith("transient")


def test_no_such_host(lake: FaultyLake) -> None:
    old = list(lake.rows)
    lake.append()
    config = lake.write("lost.yaml", patience_s=1, mirror_store="http://nowhere.invalid:9")
    start = time.monotonic()
    assert lake.run(config).startswith("transient")
    assert time.monotonic() - start < BOUND_S
    assert lake.mirrored() == old
    assert lake.run() == "ok"
    assert lake.mirrored() == lake.rows


def test_a_storm_that_does_not_pass(lake: FaultyLake) -> None:
    assert survives(lake, STORE, [storm(429, times=None)]).startswith("transient")


PART = ("PUT", r"partNumber=2&")
FINISH = ("POST", r"uploadId=")
LOOK = ("HEAD", r"\._upload-")
REWRITE = ("POST", r"/rewriteTo/")
REMOVE = ("DELETE", r"\._upload-[0-9a-f]*$")
EACH = "each answer is lost once"
IN_PARTS: dict[str, Callable[[], list[Rule]]] = {
    "a part that is cut, then damaged": lambda: [
        Rule(rules.CutRequest(200_000), *PART),
        Rule(rules.FlipRequest(200_000), *PART),
    ],
    "rewrite: its answer is lost": lambda: [Rule(rules.LoseAnswer(), *REWRITE)],
    "rewrite: reset, then its answer is cut": lambda: [
        Rule(rules.Reset(), *REWRITE),
        Rule(rules.CutAnswer(20), *REWRITE),
    ],
    "remove: 429s, then its answer is lost": lambda: [
        storm(429, times=2, method=REMOVE[0], target=REMOVE[1]),
        Rule(rules.LoseAnswer(), *REMOVE),
    ],
    EACH: lambda: [Rule(rules.LoseAnswer(), *aim) for aim in (FINISH, LOOK, REWRITE, REMOVE)],
}
LARGE = [pytest.param(PART_BYTES, fault, id=f"parts-{fault}") for fault in IN_PARTS]
LARGE += [pytest.param(SPLIT_BYTES, EACH, id=f"ranges-{EACH}")]


@pytest.mark.parametrize(("size_bytes", "fault"), LARGE)
def test_a_large_file(lake: FaultyLake, size_bytes: int, fault: str) -> None:
    """Whatever is lost between the requests that finish it, the file is whole, and nothing lies beside it."""
    rows = int(1.2 * size_bytes / ROW_BYTES)
    survives(
        lake,
        STORE,
        IN_PARTS[fault](),
        append=lambda lake: lake.append(rows, row_bytes=ROW_BYTES),
        must_end_well=True,
    )
    assert beside(lake) == []


def beside(lake: FaultyLake) -> list[str]:
    """Objects that uploads left behind."""
    url = f"{lake.services.gcs_endpoint}/storage/v1/b/{gcsemu.BUCKET}/o"
    listed = requests.get(url, params={"maxResults": "1000"}, timeout=30).json().get("items", [])
    return [one["name"] for one in listed if "._upload-" in one["name"]]
