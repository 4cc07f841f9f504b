"""How tests themselves are run: what is meant for side-by-side runs."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.conftest import longest_first


def item(file: str, name: str, limit_s: float | None = None, *, waits: bool = False) -> pytest.Item:
    marks = {"timeout": None if limit_s is None else SimpleNamespace(args=(limit_s,)), "waits": waits or None}
    return cast(pytest.Item, SimpleNamespace(path=Path(file), name=name, get_closest_marker=marks.get))


def test_files_that_may_take_longest_come_first_and_two_that_compute_beside_one_that_waits() -> None:
    items = [
        item("quick.py", "a"),
        item("slow.py", "a"),
        item("slow.py", "b", 400),
        item("some.py", "a", 180),
        item("also slow.py", "a", 400),
        item("idle.py", "a", 100, waits=True),
        item("long idle.py", "a", 200, waits=True),
    ]

    longest_first(items)

    assert [f"{one.path}:{one.name}" for one in items] == [
        "long idle.py:a",
        "slow.py:a",
        "slow.py:b",
        "also slow.py:a",
        "idle.py:a",
        "some.py:a",
        "quick.py:a",
    ]
