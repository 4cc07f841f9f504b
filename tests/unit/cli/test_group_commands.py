"""`lakemirror groups`: watermarks for people and for scripts."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from lakemirror.model.group import MoveBack, Reached
from lakemirror.model.results import GroupResult
from tests.unit.cli.fake_app import FakeApp, run_cli

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SHOP = GroupResult(
    "shop", NOON, 61.25, "s.orders", {"s.orders": Reached(7, NOON)}, (MoveBack(NOON, NOON, None, "s.a"),)
)
EMPTY = GroupResult("new", None, None, "s.items", {"s.items": None})


def app() -> FakeApp:
    return FakeApp(groups={"new": EMPTY, "shop": SHOP})


def test_one_group_is_an_object() -> None:
    ran = run_cli("groups shop --json", app())
    assert ran.code == 0
    assert json.loads(ran.out) == {
        "table": None,
        "ok": True,
        "group": "shop",
        "watermark": "2026-05-01T12:00:00.000Z",
        "lag_s": 61.25,
        "slowest": "s.orders",
        "tables": {"s.orders": {"version": 7, "through": "2026-05-01T12:00:00.000Z"}},
        "moves_back": [
            {"at": "2026-05-01T12:00:00.000Z", "was": "2026-05-01T12:00:00.000Z", "now": None, "table": "s.a"}
        ],
        "elsewhere": [],
    }


def test_all_groups_are_a_list_and_one_without_a_watermark_wants_attention() -> None:
    ran = run_cli("--json groups", app())
    assert ran.code == 3
    assert [one["group"] for one in json.loads(ran.out)] == ["new", "shop"]


def test_people_see_what_holds_it_back() -> None:
    ran = run_cli("groups", app())
    assert ran.out.splitlines()[0].split() == "group visible up to lag s held back by tables went back".split()
    assert ran.out.splitlines()[1].split() == ["new", "-", "-", "s.items", "1", "0"]
    assert ran.out.splitlines()[2].split() == ["shop", "2026-05-01T12:00:00.000Z", "61.2", "s.orders", "1", "1"]


def test_no_group_at_all() -> None:
    ran = run_cli("groups", FakeApp())
    assert (ran.code, ran.out) == (0, "the configuration has no group\n")


def test_an_unknown_group_is_a_mistake_of_the_caller() -> None:
    ran = run_cli("groups finance", app())
    assert ran.code == 2
    assert "no table belongs to it" in ran.err


def test_a_table_is_forgotten() -> None:
    asked = app()
    ran = run_cli("groups shop --forget s.a --json", asked)
    assert (ran.code, json.loads(ran.out)["group"]) == (0, "shop")
    assert asked.calls[1:] == [("forget", "shop", {"table": "s.a"})]


@pytest.mark.parametrize("words", ["groups --forget s.a", "groups new shop --forget s.a"])
def test_it_is_forgotten_in_one_group(words: str) -> None:
    asked = app()
    ran = run_cli(words, asked)
    assert (ran.code, asked.calls) == (2, [])
    assert "lakemirror groups GROUP --forget s.a" in ran.err
