"""Tables of a group: one time up to which all of them are visible, by real runs of mirror and follow."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from lakemirror.app import App
from lakemirror.config.loader import load_config
from lakemirror.errors import UsageError
from lakemirror.follow import groups
from lakemirror.model.group import Reached
from lakemirror.model.results import GroupResult
from lakemirror.model.table import TableRef
from lakemirror.replicate.stage import LocalEngine
from lakemirror.storage.wrappers.fault import SimulatedCrash
from tests.lake import ORDERS, Lake, rows

ITEMS = TableRef.parse("shop.items")
SKEW_S = 10


class Clock:
    def __init__(self) -> None:
        self.moment = datetime.now(UTC) + timedelta(minutes=10)

    def __call__(self) -> datetime:
        return self.moment

    def later(self, minutes: float) -> datetime:
        self.moment += timedelta(minutes=minutes)
        return self.moment


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    members = [{"name": str(table), "group": "shop"} for table in (ORDERS, ITEMS)]
    return Lake(tmp_path, tables=[*members, {"name": "shop.alone"}])


def mirror(lake: Lake, clock: Clock, table: TableRef) -> None:
    with App(load_config(lake.config_path), now=clock) as app:
        app.mirror(table, engine=LocalEngine(2))


def follow(lake: Lake, clock: Clock, table: TableRef) -> GroupResult:
    """By a process that knows no source."""
    with App(load_config(lake.follower_config_path), now=clock) as app:
        app.follow(table)
        return app.group("shop")


def both_shown(lake: Lake, clock: Clock) -> None:
    for table in (ORDERS, ITEMS):
        lake.create(table).append(rows(1))
        mirror(lake, clock, table)
        follow(lake, clock, table)


def test_it_is_the_time_up_to_which_every_table_is_visible(lake: Lake) -> None:
    clock = Clock()
    orders, items = lake.create(ORDERS), lake.create(ITEMS)
    orders.append(rows(1))
    items.append(rows(1))
    mirror(lake, clock, ORDERS)
    found = follow(lake, clock, ORDERS)
    assert (found.watermark, found.slowest) == (None, str(ITEMS)), "a table that is not there yet"
    mirror(lake, clock, ITEMS)
    first = follow(lake, clock, ITEMS)
    assert first.watermark is not None
    assert first.slowest == str(ORDERS)
    committed = lake.source.load_table(str(ORDERS)).metadata.last_updated_ms
    assert first.watermark.timestamp() * 1000 == pytest.approx(committed)


def test_a_quiet_table_does_not_hold_it_back(lake: Lake) -> None:
    clock = Clock()
    both_shown(lake, clock)
    looked_at = clock.later(30)
    for table in (ORDERS, ITEMS):
        mirror(lake, clock, table)  # unchanged: as of now nothing is missing
    clock.later(5)
    follow(lake, clock, ORDERS)
    found = follow(lake, clock, ITEMS)
    assert found.watermark == looked_at - timedelta(seconds=SKEW_S)
    assert found.lag_s == pytest.approx(5 * 60 + SKEW_S)


def test_what_is_published_but_not_shown_holds_it_back(lake: Lake) -> None:
    clock = Clock()
    both_shown(lake, clock)
    before = follow(lake, clock, ITEMS).watermark
    lake.source.load_table(str(ORDERS)).append(rows(1, 1))
    mirror(lake, clock, ORDERS)
    clock.later(30)
    for table in (ORDERS, ITEMS):
        mirror(lake, clock, table)
    shown = follow(lake, clock, ITEMS)
    assert shown.watermark == before, "v2 of orders is current as of now, but the mirror shows v1"
    assert shown.slowest == str(ORDERS)
    assert (follow(lake, clock, ORDERS).watermark or clock.moment) > (before or clock.moment)


def test_a_dropped_source_is_not_current(lake: Lake) -> None:
    clock = Clock()
    both_shown(lake, clock)
    before = follow(lake, clock, ITEMS).watermark
    lake.source.drop_table(str(ORDERS))
    clock.later(30)
    for table in (ORDERS, ITEMS):
        mirror(lake, clock, table)
        found = follow(lake, clock, table)
    assert (found.watermark, found.slowest) == (before, str(ORDERS))


def test_a_run_that_was_asked_for_an_older_snapshot_says_nothing_of_now(lake: Lake) -> None:
    clock = Clock()
    orders = lake.create(ORDERS)
    orders.append(rows(1))
    old = orders.current_snapshot()
    assert old is not None
    with App(load_config(lake.config_path), now=clock) as app:
        app.mirror(ORDERS, engine=LocalEngine(2), target_snapshot_id=old.snapshot_id)
        orders.append(rows(1, 1))
        clock.later(30)
        again = app.mirror(ORDERS, engine=LocalEngine(2), target_snapshot_id=old.snapshot_id)
    assert not list((lake.mirror_folder / "shop/orders/_control").glob("current.json")), again.reason


def mirror_at(lake: Lake, clock: Clock, snapshot_id: int) -> datetime:
    """As it is asked for by `target_snapshot_id`; when that snapshot was committed."""
    with App(load_config(lake.config_path), now=clock) as app:
        app.mirror(ORDERS, engine=LocalEngine(2), target_snapshot_id=snapshot_id)
    snapshot = lake.source.load_table(str(ORDERS)).snapshot_by_id(snapshot_id)
    assert snapshot is not None
    return datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)


def test_an_older_snapshot_that_was_asked_for_covers_what_was_committed_until_then(lake: Lake) -> None:
    clock = Clock()
    orders, items = lake.create(ORDERS), lake.create(ITEMS)
    orders.append(rows(1))
    first = orders.metadata.current_snapshot_id
    assert first is not None
    for table in (orders, items):
        table.append(rows(1, 1))
    committed = mirror_at(lake, clock, first)
    mirror(lake, clock, ITEMS)
    follow(lake, clock, ITEMS)
    found = follow(lake, clock, ORDERS)
    assert (found.watermark, found.slowest) == (committed, str(ORDERS)), "nobody sees the second commit"


def test_going_back_to_an_older_snapshot_moves_the_watermark_back_and_says_so(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """Also past the moment as of which an earlier version was all that there was."""
    clock = Clock()
    both_shown(lake, clock)
    orders = lake.source.load_table(str(ORDERS))
    first = orders.metadata.current_snapshot_id
    assert first is not None
    orders.append(rows(1, 1))
    for _ in range(2):  # the second time nothing is new, which leaves a note
        clock.later(30)
        for table in (ORDERS, ITEMS):
            mirror(lake, clock, table)
            before = follow(lake, clock, table)
    assert before.watermark == clock.moment - timedelta(seconds=SKEW_S)
    clock.later(30)
    committed = mirror_at(lake, clock, first)
    found = follow(lake, clock, ORDERS)
    assert (found.watermark, found.slowest) == (committed, str(ORDERS))
    [move] = found.moves_back
    assert (move.was, move.now, move.table) == (before.watermark, committed, str(ORDERS))
    assert "the watermark goes back" in caplog.text
    mirror(lake, clock, ORDERS)
    assert (follow(lake, clock, ORDERS).watermark or committed) > committed, "and on with the next version"


def test_a_dry_run_leaves_no_note(lake: Lake) -> None:
    clock = Clock()
    lake.create(ORDERS).append(rows(1))
    mirror(lake, clock, ORDERS)
    with App(load_config(lake.config_path), now=clock) as app:
        assert app.plan(ORDERS).lane == "none"
    assert not (lake.mirror_folder / "shop/orders/_control/current.json").exists()


def test_tables_without_a_group_cost_nothing(lake: Lake) -> None:
    clock, alone = Clock(), TableRef.parse("shop.alone")
    lake.create(alone).append(rows(1))
    for _ in range(2):
        mirror(lake, clock, alone)
    with App(load_config(lake.follower_config_path), now=clock) as app:
        app.follow(alone)
    assert not (lake.mirror_folder / "_groups").exists()
    assert not (lake.mirror_folder / "shop/alone/_control/current.json").exists()


def test_a_group_that_nobody_belongs_to_is_a_mistake(lake: Lake) -> None:
    with App(load_config(lake.follower_config_path)) as app, pytest.raises(UsageError, match="no table"):
        app.group("finance")


def test_a_configuration_with_fewer_tables_moves_nothing(lake: Lake) -> None:
    """Two installations follow different tables of one group; which of them runs last makes no difference."""
    clock, extra = Clock(), TableRef.parse("shop.alone")
    both_shown(lake, clock)
    before = follow(lake, clock, ITEMS)
    lake.create(extra).append(rows(1))
    clock.later(300)
    mirror(lake, clock, extra)
    document = yaml.safe_load(lake.follower_config_path.read_text(encoding="utf-8"))
    smaller = lake.follower_config_path.with_name("smaller.yaml")
    smaller.write_text(yaml.safe_dump({**document, "tables": [{"name": str(extra), "group": "shop"}]}), "utf-8")
    with App(load_config(smaller), now=clock) as app:
        app.follow(extra)
        found = app.group("shop")
    assert set(found.tables) == {str(ORDERS), str(ITEMS), str(extra)}
    assert (found.watermark, found.moves_back) == (before.watermark, ())
    assert found.elsewhere == (str(ITEMS), str(ORDERS))


def test_a_table_leaves_when_somebody_says_so(lake: Lake) -> None:
    clock = Clock()
    both_shown(lake, clock)
    with App(load_config(lake.follower_config_path), now=clock) as app, pytest.raises(UsageError, match="still has it"):
        app.forget_in_group("shop", str(ORDERS))
    document = yaml.safe_load(lake.follower_config_path.read_text(encoding="utf-8"))
    document["tables"] = [one for one in document["tables"] if one["name"] != str(ORDERS)]
    lake.follower_config_path.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert set(follow(lake, clock, ITEMS).tables) == {str(ORDERS), str(ITEMS)}
    with App(load_config(lake.follower_config_path), now=clock) as app:
        assert set(app.forget_in_group("shop", str(ORDERS)).tables) == {str(ITEMS)}


@pytest.mark.parametrize("dies", [None, "before the group is told", "before the table goes", "at the end"])
def test_a_dropped_mirror_takes_the_watermark_away_and_says_so(lake: Lake, dies: str | None) -> None:
    """The group is told before the table goes; whoever follows finds no table that counts, and says so, too."""
    clock = Clock()
    both_shown(lake, clock)
    before = follow(lake, clock, ITEMS)
    clock.later(1)
    tell = groups.record_gone
    told: list[str | None] = []  # what readers saw each time

    def dying(*args: Any) -> None:
        if dies == "before the group is told" or (dies == "at the end" and told):
            raise SimulatedCrash
        told.append(lake.mirror_head())
        tell(*args)
        if dies == "before the table goes":
            raise SimulatedCrash

    with App(load_config(lake.follower_config_path), now=clock) as app:
        with (
            patch.object(groups, "record_gone", dying),
            nullcontext() if dies is None else pytest.raises(SimulatedCrash),
        ):
            app.drop_mirror(ORDERS)
        if dies is not None:
            assert (lake.mirror_head() is None) == (dies == "at the end")
            app.follow(ORDERS)
        else:
            assert [one is None for one in told] == [False, True]
        found = app.group("shop")
    assert found.tables[str(ORDERS)] is None
    assert (found.watermark, found.slowest) == (None, str(ORDERS))
    [move] = found.moves_back
    assert (move.was, move.now, move.table) == (before.watermark, None, str(ORDERS))
    lake.source.load_table(str(ORDERS)).append(rows(1, 1))
    mirror(lake, clock, ORDERS)
    assert follow(lake, clock, ORDERS).watermark is not None, "mirrored again it counts again"


def test_what_was_set_and_taken_away_again_while_a_run_was_at_work(lake: Lake) -> None:
    """A run found a state that the source has left for one like v1, as another run has noted: v2 covers less than v1.

    The watermark goes back before readers see v2, and says so; a follower that dies then leaves nothing wrong.
    """
    clock = Clock()
    both_shown(lake, clock)
    orders = lake.source.load_table(str(ORDERS))
    with orders.transaction() as change:
        change.set_properties(owner="x")
    slow = App(load_config(lake.config_path), now=clock, owner="a slow run")
    found = slow.detect(ORDERS)
    with orders.transaction() as change:
        change.remove_properties("owner")
    undone_at = datetime.fromtimestamp(orders.metadata.last_updated_ms / 1000, UTC)
    clock.later(60 * 60)
    for table in (ORDERS, ITEMS):
        with App(load_config(lake.config_path), now=clock, owner="another installation") as app:
            assert app.mirror(table, engine=LocalEngine(2)).lane == "none"
        before = follow(lake, clock, table)
    assert before.watermark is not None
    assert before.watermark > undone_at
    assert slow.mirror(ORDERS, detected=found, engine=LocalEngine(2)).version == 2
    with lake.follower() as follower:
        catalog = follower._ports.mirror_catalog
        commit = catalog.commit

        def crash(*args: Any) -> None:
            commit(*args)
            raise SimulatedCrash

        catalog.commit = crash  # type: ignore[method-assign]
        with pytest.raises(SimulatedCrash):
            follower.follow(ORDERS)
    with App(load_config(lake.config_path), now=clock) as app:
        found_then = app.group("shop")
    assert found_then.watermark is not None
    assert found_then.watermark < undone_at
    after = follow(lake, clock, ORDERS)
    assert (after.watermark, after.tables[str(ORDERS)]) == (
        found_then.watermark,
        Reached(2, found_then.watermark),
    )
    assert [(move.was, move.now, move.table) for move in after.moves_back] == [
        (before.watermark, after.watermark, str(ORDERS))
    ]
    mirror(lake, clock, ORDERS)
    mirror(lake, clock, ITEMS)
    follow(lake, clock, ITEMS)
    assert follow(lake, clock, ORDERS).watermark == undone_at


def test_a_member_by_pattern_that_was_never_mirrored_holds_it_back(tmp_path: Path) -> None:
    """A follower knows no source: the replicator says who belongs to the group."""
    lake = Lake(tmp_path, tables=[{"match": "shop.*", "group": "shop"}])
    clock = Clock()
    lake.create(ORDERS).append(rows(1))
    lake.create(ITEMS).append(rows(1))
    mirror(lake, clock, ORDERS)
    found = follow(lake, clock, ORDERS)
    assert (found.watermark, found.slowest, found.tables[str(ITEMS)]) == (None, str(ITEMS), None)
    mirror(lake, clock, ITEMS)
    assert follow(lake, clock, ITEMS).watermark is not None
    late = TableRef.parse("shop.late")
    lake.create(late).append(rows(1))
    with App(load_config(lake.config_path), now=clock) as app:
        app.join_groups()  # as the DAG does that resolves patterns
        document = (lake.mirror_folder / "_groups/shop.json").read_bytes()
        app.join_groups()
    assert (lake.mirror_folder / "_groups/shop.json").read_bytes() == document
    found = follow(lake, clock, ORDERS)
    assert (found.watermark, found.slowest) == (None, str(late))
    assert [move.table for move in found.moves_back] == [str(late)]
    lake.source.drop_table(str(late))
    with App(load_config(lake.config_path), now=clock) as app:
        assert app.forget_in_group("shop", str(late)).watermark is not None


def test_it_is_told_where_the_source_is_gone_and_members_are_matched_by_patterns(tmp_path: Path) -> None:
    """By a configuration of both sides: what follows is not what mirrors."""
    lake = Lake(tmp_path, tables=[{"match": "shop.*", "group": "shop"}])
    clock = Clock()
    for table in (ORDERS, ITEMS):
        lake.create(table).append(rows(1))
        mirror(lake, clock, table)
    shutil.rmtree(lake.warehouse)
    (lake.folder / "source.db").rename(lake.folder / "away.db")
    with App(load_config(lake.config_path), now=clock) as app:
        assert [app.follow(table).first_seen for table in (ORDERS, ITEMS)] == [True, True]
        found = groups.load(app.mirror_store, app.config.mirror.location, "shop")
    assert found is not None
    assert (set(found.tables), found.watermark is None) == ({str(ORDERS), str(ITEMS)}, False)


def test_a_first_entry_that_is_made_while_the_mirror_is_dropped(lake: Lake) -> None:
    """It was announced before: a follower that dies then leaves no promise of a table that is gone."""
    clock = Clock()
    both_shown(lake, clock)
    with (
        App(load_config(lake.follower_config_path), now=clock) as app,
        App(load_config(lake.follower_config_path), now=clock) as operator,
    ):
        app.mirror_store.delete([groups.uri_of(app.config.mirror.location, "shop")])
        app.follow(ITEMS)
        change, made = groups._change, []

        def slow(store: Any, uri: str, group: str, of: Any) -> Any:
            def dropped_meanwhile(before: Any) -> Any:
                after = of(before)
                if after.tables.get(str(ORDERS)) is not None and not made:
                    made.append(after)
                    with patch.object(groups, "_change", change):
                        operator.drop_mirror(ORDERS)
                return after

            change(store, uri, group, dropped_meanwhile)
            if made:
                raise SimulatedCrash
            return groups.load(store, app.config.mirror.location, group)

        with patch.object(groups, "_change", slow), pytest.raises(SimulatedCrash):
            app.follow(ORDERS)
        assert lake.mirror_head() is None
        assert operator.group("shop").tables[str(ORDERS)] is None
