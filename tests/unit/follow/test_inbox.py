"""The chain of markers as a follower checks it: each names the one before it, and gaps are demoted ordinals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakemirror import bridge
from lakemirror.errors import LostRaceError, PermanentError
from lakemirror.follow import inbox
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import Marker
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.wrappers.count import CountingStore
from tests.unit.markers import AT, marker, written

STORE = ObstoreStore({})


@pytest.fixture
def layout(tmp_path: Path) -> TableLayout:
    return TableLayout(f"file://{tmp_path}/m/shop/orders")


def publish(layout: TableLayout, version: int, parent: Marker | None, **more: Any) -> Marker:
    fields = {"parent": parent and parent.version, "parent_checksum": parent and parent.checksum, **more}
    made = marker(layout, version, **fields)
    STORE.put(layout.ready(version), written(made))
    return made


def chain(layout: TableLayout, *versions: int) -> list[Marker]:
    made: list[Marker] = []
    for version in versions:
        made.append(publish(layout, version, made[-1] if made else None))
    return made


def checked(layout: TableLayout, shown: int | None) -> inbox.Inbox:
    return inbox.check_chain(STORE, layout, inbox.look(STORE, layout), shown)


def refused(layout: TableLayout, shown: int | None, says: str) -> None:
    with pytest.raises(PermanentError, match=f"the chain of markers is broken: {says}"):
        checked(layout, shown)


def test_an_empty_inbox(layout: TableLayout) -> None:
    assert checked(layout, None).newest is None


@pytest.mark.parametrize("shown", [None, 1, 2, 3])
def test_a_whole_chain(layout: TableLayout, shown: int | None) -> None:
    made = chain(layout, 1, 2, 3, 4)
    found = checked(layout, shown)
    assert (found.newest, found.before) == (made[3], made[2])


def test_only_what_is_new_is_read(layout: TableLayout) -> None:
    chain(layout, *range(1, 20))
    counting = CountingStore(STORE)
    inbox.check_chain(counting, layout, inbox.look(counting, layout), 18)
    assert (counting.counts["get"], counting.counts["list"]) == (2, 1)


def test_the_first_of_all_has_no_parent(layout: TableLayout) -> None:
    (first,) = chain(layout, 1)
    found = checked(layout, None)
    assert (found.ordinals.ready, found.newest, found.before) == ((1,), first, None)


def test_a_link_that_does_not_fit_anywhere_on_the_way(layout: TableLayout) -> None:
    first, _ = chain(layout, 1, 2)
    other = publish(layout, 3, marker(layout, 2, files=99))
    publish(layout, 4, other)
    refused(layout, 1, "its parent is not v2")
    refused(layout, None, "its parent is not v2")
    assert checked(layout, 3).before == other
    assert first.version == 1


def test_a_missing_ordinal(layout: TableLayout) -> None:
    made = chain(layout, 1, 2)
    publish(layout, 4, made[1])
    refused(layout, 2, "v3 before it is missing, and was not demoted")


def test_a_parent_that_is_gone(layout: TableLayout) -> None:
    chain(layout, 1, 2, 3, 4)
    STORE.delete([layout.ready(2)])
    refused(layout, 1, "its parent v2 is gone")


@pytest.mark.parametrize("parent", [4, 5])
def test_a_parent_that_comes_after(layout: TableLayout, parent: int) -> None:
    publish(layout, 4, marker(layout, parent))
    with pytest.raises(PermanentError, match=rf"want a parent before v4, got v{parent}"):
        checked(layout, None)


def test_a_chain_that_begins_in_the_middle(layout: TableLayout) -> None:
    publish(layout, 4, None)
    refused(layout, None, "v1 before it is missing")


@pytest.mark.parametrize("shown", [1, 2])
def test_a_parent_in_whose_place_a_late_run_left_another(layout: TableLayout, shown: int) -> None:
    """v2 was demoted after it was listed, and then a put came late: nobody altered anything, and the next run knows."""
    made = chain(layout, 1, 2, 3)
    waiting = inbox.look(STORE, layout)
    bridge.demote(STORE, layout, 2, lambda: 1)
    publish(layout, 2, made[0], files=99)
    with pytest.raises(LostRaceError, match="v2, which it builds on, was demoted since"):
        inbox.check_chain(STORE, layout, waiting, shown)


def test_a_demoted_ordinal_is_a_gap(layout: TableLayout) -> None:
    """v3 was demoted before v4 was planned, so v4 names v2."""
    made = chain(layout, 1, 2, 3)
    bridge.demote(STORE, layout, 3, lambda: 2)
    publish(layout, 4, made[1])
    assert checked(layout, 2).before == made[1]
    assert checked(layout, 1).before == made[1]


def test_what_builds_on_a_demoted_version_does_not_wait(layout: TableLayout) -> None:
    """v4 was put by a run that had planned on v3 before that was demoted."""
    made = chain(layout, 1, 2, 3)
    bridge.demote(STORE, layout, 3, lambda: 2)
    publish(layout, 4, made[2])
    assert checked(layout, 2).newest == made[1]


@pytest.mark.parametrize("shown", [None, 1])
def test_a_version_that_was_demoted_while_the_chain_was_listed(layout: TableLayout, shown: int | None) -> None:
    """Pages of a listing are of different moments: this one shows v4, but not that v3 was demoted before."""
    chain(layout, 1, 2, 3, 4)
    listed = inbox.look(STORE, layout)
    bridge.demote(STORE, layout, 3, lambda: 2)
    with pytest.raises(LostRaceError, match="v3, which it builds on, was demoted since"):
        inbox.check_chain(STORE, layout, listed, shown)


def test_a_restored_ordinal_may_have_been_left_out(layout: TableLayout) -> None:
    made = chain(layout, 1, 2, 3)
    bridge.demote(STORE, layout, 3, lambda: 2)
    publish(layout, 4, made[1])
    bridge.restore(STORE, layout, 3)
    assert checked(layout, 2).before == made[1]
    assert checked(layout, 3).before == made[1]


def test_what_the_mirror_shows_must_be_in_the_chain(layout: TableLayout) -> None:
    made = chain(layout, 1, 2, 3)
    publish(layout, 4, made[1])
    refused(layout, 3, "v3 before it is missing, and was not demoted")


def test_after_a_drop_a_chain_begins_anew(layout: TableLayout) -> None:
    chain(layout, 1, 2, 3)
    bridge.mark_dropped(STORE, layout, 3, AT)
    assert checked(layout, None).newest is None
    first = publish(layout, 4, None)
    second = publish(layout, 5, first)
    assert (checked(layout, None).newest, checked(layout, None).before) == (second, first)
    assert checked(layout, 2).before == first  # the catalog had not dropped it yet


def test_without_a_head_the_look_back_has_an_end(layout: TableLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "LINKS_WITHOUT_HEAD", 3)
    made = chain(layout, *range(1, 10))
    STORE.delete([layout.ready(2)])
    assert checked(layout, None).before == made[7]
    refused(layout, 1, "its parent v2 is gone")
