"""Runs schedules by seed: in this process, or spread over several; `python -m tests.simulation.run --help`.

A schedule that fails is made shorter and told. It plays again by its seed, or by the script that is printed with it.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from multiprocessing.pool import Pool
from typing import TypeVar

from tests.simulation import variants, watch
from tests.simulation.choices import Choices
from tests.simulation.installing import installed
from tests.simulation.scene import KINDS, MEMORY, Scene, Settings
from tests.simulation.shortening import TRIES_AT_MOST, shortened
from tests.simulation.telling import told

T = TypeVar("T")
Found = TypeVar("Found")
CHUNK = 100
_KEPT = ExitStack()  # of a process that works for `spread`
COLLECT_EVERY = 400


@dataclass(frozen=True)
class Finding:
    """A schedule that fails: its seed, what it violates, and the choices that were made."""

    seed: int
    violation: str
    script: tuple[int, ...]

    @property
    def kind(self) -> str:
        return self.violation.partition(":")[0]


@dataclass(frozen=True)
class Outcome:
    schedules: int
    steps: int
    faults: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Job:
    """A range of seeds, of schedules of one kind (of `scene.KINDS`)."""

    first: int
    count: int
    kind: str = ""


@contextmanager
def ready(variant: str = "") -> Iterator[None]:
    """The code as it is, or one variant; nothing is remembered of another one."""
    MEMORY.forget()
    watch.forget()
    log = logging.getLogger("lakemirror")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with variants.BROKEN[variant].made() if variant else nullcontext(), installed():
            yield
    finally:
        MEMORY.forget()
        watch.forget()
        log.setLevel(before)


def play(choices: Choices, settings: Settings) -> Scene:
    scene = Scene(choices, settings)
    scene.run()
    return scene


def search(job: Job) -> Outcome:
    """All seeds of the job, or those up to the first that fails; within `ready`."""
    schedules = steps = faults = 0
    for seed in range(job.first, job.first + job.count):
        scene = play(Choices(seed), KINDS[job.kind](seed))
        schedules += scene.is_whole or scene.world.violation is not None
        steps += scene.world.steps
        faults += scene.world.faults
        if scene.world.violation is not None:
            finding = Finding(seed, scene.world.violation, tuple(scene.choices.made))
            return Outcome(schedules, steps, faults, (finding,))
        del scene
        if seed % COLLECT_EVERY == 0:
            gc.collect()
            gc.freeze()  # what is remembered stays, and need not be looked at again
    return Outcome(schedules, steps, faults, ())


def explained(finding: Finding, settings: Settings, tries_at_most: int = TRIES_AT_MOST) -> str:
    """The shortest schedule that was found to fail in the same way, step by step; within `ready`."""

    def fails(script: list[int]) -> list[int] | None:
        scene = play(Choices(script=script), settings)
        is_same = scene.world.violation is not None and scene.world.violation.partition(":")[0] == finding.kind
        return scene.choices.made if is_same else None

    if fails(list(finding.script)) is None:
        return f"seed {finding.seed} does not fail a second time with {finding.violation}"
    script = shortened(list(finding.script), fails, tries_at_most)
    scene = play(Choices(script=script), settings)
    return f"{told(scene)}\nseed {finding.seed}, {settings}, shortened script {script}"


# ------------------------------------------------------------------------------------------------- several processes


class Processes:
    """Work for one variant; each remembers what it has seen, so they are worth keeping."""

    def __init__(self, count: int, variant: str = "") -> None:
        _acquaint()
        with ready(variant):  # a variant that cannot be made is told here; a pool would start processes without end
            pass
        self._count, self._variant = count, variant
        self._pool = self._started()

    def _started(self) -> Pool:
        return multiprocessing.get_context("fork").Pool(self._count, _start, (self._variant,))

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.terminate()
        self._pool.join()

    def run(self, first: int, count: int, kind: str = "") -> Outcome:
        """So many schedules; not all of them once one has failed."""
        schedules = steps = faults = 0
        findings: tuple[Finding, ...] = ()
        for outcome in self._pool.imap_unordered(search, chunks(first, count, kind)):
            schedules, steps, faults = schedules + outcome.schedules, steps + outcome.steps, faults + outcome.faults
            findings += outcome.findings
            if findings:  # others would go on for long with what they were given
                self._pool.terminate()
                self._pool = self._started()
                break
        return Outcome(schedules, steps, faults, findings)

    def map(self, work: Callable[[T], Found], items: Iterable[T]) -> list[Found]:
        return self._pool.map(work, items, chunksize=10)


@cache
def _acquaint() -> None:
    """What is imported when it is needed, and the stories: once, for all processes that are started later."""
    with ready():
        for seed in range(8):
            play(Choices(seed), KINDS[""](seed))


def _start(variant: str) -> None:
    gc.collect()
    gc.freeze()
    gc.disable()
    _KEPT.enter_context(ready(variant))


def chunks(first: int, count: int, kind: str = "") -> list[Job]:
    return [Job(start, min(CHUNK, first + count - start), kind) for start in range(first, first + count, CHUNK)]


def run(first: int, count: int, *, variant: str = "", kind: str = "", processes: int = 2) -> Outcome:
    with Processes(processes, variant) as several:
        return several.run(first, count, kind)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="the first; the others follow")
    parser.add_argument("--schedules", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="go on until the time is over")
    parser.add_argument("--variant", default="", choices=["", *variants.BROKEN])
    parser.add_argument("--kind", choices=list(KINDS), help="of the schedules; those of the variant unless it is said")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", action="store_true", help="tell the first schedule step by step, whatever it does")
    args = parser.parse_args()
    kind = args.kind if args.kind is not None else variants.BROKEN[args.variant].kind if args.variant else ""
    if args.show:
        with ready(args.variant):
            print(told(play(Choices(args.seed), KINDS[kind](args.seed))))
        return 0
    start = time.monotonic()
    count = 0
    with Processes(args.processes, args.variant) as several:
        for first in itertools.count(args.seed, args.schedules):
            outcome = several.run(first, args.schedules, kind)
            count += outcome.schedules
            spent = time.monotonic() - start
            print(f"{count} schedules from seed {args.seed} in {spent:.0f} s", flush=True)
            if outcome.findings or args.minutes is None or spent > 60 * args.minutes:
                break
    with ready(args.variant):
        for finding in outcome.findings:
            print(explained(finding, KINDS[kind](finding.seed)))
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
