"""Spark job: copies the planned objects from source to mirror, with checksums computed in flight.

Writes a ledger segment per task as it goes; run again, it copies only what no segment names.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from lakemirror.app import App
from lakemirror.model.results import StageResult
from lakemirror.spark import job
from lakemirror.spark.engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def parse_args(argv: Sequence[str] | None = None) -> job.JobArgs:
    return job.parse_args(argv, __doc__)


def run(spark: SparkSession, args: job.JobArgs) -> StageResult:
    with closing(App.load(args.config, owner=args.owner)) as app, job.progress_lines(args) as lines:
        return app.copy_objects(args.table, args.plan_uri, SparkEngine(spark), lines)


def main(argv: Sequence[str] | None = None) -> int:
    return job.run_job("copy_objects", parse_args(argv), run, App.load)


if __name__ == "__main__":
    sys.exit(main())
