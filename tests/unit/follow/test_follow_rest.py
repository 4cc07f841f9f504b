"""The follower over a catalog that keeps metadata in files of its own: ours is told by content, not by place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from lakemirror import bridge
from lakemirror.app import App
from lakemirror.catalogs.comparison import _COMPARED
from lakemirror.catalogs.left_out import told
from lakemirror.catalogs.ports import MirrorHead, Published
from lakemirror.catalogs.rest import RestCatalog
from lakemirror.config.loader import load_config
from lakemirror.errors import LostRaceError, PermanentError
from lakemirror.follow.follower import follow, head_of
from lakemirror.formats.iceberg import metadata_json
from lakemirror.model.table import TableRef
from lakemirror.replicate.fence import NoFence
from lakemirror.storage.objects import ObstoreStore
from tests.lake import ORDERS, Lake, path_of, rows
from tests.rest_double import RestDouble, rest_double
from tests.unit.follow.mirrored import layout

STORE = ObstoreStore({})
PATH = "namespaces/shop/tables/orders"


class Files(dict[str, Any]):
    """What a server finds when it registers a file."""

    def __missing__(self, uri: str) -> Any:
        return metadata_json.parse(path_of(uri).read_bytes(), uri)


@pytest.fixture
def double() -> Iterator[RestDouble]:
    with rest_double() as double:
        double.files = Files()
        yield double


def catalog(double: RestDouble) -> RestCatalog:
    return RestCatalog("cloud", {"uri": double.uri, "token": "token-1"})


def file_of(lake: Lake, version: int) -> str:
    return bridge.read_ready(STORE, layout(lake), version).metadata_uri


def append(lake: Lake) -> None:
    lake.source.load_table(str(ORDERS)).append(rows(1, 10))
    lake.mirror()


def test_the_head_is_known_by_what_it_shows(lake: Lake, double: RestDouble) -> None:
    first = follow(ORDERS, layout(lake), catalog(double), STORE)
    assert (first.committed, first.head and first.head.version) == (True, 1)
    append(lake)
    append(lake)
    second = follow(ORDERS, layout(lake), catalog(double), STORE)
    assert second.head is not None
    assert (second.committed, second.head.version) == (True, 3)
    assert second.head.metadata_uri.startswith("mem://server/")
    again = follow(ORDERS, layout(lake), catalog(double), STORE)
    assert (again.committed, again.head and again.head.version) == (False, 3)


@pytest.mark.parametrize("what", ["refs", "properties"])
def test_a_foreign_commit_is_told_by_what_changed(lake: Lake, double: RestDouble, what: str) -> None:
    follow(ORDERS, layout(lake), catalog(double), STORE)
    append(lake)
    follow(ORDERS, layout(lake), catalog(double), STORE)
    shown = double.tables[PATH][1]
    if what == "refs":
        shown["refs"]["theirs"] = {"snapshot-id": shown["current-snapshot-id"], "type": "tag"}
    else:
        shown["properties"]["theirs"] = "1"
    head = head_of(catalog(double), STORE, layout(lake), ORDERS)
    assert head is not None
    assert (head.version, head.changed) == (None, (what,))
    append(lake)
    with pytest.raises(PermanentError, match=rf"foreign commit.*; other {what} \(theirs: want None, got"):
        follow(ORDERS, layout(lake), catalog(double), STORE)
    adopted = follow(ORDERS, layout(lake), catalog(double), STORE, adopt=True)
    assert (adopted.committed, adopted.head and adopted.head.version) == (True, 3)
    assert "theirs" not in double.tables[PATH][1][what]


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ({}, "the catalog shows no table metadata"),
        ({"format-version": 2, "snapshots": 7}, "it is not whole"),
        (404, r"catalog cloud answered 404 .NotFoundException: no such file"),
    ],
)
@pytest.mark.parametrize("can_swap", [True, False])
def test_a_head_that_the_catalog_cannot_show_is_foreign(
    lake: Lake, double: RestDouble, shown: dict[str, Any] | int, told: str, can_swap: bool
) -> None:
    """No updates lead on from there; a whole swap does."""
    follow(ORDERS, layout(lake), catalog(double), STORE)
    append(lake)
    if can_swap:
        double.overwrite = 200
    if isinstance(shown, dict):
        double.tables[PATH] = ("mem://theirs/1.metadata.json", shown)
    else:
        double.lost.add(PATH)
    mine = RestCatalog("cloud", {"uri": double.uri, "token": "token-1", "rest.retries": "0"}, with_lease=lease)
    with pytest.raises(PermanentError, match=rf"foreign commit.*; other metadata \({told}"):
        follow(ORDERS, layout(lake), mine, STORE)
    if can_swap:
        assert follow(ORDERS, layout(lake), mine, STORE, overwrite_foreign=True).committed
        assert double.tables[PATH][0] == file_of(lake, 2)
        return
    with pytest.raises(PermanentError, match="unsupported_by_catalog: what it shows") as met:
        follow(ORDERS, layout(lake), mine, STORE, overwrite_foreign=True)
    assert "drop-mirror shop.orders --yes --overwrite-foreign" in met.value.hint
    head = mine.load(ORDERS)
    assert head is not None
    mine.drop(ORDERS, head)
    assert follow(ORDERS, layout(lake), mine, STORE).committed


@pytest.mark.parametrize("how", ["gone", "{}"])
def test_a_version_whose_own_file_is_lost_cannot_be_compared(lake: Lake, double: RestDouble, how: str) -> None:
    follow(ORDERS, layout(lake), catalog(double), STORE)
    append(lake)
    follow(ORDERS, layout(lake), catalog(double), STORE)
    append(lake)
    path = path_of(file_of(lake, 2))
    if how == "gone":
        path.unlink()
    else:
        path.write_text(how)
    with pytest.raises(PermanentError, match=r"foreign commit.*; other file \(of v2"):
        follow(ORDERS, layout(lake), catalog(double), STORE)
    assert follow(ORDERS, layout(lake), catalog(double), STORE, adopt=True).committed


def test_many_followers_on_one_marker_make_one_commit(lake: Lake, double: RestDouble) -> None:
    follow(ORDERS, layout(lake), catalog(double), STORE)
    append(lake)
    start = threading.Barrier(16)

    def run(_: int) -> str:
        mine = catalog(double)
        start.wait(30)
        try:
            return "committed" if follow(ORDERS, layout(lake), mine, STORE).committed else "nothing to do"
        except LostRaceError:
            return "lost"

    with ThreadPoolExecutor(16) as pool:
        told = list(pool.map(run, range(16)))
    assert told.count("committed") == 1
    assert double.tables[PATH][1]["properties"]["lakemirror.version"] == "2"


def test_a_tag_that_the_catalog_cannot_take_is_left_out_and_told(lake: Lake, double: RestDouble) -> None:
    """A tag on a snapshot that was skipped, when the catalog is past it."""
    follow(ORDERS, layout(lake), catalog(double), STORE)
    table = lake.source.load_table(str(ORDERS))
    table.append(rows(1, 10))
    skipped = table.current_snapshot()
    assert skipped is not None
    table.append(rows(1, 20))
    lake.mirror()
    follow(ORDERS, layout(lake), catalog(double), STORE)
    table.manage_snapshots().create_tag(skipped.snapshot_id, "late").commit()
    lake.mirror()
    done = follow(ORDERS, layout(lake), catalog(double), STORE)
    assert done.head is not None
    assert (done.committed, done.head.version) == (True, 3)
    assert done.head.metadata is not None
    assert told(done.head.metadata) == (
        "unsupported_by_catalog: ref late is left out: "
        f"snapshot {skipped.snapshot_id} is older than the catalog's last",
    )
    again = follow(ORDERS, layout(lake), catalog(double), STORE)
    assert (again.committed, again.head and again.head.version) == (False, 3)
    double.tables[PATH][1]["properties"]["theirs"] = "1"  # what is left out does not hide what others do
    with pytest.raises(PermanentError, match="foreign commit"):
        follow(ORDERS, layout(lake), catalog(double), STORE)


@pytest.mark.parametrize("fence", [True, False])
def test_without_the_fence_nothing_is_swapped_and_late_tags_are_left_out(
    lake: Lake, double: RestDouble, tmp_path: Path, fence: bool
) -> None:
    double.overwrite = 200
    place = tmp_path / "follower-of-rest.yaml"
    catalog = {"name": "cloud", "type": "rest", "uri": double.uri, "token": "${TOKEN}"}
    mirror = {"catalog": catalog, "location": f"file://{lake.mirror_folder}"}
    document = {"mirror": mirror, "defaults": {"fence": fence}, "tables": [{"name": str(ORDERS)}]}
    place.write_text(yaml.safe_dump(document), encoding="utf-8")
    app = App(load_config(place, env={"TOKEN": "token-1"}))
    app.follow(ORDERS)
    table = lake.source.load_table(str(ORDERS))
    table.append(rows(1, 10))
    skipped = table.current_snapshot()
    assert skipped is not None
    table.append(rows(1, 20))
    lake.mirror()
    app.follow(ORDERS)
    table.manage_snapshots().create_tag(skipped.snapshot_id, "late").commit()
    lake.mirror()
    done = app.follow(ORDERS)
    assert (done.version, done.committed) == (3, True)
    assert ("late" in double.tables[PATH][1]["refs"]) == fence
    assert [warning.partition(":")[0] for warning in done.warnings] == ([] if fence else ["unsupported_by_catalog"])


class Liar(RestCatalog):
    """Says yes, and keeps something else."""

    def commit(self, table: TableRef, expected: MirrorHead | None, new: Published) -> None:
        altered = {**new.metadata, "refs": {}, "current-snapshot-id": -1}
        super().commit(table, expected, Published(new.metadata_uri, altered))


def test_a_success_that_is_none_is_found_by_reading_back(lake: Lake, double: RestDouble) -> None:
    follow(ORDERS, layout(lake), catalog(double), STORE)
    append(lake)
    liar = Liar("cloud", {"uri": double.uri, "token": "token-1"})
    with pytest.raises(PermanentError, match="took the commit but shows other current snapshot"):
        follow(ORDERS, layout(lake), liar, STORE)


class Registrar(Files):
    """What a server keeps of the files that it registers, when it does not keep what stands in them."""

    def __init__(self, **instead: Any) -> None:
        super().__init__()
        self.instead = instead

    def __missing__(self, uri: str) -> Any:
        return {**super().__missing__(uri), **self.instead}


EMPTY = {"refs": {}, "current-snapshot-id": -1, "snapshots": [], "properties": {}}
REGISTERED = [
    ({"refs": {}, "current-snapshot-id": -1, "snapshots": []}, "current snapshot"),
    (EMPTY, "version"),
    ({"table-uuid": "5a1e7a2c-4a5b-4a1f-9d0e-0d6f2d8f1c11"}, "table uuid"),
]


@pytest.mark.parametrize(("instead", "other"), REGISTERED)
def test_a_server_that_registers_another_table_is_found_by_reading_back(
    lake: Lake, double: RestDouble, instead: dict[str, Any], other: str
) -> None:
    """It names our file as the head's, whatever it made of it."""
    double.files = Registrar(**instead)
    with pytest.raises(PermanentError, match=rf"took the commit but shows other {other}\b"):
        follow(ORDERS, layout(lake), catalog(double), STORE)
    with pytest.raises(PermanentError, match=f"foreign commit.*; other {other} "):
        follow(ORDERS, layout(lake), catalog(double), STORE)


class Altering(Files):
    """What a server keeps that takes a file as it is but for some fields, made from what stands in it."""

    def __init__(self, alter: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        super().__init__()
        self.alter = alter

    def __missing__(self, uri: str) -> Any:
        metadata = super().__missing__(uri)
        return {**metadata, **self.alter(metadata)}


def statistics(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    place = f"{metadata['location']}/metadata/theirs.stats"
    sizes = {"file-size-in-bytes": 1, "file-footer-size-in-bytes": 1, "blob-metadata": []}
    return [{"snapshot-id": metadata["current-snapshot-id"], "statistics-path": place, **sizes}]


def renamed(schema: dict[str, Any]) -> dict[str, Any]:
    first, *others = schema["fields"]
    return {**schema, "fields": [{**first, "name": f"{first['name']}_theirs"}, *others]}


def elsewhere(snapshot: dict[str, Any]) -> dict[str, Any]:
    return {**snapshot, "manifest-list": f"{snapshot['manifest-list']}.theirs"}


# By what is told: what a server makes of a table of two snapshots, schemas, specs and sort orders.
ALTERED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "table uuid": lambda metadata: {"table-uuid": "5a1e7a2c-4a5b-4a1f-9d0e-0d6f2d8f1c11"},
    "format version": lambda metadata: {"format-version": 1},
    "location": lambda metadata: {"location": f"{metadata['location']}/theirs"},
    "current snapshot": lambda metadata: {"current-snapshot-id": metadata["snapshots"][0]["snapshot-id"]},
    "refs": lambda metadata: {"refs": {"main": metadata["refs"]["main"]}},
    "snapshots": lambda metadata: {"snapshots": metadata["snapshots"][1:]},
    "schemas": lambda metadata: {"schemas": [renamed(schema) for schema in metadata["schemas"]]},
    "current schema": lambda metadata: {"current-schema-id": metadata["schemas"][0]["schema-id"]},
    "partition specs": lambda metadata: {"partition-specs": metadata["partition-specs"][1:]},
    "default partition spec": lambda metadata: {"default-spec-id": metadata["partition-specs"][0]["spec-id"]},
    "default sort order": lambda metadata: {"default-sort-order-id": 0},
    "statistics": lambda metadata: {"statistics": statistics(metadata)},
    "partition statistics": lambda metadata: {"partition-statistics": statistics(metadata)},
    "properties": lambda metadata: {"properties": {**metadata["properties"], "color": "blue"}},
    "manifest lists": lambda metadata: {"snapshots": [elsewhere(one) for one in metadata["snapshots"]]},
    "sort orders": lambda metadata: {"sort-orders": metadata["sort-orders"][:1]},
}


def test_there_is_an_altered_table_for_everything_that_is_compared() -> None:
    assert ALTERED.keys() >= _COMPARED.keys()


@pytest.mark.parametrize("other", ALTERED)
def test_a_server_that_alters_one_thing_is_found_by_reading_back(lake: Lake, double: RestDouble, other: str) -> None:
    """Told by the name of that thing alone, right after the commit and by whoever follows later."""
    table = lake.source.load_table(str(ORDERS))
    with table.update_spec() as spec:
        spec.add_identity("city")
    with table.update_schema() as schema:
        schema.add_column("note", StringType())
    with table.update_sort_order() as order:
        order.asc("id", IdentityTransform())
    table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "then").commit()
    append(lake)
    double.files = Altering(ALTERED[other])
    with pytest.raises(PermanentError, match=rf"took the commit but shows other {other}\b"):
        follow(ORDERS, layout(lake), catalog(double), STORE)
    head = head_of(catalog(double), STORE, layout(lake), ORDERS)
    assert head is not None
    assert (head.version, head.changed) == (None, (other,))
    with pytest.raises(PermanentError, match=rf"foreign commit.*; other {other}\b"):
        follow(ORDERS, layout(lake), catalog(double), STORE)


def lease(table: TableRef) -> AbstractContextManager[NoFence]:
    return nullcontext(NoFence())


def test_a_whole_swap_that_is_none_is_found_by_reading_back(lake: Lake, double: RestDouble) -> None:
    """A table made anew under the same schema id, by a server that overwrites with something else, or not at all."""
    double.overwrite = 200
    swapping = RestCatalog("cloud", {"uri": double.uri, "token": "token-1"}, with_lease=lease)
    follow(ORDERS, layout(lake), swapping, STORE)
    lake.source.drop_table(str(ORDERS))
    other = pa.table({"code": pa.array(["a"])})
    lake.source.create_table(str(ORDERS), other.schema).append(other)
    lake.mirror()
    double.files = Registrar(**EMPTY)
    with pytest.raises(PermanentError, match="took the commit but shows other version "):
        follow(ORDERS, layout(lake), swapping, STORE)
    assert double.asked[-2].endswith("/register")
    double.files = Files()
    double.tables[PATH] = (before := ("mem://server/1.metadata.json", double.files[file_of(lake, 1)]))
    double.keeps_head = True
    with pytest.raises(PermanentError, match=f"took the commit but shows the head that it had, {before[0]}"):
        follow(ORDERS, layout(lake), swapping, STORE)
    double.keeps_head = False
    assert (follow(ORDERS, layout(lake), swapping, STORE).committed, double.tables[PATH][0]) == (True, file_of(lake, 2))
