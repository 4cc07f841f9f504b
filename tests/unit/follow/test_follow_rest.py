"""The follower over a catalog that keeps metadata in files of its own: ours is told by content, not by place."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lakemirror.catalogs.ports import MirrorHead, Published
from lakemirror.catalogs.rest import RestCatalog
from lakemirror.errors import LostRaceError, PermanentError
from lakemirror.follow.follower import follow, head_of
from lakemirror.formats.iceberg import metadata_json
from lakemirror.model.layout import TableLayout
from lakemirror.model.table import TableRef
from lakemirror.storage.objects import ObstoreStore
from tests.lake import ORDERS, Lake, path_of, rows
from tests.rest_double import RestDouble, rest_double

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


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.create().append(rows(3))
    lake.mirror()
    return lake


def layout(lake: Lake) -> TableLayout:
    return TableLayout.of(f"file://{lake.mirror_folder}", ORDERS)


def catalog(double: RestDouble) -> RestCatalog:
    return RestCatalog("cloud", {"uri": double.uri, "token": "token-1"})


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
    with pytest.raises(PermanentError, match=rf"foreign commit.*\(other {what}\)"):
        follow(ORDERS, layout(lake), catalog(double), STORE)
    adopted = follow(ORDERS, layout(lake), catalog(double), STORE, adopt=True)
    assert (adopted.committed, adopted.head and adopted.head.version) == (True, 3)
    assert "theirs" not in double.tables[PATH][1][what]


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
