"""Runs, followers and readers at the same time: one winner for each version, and nobody ever sees something between."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lakemirror import bridge
from lakemirror.app import App
from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.errors import LostRaceError, TransientError
from lakemirror.model.layout import TableLayout
from lakemirror.model.table import TableRef
from lakemirror.storage.wrappers.fault import Action, Fault, FaultyStore
from lakemirror.usecases.fencing import RunLease
from tests.iceberg_files import data_files, delete_positions
from tests.integration.looking import check_whole
from tests.lake import ORDERS, Lake, rows, uri

pytestmark = pytest.mark.integration


@pytest.fixture(params=[True, False], ids=["fence", "no-fence"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """Everything here holds with the fence switched off too."""
    made = Lake(tmp_path, defaults={"fence": request.param})
    made.has_fence, made.owner = request.param, None
    return made


def at_once(runs: list[Callable[[], Any]]) -> list[Any]:
    """The results of all, or the errors that they ended in; all start together."""
    start = threading.Barrier(len(runs))

    def run(one: Callable[[], Any]) -> Any:
        start.wait(20)
        try:
            return one()
        except TransientError as err:
            return err

    with ThreadPoolExecutor(len(runs)) as pool:
        return list(pool.map(run, runs))


def in_step(lake: Lake) -> None:
    lake.sync()
    assert lake.mirror_rows() == lake.source_rows()
    check_whole(lake)


@pytest.mark.parametrize("mirrored_before", [False, True])
def test_two_runs_of_one_head_publish_it_once(lake: Lake, mirrored_before: bool) -> None:
    orders = lake.create()
    orders.append(rows(3))
    if mirrored_before:
        lake.sync()
    for number in range(3):
        orders.refresh().append(rows(3, 10 * number))
    delete_positions(orders, [(data_files(orders)[0], 0)])
    version = 2 if mirrored_before else 1
    outcomes = at_once([lake.mirror] * 4)
    versions = [one.version for one in outcomes if not isinstance(one, Exception)]
    assert versions
    assert set(versions) == {version}
    assert all(isinstance(one, LostRaceError) for one in outcomes if isinstance(one, Exception))
    assert lake.ready()[-1] == f"v{version}.ready.json"
    in_step(lake)


def test_a_run_that_slept_after_asking_the_source_does_not_bring_an_older_state_back(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = lake.create()
    orders.append(rows(3))
    slow, ask = lake.app(), SqlCatalog.head

    def slept(self: SqlCatalog, table: TableRef) -> str | None:
        found = ask(self, table)
        monkeypatch.undo()
        orders.append(rows(3, 3))
        lake.mirror()
        return found

    monkeypatch.setattr(SqlCatalog, "head", slept)
    with pytest.raises(LostRaceError):
        slow.mirror(ORDERS)
    assert lake.ready() == ["v1.ready.json"]
    in_step(lake)


def test_a_run_that_slept_before_it_took_its_lease_tells_of_no_version_that_was_demoted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = lake.create()
    orders.append(rows(3))
    slow, take = lake.app(), RunLease.take

    def slept(self: RunLease, plan_id: str) -> None:
        monkeypatch.undo()
        orders.append(rows(3, 3))
        lake.mirror()
        bridge.demote(slow.mirror_store, TableLayout.of(uri(lake.mirror_folder), ORDERS), 1, lambda: None)
        take(self, plan_id)

    monkeypatch.setattr(RunLease, "take", slept)
    with pytest.raises(LostRaceError, match="published and demoted"):
        slow.mirror(ORDERS)
    in_step(lake)
    assert lake.app().newest_ready_version(ORDERS) == 2


def test_a_run_planned_on_a_version_that_is_demoted_passes_its_damage_on_to_nobody(lake: Lake) -> None:
    """A file of v2 is lost, and v2 demoted, while a run that builds on it is under way: v3 would lack it, too."""
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    before = {*(lake.mirror_folder / ORDERS.folder / "data").rglob("*.parquet")}
    orders.append(rows(3, 10))
    lake.mirror()
    (lost,) = {*(lake.mirror_folder / ORDERS.folder / "data").rglob("*.parquet")} - before
    orders.append(rows(3, 20))
    layout, app = TableLayout.of(uri(lake.mirror_folder), ORDERS), lake.app(owner="a run that is slow")
    under_way = app.detect(ORDERS)
    lost.unlink()
    bridge.demote(app.mirror_store, layout, 2, lambda: app.mirror_version(ORDERS))
    with pytest.raises(LostRaceError, match="v2, which it builds on, was demoted"):
        app.mirror(ORDERS, detected=under_way)
    assert lake.follow().version == 1
    found = bridge.published(app.mirror_store, layout)
    assert (found.ready, found.gone) == ((1,), {2, 3})
    in_step(lake)
    assert bridge.read_ready(app.mirror_store, layout, 4).parent == 1
    assert bridge.read_ready(app.mirror_store, layout, 4).demoted == (2, 3)


def test_of_two_runs_at_different_heads_one_publishes_and_the_other_stops(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    early, late = lake.app(owner="run"), lake.app(owner="run")
    first = early.detect(ORDERS)
    orders.append(rows(3, 3))
    second = late.detect(ORDERS)
    assert (first.version, second.version) == (1, 1)
    winner = late.mirror(ORDERS, detected=second)
    why = "run took it over" if lake.has_fence else "another run published this version first"
    with pytest.raises(LostRaceError, match=why) as caught:
        early.mirror(ORDERS, detected=first)
    assert (caught.value.exit_code, lake.ready()) == (5, ["v1.ready.json"])
    lake.follow()
    assert lake.mirror_rows() == lake.source_rows()
    assert lake.mirror().version == winner.version
    orders.append(rows(3, 6))
    in_step(lake)


def test_a_stale_listing_publishes_nothing_wrong(lake: Lake) -> None:
    """The listing of `_ready` shows the version before; create-only names the winner."""
    orders = lake.create()
    orders.append(rows(3))
    stores: list[FaultyStore] = []

    def stale(side: str, store: Any) -> Any:
        # the one after publishing and the next; where there is no lease yet, taking it looks for tokens there as well
        numbers = (3, 4) if lake.has_fence else (2, 3)
        faults = [Fault("list", Action.STALE_LIST, nth=number, uri_contains="_ready") for number in numbers]
        stores.append(made := FaultyStore(store, faults))
        return made if side == "mirror" else store

    app = lake.app(wrap_store=stale)
    app.mirror(ORDERS)  # its listing is empty; the second run is shown the same one again
    orders.append(rows(3, 3))
    with pytest.raises(LostRaceError):
        app.mirror(ORDERS)
    assert any(one.met for one in stores)
    assert lake.ready() == ["v1.ready.json"]
    lake.follow()
    assert len(lake.mirror_rows()) == 3
    in_step(lake)


def test_a_stale_listing_of_the_same_head_is_the_same_version(lake: Lake) -> None:
    lake.create().append(rows(3))
    fault = Fault("list", Action.STALE_LIST, nth=4 if lake.has_fence else 3, uri_contains="_ready")
    app = lake.app(wrap_store=lambda side, store: FaultyStore(store, [fault] if side == "mirror" else []))
    first = app.mirror(ORDERS)
    again = app.mirror(ORDERS)
    assert (again.version, again.copied_files, lake.ready()) == (first.version, 0, ["v1.ready.json"])
    in_step(lake)


def test_a_follower_with_a_stale_listing_does_not_go_back(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    lake.sync()
    fault = Fault("list", Action.STALE_LIST, nth=2, uri_contains="_ready")
    follower = lake.follower(wrap_store=lambda side, store: FaultyStore(store, [fault]))
    follower.follow(ORDERS)
    orders.append(rows(3, 3))
    lake.sync()
    result = follower.follow(ORDERS)
    assert (result.version, result.committed) == (2, False)
    assert lake.mirror_rows() == lake.source_rows()


def _mirror(path: str, outcomes: multiprocessing.Queue[str]) -> None:
    try:
        with App.load(path) as app:
            outcomes.put(f"v{app.mirror(ORDERS).version}")
            app.follow(ORDERS)
    except TransientError as err:
        outcomes.put(type(err).__name__)


def test_processes_that_mirror_and_follow_at_once(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(3))
    orders.append(rows(3, 3))
    context = multiprocessing.get_context("fork")
    outcomes: multiprocessing.Queue[str] = context.Queue()
    racers = [context.Process(target=_mirror, args=(str(lake.config_path), outcomes)) for _ in range(3)]
    for racer in racers:
        racer.start()
    told = {outcomes.get(timeout=60) for _ in racers}
    for racer in racers:
        racer.join(60)
    assert "v1" in told
    assert told <= {"v1", "LostRaceError", "TableBusyError"}
    assert lake.ready() == ["v1.ready.json"]
    in_step(lake)


def test_readers_see_whole_versions_while_the_mirror_moves(lake: Lake) -> None:
    orders = lake.create()
    orders.append(rows(2))
    lake.sync()
    whole = [lake.source_rows()]
    seen: list[list[dict[str, Any]]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(lake.mirror_rows())

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            for number in range(1, 6):
                orders.refresh().append(rows(2, 10 * number))
                delete_positions(orders, [(data_files(orders)[-1], 0)])
                whole.append(lake.source_rows())
                at_once([lake.sync, lake.follow])
                lake.sync()
        finally:
            done.set()
        reader.result(30)
    assert len(seen) > 2
    assert all(one in whole for one in seen)
    assert lake.mirror_rows() == whole[-1]
