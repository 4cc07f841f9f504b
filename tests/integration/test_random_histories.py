"""Random histories of a table made by hand: a few with a new seed in each run.

The same again: `make test T=tests/integration/test_random_histories.py PYTEST_ARGS="--history-seed=123"`. For hours:
`make soak`.
"""

from __future__ import annotations

import pytest

from tests.histories.machine import run

pytestmark = pytest.mark.integration


@pytest.mark.timeout(600)  # a failure is shrunk to its shortest form, which takes a while
def test_a_mirror_follows_any_history(history_seed: int) -> None:
    run(history_seed)
