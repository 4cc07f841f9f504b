"""`make soak`: random histories of both kinds and simulated schedules, with new seeds, until the time is over.

    python -m tests.histories.soak --minutes 60 [--seed 123] [--only simulated]

One line for each; a failure also tells what happened and how to repeat it, and the run goes on. Exit 1 if any failed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.duckdb_judge import DuckDbJudge
from tests.histories import machine, spark_machine
from tests.judge import Judge, what_is_missing
from tests.simulation import run as simulation
from tests.simulation.scene import KINDS

SPARK_STEPS = 30
SCHEDULES = 5_000  # simulated ones of a turn
Kind = Callable[[int], str]  # plays what a seed stands for, and tells what it was
LIMIT_S = 900  # for one history of Spark, or all of one seed that are made by hand


def by_hand(judge: DuckDbJudge, seed: int) -> str:
    machine.run(lambda history: history.end(judge), seed)
    return f"{machine.EXAMPLES} histories of {machine.STEPS} steps by hand"


def by_spark(judge: Judge, seed: int) -> str:
    spark_machine.run(judge, seed, steps=SPARK_STEPS)
    return f"a history of {SPARK_STEPS} steps by Spark"


def kind_of(seed: int) -> str:
    """Every second turn is of ordinary schedules; the others are about one thing each, by turns."""
    directed = [kind for kind in KINDS if kind]
    return directed[seed // 2 % len(directed)] if seed % 2 else ""


def simulated(processes: simulation.Processes, seed: int) -> str:
    first, kind = seed * SCHEDULES, kind_of(seed)
    outcome = processes.run(first, SCHEDULES, kind)
    for finding in outcome.findings:
        with simulation.ready():
            raise AssertionError(simulation.explained(finding, KINDS[kind](finding.seed)))
    about = f" about {kind}" if kind else ""
    return f"{outcome.schedules} simulated schedules{about} from {first} with {outcome.faults} faults"


REPLAY = {
    "simulated": f".venv/bin/python -m tests.simulation.run --seed $(({{seed}} * {SCHEDULES})) --schedules {SCHEDULES} "
    "--kind '{kind}'",
    "by hand": "make test T=tests/integration/test_random_histories.py PYTEST_ARGS='--history-seed={seed}'",
    "by Spark": "make test T=tests/e2e/test_random_spark_histories.py "
    f"PYTEST_ARGS='--history-seed={{seed}} --history-steps={SPARK_STEPS}'",
}


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)  # again and again: a history that hung is tried once more
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def soak(kinds: dict[str, Kind], seeds: Iterator[int], deadline: float) -> list[str]:
    """The commands that repeat what failed."""
    failed: list[str] = []
    for kind in itertools.cycle(kinds):
        if time.monotonic() >= deadline:
            return failed
        seed, start = next(seeds), time.monotonic()
        try:
            with limited(LIMIT_S):
                told = kinds[kind](seed)
            print(f"ok      seed {seed}: {told} in {time.monotonic() - start:.1f} s", flush=True)
        except Exception:  # noqa: BLE001 — any failure of a history is a finding; the next one goes on
            failed.append(REPLAY[kind].format(seed=seed, kind=kind_of(seed)))
            print(f"FAILED  seed {seed}: {kind}, after {time.monotonic() - start:.1f} s", flush=True)
            traceback.print_exc()
            print(f"again:  {failed[-1]}", flush=True)
    return failed


def _spark(stack: ExitStack) -> Kind:
    judge = Judge(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-"))))
    stack.callback(judge.close)
    return partial(by_spark, judge)


def _hand(stack: ExitStack) -> Kind:
    judge = DuckDbJudge()
    stack.callback(judge.close)
    return partial(by_hand, judge)


def _simulation(stack: ExitStack) -> Kind:
    """Processes that are kept: what they remember makes the next schedules fast."""
    return partial(simulated, stack.enter_context(simulation.Processes(os.cpu_count() or 1)))


_OPEN: dict[str, Callable[[ExitStack], Kind]] = {
    "by Spark": _spark,
    "by hand": _hand,
    "simulated": _simulation,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=0)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31, help="the first; the others follow")
    parser.add_argument("--only", choices=[*REPLAY], help="nothing but this kind")
    args = parser.parse_args()
    missing = what_is_missing() if args.only in (None, "by Spark") else None
    if missing:
        print(missing, file=sys.stderr)
        return 2
    deadline = time.monotonic() + 60 * (args.minutes + 60 * args.hours)
    seeds = itertools.count(args.seed)
    with ExitStack() as stack:
        kinds = {kind: _OPEN[kind](stack) for kind in ([args.only] if args.only else _OPEN)}
        failed = soak(kinds, seeds, deadline)
    done = next(seeds) - args.seed
    each = f" of {SCHEDULES:,} schedules each" if args.only == "simulated" else ""
    print(f"{done:,} seeds{each}, {len(failed)} failed" + "".join(f"\n  {command}" for command in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
