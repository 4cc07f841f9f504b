"""Group watermarks in the bucket: many followers, one document, nobody's entry lost."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from lakemirror import currency
from lakemirror.errors import LostRaceError, UsageError
from lakemirror.follow import groups
from lakemirror.model.group import Reached
from lakemirror.model.layout import TableLayout
from lakemirror.model.table import TableRef
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ConditionFailed, ObjectInfo, ObjectStore
from lakemirror.storage.wrappers.count import CountingStore
from tests.unit.markers import marker

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOME = "memory://bucket/mirror"


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


@pytest.fixture
def store() -> ObjectStore:
    return ObstoreStore({})


def test_each_follower_writes_its_own_entry(store: ObjectStore) -> None:
    members = [f"t{number}" for number in range(8)]

    def follow(number: int) -> None:
        for version in range(1, 6):
            groups.record(store, HOME, "g", members, f"t{number}", Reached(version, at(10 * version + number)), at(99))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(follow, range(8)))
    found = groups.load(store, HOME, "g")
    assert found is not None
    assert found.tables == {f"t{number}": Reached(5, at(50 + number)) for number in range(8)}
    assert found.watermark == at(50)
    assert found.moves_back == ()


def test_what_has_not_moved_is_not_written(store: ObjectStore) -> None:
    groups.record(store, HOME, "g", ["a"], "a", Reached(1, at(1)), at(2))
    counted = CountingStore(store)
    groups.record(counted, HOME, "g", ["a"], "a", Reached(1, at(1)), at(3))
    assert {verb: count for verb, count in counted.counts.items() if count} == {"get": 1}


def test_a_move_back_is_told(store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    groups.record(store, HOME, "g", ["a"], "a", Reached(2, at(5)), at(6))
    with caplog.at_level(logging.WARNING):
        groups.record(store, HOME, "g", ["a"], "a", Reached(1, at(1)), at(7))
    assert "goes back" in caplog.text
    assert "because of a" in caplog.text


def test_a_follower_that_was_slow_moves_nothing_back(store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    """It saw v1 before another one made v2 the head and wrote that down."""
    groups.record(store, HOME, "g", ["a"], "a", Reached(2, at(5)), at(6))
    asked: list[Reached | None] = [Reached(2, at(5)), None, Reached(1, at(1))]
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            found = groups.record(store, HOME, "g", ["a"], "a", Reached(1, at(1)), at(7), lambda: asked.pop(0))
            assert (found.tables, found.moves_back) == ({"a": Reached(2, at(5))}, ())
    assert caplog.text == ""
    found = groups.record(store, HOME, "g", ["a"], "a", Reached(1, at(1)), at(7), lambda: asked.pop(0))
    assert (found.watermark, len(found.moves_back)) == (at(1), 1)  # the catalog shows it: it was put back


def test_what_is_not_lowered_asks_the_catalog_nothing(store: ObjectStore) -> None:
    def ask() -> Reached | None:
        raise AssertionError("asked")

    groups.record(store, HOME, "g", ["a"], "a", Reached(1, at(1)), at(7))
    for version in (1, 2):
        groups.record(store, HOME, "g", ["a"], "a", Reached(version, at(version)), at(7), ask)


def test_what_a_chosen_snapshot_lowers_is_asked_again_and_told(
    store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    for name, minutes in (("a", 5), ("b", 1)):
        groups.record(store, HOME, "g", ["a", "b"], name, Reached(2, at(minutes)), at(6))
    chosen = Reached(3, at(2), is_older=True)
    found = groups.record(store, HOME, "g", ["a", "b"], "a", chosen, at(7), lambda: Reached(4, at(6)))
    assert (found.tables["a"], caplog.text) == (Reached(4, at(6)), ""), "a faster follower shows the next version"
    chosen = Reached(5, at(3), is_older=True)
    found = groups.record(store, HOME, "g", ["a", "b"], "a", chosen, at(8), lambda: chosen)
    assert (found.tables["a"], found.watermark, found.moves_back) == (chosen, at(1), ())
    told = "group g: a goes back from 2026-05-01 12:06:00+00:00 to 2026-05-01 12:03:00+00:00"
    assert told in caplog.text, "the watermark does not move, its entry does"


def test_a_note_counts_for_its_own_version_only(store: ObjectStore) -> None:
    """v2 was all there was at some time; v3 may be an older snapshot, which somebody asked for."""
    layout = TableLayout.of(HOME, TableRef.parse("s.a"))
    currency.note(store, layout, currency.Current(2, at(30)))
    for version, want in ((1, at(1)), (2, at(30)), (3, at(1))):
        shown = marker(layout, version=version, source_committed_at=at(1))
        assert groups.reached(store, layout, shown) == Reached(version, want)
    shown = marker(layout, source_metadata_location="s3://b/t/metadata/9.json#snapshot=42")
    assert groups.reached(store, layout, shown).is_older
    currency.note(store, layout, currency.Current(2, at(30), source_committed_at=at(3)))
    for committed, is_older in ((2, True), (3, False), (4, False)):
        shown = marker(layout, version=3, source_committed_at=at(committed))
        assert groups.reached(store, layout, shown).is_older == is_older, "the source had left it for v2's again"
    shown = marker(layout, version=1, source_committed_at=at(2))
    assert groups.reached(store, layout, shown).is_older, "a slow follower shows it, and v2 is noted already"
    store.delete([layout.current])
    currency.note(store, layout, currency.Current(2, at(30)))
    assert not groups.reached(store, layout, marker(layout)).is_older, "of an older Lakemirror: it does not tell"


def gone() -> Reached | None:
    return None


def entry(store: ObjectStore) -> Reached | None:
    found = groups.load(store, HOME, "g")
    return None if found is None else found.tables["a"]


def test_a_mirror_that_is_gone_has_no_entry_and_a_slow_follower_makes_none(
    store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    groups.record(store, HOME, "g", ["a"], "a", Reached(2, at(5)), at(6))
    groups.record_gone(store, HOME, "g", "a", at(7), lambda: False)
    assert entry(store) == Reached(2, at(5)), "a follower registered it again"
    groups.record_gone(store, HOME, "g", "a", at(7), lambda: True)
    assert entry(store) is None
    assert "goes back from 2026-05-01 12:05:00+00:00 to None, because of a" in caplog.text
    groups.record(store, HOME, "g", ["a"], "a", Reached(2, at(5)), at(8), gone)
    assert entry(store) is None


def test_one_that_is_dropped_while_its_first_entry_is_written_has_none(store: ObjectStore) -> None:
    """The drop was before it was announced, and finds nothing to take back; whoever makes the entry looks again."""
    groups.record(store, HOME, "g", ["a", "b"], "b", Reached(1, at(1)), at(2))
    shown = [Reached(1, at(1)), Reached(1, at(1)), None, None]
    found = groups.record(store, HOME, "g", ["a", "b"], "a", Reached(1, at(1)), at(3), lambda: shown.pop(0))
    assert (found.tables["a"], found.watermark, shown) == (None, None, [])


def test_a_first_entry_is_announced_so_that_a_drop_can_take_it_back(store: ObjectStore) -> None:
    """Dropped when the follower has read the document for the last time: its entry is never written."""
    puts: list[bytes] = []

    class Dropping(CountingStore):
        def put(self, uri: str, data: bytes, condition: object) -> ObjectInfo:  # type: ignore[override]
            puts.append(data)
            if len(puts) == 2:
                groups.record_gone(store, HOME, "g", "a", at(3), lambda: True)
            return super().put(uri, data, condition)  # type: ignore[arg-type]

    shown = [Reached(1, at(1)), Reached(1, at(1)), None]
    groups.record(Dropping(store), HOME, "g", ["a"], "a", Reached(1, at(1)), at(4), lambda: shown.pop(0))
    assert (len(puts), entry(store), shown) == (2, None, [])


def test_a_drop_between_reading_and_writing_wins(store: ObjectStore) -> None:
    groups.record(store, HOME, "g", ["a"], "a", Reached(1, at(1)), at(2))

    class Dropping(CountingStore):
        def put(self, uri: str, data: bytes, condition: object) -> ObjectInfo:  # type: ignore[override]
            if not any(self.counts[verb] for verb in ("put",)):
                groups.record_gone(store, HOME, "g", "a", at(3), lambda: True)
            return super().put(uri, data, condition)  # type: ignore[arg-type]

    groups.record(Dropping(store), HOME, "g", ["a"], "a", Reached(2, at(2)), at(4), gone)
    assert entry(store) is None


def test_no_document_is_made_for_what_is_gone(store: ObjectStore) -> None:
    groups.record_gone(store, HOME, "g", "a", at(7), lambda: True)
    assert groups.load(store, HOME, "g") is None


def test_forgetting_is_told(store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    for name, minutes in (("a", 1), ("b", 5)):
        groups.record(store, HOME, "g", ["a", "b"], name, Reached(1, at(minutes)), at(6))
    assert groups.forget(store, HOME, "g", "a", at(7)).watermark == at(5)
    told = "group g: a is no member any more; the watermark was 2026-05-01 12:01:00+00:00 and is 2026-05-01 12:05:00"
    assert told in caplog.text
    for group, members in (("g", "b"), ("other", "none")):
        with pytest.raises(UsageError, match=rf"no member of group {group} \(members: {members}\)"):
            groups.forget(store, HOME, group, "a", at(7))


def test_between_asking_again_and_writing_nobody_is_overwritten(store: ObjectStore) -> None:
    """The catalog is asked anew whenever the document has moved."""
    groups.record(store, HOME, "g", ["a"], "a", Reached(3, at(3)), at(6))
    shown = [Reached(2, at(2)), Reached(4, at(4))]

    def ask() -> Reached:
        found = shown.pop(0)
        if shown:  # right after this look the head moves on, and the other follower writes that down
            groups.record(store, HOME, "g", ["a"], "a", Reached(4, at(4)), at(7))
        return found

    found = groups.record(store, HOME, "g", ["a"], "a", Reached(1, at(1)), at(8), ask)
    assert (found.tables, found.moves_back) == ({"a": Reached(4, at(4))}, ())


def test_endless_conflict_is_a_lost_race(store: ObjectStore) -> None:
    class Busy(CountingStore):
        def put(self, uri: str, data: bytes, condition: object) -> ObjectInfo:  # type: ignore[override]
            raise ConditionFailed("put", uri, "somebody was faster", "read it")

    with pytest.raises(LostRaceError, match="others write it"):
        groups.record(Busy(store), HOME, "g", ["a"], "a", Reached(1, at(1)), at(2))


@pytest.mark.parametrize("name", ["finance", "a/b", "../x", "ä %", "."])
def test_any_name_is_one_object_below_the_folder(store: ObjectStore, name: str) -> None:
    groups.record(store, HOME, name, ["a"], "a", Reached(1, at(1)), at(2))
    assert groups.load(store, HOME, name) is not None
    assert groups.names(store, HOME) == (name,)
    assert groups.uri_of(HOME, name).count("/") == f"{HOME}/_groups/x".count("/")


def test_nobody_raises_an_entry_while_a_newer_version_is_announced(store: ObjectStore) -> None:
    """That one covers less, and may be shown at any time; what is shown less than the entry says still counts."""
    groups.record(store, HOME, "g", ["a"], "a", Reached(2, at(1)), at(2))
    groups.announce(store, HOME, "g", "a", 3, lambda: Reached(3, at(1), is_older=True), at(3))
    late = Reached(2, at(9))
    found = groups.record(store, HOME, "g", ["a", "b"], "a", late, at(10), lambda: late)
    assert (found.tables, found.coming) == ({"a": Reached(2, at(1)), "b": None}, {"a": 3})
    back = Reached(1, at(0.5))
    found = groups.record(store, HOME, "g", ["a"], "a", back, at(11), lambda: back)
    assert (found.tables["a"], found.coming) == (back, {"a": 3})
    found = groups.record(store, HOME, "g", ["a"], "a", Reached(3, at(2)), at(12))
    assert (found.tables["a"], found.coming) == (Reached(3, at(2)), {})
    assert groups.load(store, HOME, "g") == found


def test_what_an_announced_version_covers_is_asked_when_nobody_can_raise_the_entry(store: ObjectStore) -> None:
    groups.record(store, HOME, "g", ["a"], "a", Reached(2, at(1)), at(2))

    def covered() -> Reached:
        raised = groups.record(store, HOME, "g", ["a"], "a", Reached(2, at(9)), at(9), lambda: Reached(2, at(9)))
        assert raised.tables["a"] == Reached(2, at(1))
        return Reached(3, at(0.5), is_older=True)

    groups.announce(store, HOME, "g", "a", 3, covered, at(10))
    found = groups.load(store, HOME, "g")
    assert found is not None
    assert (found.tables["a"], found.watermark, len(found.moves_back)) == (Reached(2, at(0.5)), at(0.5), 1)


def test_a_table_that_is_gone_is_announced_no_more(store: ObjectStore) -> None:
    groups.announce(store, HOME, "g", "a", 1, lambda: Reached(1, at(1)), at(2))
    assert groups.record_gone(store, HOME, "g", "a", at(3), lambda: True).coming == {}
