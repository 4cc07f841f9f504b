"""A lake for each test; and an Airflow home of their own for those that use its hooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dags.airflow_home import use_private_airflow_home
from tests.lake import Lake

use_private_airflow_home()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)
