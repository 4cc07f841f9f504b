"""The follower: newest ready version by compare-and-set, one commit for all, nothing demoted, no lost race."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakemirror import bridge
from lakemirror.catalogs.ports import MirrorHead
from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.errors import LostRaceError, PermanentError, TransientError
from lakemirror.follow.follower import follow
from lakemirror.model.table import TableRef
from lakemirror.storage.port import ObjectInfo
from lakemirror.storage.wrappers.forward import ForwardingStore
from tests.lake import ORDERS, Lake
from tests.unit.follow.mirrored import STORE, catalog, commit_again, layout, newest
from tests.unit.markers import written


def test_nothing_ready_is_nothing_to_do_and_makes_no_catalog(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    result = lake.follow()
    assert (result.version, result.snapshot_id, result.committed) == (None, None, False)
    assert not (tmp_path / "mirror.db").exists()


def test_registers_first_then_rests_then_swaps(lake: Lake) -> None:
    first = lake.follow()
    assert (first.version, first.snapshot_id, first.committed) == (1, newest(lake).snapshot_id, True)
    assert lake.mirror_rows() == lake.source_rows()
    again = lake.follow()
    assert (again.version, again.committed) == (1, False)
    commit_again(lake)
    assert (lake.follow().version, lake.mirror_rows()) == (2, lake.source_rows())


class Watched(SqlCatalog):
    """A mirror catalog that remembers what it was made to point at."""

    def __init__(self, lake: Lake) -> None:
        super().__init__("cloud", {"uri": f"sqlite:///{lake.folder}/mirror.db"}, may_be_new=True)
        self.commits: list[str] = []

    def register(self, table: TableRef, metadata_uri: str) -> None:
        self.commits.append(metadata_uri)
        super().register(table, metadata_uri)

    def swap(self, table: TableRef, expected: str, metadata_uri: str) -> None:
        self.commits.append(metadata_uri)
        super().swap(table, expected, metadata_uri)


def test_of_several_ready_markers_only_the_newest_is_applied(lake: Lake) -> None:
    commit_again(lake)
    commit_again(lake)
    watched = Watched(lake)
    assert follow(ORDERS, layout(lake), watched, STORE).committed
    assert watched.commits == [newest(lake).metadata_uri]
    assert lake.mirror_table().metadata.properties["lakemirror.version"] == "3"


def test_what_is_registered_has_the_sources_ids(lake: Lake) -> None:
    """A table that is created anew would get fresh field ids; a registered one keeps them."""
    lake.follow()
    source, mirror = lake.source.load_table(str(ORDERS)).metadata, lake.mirror_table().metadata
    assert lake.mirror_table().last_sequence_number == lake.source.load_table(str(ORDERS)).last_sequence_number
    assert (mirror.schemas, mirror.partition_specs, mirror.sort_orders, mirror.table_uuid) == (
        source.schemas,
        source.partition_specs,
        source.sort_orders,
        source.table_uuid,
    )
    assert mirror.last_column_id == source.last_column_id


def test_a_head_that_was_demoted_too_late_is_still_ours(lake: Lake) -> None:
    """A follower may commit what is demoted at that moment; the mirror goes on from there."""
    lake.follow()
    bridge.demote(STORE, layout(lake), 1, lambda: None)
    assert (lake.follow().version, lake.follow().committed) == (1, False)
    commit_again(lake)
    marker = newest(lake)
    assert (marker.version, marker.parent) == (2, None)
    assert (lake.follow().version, lake.mirror_rows()) == (2, lake.source_rows())


class Demoting(SqlCatalog):
    """Whoever demotes has looked at the catalog before; a commit comes, and it dies before it looks again."""

    def __init__(self, lake: Lake, *, is_restored: bool = False) -> None:
        super().__init__("cloud", {"uri": f"sqlite:///{lake.folder}/mirror.db"}, may_be_new=True)
        self._layout, self._is_restored = layout(lake), is_restored

    def register(self, table: TableRef, metadata_uri: str) -> None:
        bridge.demote(STORE, self._layout, 1, lambda: None)
        super().register(table, metadata_uri)
        if self._is_restored:
            bridge.restore(STORE, self._layout, 1)


def test_a_version_that_is_demoted_while_it_is_committed_is_told(lake: Lake) -> None:
    outcome = follow(ORDERS, layout(lake), Demoting(lake), STORE)
    assert (outcome.committed, outcome.is_demoted) == (True, True)
    [warning] = outcome.warnings
    assert warning.startswith("demoted head: readers see v1, which was demoted")
    again = lake.follow()
    assert (again.committed, again.warnings) == (False, (warning,))
    status = lake.app().status(ORDERS)
    assert (status.is_head_demoted, status.is_behind, status.warnings) == (True, True, (warning,))
    bridge.restore(STORE, layout(lake), 1)
    assert (lake.follow().warnings, lake.app().status(ORDERS).warnings) == ((), ())
    assert not lake.app().status(ORDERS).is_behind


def test_a_version_that_is_restored_by_then_is_not_told(lake: Lake) -> None:
    outcome = follow(ORDERS, layout(lake), Demoting(lake, is_restored=True), STORE)
    assert (outcome.committed, outcome.is_demoted, outcome.warnings) == (True, False, ())


def test_a_late_marker_beside_a_demoted_head_makes_it_no_foreign_one(lake: Lake) -> None:
    """A run that had planned the same ordinal left its own ready marker there; it never counted."""
    lake.follow()
    was = newest(lake)
    bridge.demote(STORE, layout(lake), 1, lambda: None)
    late = layout(lake).metadata("00001-late.metadata.json")
    STORE.put(late, STORE.get(was.metadata_uri).data)
    STORE.put(layout(lake).ready(1), written(dataclasses.replace(was, metadata_uri=late)))
    assert (lake.follow().version, lake.follow().committed) == (1, False)
    commit_again(lake)
    assert (lake.follow().version, lake.mirror_rows()) == (2, lake.source_rows())


@pytest.mark.parametrize("shown", [None, 1])
def test_a_marker_that_came_late_is_not_committed(lake: Lake, shown: int | None) -> None:
    """Listed before it was demoted, read after a late run had put its own in its place."""
    if shown is not None:
        lake.follow()
        commit_again(lake)
    was = newest(lake)
    late = layout(lake).metadata("0000x-late.metadata.json")
    STORE.put(late, STORE.get(was.metadata_uri).data)

    class Slept(ForwardingStore):
        has_slept = False

        def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
            found = [*super().list(prefix_uri)]
            if not self.has_slept:
                self.has_slept = True
                bridge.demote(STORE, layout(lake), was.version, lambda: shown)
                STORE.put(layout(lake).ready(was.version), written(dataclasses.replace(was, metadata_uri=late)))
            return iter(found)

    head = lake.mirror_head()
    told = "v1 was dropped or demoted since" if shown is None else "never counted"
    with pytest.raises(LostRaceError, match=told):
        follow(ORDERS, layout(lake), catalog(lake), Slept(STORE))
    assert lake.mirror_head() == head


def test_ten_followers_of_one_marker_make_one_commit(lake: Lake) -> None:
    lake.follow()
    commit_again(lake)
    start = threading.Barrier(10)

    def run(_: int) -> str:
        start.wait(20)
        try:
            return "committed" if lake.follow().committed else "nothing"
        except (LostRaceError, TransientError):
            return "lost"

    with ThreadPoolExecutor(10) as pool:
        outcomes = list(pool.map(run, range(10)))
    assert outcomes.count("committed") == 1
    assert lake.mirror_rows() == lake.source_rows()


class Meddling(SqlCatalog):
    """A catalog in which something else happens right before, or instead of, our swap."""

    def __init__(self, lake: Lake, instead: str | None, *, swallow: bool = False) -> None:
        super().__init__("cloud", {"uri": f"sqlite:///{lake.folder}/mirror.db"}, may_be_new=True)
        self._instead, self._swallow = instead, swallow

    def swap(self, table: TableRef, expected: str, metadata_uri: str) -> None:
        if self._instead is not None:
            super().swap(table, expected, self._instead)
        if not self._swallow:
            super().swap(table, expected, metadata_uri)


def test_head_that_moved_meanwhile_is_a_lost_race(lake: Lake) -> None:
    lake.follow()
    commit_again(lake)
    elsewhere = f"{layout(lake).root}/metadata/elsewhere.json"
    with pytest.raises(LostRaceError, match="head moved"):
        follow(ORDERS, layout(lake), Meddling(lake, elsewhere), STORE)
    assert catalog(lake).head(ORDERS) == elsewhere


def test_a_commit_that_did_not_happen_is_not_believed(lake: Lake) -> None:
    lake.follow()
    commit_again(lake)
    with pytest.raises(PermanentError, match="took the commit but shows the head that it had, file:"):
        follow(ORDERS, layout(lake), Meddling(lake, None, swallow=True), STORE)


def test_a_mirror_that_is_dropped_right_after_the_commit_is_a_lost_race(lake: Lake) -> None:
    """`drop-mirror` comes between the commit and the look at what became of it."""

    class Dropped(SqlCatalog):
        def register(self, table: TableRef, metadata_uri: str) -> None:
            super().register(table, metadata_uri)
            lake.follower().drop_mirror(table)

    mirror = Dropped("cloud", {"uri": f"sqlite:///{lake.folder}/mirror.db"}, may_be_new=True)
    with pytest.raises(LostRaceError, match="the mirror was dropped, or v1 demoted, meanwhile"):
        follow(ORDERS, layout(lake), mirror, STORE)
    assert catalog(lake).load(ORDERS) is None


def test_a_mirror_that_is_dropped_right_after_the_commit_and_registered_as_it_was_is_a_lost_race(lake: Lake) -> None:
    """By a follower that had found no table when there was no other version: the head is the one of before."""
    lake.follow()
    first = catalog(lake).head(ORDERS)
    assert first is not None
    commit_again(lake)

    class Dropped(SqlCatalog):
        def swap(self, table: TableRef, expected: str, metadata_uri: str) -> None:
            super().swap(table, expected, metadata_uri)
            lake.follower().drop_mirror(table)
            super().register(table, first)

    mirror = Dropped("cloud", {"uri": f"sqlite:///{lake.folder}/mirror.db"}, may_be_new=True)
    with pytest.raises(LostRaceError, match="the mirror was dropped, or v2 demoted, meanwhile"):
        follow(ORDERS, layout(lake), mirror, STORE)


def test_a_drop_that_comes_late_and_takes_the_next_version_away(lake: Lake) -> None:
    """Where drops compare nothing, and clocks differ by more than is allowed: the next run registers it again."""
    lake.follow()
    lake.follower().drop_mirror(ORDERS)
    lake.mirror()

    class Late(SqlCatalog):
        def register(self, table: TableRef, metadata_uri: str) -> None:
            super().register(table, metadata_uri)
            self.drop(table, MirrorHead(metadata_uri))

    mirror = Late("cloud", {"uri": f"sqlite:///{lake.folder}/mirror.db"}, may_be_new=True)
    with pytest.raises(LostRaceError, match="a drop came after it"):
        follow(ORDERS, layout(lake), mirror, STORE)
    assert lake.follow().version == 2


def test_a_drop_that_comes_so_late_that_it_takes_a_later_commit_away(lake: Lake) -> None:
    """The first version after the drop is shown already; without a fence nobody waits for a drop on its way."""
    lake.follow()
    lake.follower().drop_mirror(ORDERS)
    lake.mirror()
    lake.follow()
    commit_again(lake)

    class Late(SqlCatalog):
        def swap(self, table: TableRef, expected: str, metadata_uri: str) -> None:
            super().swap(table, expected, metadata_uri)
            self.drop(table, MirrorHead(metadata_uri))

    mirror = Late("cloud", {"uri": f"sqlite:///{lake.folder}/mirror.db"}, may_be_new=True)
    with pytest.raises(LostRaceError, match="a drop came after it"):
        follow(ORDERS, layout(lake), mirror, STORE)
    assert lake.follow().version == 3


class Overtaken(SqlCatalog):
    """Right after our commit somebody puts this file in its place."""

    def __init__(self, lake: Lake, then: str) -> None:
        super().__init__("cloud", {"uri": f"sqlite:///{lake.folder}/mirror.db"}, may_be_new=True)
        self._then = then

    def swap(self, table: TableRef, expected: str, metadata_uri: str) -> None:
        super().swap(table, expected, metadata_uri)
        super().swap(table, metadata_uri, self._then)


def test_an_older_version_of_ours_after_the_commit_is_a_lost_race(lake: Lake) -> None:
    lake.follow()
    commit_again(lake)
    second = newest(lake).metadata_uri
    commit_again(lake)
    with pytest.raises(LostRaceError, match="after the commit the catalog shows file:"):
        follow(ORDERS, layout(lake), Overtaken(lake, second), STORE)
    assert lake.follow().version == 3
