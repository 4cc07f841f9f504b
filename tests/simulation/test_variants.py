"""The simulation itself: what is broken on purpose is found, and a schedule is what its seed says, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import variants
from tests.simulation.run import Job, Outcome, explained, ready, run, search
from tests.simulation.scene import KINDS
from tests.simulation.shortening import shortened

ROOT = Path(__file__).resolve().parents[2]
SCHEDULES = 20_000
PROCESSES = 2
AT_FIRST = 200


@pytest.mark.timeout(900)
@pytest.mark.parametrize("variant", variants.BROKEN)
def test_a_broken_variant_is_caught(variant: str) -> None:
    """By the first few schedules, for which no processes are worth starting, unless the code has changed."""
    kind, first = variants.BROKEN[variant].kind, variants.BROKEN[variant].first
    with ready(variant):
        outcome = search(Job(first, AT_FIRST, kind))
        if outcome.findings:
            _check_caught(variant, outcome)
            return
    outcome = run(first + AT_FIRST, SCHEDULES - AT_FIRST, variant=variant, kind=kind, processes=PROCESSES)
    assert outcome.findings, f"not caught in {outcome.schedules} schedules"
    with ready(variant):
        _check_caught(variant, outcome)


def _check_caught(variant: str, outcome: Outcome) -> None:
    found = min(outcome.findings, key=lambda one: one.seed)
    print(f"caught by seed {found.seed}: {found.violation}")
    broken = variants.BROKEN[variant]
    assert found.kind in broken.breaks, "it is to be caught by what it breaks, not by an accident"
    assert f"VIOLATION {found.kind}" in explained(found, KINDS[broken.kind](found.seed), tries_at_most=50)


def test_a_seed_is_the_same_schedule_in_every_process() -> None:
    command = [sys.executable, "-m", "tests.simulation.run", "--seed", "5", "--show"]
    outputs = [
        subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": number},
            capture_output=True,
            check=True,
            timeout=100,
        ).stdout
        for number in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert b"VIOLATION None" in outputs[0]


def test_a_script_becomes_as_short_as_it_can_be() -> None:
    """What fails is any script with a 2 after a 1."""

    def fails(script: list[int]) -> list[int] | None:
        return script if 1 in script and 2 in script[script.index(1) :] else None

    assert shortened([3, 0, 1, 0, 3, 3, 2, 1, 0, 2, 2], fails) == [1, 0, 2]
