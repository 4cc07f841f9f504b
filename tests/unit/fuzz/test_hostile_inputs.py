"""Hostile files through the whole library: a bounded number here, as many as there is time for in `make fuzz`.

A run is repeated by its seed: `FUZZ_SEED=7 make test T=tests/unit/fuzz/test_hostile_inputs.py`; one input of it by
`python -m tests.fuzz.inputs --seed 7 --index 1234`.
"""

from __future__ import annotations

import itertools
import os
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import cases, hostile, inputs, pool, seeds, worker
from tests.fuzz.cases import Case
from tests.fuzz.pool import Answer, Job, Limits

SECONDS = 6  # of mutated files, from the first on
PROBES = ("eats", "asks for too much", "raises", "breaks lines", "says nothing", "echoes", "dies", "hangs")
SINGLE_FILES = [
    (uri, data)
    for files in seeds.tables().values()
    for uri, data in files.items()
    if uri.endswith((".metadata.json", ".avro")) and "/data/" not in uri
]


@pytest.mark.timeout(600)  # for 20 s of work, on a machine that is busy
def test_files_made_by_hand_are_taken_or_refused() -> None:
    """What was found once, all that take no second, and a few of full size: every one, however long it takes."""
    by_hand = {*hostile.quick_names(), *hostile.FULL_SIZE}
    jobs = itertools.chain(inputs.found_once(), ({"hostile": name} for name in sorted(by_hand)))
    tally = inputs.fuzz(jobs, inputs.HOSTILE_LIMITS)
    print(tally.summary())
    assert tally.findings == {}
    assert tally.by_hand == by_hand
    assert tally.outcomes["taken"] > 20  # not all are refused at the door


def test_mutated_files_are_taken_or_refused() -> None:
    """As many as there is time for."""
    seed = int(os.environ.get("FUZZ_SEED", inputs.SEED))
    print(f"seed {seed}")
    tally = inputs.fuzz(inputs.mutated(seed), Limits(grown_bytes=1 << 30), seconds=SECONDS)
    print(tally.summary())
    assert tally.findings == {}
    assert tally.outcomes["refused"] > 10
    assert tally.outcomes["taken"] > 0


@settings(max_examples=200, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
@given(file=st.sampled_from(SINGLE_FILES), other=st.sampled_from(SINGLE_FILES), rng=st.randoms(use_true_random=False))
def test_metadata_lists_and_manifests_by_hypothesis(
    file: tuple[str, bytes], other: tuple[str, bytes], rng: Random
) -> None:
    """The same mutators with Hypothesis at the dice: it keeps what failed, and makes it small."""
    uri, data = file
    mutated = cases.mutate(uri, data, other[1], rng, uri.rpartition("/metadata/")[0])
    answer = worker.run(Case("v2", "empty", "reader", uri, mutated))
    assert answer["outcome"] != "finding", answer["text"]


def test_what_must_not_be_is_found() -> None:
    """The runner is worth its name: whatever no input may do is reported, and the next one has a child again."""
    found: dict[str, str] = {}

    def note(job: Job, answer: Answer) -> None:
        assert answer["outcome"] == "finding"
        found[job["probe"]] = answer["signature"]

    jobs = ({"probe": name} for name in PROBES)
    pool.run(jobs, 1, Limits(cpu_s=1.5, grown_bytes=500 << 20), note, is_cold=True)
    assert found.keys() == {*PROBES}
    assert found["dies"] == "the process died (-11)"
    assert found["hangs"] == "more than 1.5 s of CPU"
    assert "MiB of memory" in found["eats"]
    assert found["asks for too much"].startswith("MemoryError")
    assert found["raises"].startswith("KeyError")
    assert found["breaks lines"].startswith("an error that breaks lines")
    assert found["says nothing"].startswith("no op, subject, message or hint")
    assert found["echoes"].startswith("a cause of 1000000 characters")


@pytest.mark.parametrize("index", [3, 10, 77])
def test_an_input_is_a_function_of_seed_and_index(index: int) -> None:
    assert cases.make(9, index) == cases.make(9, index)
    assert cases.make(9, index) != cases.make(8, index)
