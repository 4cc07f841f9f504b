"""Marks all that is here as end to end, and as a starter of JVMs; and the fixture that several modules use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.history import History, start_history
from tests.judge import Judge


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.spark)
            # PySpark leaves the sockets of its collects to the garbage collector
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture
def history(judge: Judge, tmp_path: Path) -> History:
    return start_history(judge, tmp_path)
