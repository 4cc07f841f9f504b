"""Trouble is waited out: whole looks rest, tables that fail rest by themselves, and nobody else waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lakemirror.airflow.looking import LONGEST_REST_S, REOPEN_S, Looker, Told
from lakemirror.catalogs.asking import FAILURES_AT_MOST, ask_all
from lakemirror.errors import TransientError
from lakemirror.model.table import TableRef
from lakemirror.usecases.watch import Look
from tests.lake import Lake

POLL_S = 5.0


class Scene:
    """A looker whose watch asks for nothing and fails at will, under a clock that stands still."""

    def __init__(self, lake: Lake) -> None:
        self.now = 0.0
        self.failing: set[str] = set()
        self.asked: list[str] = []
        self.opened = 0
        self.looker = Looker(str(lake.follower_config_path), self._watch, POLL_S, lambda: self.now)

    def _watch(self, app: Any) -> Any:
        self.opened += 1
        return self

    def forget(self, tables: Collection[TableRef]) -> None:
        pass

    def look(self, tables: Sequence[TableRef], *, named: Collection[TableRef] = ()) -> Look:
        def ask(table: TableRef) -> None:
            self.asked.append(str(table))
            if str(table) in self.failing:
                raise TransientError("load table", str(table), "503")

        found = ask_all(ask, tables, 1)
        return Look({}, found.failed, tuple(one for one in tables if one not in {*found.told, *found.failed}))

    def asked_of(self, *tables: str, **options: Any) -> list[str]:
        """Who is asked in one look at these tables."""
        self.asked = []
        self.told: Told = asyncio.run(self.looker.look(tables, **options))
        return self.asked


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(Lake(tmp_path))


def test_a_table_that_fails_rests_twice_as_long_each_time_and_the_others_do_not(scene: Scene) -> None:
    scene.failing = {"s.bad"}
    asked_at: list[float] = []
    while scene.now <= 200:
        if "s.bad" in scene.asked_of("s.bad", "s.good"):
            asked_at.append(scene.now)
        assert "s.good" in scene.asked
        assert scene.told.untold == {"s.bad"}, "asked or not: nobody can tell"
        scene.now += POLL_S
    assert [later - earlier for earlier, later in pairwise(asked_at)] == [10, 20, 40, LONGEST_REST_S, LONGEST_REST_S]
    assert scene.looker.rest_s() == POLL_S
    assert scene.opened == 1
    scene.failing = set()
    scene.now += LONGEST_REST_S
    scene.asked_of("s.good", "s.bad")
    assert scene.told.untold == frozenset()
    assert scene.asked_of("s.good", "s.bad") == ["s.bad", "s.good"]


def test_a_table_that_joins_is_asked_though_it_rests(scene: Scene) -> None:
    scene.failing = {"s.bad"}
    scene.asked_of("s.bad", "s.good")
    assert scene.asked_of("s.bad", "s.good", fresh=["s.bad"]) == ["s.bad", "s.good"]


def test_one_table_alone_that_fails_rests_too_and_the_installation_is_opened_anew(scene: Scene) -> None:
    scene.failing = {"s.bad"}
    assert scene.asked_of("s.bad") == ["s.bad"]
    assert scene.told == Told({}, frozenset({"s.bad"}))
    assert scene.asked_of("s.bad") == []
    assert scene.looker.rest_s() == 2 * POLL_S
    scene.now += 2 * POLL_S
    assert scene.asked_of("s.bad") == ["s.bad"]
    assert scene.opened == 2


def test_those_that_failed_are_asked_last_so_that_many_of_them_keep_nobody_back(scene: Scene) -> None:
    bad = [f"s.bad{number:03}" for number in range(3 * FAILURES_AT_MOST)]
    good = [f"s.good{number}" for number in range(3)]
    scene.failing = {*bad}
    looks = []
    while not {*good} <= {*scene.asked_of(*bad, *good)}:
        assert len(scene.asked) <= FAILURES_AT_MOST
        looks.append(scene.now)
        scene.now += scene.looker.rest_s()
    assert len(looks) == 3, "at first they are taken for all"
    for _ in range(9):
        scene.now += LONGEST_REST_S
        assert scene.asked_of(*bad, *good)[:3] == good
        assert len(scene.asked) == len(good) + FAILURES_AT_MOST
    assert scene.told.untold == {*bad}


def test_while_a_table_fails_the_installation_is_opened_anew_at_times(scene: Scene) -> None:
    """What it was opened with may have expired."""
    scene.failing = {"s.bad"}
    while scene.now <= REOPEN_S:
        scene.asked_of("s.bad", "s.good")
        assert scene.opened == 1
        scene.now += LONGEST_REST_S
    scene.asked_of("s.bad", "s.good")
    assert scene.opened == 2
