"""The chain of ready markers: create-only, one winner for each ordinal, nothing believed by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakemirror import bridge
from lakemirror.errors import LostRaceError, PermanentError
from lakemirror.model.layout import TableLayout
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectNotFound, ObjectStore, Overwrite
from lakemirror.storage.wrappers.forward import ForwardingStore
from tests.unit.markers import AT, marker, put_ready, written


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


@pytest.mark.parametrize("parent", [3, 4])
def test_marker_that_does_not_come_after_its_parent_is_refused(
    store: ObjectStore, layout: TableLayout, parent: int
) -> None:
    """Its hash fits: whoever forges one can compute it. The way back from it would have no end."""
    put_ready(store, layout, 1)
    store.put(layout.demoted(2), written(marker(layout, 2, parent=1)))
    store.put(layout.ready(3), written(marker(layout, 3, parent=parent)))
    store.put(layout.ready(4), written(marker(layout, 4, parent=3)))
    with pytest.raises(PermanentError, match=rf"want a parent before v3, got v{parent}.*it was altered or forged"):
        bridge.published(store, layout)


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


def test_what_was_planned_before_a_drop_never_counts(store: ObjectStore, layout: TableLayout) -> None:
    """It builds on files that are given up; what is planned after it begins anew, and says so."""
    put_ready(store, layout, 1, 2)
    bridge.mark_dropped(store, layout, 2, AT)
    late = marker(layout, 3, parent=2)
    store.put(layout.ready(3), written(late))
    found = bridge.published(store, layout)
    assert (found.ready, found.last_used, found.dropped) == ((), 3, 2)

    anew = marker(layout, 4, parent=None, dropped=2)
    bridge.take_back_between(store, layout, None, 4)
    store.put(layout.ready(4), written(anew))
    assert bridge.published(store, layout).ready == (4,)
    store.put(layout.ready(5), written(marker(layout, 5, parent=4, dropped=2)))
    assert bridge.published(store, layout).ready == (4, 5)


def test_what_was_demoted_first_and_dropped_later_is_not_taken_for_a_drop(
    store: ObjectStore, layout: TableLayout
) -> None:
    """v3 was planned on v1 when v2 was demoted, before the drop: it names v2, and builds on what is given up."""
    put_ready(store, layout, 1)
    store.put(layout.demoted(2), written(marker(layout, 2, parent=1)))
    bridge.mark_dropped(store, layout, 2, AT)
    store.put(layout.ready(3), written(marker(layout, 3, parent=1, demoted=(2,))))
    assert bridge.published(store, layout).ready == ()


@pytest.mark.parametrize(
    ("parent", "dropped", "is_lost"), [(2, 2, True), (1, 2, True), (2, 1, False), (None, 2, False)]
)
def test_a_run_whose_parent_was_dropped_meanwhile_has_lost(
    store: ObjectStore, layout: TableLayout, parent: int | None, dropped: int, is_lost: bool
) -> None:
    """With the fence off: what it has put never counts, and it must not tell that it does."""
    put_ready(store, layout, 1, 2)
    bridge.mark_dropped(store, layout, dropped, AT)
    late = marker(layout, 3, parent=parent, demoted=(dropped,) if not is_lost else ())
    bridge.publish(store, layout, late, written(late))
    assert (bridge.published(store, layout).newest == 3) is not is_lost
    if not is_lost:
        bridge.refuse_demoted(store, layout, late)
        return
    with pytest.raises(LostRaceError, match="the mirror was dropped since this run planned"):
        bridge.refuse_demoted(store, layout, late)


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
