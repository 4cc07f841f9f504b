"""The protocol under random schedules: nothing that must hold is broken. Two processes of its own."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.simulation import installing
from tests.simulation.choices import Choices
from tests.simulation.ports import key_of
from tests.simulation.remembered import Memory
from tests.simulation.run import Processes, explained, play, ready
from tests.simulation.scene import KINDS, Scene, settings_of
from tests.simulation.telling import told

SCHEDULES = 20_000
DIRECTED = 400  # of each kind
WARM_UP, COMPARED, COMPARED_DIRECTED = 200, 240, 40
PROCESSES = 2


@pytest.fixture(scope="module")
def several() -> Iterator[Processes]:
    """For the code as it is: what they have seen once is remembered in all tests."""
    with Processes(PROCESSES) as several:
        yield several


@pytest.mark.timeout(900)
def test_no_schedule_breaks_an_invariant(several: Processes, capsys: pytest.CaptureFixture[str]) -> None:
    """Half of them without the fence: safety does not rest on it."""
    start = time.monotonic()
    outcome = several.run(0, SCHEDULES)
    with capsys.disabled():
        told = f"{outcome.schedules} schedules, {outcome.steps} steps, {outcome.faults} faults"
        print(f"\n{told} in {time.monotonic() - start:.0f} s")
    if outcome.findings:
        with ready():
            pytest.fail("\n".join(explained(one, settings_of(one.seed)) for one in outcome.findings))
    assert outcome.schedules == SCHEDULES >= 20_000, "each ran to its end, and readers saw something in each"
    assert outcome.faults > SCHEDULES / 2


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind])
def test_no_schedule_about_one_thing_breaks_an_invariant(several: Processes, kind: str) -> None:
    """Where variants are looked for that ordinary schedules rarely meet, the code as it is passes."""
    outcome = several.run(0, DIRECTED, kind=kind)
    if outcome.findings:
        with ready():
            pytest.fail("\n".join(explained(one, KINDS[kind](one.seed)) for one in outcome.findings))
    assert outcome.schedules == DIRECTED


@pytest.mark.timeout(900)
def test_what_is_remembered_changes_nothing(several: Processes) -> None:
    """A schedule is the same whether stages are walked through or run for real, and by its script as by its seed.

    By then every process has walked through the stages of many schedules, so that most of what it walks is remembered.
    """
    assert several.run(0, WARM_UP).findings == ()
    compared = [(kind, seed) for kind in KINDS for seed in range(COMPARED_DIRECTED if kind else COMPARED)]
    others = [one for one, is_alike in several.map(alike, compared) if not is_alike]
    assert others == []


def alike(one: tuple[str, int]) -> tuple[tuple[str, int], bool]:
    kind, seed = one
    settings = KINDS[kind](seed)
    remembered = play(Choices(seed), settings)
    real = Scene(Choices(seed), settings, Memory(key_of, is_off=True))
    real.run()
    scripted = play(Choices(script=remembered.choices.made), settings)
    is_sound = seed % 20 > 0 or not installing.altered()
    return one, is_sound and _whole(remembered) == _whole(real) == _whole(scripted)


def _whole(scene: Scene) -> tuple[str, dict[str, bytes]]:
    """All that happened and all that is left; but how many requests a stage made is counted in what is spared."""
    objects = {uri: data for uri, data in scene.world.objects.items() if not uri.endswith(".result.json")}
    return re.sub(r"(\.result\.json \(Overwrite), \d+ bytes", r"\1", told(scene)), objects
