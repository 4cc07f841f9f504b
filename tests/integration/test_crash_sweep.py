"""Kill a run before, in and after each of its writes: readers see old or new, the next run ends in the same bytes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.types import StringType

from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.follow.follower import follow
from lakemirror.model.layout import TableLayout
from lakemirror.model.table import TableRef
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectStore
from lakemirror.storage.wrappers.fault import Action, Fault, FaultyStore, SimulatedCrash
from tests.iceberg_files import data_files, delete_positions
from tests.integration.looking import check_whole, stable_objects
from tests.lake import ORDERS, Lake, rows
from tests.stores import Recorder

pytestmark = pytest.mark.integration

STEP_BY_STEP = {"max_concurrency": 1, "bin_files": 1, "ledger_flush_files": 1}


def commit_much(lake: Lake) -> None:
    """Data, position deletes and a schema change."""
    orders = lake.source.load_table(str(ORDERS))
    orders.append(rows(3, 100))
    orders.append(rows(3, 200, "Chur"))
    delete_positions(orders, [(data_files(orders)[-1], 1), (data_files(orders)[0], 0)])
    with orders.refresh().update_schema() as schema:
        schema.add_column("note", StringType())


@dataclass
class Stage:
    """A lake with a step to be made, which can be set back to the moment before that step."""

    lake: Lake
    old: list[dict[str, Any]] | None
    new: list[dict[str, Any]] = field(default_factory=list)
    want: dict[str, bytes] = field(default_factory=dict)
    writes: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.new = self.lake.source_rows()
        self._keep = self.lake.folder / "kept"
        self._keep.mkdir()
        for name in ("mirror", "mirror.db"):
            if (self.lake.folder / name).exists():
                _copy(self.lake.folder / name, self._keep / name)
        recorder = Recorder()
        self.lake.app(wrap_store=recorder.wrap).mirror(ORDERS)
        self.lake.follow()
        self.want = stable_objects(self.lake)
        self.writes = [(verb, uri) for side, verb, uri in recorder.calls if verb in ("put", "delete", "copy")]
        assert self.lake.mirror_rows() == self.new
        check_whole(self.lake)

    def set_back(self) -> None:
        for name in ("mirror", "mirror.db"):
            path = self.lake.folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            if (self._keep / name).exists():
                _copy(self._keep / name, path)

    def reader_sees(self) -> list[dict[str, Any]] | None:
        """The rows that a reader of the mirror gets right now; None if there is no table yet."""
        return None if self.lake.mirror_head() is None else self.lake.mirror_rows()

    def survives(self, fault: Fault) -> int:
        """One crash, all that must hold after it, and the run that comes next; how much the ledger spared it."""
        self.set_back()
        faults: list[FaultyStore] = []

        def breaking(side: str, store: ObjectStore) -> ObjectStore:
            faults.append(made := FaultyStore(store, [fault] if side == "mirror" else []))
            return made

        with pytest.raises(SimulatedCrash):
            self.lake.app(wrap_store=breaking).mirror(ORDERS)
        assert [met for one in faults for met in one.met] == [fault]
        assert self.reader_sees() == self.old
        self.lake.follow()
        assert self.reader_sees() in (self.old, self.new)
        done = ledger_of(self.lake)
        recorder = Recorder()
        self.lake.app(wrap_store=recorder.wrap).mirror(ORDERS)
        self.lake.follow()
        assert self.reader_sees() == self.new
        assert stable_objects(self.lake) == self.want
        assert done.isdisjoint({*recorder.uris("source", "get", "stream"), *recorder.uris("mirror", "put")})
        return len(done)


def _copy(path: Path, to: Path) -> None:
    shutil.copytree(path, to) if path.is_dir() else shutil.copy(path, to)


def ledger_of(lake: Lake) -> set[str]:
    """The files that ledgers say are copied, by their places on both sides."""
    parts = (lake.mirror_folder / "shop/orders/_ledger").glob("*/copy-*/part-*.parquet")
    tables = [pq.read_table(part) for part in parts]
    return {uri for table in tables for side in ("source", "target") for uri in table[side].to_pylist()}


@pytest.fixture(params=["first version", "next version"])
def stage(tmp_path: Path, request: pytest.FixtureRequest) -> Stage:
    lake = Lake(tmp_path, defaults=STEP_BY_STEP)
    orders = lake.create()
    orders.append(rows(3))
    old = None
    if request.param == "next version":
        delete_positions(orders, [(data_files(orders)[0], 2)])
        lake.sync()
        old = lake.mirror_rows()
    commit_much(lake)
    return Stage(lake, old)


def faults_of(stage: Stage, *actions: Action) -> list[Fault]:
    """Each action at each write of the step; a body can break midway only where it is streamed.

    A table that was announced before is not written to `_tables` again: there is nothing to crash after.
    """
    seen = {"put": 0, "delete": 0, "copy": 0}
    made = []
    for verb, uri in stage.writes:
        seen[verb] += 1
        if "/_tables/" in uri and stage.old is not None:
            continue
        is_streamed = verb == "put" and "/data/" in uri
        for action in actions:
            if action is not Action.KILL_MIDWAY or is_streamed:
                made.append(Fault(verb, action, nth=seen[verb]))  # type: ignore[arg-type]
    return made


def test_a_crash_at_every_write(stage: Stage) -> None:
    actions = (Action.KILL_AFTER,) if stage.old is None else (Action.KILL, Action.KILL_MIDWAY, Action.KILL_AFTER)
    assert len(stage.writes) > 15
    spared = [stage.survives(fault) for fault in faults_of(stage, *actions)]
    assert any(spared)


@pytest.mark.parametrize("stage", ["next version"], indirect=True)
def test_a_failure_at_every_write_is_tried_again_and_leaves_no_trace(stage: Stage) -> None:
    for fault in faults_of(stage, Action.FAIL_AFTER):
        stage.set_back()
        breaking = _breaking([fault])
        stage.lake.app(wrap_store=breaking).mirror(ORDERS)
        stage.lake.follow()
        assert stage.reader_sees() == stage.new
        assert stable_objects(stage.lake) == stage.want


def _breaking(faults: list[Fault]) -> Callable[[str, ObjectStore], ObjectStore]:
    return lambda side, store: FaultyStore(store, faults if side == "mirror" else [])


class CrashingCatalog(SqlCatalog):
    """Dies before or after the pointer moves."""

    def __init__(self, lake: Lake, *, after: bool) -> None:
        properties = {"uri": f"sqlite:///{lake.folder}/mirror.db", "warehouse": f"file://{lake.mirror_folder}"}
        super().__init__("cloud", properties, may_be_new=True)
        self._after = after

    def register(self, table: TableRef, metadata_uri: str) -> None:
        if self._after:
            super().register(table, metadata_uri)
        raise SimulatedCrash("register")

    def swap(self, table: TableRef, expected: str, metadata_uri: str) -> None:
        if self._after:
            super().swap(table, expected, metadata_uri)
        raise SimulatedCrash("swap")


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_the_commit(stage: Stage, after: bool) -> None:
    stage.set_back()
    lake = stage.lake
    lake.mirror()
    layout = TableLayout.of(f"file://{lake.mirror_folder}", ORDERS)
    with pytest.raises(SimulatedCrash):
        follow(ORDERS, layout, CrashingCatalog(lake, after=after), ObstoreStore({}))
    assert stage.reader_sees() == (stage.new if after else stage.old)
    assert lake.follow().committed is not after
    assert stage.reader_sees() == stage.new
    assert stable_objects(lake) == stage.want
