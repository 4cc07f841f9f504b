"""What tests of several folders share: the judge, and what to do when this machine cannot run it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.judge import Judge


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """One JVM for the whole run. In CI a judge that cannot sit is a failure; elsewhere its cases are skipped."""
    from tests.judge import Judge, what_is_missing

    missing = what_is_missing()
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    judge = Judge(tmp_path_factory.mktemp("judge"))
    yield judge
    judge.close()
