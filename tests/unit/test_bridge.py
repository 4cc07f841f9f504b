"""The chain of ready markers: create-only, one winner for each ordinal, nothing believed by its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakemirror import bridge
from lakemirror.errors import LostRaceError, PermanentError
from lakemirror.model.layout import TableLayout
from lakemirror.model.table import TableRef
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectNotFound, ObjectStore, Overwrite
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.forward import ForwardingStore
from tests.unit.markers import AT, marker, written


@pytest.fixture
def layout(tmp_path: Path) -> TableLayout:
    return TableLayout(f"file://{tmp_path}/m/shop/orders")


@pytest.fixture
def store() -> ObjectStore:
    return ObstoreStore({})


def test_nothing_is_published_at_first(store: ObjectStore, layout: TableLayout) -> None:
    assert bridge.published(store, layout) == bridge.Ordinals((), 0)
    assert bridge.published(store, layout).newest is None
    assert bridge.staged(store, layout) == ()


def test_demoted_ordinals_stay_used(store: ObjectStore, layout: TableLayout) -> None:
    for name in ("v1.ready.json", "v2.ready.json", "v10.demoted.json", "v3.ready.json.tmp", "notes.txt"):
        store.put(f"{layout.ready_folder}{name}", b"")
    assert bridge.published(store, layout) == bridge.Ordinals((1, 2), 10, frozenset({10}))


def test_read_ready_gives_the_marker(store: ObjectStore, layout: TableLayout) -> None:
    store.put(layout.ready(3), written(marker(layout, 3)))
    assert bridge.read_ready(store, layout, 3) == marker(layout, 3)
    with pytest.raises(ObjectNotFound):
        bridge.read_ready(store, layout, 4)


@pytest.mark.parametrize("key", ["metadata_uri", "index_uri", "manifest_list_uri"])
@pytest.mark.parametrize("place", ["{root}/../other/x.json", "{root}_old/x.json", "s3://elsewhere/x.json", "x.json"])
def test_marker_that_points_outside_its_table_is_refused(
    store: ObjectStore, layout: TableLayout, key: str, place: str
) -> None:
    wrong: dict[str, Any] = {key: place.format(root=layout.root)}
    store.put(layout.ready(3), written(marker(layout, 3, **wrong)))
    with pytest.raises(PermanentError, match="lies outside"):
        bridge.read_ready(store, layout, 3)


def test_marker_under_another_ordinal_is_refused(store: ObjectStore, layout: TableLayout) -> None:
    store.put(layout.ready(4), written(marker(layout, 3)))
    with pytest.raises(PermanentError, match="it speaks of v3"):
        bridge.read_ready(store, layout, 4)


def test_stage_then_publish(store: ObjectStore, layout: TableLayout) -> None:
    made = marker(layout)
    data = bridge.stage(store, layout, made, written(made))
    assert bridge.staged(store, layout) == (1,)
    bridge.publish(store, layout, made, data)
    assert store.get(layout.ready(1)).data == written(made)
    assert bridge.staged(store, layout) == ()


def test_a_retry_promotes_the_staged_bytes_as_they_are(store: ObjectStore, layout: TableLayout) -> None:
    made = marker(layout)
    bridge.stage(store, layout, made, written(made, "first:1"))
    assert bridge.stage(store, layout, made, written(made, "second:2")) == written(made, "first:1")


@pytest.mark.parametrize("left", [b"", b"garbage", None])
def test_what_a_dead_run_left_is_replaced(store: ObjectStore, layout: TableLayout, left: bytes | None) -> None:
    made = marker(layout)
    store.put(layout.staged(1), written(marker(layout, epoch="u-0")) if left is None else left)
    assert bridge.stage(store, layout, made, written(made)) == written(made)
    assert store.get(layout.staged(1)).data == written(made)


class _Meddler(ForwardingStore):
    """Somebody else touches the staged marker right after we have looked at it."""

    def __init__(self, inner: ObjectStore, uri: str, data: bytes | None) -> None:
        super().__init__(inner)
        self._uri, self._data = uri, data

    def put(self, uri: str, *args: Any, **kwargs: Any) -> Any:
        if uri == self._uri and self._data is None:
            try:
                return super().put(uri, *args, **kwargs)
            finally:
                self._inner.delete([uri])
        return super().put(uri, *args, **kwargs)

    def get(self, uri: str, **kwargs: Any) -> Any:
        blob = super().get(uri, **kwargs)
        if uri == self._uri and self._data is not None:
            self._inner.put(uri, self._data, Overwrite())
        return blob


@pytest.mark.parametrize("data", [b"other", None])
def test_two_runs_that_stage_at_once_have_one_winner(
    store: ObjectStore, layout: TableLayout, data: bytes | None
) -> None:
    store.put(layout.staged(1), written(marker(layout, epoch="u-0")))
    meddled = _Meddler(store, layout.staged(1), data)
    with pytest.raises(LostRaceError, match="another run is working on this version"):
        bridge.stage(meddled, layout, marker(layout), written(marker(layout)))


def test_publishing_the_same_twice_is_fine_and_keeps_the_first(store: ObjectStore, layout: TableLayout) -> None:
    made = marker(layout)
    bridge.publish(store, layout, made, written(made, "first:1"))
    store.put(layout.staged(1), b"left over")
    bridge.publish(store, layout, made, written(made, "second:2"))
    assert store.get(layout.ready(1)).data == written(made, "first:1")
    assert bridge.staged(store, layout) == ()


def test_publishing_another_content_is_a_lost_race_naming_both(store: ObjectStore, layout: TableLayout) -> None:
    winner, loser = marker(layout), marker(layout, epoch="u-2")
    bridge.publish(store, layout, winner, written(winner))
    with pytest.raises(LostRaceError) as caught:
        bridge.publish(store, layout, loser, written(loser))
    assert winner.checksum in caught.value.message
    assert loser.checksum in caught.value.message
    assert store.get(layout.ready(1)).data == written(winner)


def test_publishing_over_a_demoted_or_broken_marker_stops(store: ObjectStore, layout: TableLayout) -> None:
    store.put(layout.ready(1), b"not a marker")
    with pytest.raises(PermanentError, match="not a marker"):
        bridge.publish(store, layout, marker(layout), written(marker(layout)))


def test_announced_tables_are_found_by_name(store: ObjectStore, tmp_path: Path) -> None:
    location = f"file://{tmp_path}/m"
    assert bridge.announced(store, location) == ()
    for name in ("shop.orders", "a.b.ü x", "shop.orders"):
        bridge.announce(store, location, TableRef.parse(name))
    assert bridge.announced(store, f"{location}/") == ("a.b.ü x", "shop.orders")


def put_ready(store: ObjectStore, layout: TableLayout, *versions: int) -> None:
    for version in versions:
        store.put(layout.ready(version), written(marker(layout, version)))


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
    """Until the ready marker is gone the version counts; from then on it does not."""
    put_ready(store, layout, 1, 2)
    store.put(layout.demoted(2), store.get(layout.ready(2)).data)
    assert bridge.published(store, layout).ready == (1, 2)
    bridge.demote(store, layout, 2, lambda: 1)
    assert bridge.published(store, layout).ready == (1,)


def test_a_late_run_cannot_use_a_demoted_ordinal_again(store: ObjectStore, layout: TableLayout) -> None:
    """It slept while its ordinal was published by another run and demoted: its create-only put meets nothing."""
    put_ready(store, layout, 1, 2)
    bridge.demote(store, layout, 2, lambda: 1)
    late = marker(layout, 2, files=7)
    bridge.publish(store, layout, late, written(late))
    assert bridge.published(store, layout) == bridge.Ordinals((1,), 2, frozenset({2}))
    with pytest.raises(LostRaceError, match="published and demoted"):
        bridge.refuse_demoted(store, layout, late, written(late), is_new=True)
    with pytest.raises(PermanentError, match="a run that came late left other bytes there"):
        bridge.restore(store, layout, 2)
    store.delete([layout.ready(2)])
    assert bridge.restore(store, layout, 2) == marker(layout, 2)


def test_a_late_try_does_not_restore_what_was_demoted(store: ObjectStore, layout: TableLayout) -> None:
    """It has the staged bytes of the first try, and puts them again when they were demoted; an equal one is success."""
    put_ready(store, layout, 1, 2)
    again = marker(layout, 2)
    assert not bridge.publish(store, layout, again, written(again))
    bridge.refuse_demoted(store, layout, again, written(again), is_new=False)
    bridge.demote(store, layout, 2, lambda: 1)
    assert bridge.publish(store, layout, again, written(again))
    with pytest.raises(LostRaceError, match="published and demoted"):
        bridge.refuse_demoted(store, layout, again, written(again), is_new=True)
    assert bridge.published(store, layout) == bridge.Ordinals((1,), 2, frozenset({2}))
    bridge.restore(store, layout, 2)
    assert not bridge.publish(store, layout, again, written(again))
    bridge.refuse_demoted(store, layout, again, written(again), is_new=False)
    assert bridge.published(store, layout).newest == 2


def test_the_loser_of_a_marker_that_is_demoted_meanwhile(store: ObjectStore, layout: TableLayout) -> None:
    class Vanishing(ForwardingStore):
        def put(self, uri: str, *args: Any, **options: Any) -> Any:
            try:
                return super().put(uri, *args, **options)
            finally:
                if uri == layout.ready(1):
                    super().delete([uri])

    put_ready(store, layout, 1)
    other = marker(layout, 1, files=9)
    with pytest.raises(LostRaceError, match="it was demoted since"):
        bridge.publish(Vanishing(store), layout, other, written(other))


def test_dropping_ends_all_that_was_published(store: ObjectStore, layout: TableLayout) -> None:
    put_ready(store, layout, 1, 2)
    for _ in range(2):
        bridge.mark_dropped(store, layout, 2, AT)
    assert bridge.published(store, layout) == bridge.Ordinals((), 2, frozenset(), 2)
    put_ready(store, layout, 3)
    assert bridge.published(store, layout) == bridge.Ordinals((3,), 3, frozenset(), 2)


@pytest.mark.parametrize(("theirs", "ours", "is_taken"), [(5, 6, True), (5, 5, True), (6, 5, False), (None, 1, True)])
def test_what_another_run_staged_is_replaced_only_under_a_higher_token(
    store: ObjectStore, layout: TableLayout, theirs: int | None, ours: int, is_taken: bool
) -> None:
    left, mine = marker(layout, 1, files=7), marker(layout, 1)
    store.put(layout.staged(1), left.to_bytes(created_at=AT, producer="dead", fence_token=theirs))
    data = mine.to_bytes(created_at=AT, producer="me", fence_token=ours)
    if is_taken:
        assert bridge.stage(store, layout, mine, data, ours) == data
        assert store.get(layout.staged(1)).data == data
        return
    with pytest.raises(LostRaceError, match="a later run staged it"):
        bridge.stage(store, layout, mine, data, ours)
    assert bridge.stage(store, layout, mine, data) == data  # without a fence there is no order, and publish decides


def put_chain(store: ObjectStore, layout: TableLayout, *links: tuple[int, int | None], **more: Any) -> None:
    """Ready markers, each with its parent."""
    for version, parent in links:
        store.put(layout.ready(version), written(marker(layout, version, parent=parent, **more)))


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
        bridge.refuse_demoted(store, layout, late, written(late), is_new=True)
    assert bridge.published(store, layout) == bridge.Ordinals((1,), 3, frozenset({2, 3}))
    for version in (2, 3):
        bridge.restore(store, layout, version)
    bridge.refuse_demoted(store, layout, late, written(late), is_new=False)


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
