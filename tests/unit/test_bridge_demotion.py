"""Demoting and restoring: what counts, whoever is late and wherever it is cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakemirror import bridge
from lakemirror.errors import LostRaceError, PermanentError
from lakemirror.model.layout import TableLayout
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import Create, ObjectNotFound, ObjectStore
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.forward import ForwardingStore
from tests.unit.markers import AT, marker, put_chain, put_ready, written


@pytest.fixture
def layout(tmp_path: Path) -> TableLayout:
    return TableLayout(f"file://{tmp_path}/m/shop/orders")


@pytest.fixture
def store() -> ObjectStore:
    return ObstoreStore({})


def test_demoting_keeps_the_ordinal_and_the_bytes(store: ObjectStore, layout: TableLayout) -> None:
    put_ready(store, layout, 1, 2, 3)
    data = store.get(layout.ready(3)).data
    for _ in range(2):
        bridge.demote(store, layout, 3, lambda: 2)
        assert bridge.published(store, layout) == bridge.Ordinals((1, 2), 3, frozenset({3}))
        assert store.get(layout.demoted(3)).data == store.get(layout.staged(3)).data == data
        with pytest.raises(ObjectNotFound):
            store.get(layout.ready(3))
    assert bridge.read_published(store, layout, 3) == marker(layout, 3)


def test_the_newest_of_a_listing_that_was_demoted_since_is_a_lost_race(store: ObjectStore, layout: TableLayout) -> None:
    put_ready(store, layout, 1, 2)
    listed = bridge.published(store, layout)
    bridge.demote(store, layout, 2, lambda: 1)
    with pytest.raises(LostRaceError, match="demoted since it was listed"):
        bridge.read_newest(store, layout, listed)
    newest = bridge.read_newest(store, layout, bridge.published(store, layout))
    assert newest is not None
    assert newest.marker.version == 1


def test_a_marker_that_came_late_is_not_built_on(store: ObjectStore, layout: TableLayout) -> None:
    put_ready(store, layout, 1, 2)
    listed = bridge.published(store, layout)
    was = bridge.read_newest(store, layout, listed)
    assert was is not None
    assert was.is_as_listed
    unsure = replace(was, is_as_listed=False)
    for newest in (was, unsure):
        bridge.refuse_late(store, layout, newest)
    bridge.demote(store, layout, 2, lambda: 1)
    with pytest.raises(LostRaceError, match="never counted"):
        bridge.refuse_late(store, layout, unsure)
    store.put(layout.ready(2), written(marker(layout, 2, snapshot_id=77)))
    late = bridge.read_newest(store, layout, listed)
    assert late is not None
    assert not late.is_as_listed
    with pytest.raises(LostRaceError, match="never counted"):
        bridge.refuse_late(store, layout, late)


def test_a_listing_without_e_tags_is_not_trusted(store: ObjectStore, layout: TableLayout) -> None:
    """As GCS's are; nor is one that shows an ordinal that was demoted once."""
    put_ready(store, layout, 1, 2)
    listed = bridge.published(store, layout)
    newest = bridge.read_newest(store, layout, replace(listed, newest_e_tag=None))
    assert newest is not None
    assert not newest.is_as_listed
    bridge.demote(store, layout, 2, lambda: 1)
    bridge.restore(store, layout, 2)
    assert bridge.published(store, layout).newest_e_tag is None


def test_restoring_brings_back_the_very_bytes(store: ObjectStore, layout: TableLayout) -> None:
    put_ready(store, layout, 1, 2)
    data = store.get(layout.ready(1)).data
    bridge.demote(store, layout, 1, lambda: None)
    for _ in range(2):
        assert bridge.restore(store, layout, 1) == marker(layout, 1)
        assert store.get(layout.ready(1)).data == data
        assert bridge.published(store, layout) == bridge.Ordinals((1, 2), 2, frozenset({1}))
        assert bridge.staged(store, layout) == ()
    bridge.demote(store, layout, 1, lambda: None)
    assert bridge.published(store, layout).ready == (2,)


def test_the_mirrors_head_is_never_demoted(store: ObjectStore, layout: TableLayout) -> None:
    """Nor is what it may build on."""
    put_ready(store, layout, 1, 2)
    for version in (1, 2):
        with pytest.raises(PermanentError, match="readers see v2, which is it or came after it"):
            bridge.demote(store, layout, version, lambda: 2)
    assert bridge.published(store, layout) == bridge.Ordinals((1, 2), 2)


def test_a_follower_that_was_faster_undoes_a_demotion(store: ObjectStore, layout: TableLayout) -> None:
    put_ready(store, layout, 1, 2)
    shown = iter((1, 2))
    with pytest.raises(LostRaceError, match="a follower made v2 the mirror's head"):
        bridge.demote(store, layout, 2, lambda: next(shown))
    assert bridge.published(store, layout).ready == (1, 2)


def test_what_is_not_there_is_neither_demoted_nor_restored(store: ObjectStore, layout: TableLayout) -> None:
    with pytest.raises(PermanentError, match="there is no such marker"):
        bridge.demote(store, layout, 1, lambda: None)
    put_ready(store, layout, 1)
    with pytest.raises(PermanentError, match="it was never demoted"):
        bridge.restore(store, layout, 1)


def test_a_demotion_that_was_cut_is_finished(store: ObjectStore, layout: TableLayout) -> None:
    """From the moment that the record is there the version does not count."""
    put_ready(store, layout, 1, 2)
    store.put(layout.demoted(2), store.get(layout.ready(2)).data)
    assert bridge.published(store, layout) == bridge.Ordinals((1,), 2, frozenset({2}))
    bridge.demote(store, layout, 2, lambda: 1)
    assert bridge.published(store, layout).ready == (1,)
    with pytest.raises(ObjectNotFound):
        store.head(layout.ready(2))


def test_a_late_run_cannot_use_a_demoted_ordinal_again(store: ObjectStore, layout: TableLayout) -> None:
    """It slept while its ordinal was published by another run and demoted: its create-only put meets nothing."""
    put_ready(store, layout, 1, 2)
    bridge.demote(store, layout, 2, lambda: 1)
    late = marker(layout, 2, files=7)
    bridge.publish(store, layout, late, written(late))
    assert bridge.published(store, layout) == bridge.Ordinals((1,), 2, frozenset({2}))
    with pytest.raises(LostRaceError, match="published and demoted"):
        bridge.refuse_demoted(store, layout, late)
    with pytest.raises(PermanentError, match="a run that came late left other bytes there"):
        bridge.restore(store, layout, 2)
    assert bridge.published(store, layout).ready == (1,)
    store.delete([layout.ready(2)])
    assert bridge.restore(store, layout, 2) == marker(layout, 2)


def test_a_late_try_does_not_restore_what_was_demoted(store: ObjectStore, layout: TableLayout) -> None:
    """It has the staged bytes of the first try, and puts them when they were demoted: nothing counts by that.

    Neither before the run has looked, nor if it dies before it does. What it put stays, and is no hindrance.
    """
    put_ready(store, layout, 1, 2)
    again = marker(layout, 2)
    bridge.publish(store, layout, again, written(again))
    bridge.refuse_demoted(store, layout, again)
    bridge.demote(store, layout, 2, lambda: 1)
    bridge.publish(store, layout, again, written(again))
    assert store.get(layout.ready(2)).data == store.get(layout.demoted(2)).data
    for _ in range(2):
        assert bridge.published(store, layout) == bridge.Ordinals((1,), 2, frozenset({2}))
        with pytest.raises(LostRaceError, match="published and demoted"):
            bridge.refuse_demoted(store, layout, again)
    bridge.restore(store, layout, 2)
    bridge.publish(store, layout, again, written(again))
    bridge.refuse_demoted(store, layout, again)
    assert bridge.published(store, layout).newest == 2


def test_a_version_demoted_twice_does_not_come_back_by_a_late_try(store: ObjectStore, layout: TableLayout) -> None:
    put_ready(store, layout, 1, 2)
    bridge.demote(store, layout, 2, lambda: 1)
    bridge.restore(store, layout, 2)
    bridge.demote(store, layout, 2, lambda: 1)
    put_ready(store, layout, 2)
    assert bridge.published(store, layout) == bridge.Ordinals((1,), 2, frozenset({2}))
    assert bridge.is_demoted_now(store, layout, 2)


def test_who_builds_on_a_version_that_came_late_with_equal_bytes_is_refused(
    store: ObjectStore, layout: TableLayout
) -> None:
    """Where a listing tells no e_tags nothing else shows that it was not the one that was listed."""
    put_ready(store, layout, 1, 2)
    listed = replace(bridge.published(store, layout), newest_e_tag=None)
    bridge.demote(store, layout, 2, lambda: 1)
    put_ready(store, layout, 2)
    late = bridge.read_newest(store, layout, listed)
    assert late is not None
    with pytest.raises(LostRaceError, match="never counted"):
        bridge.refuse_late(store, layout, late)
    bridge.restore(store, layout, 2)
    bridge.refuse_late(store, layout, late)


def test_a_child_of_a_version_that_came_late_does_not_count(store: ObjectStore, layout: TableLayout) -> None:
    put_chain(store, layout, (1, None), (2, 1))
    bridge.demote(store, layout, 2, lambda: 1)
    put_chain(store, layout, (2, 1), (3, 2))
    assert bridge.published(store, layout).ready == (1,)
    child = marker(layout, 3, parent=2)
    with pytest.raises(LostRaceError, match="v2, which it builds on, was demoted"):
        bridge.refuse_demoted(store, layout, child)


class _Cut(Exception):
    pass


class _Dying(ForwardingStore):
    """Every write counts down; at 0 the process is gone before it."""

    def __init__(self, inner: ObjectStore, writes: int) -> None:
        super().__init__(inner)
        self.left = writes

    def put(self, uri: str, *args: Any, **options: Any) -> Any:
        self._count()
        return super().put(uri, *args, **options)

    def delete(self, uris: Any) -> None:
        self._count()
        super().delete(uris)

    def _count(self) -> None:
        if self.left == 0:
            raise _Cut
        self.left -= 1


def _cut(store: ObjectStore, writes: int, work: Any) -> bool:
    """Whether it was cut."""
    try:
        work(_Dying(store, writes))
    except _Cut:
        return True
    return False


@pytest.mark.parametrize("times", [0, 1], ids=["first", "again"])
def test_a_demotion_cut_at_any_write_counts_or_not_and_is_finished(
    store: ObjectStore, layout: TableLayout, times: int
) -> None:
    """A late try puts equal bytes after the cut, too: a version that does not count does not begin to."""
    for writes in range(9):
        place = TableLayout(f"{layout.root}{writes}")
        put_ready(store, place, 1, 2)
        for _ in range(times):
            bridge.demote(store, place, 2, lambda: 1)
            bridge.restore(store, place, 2)
        was_cut = _cut(store, writes, lambda dying, place=place: bridge.demote(dying, place, 2, lambda: 1))
        assert bridge.published(store, place).ready == ((1, 2) if writes == 0 else (1,))
        if writes:
            bridge.publish(store, place, marker(place, 2), written(marker(place, 2)))
            assert bridge.published(store, place).ready == (1,)
        bridge.demote(store, place, 2, lambda: 1)
        assert bridge.published(store, place).ready == (1,)
        assert store.get(place.staged(2)).data == store.get(place.demoted(2)).data == written(marker(place, 2))
        bridge.restore(store, place, 2)
        assert bridge.published(store, place).ready == (1, 2)
        if not was_cut:
            return
    pytest.fail("never whole")


def test_a_demotion_of_several_is_never_half_done_for_readers(store: ObjectStore, layout: TableLayout) -> None:
    """Were those above it taken back first, the one that is broken would be the newest for a while."""
    for writes in range(15):
        place = TableLayout(f"{layout.root}{writes}")
        put_chain(store, place, (1, None), (2, 1), (3, 2), (4, 3))
        was_cut = _cut(store, writes, lambda dying, place=place: bridge.demote(dying, place, 2, lambda: 1))
        assert bridge.published(store, place).ready == ((1, 2, 3, 4) if writes == 0 else (1,))
        bridge.demote(store, place, 2, lambda: 1)
        bridge.take_back_between(store, place, 1, 5)
        assert bridge.published(store, place) == bridge.Ordinals((1,), 4, frozenset({2, 3, 4}))
        if not was_cut:
            return
    pytest.fail("never whole")


@pytest.mark.parametrize("is_late", [False, True])
def test_a_restoration_cut_at_any_write_is_finished(store: ObjectStore, layout: TableLayout, is_late: bool) -> None:
    """It counts with the last write and not before, whoever puts the ready marker."""
    for writes in range(9):
        place = TableLayout(f"{layout.root}{writes}")
        put_ready(store, place, 1, 2)
        bridge.demote(store, place, 2, lambda: 1)
        if is_late:
            put_ready(store, place, 2)
        was_cut = _cut(store, writes, lambda dying, place=place: bridge.restore(dying, place, 2))
        assert bridge.published(store, place).ready == ((1,) if was_cut else (1, 2))
        bridge.restore(store, place, 2)
        assert bridge.published(store, place).ready == (1, 2)
        assert bridge.staged(store, place) == ()
        if not was_cut:
            return
    pytest.fail("never whole")


def test_a_restoration_that_slept_through_a_demotion_leaves_no_record(store: ObjectStore, layout: TableLayout) -> None:
    """It would be of an earlier demotion: a late try with equal bytes would count by it."""

    class Sleeping(ForwardingStore):
        def put(self, uri: str, *args: Any, **options: Any) -> Any:
            if uri == self.before:
                bridge.demote(self._inner, layout, 2, lambda: 1)
            return super().put(uri, *args, **options)

        def get(self, uri: str, **options: Any) -> Any:
            if uri == layout.ready(2) and self.before == "look":
                bridge.demote(self._inner, layout, 2, lambda: 1)
            return super().get(uri, **options)

        before = ""

    put_ready(store, layout, 1, 2)
    bridge.demote(store, layout, 2, lambda: 1)
    for before in (layout.restored(2), "look"):
        sleeping = Sleeping(store)
        sleeping.before = before
        with pytest.raises(LostRaceError, match="demoted again meanwhile"):
            bridge.restore(sleeping, layout, 2)
        put_ready(store, layout, 2)
        assert bridge.published(store, layout).ready == (1,)
        store.delete([layout.ready(2)])


def test_what_builds_on_a_demoted_version_goes_with_it(store: ObjectStore, layout: TableLayout) -> None:
    put_chain(store, layout, (1, None), (2, 1), (3, 2), (4, 3))
    bridge.demote(store, layout, 3, lambda: 1)
    assert bridge.published(store, layout) == bridge.Ordinals((1, 2), 4, frozenset({3, 4}))
    put_chain(store, layout, (5, 2))
    bridge.restore(store, layout, 3)
    bridge.demote(store, layout, 3, lambda: 1)  # v5 does not build on it
    assert bridge.published(store, layout) == bridge.Ordinals((1, 2, 5), 5, frozenset({3, 4}))


def test_a_follower_that_was_faster_brings_back_all_that_its_head_builds_on(
    store: ObjectStore, layout: TableLayout
) -> None:
    put_chain(store, layout, (1, None), (2, 1), (3, 2), (4, 3))
    shown = iter((1, 3))
    with pytest.raises(LostRaceError, match="a follower made v3 the mirror's head"):
        bridge.demote(store, layout, 2, lambda: next(shown))
    assert bridge.published(store, layout) == bridge.Ordinals((1, 2, 3), 4, frozenset({2, 3, 4}))


def test_a_marker_put_after_its_parent_was_demoted_does_not_count(store: ObjectStore, layout: TableLayout) -> None:
    """Of a run that had planned on it, and of one that had planned on that; until the parent is back."""
    put_chain(store, layout, (1, None), (2, 1))
    bridge.demote(store, layout, 2, lambda: 1)
    put_chain(store, layout, (3, 2), (4, 3))
    assert bridge.published(store, layout) == bridge.Ordinals((1,), 4, frozenset({2}))
    bridge.restore(store, layout, 2)
    assert bridge.published(store, layout).ready == (1, 2, 3, 4)


def test_the_way_back_is_walked_only_for_demotions_that_a_marker_does_not_name(
    store: ObjectStore, layout: TableLayout
) -> None:
    put_chain(store, layout, (1, None), (2, 1))
    bridge.demote(store, layout, 2, lambda: 1)
    put_chain(store, layout, (3, 1))
    put_chain(store, layout, *((version, version - 1) for version in range(4, 10)))
    counting = CountingStore(store)
    assert bridge.published(counting, layout).newest == 9
    assert counting.counts["get"] == 7  # down to v3, which steps over it
    assert bridge.published(store, layout).gone == {2}
    put_chain(store, layout, (10, 9), demoted=(2,))
    counting = CountingStore(store)
    assert bridge.published(counting, layout).newest == 10
    assert counting.counts["get"] == 1


def test_a_run_whose_parent_was_demoted_takes_its_version_back(store: ObjectStore, layout: TableLayout) -> None:
    put_chain(store, layout, (1, None), (2, 1))
    bridge.demote(store, layout, 2, lambda: 1)
    late = marker(layout, 3, parent=2)
    bridge.publish(store, layout, late, written(late))
    with pytest.raises(LostRaceError, match="v2, which it builds on, was demoted"):
        bridge.refuse_demoted(store, layout, late)
    assert bridge.published(store, layout) == bridge.Ordinals((1,), 3, frozenset({2, 3}))
    for version in (2, 3):
        bridge.restore(store, layout, version)
    bridge.refuse_demoted(store, layout, late)


def test_a_run_whose_line_was_cut_further_back_tells_of_no_success(store: ObjectStore, layout: TableLayout) -> None:
    """Whoever demotes v1 died after its record, before it came to v2."""
    put_chain(store, layout, (1, None), (2, 1))
    store.put(layout.demoted(1), store.get(layout.ready(1)).data, Create())
    late = marker(layout, 3, parent=2)
    bridge.publish(store, layout, late, written(late))
    with pytest.raises(LostRaceError, match="a version that it builds on was demoted"):
        bridge.refuse_demoted(store, layout, late)
    assert bridge.published(store, layout).ready == ()


def test_what_a_version_leaves_out_is_demoted_before_it_is_published(store: ObjectStore, layout: TableLayout) -> None:
    """A run died after it had put v3 on a demoted v2: v4, which is planned on v1, must find no gap without a record."""
    put_chain(store, layout, (1, None), (2, 1))
    bridge.demote(store, layout, 2, lambda: 1)
    put_chain(store, layout, (3, 2))
    bridge.take_back_between(store, layout, 1, 4)
    assert bridge.published(store, layout) == bridge.Ordinals((1,), 3, frozenset({2, 3}))
    for version in (2, 3):
        bridge.restore(store, layout, version)
    bridge.take_back_between(store, layout, 1, 4)  # what was demoted once is no gap
    assert bridge.published(store, layout).ready == (1, 2, 3)
    put_chain(store, layout, (4, 3))
    with pytest.raises(LostRaceError, match="it counts again since this run planned"):
        bridge.take_back_between(store, layout, 1, 5)


def test_what_was_dropped_is_not_demoted(store: ObjectStore, layout: TableLayout) -> None:
    put_chain(store, layout, (1, None), (2, 1))
    bridge.mark_dropped(store, layout, 2, AT)
    bridge.take_back_between(store, layout, None, 3)
    assert bridge.published(store, layout) == bridge.Ordinals((), 2, frozenset(), 2)
