"""Watches over a real lake: what they ask for, what a look costs, and that nothing is lost when they start anew."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from lakemirror import bridge
from lakemirror.app import App
from lakemirror.catalogs.asking import Answers
from lakemirror.catalogs.heads import Head
from lakemirror.errors import PermanentError, TransientError, UnsupportedError
from lakemirror.follow.follower import head_of
from lakemirror.model.table import TableRef
from lakemirror.storage.port import ObjectStore
from lakemirror.usecases import watch
from lakemirror.usecases.watch import RELIST_S, ReadyWatch
from tests.lake import ORDERS, Lake, rows

LATE = TableRef.parse("shop.late")
BOTH = (LATE, ORDERS)


class Spy:
    """Counts what is asked of a store."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def wrap(self, side: str, store: ObjectStore) -> ObjectStore:
        spy = self

        class Watched:
            def __getattr__(self, name: str) -> Any:
                verb = getattr(store, name)

                def ask(*args: Any, **options: Any) -> Any:
                    spy.asked[name] += 1
                    return verb(*args, **options)

                return ask

        watched: Any = Watched()
        return watched  # type: ignore[no-any-return]

    def cost(self) -> dict[str, int]:
        cost, self.asked = dict(self.asked), Counter()
        return cost


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path, tables=[{"name": str(ORDERS)}, {"name": str(LATE)}])
    made.create().append(rows(1))
    return made


def away() -> Any:
    """No marker can be listed for a while."""
    return patch.object(bridge, "published", side_effect=TransientError("list", "x", "away"))


class Denied:
    """Refuses every call for good, each time in other words."""

    def __init__(self, kind: type[PermanentError] = PermanentError) -> None:
        self.kind, self.count = kind, 0

    def __call__(self, *_: Any) -> Any:
        self.count += 1
        raise self.kind("list", "x", f"denied, request {self.count}")


def refusing(message: str) -> Any:
    """The source's catalog refuses to tell of the one table."""
    answers: Answers[TableRef, Head] = Answers({ORDERS: PermanentError("read head", str(ORDERS), message)}, {})
    return patch.object(watch, "read_heads", return_value=answers)


def follower(lake: Lake, spy: Spy) -> ReadyWatch:
    return lake.follower(wrap_store=spy.wrap).watch_ready()


def test_ready_a_table_asks_until_the_mirror_shows_its_newest_version(lake: Lake) -> None:
    watch = lake.follower().watch_ready()
    assert watch.look(BOTH).hints == {}
    lake.mirror()
    assert watch.look(BOTH).hints == {ORDERS: "v1"}
    lake.follow()
    assert lake.follower().watch_ready().look(BOTH).hints == {}
    watch.forget([ORDERS])
    assert watch.look(BOTH).hints == {}
    lake.source.load_table(str(ORDERS)).append(rows(1))
    lake.mirror()
    assert watch.look(BOTH).hints == {ORDERS: "v2"}


def test_ready_an_idle_look_is_one_head(lake: Lake) -> None:
    lake.sync()
    spy = Spy()
    watch = follower(lake, spy)
    watch.look(BOTH)
    assert spy.cost()["list"] == 2
    watch.look(BOTH)
    assert spy.cost() == {"head": 2}


def test_ready_a_table_that_is_named_is_listed(lake: Lake) -> None:
    lake.sync()
    spy = Spy()
    watch = follower(lake, spy)
    watch.look(BOTH)
    spy.cost()
    watch.look(BOTH, named={ORDERS})
    assert spy.cost() == {"head": 1, "list": 1}


def test_ready_versions_behind_a_demoted_one_are_found_in_time(lake: Lake) -> None:
    """v2 was demoted before anybody saw it: the HEAD of v2 finds nothing, a later listing finds v3."""
    lake.sync()
    clock = [0.0]
    app = App(lake.follower().config, timer=lambda: clock[0])
    watch = app.watch_ready()
    assert watch.look([ORDERS]).hints == {}
    lake.source.load_table(str(ORDERS)).append(rows(1))
    lake.mirror()
    ready = lake.mirror_folder / "shop/orders/_ready"
    (ready / "v2.ready.json").rename(ready / "v2.demoted.json")
    lake.mirror()
    assert watch.look([ORDERS]).hints == {}
    clock[0] = RELIST_S
    assert watch.look([ORDERS]).hints == {ORDERS: "v3"}


def test_ready_a_damaged_table_asks_for_a_run_that_says_so_and_keeps_nobody_back(lake: Lake) -> None:
    lake.mirror()
    lake.create(LATE)
    ready = lake.mirror_folder / "shop/late/_ready"
    ready.mkdir(parents=True)
    (ready / ("v" + "9" * 30 + ".ready.json")).write_text("{}")
    hints = lake.follower().watch_ready().look(BOTH).hints
    assert hints[ORDERS] == "v1"
    assert hints[LATE].startswith("error: read marker")


def test_ready_the_same_trouble_in_other_words_asks_for_the_same(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.mirror()
    asked = Asked(lake)
    with patch.object(bridge, "published", Denied()):
        told = [asked.look() for _ in range(3)]
        assert told == [{ORDERS: "error: list x (PermanentError)"}] * 3
        assert [line for line in ("request 1", "request 2", "request 3") if line in caplog.text] == ["request 1"]
        asked.now = RELIST_S
        assert asked.look() == told[0]
        assert "request 4" in caplog.text
    with patch.object(bridge, "published", Denied(UnsupportedError)):
        assert asked.look() == {ORDERS: "error: list x (UnsupportedError)"}
    assert asked.look() == {ORDERS: "v1"}


def test_ready_after_trouble_the_catalog_is_asked_and_not_the_memory(lake: Lake) -> None:
    lake.mirror()
    asked = Asked(lake)
    assert asked.look() == {ORDERS: "v1"}
    lake.follow()
    with patch.object(bridge, "published", Denied()):
        assert asked.watch.look([ORDERS], named=[ORDERS]).hints == {ORDERS: "error: list x (PermanentError)"}
    assert asked.look() == {}


def test_ready_trouble_in_passing_loses_nothing(lake: Lake) -> None:
    watch = lake.follower().watch_ready()
    assert watch.look(BOTH).hints == {}
    lake.mirror()
    with away():
        found = watch.look(BOTH)
        assert (found.hints, [*found.failed], found.unasked) == ({}, [ORDERS], ()), "of the other one it is known"
        watch.forget(BOTH)
        assert [*watch.look(BOTH).failed] == [*BOTH]
    assert watch.look(BOTH).hints == {ORDERS: "v1"}


def test_ready_a_table_of_which_the_catalog_cannot_tell_now_keeps_nobody_back(lake: Lake) -> None:
    lake.create(LATE).append(rows(1))
    for table in BOTH:
        lake.mirror(table)

    def busy(catalog: Any, store: Any, layout: Any, table: TableRef) -> Any:
        if table == LATE:
            raise TransientError("load table", str(table), "503")
        return head_of(catalog, store, layout, table)

    ready = lake.follower().watch_ready()
    with patch.object(watch, "head_of", busy):
        for _ in range(2):
            found = ready.look(BOTH)
            assert (found.hints, [*found.failed]) == ({ORDERS: "v1"}, [LATE])
    assert ready.look(BOTH).hints == {ORDERS: "v1", LATE: "v1"}


class Asked:
    """A follower's watch whose clock stands still, and how often it asked the mirror's catalog."""

    def __init__(self, lake: Lake) -> None:
        self.now, self.count = 0.0, 0
        self.watch = App(lake.follower().config, timer=lambda: self.now).watch_ready()

    def look(self) -> Any:
        def counted(*args: Any) -> Any:
            self.count += 1
            return head_of(*args)

        with patch.object(watch, "head_of", counted):
            return self.watch.look([ORDERS]).hints


def test_ready_a_table_that_stays_behind_asks_the_catalog_once_in_a_while(lake: Lake) -> None:
    """Its run may have failed for good, or have been lost: whoever tells of it must not tell an old story."""
    lake.mirror()
    asked = Asked(lake)
    for _ in range(3):
        assert asked.look() == {ORDERS: "v1"}
        for later_s in (1, RELIST_S - 2):
            asked.now += later_s
            assert asked.look() == {ORDERS: "v1"}
        asked.now += 1
    assert asked.count == 3
    lake.follow()
    for later_s in (0, 1, RELIST_S - 2, 1):
        asked.now += later_s
        assert asked.look() == {}
    assert asked.count == 5, "one that is up to date is asked of no more often"


def test_ready_a_catalog_that_was_restored_from_a_backup_is_noticed_in_time(lake: Lake) -> None:
    """No new version comes: nothing but the catalog tells that readers were put back."""
    lake.sync()
    catalog = lake.folder / "mirror.db"
    backup = catalog.read_bytes()
    lake.source.load_table(str(ORDERS)).append(rows(1))
    lake.sync()
    asked = Asked(lake)
    assert asked.look() == {}
    catalog.write_bytes(backup)
    asked.now = RELIST_S - 1
    assert asked.look() == {}
    asked.now = RELIST_S
    assert asked.look() == {ORDERS: "v2"}


def test_ready_a_version_that_was_demoted_and_restored_asks_again(lake: Lake) -> None:
    lake.sync()
    lake.source.load_table(str(ORDERS)).append(rows(1))
    lake.mirror()
    asked, ready = Asked(lake), lake.mirror_folder / "shop/orders/_ready"
    assert asked.look() == {ORDERS: "v2"}
    (ready / "v2.ready.json").rename(ready / "v2.demoted.json")
    asked.now += RELIST_S
    assert asked.look() == {}
    (ready / "v2.demoted.json").rename(ready / "v2.ready.json")
    assert asked.look() == {ORDERS: "v2"}


def test_source_a_head_whose_run_failed_asks_again_and_one_that_was_mirrored_does_not(lake: Lake) -> None:
    spy, now = Spy(), [0.0]
    heads = App(lake.app().config, timer=lambda: now[0], wrap_store=spy.wrap).watch_source()
    assert list(heads.look(BOTH).hints) == [ORDERS]
    spy.cost()
    now[0] = RELIST_S - 1
    assert list(heads.look(BOTH).hints) == [ORDERS]
    assert spy.cost() == {}
    now[0] = RELIST_S
    assert list(heads.look(BOTH).hints) == [ORDERS]
    assert spy.cost() == {"list": 1}
    lake.mirror()
    now[0] += RELIST_S
    assert heads.look(BOTH).hints == {}


def test_source_a_head_asks_until_it_is_mirrored(lake: Lake) -> None:
    watch = lake.app().watch_source()
    (head,) = watch.look(BOTH).hints.values()
    assert head == lake.source.load_table(str(ORDERS)).metadata_location
    lake.mirror()
    assert lake.app().watch_source().look(BOTH).hints == {}, "a new one looks at the bucket, not at a memory"
    watch.forget([ORDERS])
    assert watch.look(BOTH).hints == {}
    lake.source.load_table(str(ORDERS)).append(rows(1))
    assert list(watch.look(BOTH).hints) == [ORDERS]


def test_source_an_idle_look_asks_the_catalog_alone(lake: Lake) -> None:
    lake.mirror()
    spy = Spy()
    watch = lake.app(wrap_store=spy.wrap).watch_source()
    watch.look(BOTH)
    assert spy.cost() == {"list": 1, "get": 1}, "the marker of the one table that has a head"
    watch.look(BOTH)
    assert spy.cost() == {}


def test_source_a_dropped_table_asks_for_nothing_and_a_recreated_one_does(lake: Lake) -> None:
    lake.mirror()
    watch = lake.app().watch_source()
    watch.look(BOTH)
    lake.source.drop_table(str(ORDERS))
    assert watch.look(BOTH).hints == {}
    lake.create().append(rows(1))
    assert list(watch.look(BOTH).hints) == [ORDERS]


def test_source_the_same_trouble_in_other_words_asks_for_the_same(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    """Whether the catalog or the bucket refuses; and what it said once is told to people once."""
    heads = lake.app().watch_source()
    head = str(lake.source.load_table(str(ORDERS)).metadata_location)
    for number in (1, 2):
        with refusing(f"answered 403, request {number}"):
            assert heads.look([ORDERS]).hints == {ORDERS: "error: read head shop.orders (PermanentError)"}
    assert ("request 1" in caplog.text, "request 2" in caplog.text) == (True, False)
    assert heads.look([ORDERS]).hints == {ORDERS: head}
    heads.forget([ORDERS])
    with patch.object(bridge, "published", Denied()):
        assert [heads.look([ORDERS]).hints for _ in range(2)] == [{ORDERS: "error: list x (PermanentError)"}] * 2
    assert heads.look([ORDERS]).hints == {ORDERS: head}


def test_source_after_trouble_the_bucket_is_asked_and_not_the_memory(lake: Lake) -> None:
    heads = lake.app().watch_source()
    assert list(heads.look([ORDERS]).hints) == [ORDERS]
    lake.mirror()
    with refusing("answered 403"):
        assert heads.look([ORDERS]).hints == {ORDERS: "error: read head shop.orders (PermanentError)"}
    assert heads.look([ORDERS]).hints == {}


def test_source_trouble_in_passing_loses_nothing(lake: Lake) -> None:
    watch = lake.app().watch_source()
    with away():
        found = watch.look(BOTH)
        assert (found.hints, [*found.failed]) == ({}, [ORDERS]), "the other one is not there"
    assert list(watch.look(BOTH).hints) == [ORDERS]


def test_source_a_table_whose_head_cannot_be_told_now_keeps_nobody_back(lake: Lake) -> None:
    heads = lake.app().watch_source()
    busy = TransientError("read head", str(LATE), "503")
    location = str(lake.source.load_table(str(ORDERS)).metadata_location)
    answers: Answers[TableRef, Head] = Answers({ORDERS: location}, {LATE: busy})
    with patch.object(watch, "read_heads", return_value=answers):
        assert heads.look(BOTH) == watch.Look({ORDERS: location}, {LATE: busy}, ())
        other = TableRef.parse("shop.other")
        assert heads.look([*BOTH, other]) == watch.Look({ORDERS: location}, {LATE: busy}, (other,))
