"""Dropping a mirror in a REST catalog; also the way out of a foreign append, from which no updates lead back."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from lakemirror.app import App
from lakemirror.catalogs.abilities import CatalogAbilities
from lakemirror.config.loader import load_config
from lakemirror.errors import LostRaceError, PermanentError, TableBusyError, UnsettledError
from lakemirror.formats.iceberg import metadata_json
from tests.lake import ORDERS, Lake, path_of, rows
from tests.rest_double import RestDouble, rest_double

PATH = "namespaces/shop/tables/orders"
WAY_OUT = "drop-mirror shop.orders --yes --overwrite-foreign"


class Files(dict[str, Any]):
    """What a server finds when it registers a file."""

    def __missing__(self, uri: str) -> Any:
        return metadata_json.parse(path_of(uri).read_bytes(), uri)


@pytest.fixture
def double() -> Iterator[RestDouble]:
    with rest_double() as double:
        double.files = Files()
        yield double


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.create().append(rows(3))
    lake.mirror()
    return lake


@pytest.fixture
def app(lake: Lake, double: RestDouble, tmp_path: Path) -> App:
    """A follower of a server that has no whole swap."""
    place = tmp_path / "follower-of-rest.yaml"
    catalog = {"name": "cloud", "type": "rest", "uri": double.uri, "token": "${TOKEN}"}
    mirror = {"catalog": catalog, "location": f"file://{lake.mirror_folder}"}
    place.write_text(yaml.safe_dump({"mirror": mirror, "tables": [{"name": str(ORDERS)}]}), encoding="utf-8")
    app = App(load_config(place, env={"TOKEN": "token-1"}), owner=lake.owner)
    app.follow(ORDERS)
    return app


def append_by_somebody(double: RestDouble) -> None:
    metadata = copy.deepcopy(double.tables[PATH][1])
    head = metadata["snapshots"][-1]
    number, moment = metadata["last-sequence-number"] + 1, head["timestamp-ms"] + 1000
    made = {"snapshot-id": 777, "parent-snapshot-id": head["snapshot-id"], "sequence-number": number}
    metadata["snapshots"].append({**head, **made, "timestamp-ms": moment, "manifest-list": "mem://theirs/777.avro"})
    metadata |= {"last-sequence-number": number, "current-snapshot-id": 777, "last-updated-ms": moment}
    metadata["refs"]["main"] = {"snapshot-id": 777, "type": "branch"}
    metadata["snapshot-log"].append({"snapshot-id": 777, "timestamp-ms": moment})
    double.tables[PATH] = ("mem://theirs/1.metadata.json", metadata)


def append(lake: Lake) -> None:
    lake.source.load_table(str(ORDERS)).append(rows(1, 10))
    lake.mirror()


def shown(double: RestDouble) -> tuple[str, int]:
    metadata = double.tables[PATH][1]
    return metadata["properties"]["lakemirror.version"], metadata["current-snapshot-id"]


def source_head(lake: Lake) -> int:
    head = lake.source.load_table(str(ORDERS)).current_snapshot()
    assert head is not None
    return head.snapshot_id


def test_a_foreign_append_is_dropped_and_the_table_registered_anew(lake: Lake, double: RestDouble, app: App) -> None:
    append_by_somebody(double)
    append(lake)
    with pytest.raises(PermanentError, match="foreign commit") as met:
        app.follow(ORDERS)
    assert WAY_OUT in met.value.hint
    for way in ({"adopt": True}, {"overwrite_foreign": True}):
        with pytest.raises(PermanentError, match=r"unsupported_by_catalog.*sequence number") as refused:
            app.follow(ORDERS, **way)
        assert WAY_OUT in refused.value.hint
    with pytest.raises(PermanentError, match="was not published by Lakemirror") as kept:
        app.drop_mirror(ORDERS)
    assert WAY_OUT in kept.value.hint
    assert PATH in double.tables
    result = app.drop_mirror(ORDERS, overwrite_foreign=True)
    assert (result.version, result.last_used, PATH in double.tables) == (None, 2, False)
    assert f"DELETE /v1/{PATH}?purgeRequested=false" in double.asked
    assert app.follow(ORDERS).committed is False
    assert lake.mirror().version == 3
    assert (app.follow(ORDERS).version, shown(double)) == (3, ("3", source_head(lake)))
    append(lake)
    assert (app.follow(ORDERS).version, shown(double)) == (4, ("4", source_head(lake)))


def test_a_foreign_append_before_the_source_goes_on(lake: Lake, double: RestDouble, app: App) -> None:
    """Adopting it takes their snapshot away; the next one of the source has its number, and meets the same wall."""
    append_by_somebody(double)
    assert app.follow(ORDERS, adopt=True).version == 1
    append(lake)
    with pytest.raises(PermanentError, match=r"unsupported_by_catalog.*sequence number") as refused:
        app.follow(ORDERS)
    assert "drop-mirror shop.orders --yes" in refused.value.hint
    assert app.drop_mirror(ORDERS).version == 1
    assert lake.mirror().version == 3
    assert (app.follow(ORDERS).version, shown(double)) == (3, ("3", source_head(lake)))


def test_what_is_ours_is_dropped_with_and_without_the_word(lake: Lake, double: RestDouble, app: App) -> None:
    assert (app.drop_mirror(ORDERS, overwrite_foreign=True).version, PATH in double.tables) == (1, False)


def test_a_head_that_moves_while_it_is_dropped_stays(lake: Lake, double: RestDouble, app: App) -> None:
    """Whoever said so has seen another one."""
    append_by_somebody(double)
    catalog = app._ports.mirror_catalog
    drop = catalog.drop

    def moved(*args: Any) -> None:
        double.tables[PATH] = ("mem://theirs/2.metadata.json", double.tables[PATH][1])
        drop(*args)

    catalog.drop = moved  # type: ignore[method-assign]
    with pytest.raises(LostRaceError, match="head moved"):
        app.drop_mirror(ORDERS, overwrite_foreign=True)
    assert PATH in double.tables


def test_a_drop_that_may_be_on_its_way_keeps_the_next_version_out(lake: Lake, double: RestDouble, app: App) -> None:
    double.fault = lambda verb, path: "late" if verb == "DELETE" else None
    with pytest.raises(UnsettledError, match="the table is still there"):
        app.drop_mirror(ORDERS)
    double.fault = lambda verb, path: None
    append(lake)
    for _ in range(2):
        with pytest.raises(TableBusyError):
            app.follow(ORDERS)
        double.land()
    assert PATH not in double.tables


def test_a_server_that_cannot_drop_changes_nothing(lake: Lake, double: RestDouble, app: App) -> None:
    unable = CatalogAbilities("rest", "updates", has_namespace_levels=True, has_drop=False)
    with (
        patch.object(app._ports.mirror_catalog, "abilities", lambda: unable),
        pytest.raises(PermanentError, match="unsupported_by_catalog: the catalog cannot drop") as refused,
    ):
        app.drop_mirror(ORDERS)
    assert "nothing was changed" in refused.value.hint
    assert app.status(ORDERS).warnings == ()
    assert app.follow(ORDERS).version == 1


def test_a_drop_that_finds_a_swap_at_work_says_what_readers_see(lake: Lake, double: RestDouble, app: App) -> None:
    with app._swapping(ORDERS), pytest.raises(TableBusyError, match="count as dropped, and readers still see it"):
        app.drop_mirror(ORDERS)
    assert app.drop_mirror(ORDERS).version == 1
    assert PATH not in double.tables


def test_a_group_that_nobody_can_read_is_told_when_the_table_is_gone(lake: Lake, double: RestDouble, app: App) -> None:
    """It promises nothing, so it keeps no table from being dropped."""
    place = lake.mirror_folder / "_groups" / "other.json"
    place.parent.mkdir()
    place.write_text("{}", encoding="utf-8")
    with pytest.raises(PermanentError, match=r"other\.json"):
        app.drop_mirror(ORDERS)
    assert PATH not in double.tables
