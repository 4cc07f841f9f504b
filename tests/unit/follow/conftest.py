"""A mirror that was published and not followed yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lake import Lake, rows


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A source of one commit, mirrored as v1, not followed yet."""
    lake = Lake(tmp_path)
    lake.create().append(rows(3))
    lake.mirror()
    return lake
