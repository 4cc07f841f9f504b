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
    ("weights", "rows", "weight", "want"),
    [
        ([], 4, 10, []),
        ([1, 1, 1, 1, 1], 2, 10, [(0, 2), (2, 4), (4, 5)]),
        ([4, 4, 4, 4], 9, 10, [(0, 2), (2, 4)]),
        ([99, 1, 99, 99], 9, 10, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        ([10, 1, 9], 9, 10, [(0, 1), (1, 3)]),
        ([1], 1, 10, [(0, 1)]),
    ],
)
def test_light_rows_share_a_task(weights: list[int], rows: int, weight: int, want: list[tuple[int, int]]) -> None:
    assert engines.group(weights, rows, weight) == want


def test_which_rows_share_a_task() -> None:
    engine = SparkEngine(session({}, 2))
    assert engine._groups(pa.table({"uri": ["a", "b"]})) == [(0, 1), (1, 2)]
    assert engine._groups(pa.table({"length": [5] * 5})) == [(number, number + 1) for number in range(5)]
    assert engine._groups(pa.table({"source_length": [5] * 32})) == [(first, first + 4) for first in range(0, 32, 4)]
    on_the_way = SparkEngine(session(DYNAMIC, 2))
    assert len(on_the_way._groups(pa.table({"source_length": [5] * 32}))) == 32


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
