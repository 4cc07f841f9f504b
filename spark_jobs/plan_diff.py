"""Spark job: what must be copied to get from the mirror's newest version to the planned one.

Reads only manifests that changed; writes the plan as Parquet segments below the plan URI, and nothing at all if the
table is refused. Run again, it writes the same plan.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from lakemirror.app import App
from lakemirror.model.results import PlanResult
from lakemirror.spark import job
from lakemirror.spark.engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def parse_args(argv: Sequence[str] | None = None) -> job.JobArgs:
    return job.parse_args(argv, __doc__, needs_source=True)


def run(spark: SparkSession, args: job.JobArgs) -> PlanResult:
    with closing(App.load(args.config, owner=args.owner)) as app:
        return app.plan_diff(args.table, args.plan_uri, str(args.source_name), SparkEngine(spark))


def main(argv: Sequence[str] | None = None) -> int:
    return job.run_job("plan_diff", parse_args(argv), run, App.load)


if __name__ == "__main__":
    sys.exit(main())
