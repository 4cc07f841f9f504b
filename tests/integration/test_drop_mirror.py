"""Dropping a mirror: readers find nothing, followers do not bring it back, and a later version begins anew."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from lakemirror.catalogs.ports import MirrorHead
from lakemirror.cli.main import run
from lakemirror.errors import LostRaceError, PermanentError, TableBusyError
from lakemirror.follow.follower import follow
from lakemirror.model.table import TableRef
from lakemirror.storage.wrappers.fault import Action, Fault, FaultyStore, SimulatedCrash
from tests.integration.looking import check_whole
from tests.lake import ORDERS, Lake, rows

pytestmark = pytest.mark.integration


@pytest.fixture
def dropped(lake: Lake) -> Lake:
    """A mirror of two versions that was dropped."""
    orders = lake.create()
    for start in (0, 3):
        orders.append(rows(3, start))
        lake.sync()
    result = lake.follower().drop_mirror(ORDERS)
    assert (result.version, result.last_used) == (2, 2)
    return lake


def command(lake: Lake, *words: str) -> tuple[int, dict[str, Any]]:
    out, err = io.StringIO(), io.StringIO()
    code = run(["--config", str(lake.follower_config_path), "--json", *words], stdout=out, stderr=err)
    return code, json.loads(out.getvalue())


def test_readers_find_nothing_and_files_stay(lake: Lake) -> None:
    lake.create().append(rows(3))
    lake.sync()
    before = lake.mirror_objects()
    lake.follower().drop_mirror(ORDERS)
    assert lake.mirror_head() is None
    after = lake.mirror_objects()
    assert {name: after[name] for name in before} == before
    assert [*after.keys() - before.keys()] == ["shop/orders/_ready/v1.dropped.json"]
    assert (lake.follow().version, lake.mirror_head()) == (None, None)
    status = lake.app().status(ORDERS)
    assert (status.mirror_state, status.mirror_version, status.ready) == ("missing", None, ())


def test_dropping_it_again_changes_nothing(dropped: Lake) -> None:
    before = dropped.mirror_objects()
    result = dropped.follower().drop_mirror(ORDERS)
    assert (result.version, result.last_used) == (None, 2)
    assert dropped.mirror_objects() == before


def test_the_source_is_mirrored_again_under_the_next_ordinal(dropped: Lake) -> None:
    result = dropped.mirror()
    assert (result.version, result.copied_files, result.skipped_files) == (3, 0, 2)  # what is there is adopted
    marker = json.loads((dropped.mirror_folder / "shop/orders/_ready/v3.ready.json").read_text())
    assert (marker["parent"], marker["parent_checksum"]) == (None, None)
    followed = dropped.follow()
    assert (followed.version, followed.committed) == (3, True)
    assert dropped.mirror_rows() == dropped.source_rows()
    dropped.source.load_table(str(ORDERS)).append(rows(3, 6))
    assert dropped.sync().version == 4
    assert dropped.mirror_rows() == dropped.source_rows()
    check_whole(dropped)
    assert dropped.follower().drop_mirror(ORDERS).version == 4
    assert dropped.sync().version == 5


def test_a_source_that_is_gone_too_is_nothing_to_do(dropped: Lake) -> None:
    dropped.source.drop_table(str(ORDERS))
    result = dropped.mirror()
    assert (result.lane, result.version, result.reason) == (
        "none",
        None,
        "the source table was dropped, and its mirror too",
    )


def test_a_table_that_was_never_mirrored(lake: Lake) -> None:
    result = lake.follower().drop_mirror(ORDERS)
    assert (result.version, result.last_used) == (None, None)
    assert lake.mirror_objects() == {}


def test_what_somebody_else_wrote_is_not_dropped(lake: Lake) -> None:
    lake.create().append(rows(3))
    lake.sync()
    with lake.mirror_catalog() as theirs:
        theirs.load_table(str(ORDERS)).append(rows(1, 99))
    head = lake.mirror_head()
    with pytest.raises(PermanentError, match="was not published by Lakemirror"):
        lake.follower().drop_mirror(ORDERS)
    assert (lake.mirror_head(), lake.ready()) == (head, ["v1.ready.json"])


def test_not_while_a_run_is_at_work(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    orders.append(rows(3, 3))
    lake.app(owner="another run").detect(ORDERS)
    with pytest.raises(TableBusyError, match="another run works on this table"):
        lake.app().drop_mirror(ORDERS)
    assert lake.mirror_rows() != []


def test_cut_before_the_catalog_it_is_finished_by_the_next(lake: Lake) -> None:
    lake.create().append(rows(3))
    lake.sync()
    app = lake.app()
    catalog = app._ports.mirror_catalog

    def crash(*args: Any) -> None:
        raise SimulatedCrash

    catalog.drop = crash  # type: ignore[method-assign]
    with pytest.raises(SimulatedCrash):
        app.drop_mirror(ORDERS)
    assert lake.follow().committed is False
    assert len(lake.mirror_rows()) == 3  # readers see it until it is gone
    assert lake.app().drop_mirror(ORDERS).version == 1
    assert lake.mirror_head() is None


@pytest.mark.parametrize("nth", range(1, 4))
@pytest.mark.parametrize("action", [Action.KILL, Action.KILL_AFTER])
def test_cut_at_any_write(tmp_path: Path, nth: int, action: Action) -> None:
    lake = Lake(tmp_path)
    lake.create().append(rows(3))
    lake.sync()
    fault = Fault("put", action, nth=nth)
    with pytest.raises(SimulatedCrash):
        lake.app(wrap_store=lambda side, store: FaultyStore(store, [fault])).drop_mirror(ORDERS)
    lake.follow()
    lake.app().drop_mirror(ORDERS)
    assert lake.mirror_head() is None
    assert lake.sync().version == 2
    assert lake.mirror_rows() == lake.source_rows()


def test_a_follower_that_is_slower_than_the_drop(lake: Lake) -> None:
    """It read the marker before; its commit meets no table where it saw one."""
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    orders.append(rows(3, 3))
    lake.mirror()
    app = lake.app()
    ports = app._ports
    catalog = ports.mirror_catalog
    commit = catalog.commit

    def late(*args: Any) -> None:
        lake.app().drop_mirror(ORDERS)
        commit(*args)

    catalog.commit = late  # type: ignore[method-assign]
    with pytest.raises(LostRaceError):
        follow(ORDERS, ports.layout(ORDERS), catalog, ports.mirror_store)
    assert lake.mirror_head() is None
    assert lake.follow().committed is False


def test_a_follower_that_looks_at_the_catalog_after_the_drop(lake: Lake) -> None:
    """It listed the markers before: what was dropped is not registered again."""
    lake.create().append(rows(3))
    lake.sync()
    ports = lake.app()._ports
    catalog = ports.mirror_catalog
    load = catalog.load

    def late(table: TableRef) -> MirrorHead | None:
        lake.app().drop_mirror(ORDERS)
        return load(table)

    catalog.load = late  # type: ignore[method-assign]
    with pytest.raises(LostRaceError, match="v1 was dropped or demoted since this run has listed it"):
        follow(ORDERS, ports.layout(ORDERS), catalog, ports.mirror_store)
    assert lake.mirror_head() is None


def test_a_follower_that_found_no_table_before_another_registered_it(lake: Lake) -> None:
    """Nothing tells it before its own commit that the mirror was dropped since; it says so after that, as all do."""
    lake.create().append(rows(3))
    lake.mirror()
    ports = lake.app()._ports
    catalog = ports.mirror_catalog
    commit = catalog.commit

    def late(*args: Any) -> None:
        lake.follow()
        lake.app().drop_mirror(ORDERS)
        commit(*args)

    catalog.commit = late  # type: ignore[method-assign]
    outcome = follow(ORDERS, ports.layout(ORDERS), catalog, ports.mirror_store)
    (warning,) = outcome.warnings
    assert (outcome.committed, warning.partition(":")[0]) == (True, "dropped head")
    again = lake.follow()
    assert (again.committed, again.warnings) == (False, (warning,))
    status = lake.app().status(ORDERS)
    assert (status.is_behind, status.is_head_dropped, status.warnings) == (True, True, (warning,))
    lake.app().drop_mirror(ORDERS)
    assert (lake.mirror_head(), lake.follow().warnings) == (None, ())
    assert lake.sync().version == 2
    assert (lake.follow().warnings, lake.app().status(ORDERS).warnings) == ((), ())


def test_the_command(lake: Lake) -> None:
    lake.create().append(rows(3))
    lake.sync()
    code, told = command(lake, "drop-mirror", str(ORDERS))
    assert (code, told["error"]["kind"]) == (2, "usage")
    assert "--yes" in told["error"]["hint"]
    assert command(lake, "drop-mirror", "--all", "--yes")[0] == 2
    assert lake.mirror_head() is not None
    code, told = command(lake, "drop-mirror", str(ORDERS), "--yes")
    assert (code, told["table"], told["ok"], told["version"]) == (0, "shop.orders", True, 1)
    assert lake.mirror_head() is None
