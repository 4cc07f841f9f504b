from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rest_double import RestDouble, rest_double
from tests.unit.catalogs.rest_world import World


@pytest.fixture
def double() -> Iterator[RestDouble]:
    with rest_double() as double:
        yield double


@pytest.fixture
def world(double: RestDouble) -> World:
    return World(double)
