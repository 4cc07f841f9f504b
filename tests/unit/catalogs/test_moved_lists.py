"""A snapshot that the catalog has, whose manifest list lies elsewhere since: a map that began anew, or a mirror that
was dropped and came back. No update says that; to keep the old list would show files that nobody keeps any more."""

from __future__ import annotations

from typing import Any

import pytest

from lakemirror.catalogs.left_out import PROPERTY
from lakemirror.catalogs.ports import Published
from lakemirror.errors import PermanentError
from lakemirror.formats.iceberg.metadata_json import snapshots
from tests.unit.catalogs.rest_world import T, World

ELSEWHERE = "mem://m/t/_maps/anew"


def moved(new: Published) -> Published:
    """The same version, all of whose manifest lists lie in another folder."""
    lists = [
        {**one, "manifest-list": f"{ELSEWHERE}/{one['manifest-list'].rpartition('/')[2]}"}
        for one in new.metadata["snapshots"]
    ]
    return Published(new.metadata_uri, {**new.metadata, "snapshots": lists})


def shown(world: World) -> dict[int, Any]:
    metadata = world.head().metadata
    assert metadata is not None
    return {number: one["manifest-list"] for number, one in snapshots(metadata).items()}


def test_a_head_that_was_moved_is_refused_by_name(world: World) -> None:
    before = shown(world)
    with pytest.raises(
        PermanentError, match=r"unsupported_by_catalog: the manifest list of snapshot \d+ lies elsewhere"
    ):
        world.catalog.commit(T, world.head(), moved(world.first))
    assert (shown(world), world.version) == (before, "1")


def test_what_the_history_has_moved_goes_and_is_told(world: World) -> None:
    """The source's next commit brings a head that the catalog can take."""
    (old,) = shown(world)
    world.catalog.commit(T, world.head(), moved(world.second))
    found = shown(world)
    assert old not in found
    assert all(place.startswith(ELSEWHERE) for place in found.values())
    metadata = world.head().metadata
    assert metadata is not None
    assert str(old) in metadata["properties"][PROPERTY]
    assert world.version == "2"
