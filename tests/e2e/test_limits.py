"""The bandwidth limit holds for all processes of a run together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.e2e.history import History

PEAK_BYTES_PER_S = 30_000


@pytest.mark.parametrize("lane", ["task", "spark"])
def test_all_tasks_of_a_run_share_the_line(history: History, lane: str) -> None:
    """Eight files, two cores: were each task to have the line for itself, it would take a few seconds at most."""
    history.create("id BIGINT, note STRING, part INT", partitioned_by="part")
    history.insert("SELECT id, repeat(uuid(), 4), CAST(id % 8 AS INT) FROM range(0, 8000)")
    installation = history.lanes[lane]
    limits = {"peak_bandwidth_bytes_per_s": PEAK_BYTES_PER_S, "rate_limit": 1.0, "bin_files": 1}
    replace(installation, defaults={**installation.defaults, **limits}).write()
    result = installation.sync(history.name)
    assert (result.lane, result.copied_files) == (lane, 8)
    assert result.copied_bytes > 2 * PEAK_BYTES_PER_S
    within_the_burst = PEAK_BYTES_PER_S if lane == "task" else 0
    assert result.seconds["copy"] >= (result.copied_bytes - within_the_burst) / PEAK_BYTES_PER_S * 0.99
