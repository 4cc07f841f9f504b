"""BLMS by its double: the documented rules stand between the library and Iceberg's own REST server."""

from __future__ import annotations

import json
import threading
import time
import uuid
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.catalog import load_catalog

from dev.services import Services
from lakemirror.catalogs.blms import open_blms
from lakemirror.catalogs.comparison import differing
from lakemirror.catalogs.left_out import left_out_of
from lakemirror.catalogs.ports import MirrorHead, Published
from lakemirror.catalogs.rest import UNSUPPORTED, RestCatalog
from lakemirror.errors import LostRaceError, PermanentError, TransientError, UnsupportedError
from lakemirror.model.table import TableRef
from lakemirror.replicate.fence import NoFence
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import Create
from tests.blms_double import BlmsDouble
from tests.lake import Lake, rows
from tests.published_tables import Table


def lease(table: TableRef) -> AbstractContextManager[NoFence]:
    return nullcontext(NoFence())


class World:
    def __init__(self, blms: BlmsDouble, location: str, version: int = 2) -> None:
        self.double = blms
        self.ref = TableRef((f"ns{uuid.uuid4().hex[:8]}",), "orders")
        self.catalog = self.open()
        self.store = ObstoreStore(self.catalog.file_io())
        place = f"{location}/{self.ref.namespace[0]}/orders"
        self.made = Table(place, version, start_ms=int(time.time() * 1000))

    def open(self, **more: Any) -> RestCatalog:
        given = {**self.double.properties, "rest.retry-pause-s": "0"}
        return open_blms("cloud", given, **more)

    def publish(self) -> Published:
        metadata = self.made.publish()
        uri = f"{self.made.location}/metadata/{self.made.published_count:05d}-ours.metadata.json"
        self.store.put(uri, json.dumps(metadata).encode(), Create())
        return Published(uri, metadata)

    def append(self) -> Published:
        self.made.append(5)
        return self.publish()

    def head(self) -> MirrorHead:
        head = self.catalog.load(self.ref)
        assert head is not None
        return head

    def shows(self, want: Published) -> bool:
        metadata = self.head().metadata
        assert metadata is not None
        return differing(want.metadata, metadata) == ()


@pytest.fixture
def world(blms: BlmsDouble, services: Services) -> World:
    return World(blms, services.mirror_location)


def test_the_double_holds_to_its_rules(world: World) -> None:
    """Without them these tests would prove nothing."""
    plain = {key: value for key, value in world.double.properties.items() if key.startswith(("uri", "warehouse"))}
    with pytest.raises(PermanentError, match="401"):
        RestCatalog("plain", {**plain, "token": "no"}).tables()
    world.catalog.tables()
    login = {**plain, "token": world.double.tokens.issued[-1]}
    with pytest.raises(PermanentError, match="403"):
        RestCatalog("plain", login).tables()
    project = {"header.x-goog-user-project": "shop-project"}
    with pytest.raises(PermanentError, match="X-Iceberg-Access-Delegation"):
        RestCatalog("plain", {**login, **project}).head(world.ref)
    headers = {**project, "header.X-Iceberg-Access-Delegation": "vended-credentials"}
    free = RestCatalog("plain", {**login, **headers})  # does not know the rules
    with pytest.raises(PermanentError, match="nested namespaces"):
        free.commit(TableRef.parse("a.b.c"), None, world.append())
    with pytest.raises(PermanentError, match="does not start with the expected prefix"):
        free.commit(TableRef(world.ref.namespace, "other"), None, world.append())
    world.double.limit_bytes = 100
    with pytest.raises(PermanentError, match="larger than 100 bytes"):
        free.commit(world.ref, None, world.append())
    old = World(world.double, world.made.location.rpartition("/")[0].rpartition("/")[0], 1)
    with pytest.raises(PermanentError, match="format version 1"):
        free.commit(old.ref, None, old.append())
    world.double.limit_bytes = 1_000_000
    for path in ("transactions/commit", "tables/rename", f"namespaces/{world.ref.namespace[0]}/views"):
        answer = free._client.post(path, {}, "ask", path)
        assert (answer.status, answer.message) == (404, "Method not found.")
    first, second = world.append(), world.append()
    free.commit(world.ref, None, first)
    moved = {**second.metadata, "location": f"{second.metadata['location']}-elsewhere"}
    with pytest.raises(PermanentError, match="the location of a table is immutable"):
        free.commit(world.ref, free.load(world.ref), Published(second.metadata_uri, moved))
    assert world.shows(first)


def test_only_what_it_has_is_asked_for(world: World) -> None:
    can = world.catalog.abilities()
    assert (can.has_register, can.has_drop, can.has_multi_table_commit) == (True, True, False)
    world.catalog.commit(world.ref, None, world.append())
    world.catalog.commit(world.ref, world.head(), world.append())
    assert world.ref in world.catalog.tables()
    world.catalog.drop(world.ref, world.head())
    assert world.catalog.load(world.ref) is None


def test_errors_in_googles_own_form(world: World) -> None:
    world.double.says_it_as_google = True
    assert world.catalog.load(world.ref) is None
    first, second = world.append(), world.append()
    world.catalog.commit(world.ref, None, first)
    stale = world.head()
    world.catalog.commit(world.ref, stale, second)
    with pytest.raises(LostRaceError):
        world.catalog.commit(world.ref, stale, world.append())
    with pytest.raises(LostRaceError):
        world.catalog.commit(world.ref, None, second)
    world.catalog.drop(world.ref, world.head())
    with pytest.raises(LostRaceError):
        world.catalog.commit(world.ref, stale, world.append())


def test_a_namespace_that_lies_elsewhere(world: World) -> None:
    world.double._ask(
        "POST", "namespaces", {"namespace": list(world.ref.namespace), "properties": {"location": "s3://else/where"}}
    )
    with pytest.raises(PermanentError, match=f"{UNSUPPORTED}: tables of its namespace lie in s3://else/where"):
        world.catalog.commit(world.ref, None, world.append())
    assert not any("register" in one for one in world.double.asked)


def test_throttled_commits_pass_in_the_end_and_leave_orphans(world: World) -> None:
    world.catalog.commit(world.ref, None, world.append())
    world.double.throttled = 2
    second = world.append()
    world.catalog.commit(world.ref, world.head(), second)
    assert world.shows(second)
    assert len(world.double.orphans) == 2
    head = world.head().metadata_uri
    assert head not in world.double.orphans  # what counts is what the catalog names, never the newest of a listing
    assert all(world.store.get(one, max_bytes=1 << 20) for one in world.double.orphans)


def test_throttled_for_longer_than_patience_lasts(world: World) -> None:
    first = world.append()
    world.catalog.commit(world.ref, None, first)
    world.double.throttled, world.double.retry_after = 1000, "3600"
    with pytest.raises(TransientError, match="429") as caught:
        world.catalog.commit(world.ref, world.head(), world.append())
    assert "in 3600 s" in caught.value.hint
    assert world.shows(first)
    assert len(world.double.orphans) == 1


def test_v3_is_taken_and_told_to_be_a_preview(world: World, services: Services) -> None:
    three = World(world.double, services.mirror_location, 3)
    three.catalog.commit(three.ref, None, three.append())
    second = three.append()
    three.catalog.commit(three.ref, three.head(), second)
    assert three.shows(second)
    assert three.catalog.abilities().warnings(second.metadata)


class TestWhatNoUpdatesCanSay:
    """A tag on a snapshot that was not mirrored: older than the catalog's last."""

    @pytest.fixture
    def late(self, world: World) -> tuple[World, Published]:
        world.catalog.commit(world.ref, None, world.append())
        for _ in range(3):
            world.made.append(3)
        skipped = sorted(world.made.snapshots)[-2]
        newest = Published("", world.made.publish(lambda one: False))
        world.catalog.commit(world.ref, world.head(), newest)
        world.made.refs["late"] = {"snapshot-id": skipped, "type": "tag"}
        return world, world.append()

    def test_the_whole_is_swapped_under_the_lease(self, late: tuple[World, Published]) -> None:
        world, new = late
        opened = world.open(with_lease=lease)
        assert opened.abilities().has_whole_swap is True
        opened.commit(world.ref, world.head(), new)
        assert world.shows(new)
        assert world.head().metadata_uri == new.metadata_uri
        assert "late" in (world.head().metadata or {})["refs"]
        assert left_out_of(world.head().metadata or {}) == {}

    def test_not_if_the_lease_is_lost(self, late: tuple[World, Published]) -> None:
        world, new = late

        class Over(NoFence):
            def is_over(self) -> bool:
                return True

        before = world.head()
        with pytest.raises(LostRaceError, match="has ended before"):
            world.open(with_lease=lambda table: nullcontext(Over())).commit(world.ref, before, new)
        assert world.head() == before

    def test_not_over_a_head_that_moved(self, late: tuple[World, Published]) -> None:
        world, new = late
        stale = world.head()
        world.open(with_lease=lease).commit(world.ref, stale, new)
        newer = world.append()
        with pytest.raises(LostRaceError):
            world.open(with_lease=lease).commit(world.ref, stale, newer)
        assert world.shows(new)

    @pytest.mark.parametrize("has_lease", [False, True])
    def test_otherwise_the_tag_is_left_out_and_told(self, late: tuple[World, Published], has_lease: bool) -> None:
        world, new = late
        world.double.can_overwrite = False
        opened = world.open(with_lease=lease if has_lease else None)
        opened.commit(world.ref, world.head(), new)
        assert world.shows(new)  # but for what it says
        metadata = world.head().metadata or {}
        assert "late" not in metadata["refs"]
        assert [*left_out_of(metadata).values()] == [["late"]]
        newer = world.append()
        opened.commit(world.ref, world.head(), newer)
        assert [*left_out_of(world.head().metadata or {}).values()] == [["late"]]
        del world.made.refs["late"]
        world.made.snapshots = {one: made for one, made in world.made.snapshots.items() if one in metadata["refs"]}
        world.made.append(1)
        world.made.snapshots = {world.made.head or 0: world.made.snapshots[world.made.head or 0]}
        last = world.publish()
        opened.commit(world.ref, world.head(), last)
        assert world.shows(last)
        assert left_out_of(world.head().metadata or {}) == {}


def test_many_at_once(world: World) -> None:
    """One wins, whatever else the double does meanwhile."""
    world.catalog.commit(world.ref, None, world.append())
    head, new = world.head(), world.append()
    told: list[str] = []

    def commit() -> None:
        try:
            world.open().commit(world.ref, head, new)
            told.append("won")
        except LostRaceError:
            told.append("lost")

    threads = [threading.Thread(target=commit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(told) == ["lost"] * 7 + ["won"]


def mirrored_by(
    blms: BlmsDouble, services: Services, folder: Path, monkeypatch: pytest.MonkeyPatch, **more: str
) -> tuple[TableRef, Lake]:
    """A lake in plain files, with a configuration that mirrors one table of it to the double."""
    table = TableRef((f"ns{uuid.uuid4().hex[:8]}",), "orders")
    lake = Lake(folder, tables=[{"name": str(table)}])
    document = yaml.safe_load(lake.config_path.read_text())
    mirror = {"name": "cloud", "rest.retry-pause-s": "0", **more}
    for number, (key, value) in enumerate(blms.properties.items()):
        monkeypatch.setenv(f"BLMS_{number}", value)
        mirror[key] = "blms" if key == "type" else f"${{BLMS_{number}}}"
    document["mirror"] = {"catalog": mirror, "location": services.mirror_location}
    lake.config_path.write_text(yaml.safe_dump(document))
    return table, lake


def test_the_whole_way(blms: BlmsDouble, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a source in plain files to a reader of the mirror, throttled on the way; `status` tells what BLMS can do."""
    table, lake = mirrored_by(blms, services, tmp_path, monkeypatch)
    orders = lake.create(table)
    orders.append(rows(3))
    for count in (1, 2, 3):
        lake.mirror(table)
        blms.throttled = 1 if count > 1 else 0
        done = lake.app().follow(table)
        assert (done.version, done.committed, done.warnings) == (count, True, ())
        orders.append(rows(1, 10 * count))
    with orders.transaction() as change:
        change.set_properties(team="blue")
    lake.mirror(table)
    lake.app().follow(table)
    status = lake.app().status(table)
    told = status.as_json()
    assert (told["mirror"]["version"], told["mirror"]["state"], told["lag_s"]) == (4, "ok", 0.0)
    assert told["catalog"] == {
        "type": "blms",
        "commit": "updates",
        "has_namespace_levels": False,
        "has_register": True,
        "has_whole_swap": True,
        "has_drop": True,
        "has_multi_table_commit": False,
        "has_idempotency_keys": False,
        "formats": [2, 3],
        "preview_formats": [3],
        "max_metadata_bytes": 1_000_000,
    }
    reader = load_catalog("reader", **services.mirror_properties).load_table(str(table))
    assert sorted(reader.scan().to_arrow().to_pylist(), key=str) == sorted(lake.source_rows(table), key=str)
    assert len(blms.orphans) == 2


def test_a_busy_table_outgrows_the_limit_and_goes_on(
    blms: BlmsDouble, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own logs grow with every commit: the history budget leaves room for them before they are there."""
    blms.limit_bytes = 5_500
    table, lake = mirrored_by(blms, services, tmp_path, monkeypatch, **{"rest.max-metadata-bytes": "5500"})
    orders = lake.create(table, properties={"write.metadata.previous-versions-max": "4"})
    for count in range(1, 10):
        orders.append(rows(1, count))
        lake.mirror(table)
        done = lake.app().follow(table)
        assert (done.version, done.committed) == (count, True)
    shown = load_catalog("reader", **services.mirror_properties).load_table(str(table)).metadata
    assert 1 < len(shown.snapshots) < 9  # what fits, and not all
    assert len(shown.metadata_log) == 4


def test_a_table_of_format_1_is_refused_before_anything_is_written(
    blms: BlmsDouble, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, lake = mirrored_by(blms, services, tmp_path, monkeypatch)
    lake.create(table, properties={"format-version": "1"}).append(rows(3))
    with pytest.raises(UnsupportedError, match="the mirror's catalog refuses tables of format version 1"):
        lake.mirror(table)
    store = ObstoreStore(services.mirror_properties)
    assert [one.uri for one in store.list(services.mirror_location) if table.namespace[0] in one.uri] == []
