"""Hostile files through the whole library, in children with limits: `make fuzz MINUTES=n`, and a part of the tests.

    python -m tests.fuzz.inputs --minutes 10 --seed 7      bombs for half of the time, then mutated files
    python -m tests.fuzz.inputs --seed 7 --index 1234      one of them again, here, with its traceback
    python -m tests.fuzz.inputs --hostile "empty lists"    one made by hand
    python -m tests.fuzz.inputs --file .cache/fuzz/x.json  one that was kept; --shrink makes it smaller

An input is taken, or refused by a LakemirrorError that says who, what, why and what next. All else is a finding: it is
kept in .cache/fuzz, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from tests.fuzz import hostile, pool, saved, seeds, worker
from tests.fuzz.cases import Case
from tests.fuzz.pool import Answer, Job, Limits

FOUND = pool.PROJECT / ".cache" / "fuzz"
SEED = 20_261_116
HOSTILE_LIMITS = Limits(cpu_s=90.0, wall_s=300.0, grown_bytes=2 << 30)


@dataclass
class Tally:
    """What came of all inputs; of findings with one signature the first is kept."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, tuple[Job, Answer]] = field(default_factory=dict)
    by_hand: set[str] = field(default_factory=set)  # names of those made by hand that were answered
    slowest_s: float = 0.0
    largest_bytes: int = 0

    def add(self, job: Job, answer: Answer) -> None:
        self.outcomes[answer["outcome"]] += 1
        if "hostile" in job:
            self.by_hand.add(job["hostile"])
        self.slowest_s = max(self.slowest_s, answer.get("cpu_s", 0.0))
        self.largest_bytes = max(self.largest_bytes, answer.get("grown_bytes", 0))
        if answer["outcome"] == "finding" and answer["signature"] not in self.findings:
            self.findings[answer["signature"]] = (job, answer)
            print(f"FINDING {answer['signature']}\n  {answer.get('name', '')}\n  again: {_again(job)}", flush=True)

    @property
    def total(self) -> int:
        return sum(self.outcomes.values())

    def summary(self) -> str:
        counts = ", ".join(f"{self.outcomes[name]} {name}" for name in ("taken", "refused", "finding"))
        return (
            f"{self.total} inputs: {counts}; at most {self.slowest_s:.1f} s of CPU and "
            f"{self.largest_bytes >> 20} MiB of memory for one"
        )


def _again(job: Job) -> str:
    return f"python -m tests.fuzz.inputs {' '.join(f'--{key} {value!r}' for key, value in job.items())}"


def mutated(seed: int, count: int | None = None) -> Iterable[Job]:
    numbers = itertools.count() if count is None else range(count)
    return ({"seed": seed, "index": index} for index in numbers)


def found_once() -> Iterable[Job]:
    """Inputs that were findings before what they found was mended."""
    return ({"file": str(path)} for path in sorted((seeds.CORPUS / "found").glob("*.json")))


def made_by_hand(seed: int) -> Iterable[Job]:
    """All of them, the quick ones first; which of the others come before the time is over depends on the seed."""
    quick = hostile.quick_names()
    slow = [name for name in hostile.names() if name not in quick]
    return ({"hostile": name} for name in (*quick, *Random(seed).sample(slow, len(slow))))


def fuzz(jobs: Iterable[Job], limits: Limits, *, seconds: float | None = None, children: int | None = None) -> Tally:
    tally = Tally()
    pool.run(jobs, children or min(2, os.cpu_count() or 1), limits, tally.add, seconds)
    for job, _ in tally.findings.values():
        case = worker.case_of(job)
        if isinstance(case, worker.Probe):
            continue
        name = "-".join(str(value) for value in job.values()).replace(" ", "_").replace("/", "_")
        saved.save(case, FOUND / f"{name}.json")
    return tally


def shrink(case: Case, timeout_s: float = 120.0) -> Case:
    """Smaller bytes with the same finding, for those that a child survives."""
    want = worker.run(case)["signature"]
    deadline, size = time.monotonic() + timeout_s, max(1, len(case.data) // 2)
    while size and time.monotonic() < deadline:
        at, is_smaller = 0, False
        while at < len(case.data) and time.monotonic() < deadline:
            less = replace(case, data=case.data[:at] + case.data[at + size :])
            if worker.run(less)["signature"] == want:
                case, is_smaller = less, True
            else:
                at += size
        size = size if is_smaller else size // 2
    return case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--index", type=int)
    parser.add_argument("--hostile")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--shrink", action="store_true")
    args = parser.parse_args()
    one: Job | None = None
    if args.index is not None:
        one = {"seed": args.seed, "index": args.index}
    elif args.hostile or args.file:
        one = {"hostile": args.hostile} if args.hostile else {"file": str(args.file)}
    if one is not None:
        return _show(worker.case_of(one), shrinks=args.shrink)
    print(f"seed {args.seed}", flush=True)
    start, seconds = time.monotonic(), args.minutes * 60
    jobs = [*found_once(), *made_by_hand(args.seed)]
    by_hand = fuzz(jobs, HOSTILE_LIMITS, seconds=seconds / 2)
    print(f"kept or made by hand: of {len(jobs)} there was time for {by_hand.summary()}", flush=True)
    tally = fuzz(mutated(args.seed), Limits(), seconds=max(10, start + seconds - time.monotonic()))
    print(f"mutated: {tally.summary()}")
    found, total = len(by_hand.findings) + len(tally.findings), by_hand.total + tally.total
    print(f"{found} findings in {total} inputs, seed {args.seed}{f'; kept in {FOUND}' if found else ''}")
    return 1 if found else 0


def _show(case: Case | worker.Probe, *, shrinks: bool) -> int:
    if shrinks and isinstance(case, Case):
        case = shrink(case)
        saved.save(case, FOUND / "shrunk.json")
        print(f"{len(case.data)} bytes, kept in {FOUND / 'shrunk.json'}: {case.data[:2000]!r}")
    answer = worker.run(case)
    print(answer.pop("text"))
    print(answer)
    return 1 if answer["outcome"] == "finding" else 0


if __name__ == "__main__":
    sys.exit(main())
