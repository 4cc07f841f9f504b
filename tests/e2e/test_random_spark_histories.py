"""Random histories of tables that Spark writes: a few with new seeds in each run.

The same again: `make test T=tests/e2e/test_random_spark_histories.py PYTEST_ARGS="--history-seed=123"`. For hours:
`make soak`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from lakemirror.replicate.plan import PackSegments
from tests.histories.seeded import HistoryFailed
from tests.histories.spark_machine import STEPS, replay, run
from tests.judge import Judge

HISTORIES = 3
SEED = 162  # of a history that begins with an append to a partitioned table, and a sync


@pytest.mark.timeout(600)  # a failure is shortened, which takes a while
@pytest.mark.parametrize("number", range(HISTORIES))
def test_a_mirror_follows_any_history_of_spark(
    judge: Judge, request: pytest.FixtureRequest, number: int, history_steps: int | None
) -> None:
    if number and request.config.getoption("--history-seed") is not None:
        pytest.skip("one history is asked for, and it was the first")
    run(judge, request.getfixturevalue("history_seed"), steps=history_steps or STEPS)


@pytest.mark.timeout(300)
def test_a_planner_that_forgets_a_live_file_is_found(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judges find it in a history drawn at random; its seed and its steps lead there again."""
    write = PackSegments.write

    def forgetful(self: PackSegments, role: str, items: pa.Table) -> Iterator[pa.RecordBatch]:
        return write(self, role, items.slice(0, max(1, items.num_rows - 1)) if role == "copy" else items)

    monkeypatch.setattr(PackSegments, "write", forgetful)
    with pytest.raises(HistoryFailed, match=r"seed 162: Trace\(") as caught:
        run(judge, SEED, steps=4)
    with pytest.raises(HistoryFailed) as again:
        run(judge, SEED, steps=4, shorten_s=0)
    assert again.value.trace == caught.value.trace
    assert [name for name, *_ in caught.value.trace.steps] == ["append", "sync"]
    assert caught.value.short.steps == [("append", 0, 0, 0)]
    monkeypatch.undo()
    replay(judge, caught.value.short)
