"""Random histories of tables that Spark writes: a few with new seeds in each run.

The same again: `make test T=tests/e2e/test_random_spark_histories.py PYTEST_ARGS="--history-seed=123"`, without some of
its steps: `--history-skip=3,5-8`. For hours: `make soak`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.histories.spark_history import STEPS, run
from tests.judge import Judge

HISTORIES = 3


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(HISTORIES))
def test_a_mirror_follows_any_history_of_spark(
    judge: Judge,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    number: int,
    history_steps: int | None,
    history_skip: frozenset[int],
) -> None:
    if number and request.config.getoption("--history-seed") is not None:
        pytest.skip("one history is asked for, and it was the first")
    seed = request.getfixturevalue("history_seed")
    run(judge, tmp_path, seed, steps=history_steps or STEPS, skip=history_skip)
