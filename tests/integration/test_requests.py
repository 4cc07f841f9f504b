"""Requests of a run, counted in front of all four servers: a bound for small commits, and what results say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.services import Services
from tests.faults.scene import FaultyLake, faulty_lake
from tests.perf.small_commit import MOST_REQUESTS, in_all, small_commits

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.fixture
def lake(clean_services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyLake]:
    for name, value in clean_services.environment().items():
        monkeypatch.setenv(name, value)
    with faulty_lake(clean_services, tmp_path) as lake:
        yield lake


def test_a_small_commit_with_everything_warm(lake: FaultyLake) -> None:
    """The bar of `make bench` that needs no clock: mirrored and followed by so few requests to all four servers."""
    _, requests = small_commits(lake, rounds=3)
    assert max(map(in_all, requests)) <= MOST_REQUESTS, requests
