"""`make soak`: random histories of both kinds, each with a new seed, until the time is over.

    python -m tests.histories.soak --minutes 60 [--seed 123]

One line for each; a failure also tells what happened and how to repeat it, and the run goes on. Exit 1 if any failed.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.histories import machine, spark_history
from tests.judge import Judge, what_is_missing

SPARK_STEPS = 30
LIMIT_S = 900  # for one history of Spark, or all of one seed that are made by hand


def by_hand(seed: int) -> str:
    machine.run(seed)
    return f"{machine.EXAMPLES} histories of {machine.STEPS} steps by hand"


def by_spark(judge: Judge, seed: int) -> str:
    with tempfile.TemporaryDirectory(prefix="history-") as folder:
        spark_history.run(judge, Path(folder), seed, steps=SPARK_STEPS)
    return f"a history of {SPARK_STEPS} steps by Spark"


REPLAY = {
    "by hand": "T=tests/integration/test_random_histories.py PYTEST_ARGS='--history-seed={seed}'",
    "by Spark": "T=tests/e2e/test_random_spark_histories.py "
    f"PYTEST_ARGS='--history-seed={{seed}} --history-steps={SPARK_STEPS}'",
}


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def soak(kinds: dict[str, Callable[[int], str]], seeds: Iterator[int], deadline: float) -> list[str]:
    """The commands that repeat what failed."""
    failed = []
    for kind in itertools.cycle(kinds):
        if time.monotonic() >= deadline:
            return failed
        seed, start = next(seeds), time.monotonic()
        try:
            with limited(LIMIT_S):
                told = kinds[kind](seed)
            print(f"ok      seed {seed}: {told} in {time.monotonic() - start:.1f} s", flush=True)
        except Exception:  # noqa: BLE001 — any failure of a history is a finding; the next one goes on
            failed.append("make test " + REPLAY[kind].format(seed=seed))
            print(f"FAILED  seed {seed}: {kind}, after {time.monotonic() - start:.1f} s", flush=True)
            traceback.print_exc()
            print(f"again:  {failed[-1]}", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=0)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31, help="the first; the others follow")
    args = parser.parse_args()
    missing = what_is_missing()
    if missing:
        print(missing, file=sys.stderr)
        return 2
    deadline = time.monotonic() + 60 * (args.minutes + 60 * args.hours)
    seeds = itertools.count(args.seed)
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        judge = Judge(Path(scratch))
        try:
            failed = soak({"by Spark": lambda seed: by_spark(judge, seed), "by hand": by_hand}, seeds, deadline)
        finally:
            judge.close()
    done = next(seeds) - args.seed
    print(f"{done} seeds, {len(failed)} failed" + "".join(f"\n  {command}" for command in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
