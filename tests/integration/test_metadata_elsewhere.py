"""The source's metadata is moved under the same ids of snapshots: what the mirror shows is there all the same."""

from __future__ import annotations

import shutil

import pytest
from pyiceberg.table import Table

from lakemirror.errors import PermanentError
from tests.iceberg_files import commit, manifests_of
from tests.integration.looking import check_whole, look
from tests.lake import Lake, path_of, rows

pytestmark = pytest.mark.integration


def move_lists(orders: Table, *snapshots: int) -> None:
    """As a tool does that rewrites paths of metadata: another place for the lists of these snapshots, the same ids."""
    with orders.refresh().transaction() as change:
        change.set_properties({"moved": str(snapshots)})
    path = path_of(orders.refresh().metadata_location)
    text = path.read_text()
    for one in orders.metadata.snapshots:
        if one.snapshot_id in snapshots:
            moved = one.manifest_list.replace("/metadata/", "/moved/")
            path_of(moved).parent.mkdir(exist_ok=True)
            shutil.copy(path_of(one.manifest_list), path_of(moved))
            text = text.replace(one.manifest_list, moved)
    path.write_text(text)


def two_snapshots(lake: Lake) -> tuple[Table, int, int]:
    orders = lake.create()
    for start in (0, 3):
        orders.append(rows(3, start))
        lake.sync()
    first, second = (one.snapshot_id for one in orders.refresh().metadata.snapshots)
    return orders, first, second


def lists(lake: Lake) -> dict[int, str]:
    """The folder that the list of each snapshot lies in."""
    return {one["snapshot-id"]: path_of(one["manifest-list"]).parent.name for one in look(lake).metadata["snapshots"]}


def test_lists_that_a_ref_needs_are_mirrored_again(lake: Lake) -> None:
    orders, first, second = two_snapshots(lake)
    orders.manage_snapshots().create_tag(first, "kept").commit()
    lake.sync()
    before = lake.mirror_objects()
    move_lists(orders, first, second)
    result = lake.sync()
    assert (result.copied_files, result.rewritten.manifests, result.left_out) == (0, 0, ())
    assert lists(lake) == {first: "moved", second: "moved"}
    check_whole(lake)
    assert lake.mirror_rows() == lake.source_rows()
    assert lake.mirror_rows(snapshot_id=first) == lake.source_rows(snapshot_id=first)
    assert before.items() <= lake.mirror_objects().items()


def test_an_earlier_version_whose_list_was_moved_is_left_out_and_told(lake: Lake) -> None:
    orders, first, second = two_snapshots(lake)
    move_lists(orders, first)
    result = lake.sync()
    assert result.left_out == ("1 earlier versions: their manifest lists lie elsewhere on the source now",)
    assert lists(lake) == {second: "metadata"}
    check_whole(lake)
    assert lake.mirror_rows() == lake.source_rows()
    orders.refresh().append(rows(1, 9))
    assert lake.sync().left_out == ()
    assert lists(lake).keys() == {second, orders.refresh().metadata.current_snapshot_id}


def test_a_manifest_that_was_rewritten_in_place_is_a_stop_by_name(lake: Lake) -> None:
    orders, _, _ = two_snapshots(lake)
    want, head = lake.mirror_rows(), lake.mirror_head()
    old, *others = manifests_of(orders)
    length = old.manifest_length
    path = path_of(old.manifest_path)
    path.write_bytes(path.read_bytes() + b" ")
    old._data[1] = length + 1
    assert old.manifest_length == length + 1
    commit(orders, 77, [old, *others])
    with pytest.raises(PermanentError, match="another size") as caught:
        lake.mirror()
    assert caught.value.subject == old.manifest_path
    assert f"want {length} bytes, got {length + 1}" in caught.value.message
    assert "rewrite_manifests" in caught.value.hint
    lake.follow()
    assert (lake.mirror_rows(), lake.mirror_head()) == (want, head)
