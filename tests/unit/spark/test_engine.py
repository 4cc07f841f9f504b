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


def session_of(cores: int) -> MagicMock:
    session: MagicMock = create_autospec(SparkSession, instance=True)
    session.sparkContext.defaultParallelism = cores
    return session


@pytest.mark.parametrize(("most", "cores", "want"), [(100, 8, 8), (3, 8, 3), (0, 8, 1), (5, 1, 1)])
def test_no_more_tasks_are_made_than_may_work_at_once(most: int, cores: int, want: int) -> None:
    """However many executors come later: there are no more tasks than that."""
    session = session_of(cores)
    engine, processes = SparkEngine(session).narrow(most)
    assert processes == want
    engine._spread(pa.table({"uri": ["x"] * 50}), lambda batches: batches, "uri string")
    session.range.assert_called_once_with(0, 50, 1, want)


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
    session = session_of(2)
    table = pa.table(rows)
    SparkEngine(session)._spread(table, lambda batches: batches, "uri string")
    session.range.assert_called_once_with(0, table.num_rows, 1, want)


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
