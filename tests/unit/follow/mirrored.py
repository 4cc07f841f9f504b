"""What tests of the follower ask of a lake: its folder, its catalog, its newest marker."""

from __future__ import annotations

from lakemirror import bridge
from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import Marker
from lakemirror.storage.objects import ObstoreStore
from tests.lake import ORDERS, Lake, rows

STORE = ObstoreStore({})


def layout(lake: Lake) -> TableLayout:
    return TableLayout.of(f"file://{lake.mirror_folder}", ORDERS)


def catalog(lake: Lake) -> SqlCatalog:
    uri = f"sqlite:///{lake.folder}/mirror.db"
    return SqlCatalog("cloud", {"uri": uri, "warehouse": f"file://{lake.mirror_folder}"}, may_be_new=True)


def newest(lake: Lake) -> Marker:
    version = bridge.published(STORE, layout(lake)).newest
    assert version is not None
    return bridge.read_ready(STORE, layout(lake), version)


def commit_again(lake: Lake) -> None:
    lake.source.load_table(str(ORDERS)).append(rows(1, 10))
    lake.mirror()
