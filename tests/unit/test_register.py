"""The register of a mirror's tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemirror import register
from lakemirror.model.table import TableRef
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectStore


@pytest.fixture
def store() -> ObjectStore:
    return ObstoreStore({})


def test_announced_tables_are_found_by_name(store: ObjectStore, tmp_path: Path) -> None:
    location = f"file://{tmp_path}/m"
    assert register.announced(store, location) == ()
    for name in ("shop.orders", "a.b.ü x", "shop.orders"):
        register.announce(store, location, TableRef.parse(name))
    assert register.announced(store, f"{location}/") == ("a.b.ü x", "shop.orders")
