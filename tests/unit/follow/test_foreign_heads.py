"""Heads of the mirror's catalog that are not ours, or that nobody can read, and the ways out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemirror import bridge
from lakemirror.errors import LostRaceError, PermanentError
from lakemirror.follow.follower import follow
from lakemirror.storage.port import ObjectInfo
from lakemirror.storage.wrappers.forward import ForwardingStore
from tests.lake import ORDERS, SCHEMA, Lake, rows
from tests.unit.follow.mirrored import STORE, catalog, commit_again, layout


def write_to_mirror(lake: Lake) -> None:
    with lake.mirror_catalog() as theirs:
        theirs.load_table(str(ORDERS)).append(rows(1, 99))


def test_foreign_commit_stops_until_an_operator_decides(lake: Lake) -> None:
    lake.follow()
    write_to_mirror(lake)
    foreign = lake.mirror_head()
    for _ in range(2):
        with pytest.raises(PermanentError, match="foreign commit") as caught:
            lake.follow()
        assert str(foreign) in caught.value.message
        assert "other place (want " in caught.value.message
        assert "current snapshot (want " in caught.value.message
    assert lake.mirror_head() == foreign
    commit_again(lake)
    with pytest.raises(PermanentError, match="foreign commit"):
        lake.follow()


@pytest.mark.parametrize("way", ["adopt", "overwrite_foreign"])
def test_foreign_commit_is_taken_over_or_replaced_on_demand(lake: Lake, way: str) -> None:
    lake.follow()
    write_to_mirror(lake)
    result = lake.follow(ORDERS, **{way: True})
    assert (result.version, result.committed) == (1, True)
    assert lake.mirror_rows() == lake.source_rows()


@pytest.mark.parametrize("way", ["adopt", "overwrite_foreign"])
def test_a_way_out_does_not_lead_back_to_an_older_version(lake: Lake, way: str) -> None:
    """It slept since it listed the markers: another follower showed v2, and somebody wrote on top of that."""

    class Slept(ForwardingStore):
        def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
            found = [*super().list(prefix_uri)]
            commit_again(lake)
            lake.follow()
            with lake.mirror_catalog() as theirs:
                theirs.load_table(str(ORDERS)).append(rows(1, 99))
            return iter(found)

    with pytest.raises(LostRaceError, match="was made from v2, and this run knows none after v1"):
        follow(ORDERS, layout(lake), catalog(lake), Slept(STORE), **{way: True})
    bridge.demote(STORE, layout(lake), 2, lambda: None)
    with pytest.raises(LostRaceError, match="was made from v2, and this run knows none after v1") as told:
        follow(ORDERS, layout(lake), catalog(lake), STORE, **{way: True})
    assert f"after the next `mirror {ORDERS}`" in told.value.hint
    bridge.restore(STORE, layout(lake), 2)
    assert follow(ORDERS, layout(lake), catalog(lake), STORE, **{way: True}).committed
    assert lake.mirror_rows() == lake.source_rows()


def test_a_table_of_another_uuid_is_never_adopted_but_may_be_replaced(lake: Lake) -> None:
    with lake.mirror_catalog() as theirs:
        theirs.create_namespace("shop")
        theirs.create_table(str(ORDERS), SCHEMA)
    foreign = lake.mirror_head()
    for options in ({}, {"adopt": True}):
        with pytest.raises(PermanentError, match=r"foreign commit|cannot adopt"):
            lake.follow(ORDERS, **options)
        assert lake.mirror_head() == foreign
    assert lake.follow(overwrite_foreign=True).committed
    assert lake.mirror_rows() == lake.source_rows()


def test_foreign_table_without_any_marker_is_left_alone(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.mirror_catalog() as theirs:
        theirs.create_namespace("shop")
        theirs.create_table(str(ORDERS), SCHEMA)
    foreign = lake.mirror_head()
    for options in ({}, {"adopt": True}, {"overwrite_foreign": True}):
        with pytest.raises(PermanentError, match="foreign commit"):
            lake.follow(ORDERS, **options)
    assert lake.mirror_head() == foreign


def damage(place: str | None, how: str) -> None:
    assert place is not None
    path = Path(place.removeprefix("file://"))
    if how == "gone":
        path.unlink()
    else:
        path.write_text(how)


@pytest.mark.parametrize("how", ["gone", "{}", "no JSON", '{"format-version": 2, "snapshots": 7}'])
@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_a_head_whose_file_cannot_be_read_is_foreign(lake: Lake, whose: str, how: str) -> None:
    lake.follow()
    if whose == "theirs":
        write_to_mirror(lake)
    damage(lake.mirror_head(), how)
    commit_again(lake)
    with pytest.raises(PermanentError, match=r"foreign commit.*; other file \(") as met:
        lake.follow()
    assert "drop-mirror shop.orders --yes --overwrite-foreign" in met.value.hint
    with pytest.raises(PermanentError, match="cannot adopt"):
        lake.follow(ORDERS, adopt=True)
    status = lake.app().status(ORDERS)
    assert (status.mirror_state, status.mirror_version, status.is_behind) == ("foreign", None, True)
    assert status.warnings[0].startswith("foreign commit: ")
    result = lake.follow(ORDERS, overwrite_foreign=True)
    assert (result.version, result.committed) == (2, True)
    assert lake.mirror_rows() == lake.source_rows()


@pytest.mark.parametrize("how", ["gone", "{}"])
def test_the_newest_version_whose_file_is_lost_comes_back_by_dropping_it(lake: Lake, how: str) -> None:
    """There is nothing to go over it with: the way out is a version that is written anew."""
    lake.follow()
    damage(lake.mirror_head(), how)
    with pytest.raises(PermanentError, match="foreign commit"):
        lake.follow()
    with pytest.raises(PermanentError, match=r"is not in the bucket|its hash is not the marker's") as met:
        lake.follow(ORDERS, overwrite_foreign=True)
    assert "drop-mirror shop.orders --yes --overwrite-foreign" in met.value.hint
    with pytest.raises(PermanentError, match="was not published by Lakemirror"):
        lake.app().drop_mirror(ORDERS)
    lake.app().drop_mirror(ORDERS, overwrite_foreign=True)
    assert lake.sync().version == 2
    assert lake.mirror_rows() == lake.source_rows()


def test_a_head_that_cannot_be_read_is_not_replaced_by_an_older_version(lake: Lake) -> None:
    """It slept since it listed the markers; what the head was made from nobody can tell."""
    lake.follow()

    class Slept(ForwardingStore):
        lists = 0

        def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
            found = [*super().list(prefix_uri)]
            if not self.lists:
                commit_again(lake)
                lake.follow()
                damage(lake.mirror_head(), "gone")
            self.lists += 1
            return iter(found)

    with pytest.raises(LostRaceError, match="v2 was published since this run has listed them"):
        follow(ORDERS, layout(lake), catalog(lake), Slept(STORE), overwrite_foreign=True)


def test_a_head_whose_marker_is_damaged_is_foreign(lake: Lake) -> None:
    lake.follow()
    write_to_mirror(lake)
    commit_again(lake)
    ready = Path(layout(lake).ready(1).removeprefix("file://"))
    kept = ready.read_bytes()
    ready.write_bytes(kept.replace(b'"checksum": "', b'"checksum": "0'))
    with pytest.raises(PermanentError, match=r"foreign commit.*; other marker \(of v1: its hash does not fit"):
        lake.follow()
    assert lake.app().status(ORDERS).mirror_state == "foreign"
    with pytest.raises(PermanentError, match="its hash does not fit"):  # no chain leads to v2 any more
        lake.follow(ORDERS, overwrite_foreign=True)
    lake.app().drop_mirror(ORDERS, overwrite_foreign=True)
    assert lake.sync().version == 3
    assert lake.mirror_rows() == lake.source_rows()


def test_a_marker_of_a_newer_format_is_not_called_foreign(lake: Lake) -> None:
    lake.follow()
    commit_again(lake)
    ready = Path(layout(lake).ready(1).removeprefix("file://"))
    ready.write_bytes(ready.read_bytes().replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(PermanentError, match="it is of format 2"):
        lake.app().drop_mirror(ORDERS, overwrite_foreign=True)
