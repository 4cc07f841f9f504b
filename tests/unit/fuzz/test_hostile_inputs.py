"""Hostile files through the whole library: a bounded number here, as many as there is time for in `make fuzz`.

A run is repeated by its seed: `FUZZ_SEED=7 make test T=tests/unit/fuzz/test_hostile_inputs.py`; one input of it by
`python -m tests.fuzz.inputs --seed 7 --index 1234`.
"""

from __future__ import annotations

import itertools
import os

import pytest

from tests.fuzz import cases, hostile, inputs, pool
from tests.fuzz.pool import Answer, Job, Limits

SECONDS = 12  # from the first input on
PROBES = ("eats", "asks for too much", "raises", "breaks lines", "says nothing", "echoes", "dies", "hangs")


def test_hostile_files_are_taken_or_refused() -> None:
    """What was found once; of those made by hand every third that is like others, among mutated ones till the end."""
    seed = int(os.environ.get("FUZZ_SEED", inputs.SEED))
    print(f"seed {seed}")
    alike = [name for name in hostile.quick_names() if name[-1].isdigit() or name.endswith("replicator")]
    by_hand = sorted({*hostile.quick_names()} - {*alike[1::3], *alike[2::3]})
    mutated = iter(inputs.mutated(seed))
    # mixed, so that a busy machine has time for some of each
    mixed = zip(({"hostile": name} for name in by_hand), mutated, mutated, mutated, mutated, strict=False)
    jobs = itertools.chain(inputs.found_once(), itertools.chain.from_iterable(mixed), mutated)
    tally = inputs.fuzz(jobs, Limits(grown_bytes=1 << 30), seconds=SECONDS)
    print(tally.summary())
    assert tally.findings == {}
    assert tally.outcomes["refused"] > 20
    assert tally.outcomes["taken"] > 3  # not all are refused at the door


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
