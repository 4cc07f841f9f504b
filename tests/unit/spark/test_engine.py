"""What of the engine can be told without a JVM."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock, create_autospec

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakemirror.errors import SourceVanishedError
from lakemirror.spark import engine as engines
from lakemirror.spark.engine import SparkEngine

DYNAMIC = {"spark.dynamicAllocation.enabled": "true"}


def session(conf: dict[str, str], parallelism: int) -> Any:
    fake: MagicMock = create_autospec(SparkSession, instance=True)
    fake.sparkContext.getConf.return_value = conf
    fake.sparkContext.defaultParallelism = parallelism
    return fake


@pytest.mark.parametrize(
    ("conf", "rows", "want"),
    [
        ({}, 100, 8),
        ({}, 3, 3),
        ({}, 0, 1),
        (DYNAMIC, 100, 100),
        ({**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "5", "spark.executor.cores": "4"}, 100, 20),
        ({**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "5"}, 100, 100),
    ],
)
def test_processes_that_may_work_at_once(conf: dict[str, str], rows: int, want: int) -> None:
    assert SparkEngine(session(conf, 8)).processes(rows) == want


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        ({"uri": ["a"] * 50}, 50),
        ({"length": [1] * 5}, 5),
        ({"length": [1] * 50}, 8),
        ({"source_length": [1 << 20] * 1000}, 63),
        ({"source_length": [1 << 30] * 3}, 3),
    ],
)
def test_light_rows_share_a_task(rows: dict[str, list[Any]], want: int) -> None:
    fake = session({}, 2)
    SparkEngine(fake)._spread(pa.table(rows), lambda batches: batches, "uri string")
    (count,) = {len(values) for values in rows.values()}
    fake.range.assert_called_once_with(0, count, 1, want)


def test_an_error_that_turns_up_after_the_check_is_raised_not_packed() -> None:
    """Entries that were lost with their executor are read again while they are packed; the source may be gone."""
    packed = []
    stage = engines._WithoutErrors(lambda batches: (packed.append(batch) or batch for batch in batches))
    told = engines._describe(SourceVanishedError("read manifest", "s3://b/m", "the manifest is gone", "run again"))
    good = pa.RecordBatch.from_pylist([{"target": "a", "kind": "data"}])
    bad = pa.RecordBatch.from_pylist([{"target": "b", "kind": "data"}, {"target": told, "kind": "!error"}])
    with pytest.raises(SourceVanishedError, match="the manifest is gone"):
        list(stage(iter([good, bad])))
    assert packed == [good]
