"""A Spark job: the copy job several times in one session, each with a hub that notes whom it lets go, and when.

`noted_copy.py NOTES WORDS…`: to the file NOTES go lines `[second, what, …]`; each of WORDS is the copy job's own
arguments as a JSON list, and begins a line `["begun"]`.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from pathlib import Path
from typing import TextIO

from pyspark.sql import SparkSession

from lakemirror.copying import hub

ROOT = Path(__file__).resolve().parents[2]


def noting(notes: TextIO) -> type[hub.Ledger]:
    def note(what: str, *more: float) -> None:
        notes.write(json.dumps([time.time(), what, *more]) + "\n")

    class Noting(hub.Ledger):
        def joined(self, who: object, task: str, step: int, how: str) -> None:
            super().joined(who, task, step, how)
            note("share", self.share)

        def left(self, who: object) -> None:
            super().left(who)
            note("share", 0.0)  # from here on it is the end

        def lease(self, size_bytes: int, requests: int) -> float:
            wait_s = super().lease(size_bytes, requests)
            note("lease", size_bytes, requests, wait_s)
            return wait_s

    return Noting


def main(argv: list[str]) -> None:
    job = runpy.run_path(str(ROOT / "spark_jobs" / "copy_objects.py"))
    spark = SparkSession.builder.getOrCreate()
    with open(argv[0], "w", encoding="utf-8") as notes:
        hub.Ledger = noting(notes)  # type: ignore[misc]
        for words in argv[1:]:
            notes.write(json.dumps([time.time(), "begun"]) + "\n")
            job["run"](spark, job["parse_args"](json.loads(words)))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
