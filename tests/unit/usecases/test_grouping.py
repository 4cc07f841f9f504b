"""Groups as the configuration names them, and what is told of one whose document lags behind it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from lakemirror.config.loader import load_config
from lakemirror.config.models import Config
from lakemirror.errors import UsageError
from lakemirror.follow import groups
from lakemirror.model.group import Reached
from lakemirror.model.layout import TableLayout
from lakemirror.model.table import TableRef
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import CREATE
from lakemirror.usecases import grouping
from tests.unit.markers import marker, written

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOME = "memory://bucket/mirror"
TABLES = tuple(TableRef.parse(name) for name in ("s.items", "s.orders", "x.alone"))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    document = {
        "mirror": {"catalog": {"name": "c", "type": "sql", "uri": "sqlite:///m.db"}, "location": "file:///mirror"},
        "defaults": {"group": "all"},
        "tables": [{"match": "s.*", "group": "shop"}, {"name": "x.alone", "group": None}],
    }
    path = tmp_path / "lake.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return load_config(path)


def test_members_are_those_whose_own_entry_says_so(config: Config) -> None:
    assert grouping.members(config, TABLES, "shop") == ("s.items", "s.orders")
    assert grouping.members(config, TABLES, "all") == ()
    assert grouping.group_names(config, TABLES) == ("shop",)


def test_a_group_that_nobody_has_followed_yet() -> None:
    found = grouping.describe(ObstoreStore({}), HOME, "shop", ("b", "a"), NOON)
    assert (found.watermark, found.lag_s, found.slowest) == (None, None, "a")
    assert found.tables == {"a": None, "b": None}


def test_a_member_that_the_document_does_not_know_takes_the_watermark_away() -> None:
    store = ObstoreStore({})
    groups.record(store, HOME, "shop", ["a"], "a", Reached(1, NOON), NOON)
    now = NOON + timedelta(seconds=30)
    assert grouping.describe(store, HOME, "shop", ("a",), now).lag_s == 30
    found = grouping.describe(store, HOME, "shop", ("a", "new"), now)
    assert (found.watermark, found.lag_s, found.slowest) == (None, None, "new")


def test_a_clock_behind_the_watermark_makes_no_negative_lag() -> None:
    store = ObstoreStore({})
    groups.record(store, HOME, "shop", ["a"], "a", Reached(1, NOON), NOON)
    assert grouping.describe(store, HOME, "shop", ("a",), NOON - timedelta(seconds=5)).lag_s == 0.0


def test_of_a_head_that_was_demoted_the_record_counts() -> None:
    """A follower was faster than whoever demoted it; what a late run left under its ordinal tells nothing."""
    store, layout = ObstoreStore({}), TableLayout.of(HOME, TABLES[0])
    shown, late = (marker(layout, source_committed_at=NOON + timedelta(hours=hours)) for hours in (0, 1))

    def recorded() -> datetime | None:
        return grouping.record_shown(store, HOME, "shop", ["s.items"], TABLES[0], layout, 1, NOON, lambda: 1).watermark

    store.put(layout.demoted(1), written(shown), CREATE)
    assert recorded() == NOON
    store.put(layout.ready(1), written(late), CREATE)
    assert recorded() == NOON


def test_members_of_other_configurations_are_told(config: Config) -> None:
    store = ObstoreStore({})
    groups.record(store, HOME, "shop", ["a", "b"], "a", Reached(1, NOON), NOON)
    assert grouping.describe(store, HOME, "shop", ("a",), NOON).elsewhere == ("b",)


def test_a_table_that_is_still_configured_is_not_forgotten(config: Config) -> None:
    with pytest.raises(UsageError, match="still has it in group shop"):
        grouping.forget(ObstoreStore({}), config, TABLES, "shop", "s.items", NOON)
