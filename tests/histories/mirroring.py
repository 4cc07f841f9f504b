"""A history of a table made by hand: what the mirror does meanwhile, and what must hold."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from lakemirror.errors import PermanentError, SourceVanishedError
from lakemirror.replicate.stage import LocalEngine
from lakemirror.storage.port import ObjectStore
from lakemirror.storage.wrappers.fault import Action, Fault, FaultyStore, SimulatedCrash
from tests.duckdb_judge import DuckDbJudge, Limit
from tests.histories.actions import action, chosen
from tests.histories.comparison import Comparison
from tests.histories.places import PlaceChanges
from tests.histories.reader import Reader
from tests.histories.synthetic import Source
from tests.iceberg_files import EQUALITY_DELETES
from tests.lake import ORDERS, Lake

CRASHES = (Action.KILL, Action.KILL_MIDWAY, Action.KILL_AFTER)
UNREAD_BY_DUCKDB = (Limit.DELETE_FORMATS, Limit.V1_SNAPSHOTS, Limit.V1_MANIFESTS, Limit.CODECS)  # written by hand
UNREAD_BY_PYICEBERG = "snappy"  # for want of a package


class SyntheticHistory(PlaceChanges):
    """One table and its mirror in a folder."""

    def __init__(self, folder: Path, version: int, spelling: int, knobs: Mapping[str, int]) -> None:
        self.folder, self.warehouse = folder, folder / "warehouse"
        self.knobs = {"max_concurrency": 1, **knobs}
        super().__init__()
        self.configure()
        self.source = Source(folder / "source.db", self.warehouse / "shop" / "orders", version)
        self.source.spelling = spelling
        self.source.publish()
        self.comparison = Comparison(self.lake, Reader())

    def configure(self) -> None:
        self.lake = Lake(self.folder, defaults=self.knobs, roots=self.roots)
        self.lake.source.close()  # it opens again when it is asked

    # ------------------------------------------------------------------------------------------- what the mirror does

    @action(weight=10)
    def sync(self, a: int, b: int, c: int) -> None:
        self.mirror()
        self.lake.follow()
        self.compare()
        if c % 4 == 0:
            self.compare_by_pyiceberg()

    @action(weight=2)
    def mirror_without_a_follower(self, a: int, b: int, c: int) -> None:
        """What readers see stays as it is."""
        before = self.pointer("mirror.db")
        self.mirror()
        assert self.pointer("mirror.db") == before
        self.comparison.check_objects()

    @action(when=PlaceChanges.has_snapshot)
    def sync_to_a_snapshot(self, a: int, b: int, c: int) -> None:
        target = chosen([*self.source.snapshots], a)
        self.mirror(target)
        self.lake.follow()
        self.compare(target)

    @action(weight=4)
    def crash(self, a: int, b: int, c: int) -> None:
        """The run dies at a write, if it comes so far. Readers see what they saw; the next step may be anything."""
        before = self.pointer("mirror.db")
        fault = Fault("put", chosen(CRASHES, b), nth=1 + a % 24)

        def breaking(side: str, store: ObjectStore) -> ObjectStore:
            return FaultyStore(store, [fault] if side == "mirror" else [])

        try:
            self.note(self.lake.app(wrap_store=breaking).mirror(ORDERS, engine=LocalEngine(1)))
        except SimulatedCrash:
            assert self.pointer("mirror.db") == before
        except PermanentError as err:
            if not self.lacks_a_root(err):
                raise
            assert self.pointer("mirror.db") == before
        self.comparison.check_objects()
        if c % 2:
            self.lake.follow()

    @action(weight=2)
    def commit_between_detect_and_publish(self, a: int, b: int, c: int) -> None:
        """What was detected is published whole, or the run says that it vanished; never anything between."""
        app, before, old, forgets = self.lake.app(), self.pointer("mirror.db"), self.pointer("source.db"), c % 2 == 1
        try:
            detected = app.detect(ORDERS)
        except PermanentError as err:
            if not self.lacks_a_root(err):
                raise
            return
        self.source.commit("main", add=self.new_data(1 + a % 3, b), from_scratch=forgets)
        if forgets:
            self.source.expire(lambda number: False)
        self.source.publish()
        try:
            self.note(app.mirror(ORDERS, detected=detected, engine=LocalEngine(1)))
        except SourceVanishedError:
            assert forgets
            assert self.pointer("mirror.db") == before
            return
        except PermanentError as err:
            if not self.lacks_a_root(err):
                raise
            assert self.pointer("mirror.db") == before
            return
        self.lake.follow()
        if not forgets:
            self.compare(source_uri=old)

    # -------------------------------------------------------------------------------------------------- small words

    def mirror(self, target: int | None = None) -> None:
        """A new process's worth of state; what would go to Spark is done here.

        It may stop for want of a root that is away. With all of them it does not.
        """
        before = self.pointer("mirror.db")
        try:
            self.note(self.lake.app().mirror(ORDERS, engine=LocalEngine(1), target_snapshot_id=target))
        except PermanentError as err:
            if not self.lacks_a_root(err):
                raise
            assert self.pointer("mirror.db") == before
            self.mirror(target)

    def mirror_what_was_dropped(self) -> None:
        before = self.pointer("mirror.db")
        self.lake.app().mirror(ORDERS)
        assert self.pointer("mirror.db") == before

    def compare(self, head: int | None = None, source_uri: str | None = None) -> None:
        """Against the source as it is or was, with main at its head or at `head`."""
        ours, theirs = source_uri or self.pointer("source.db"), self.pointer("mirror.db")
        assert ours is not None
        assert theirs is not None
        places = {"": str(self.source.location)} | {name: str(place) for name, place in self.places.items()}
        self.comparison.check(ours, theirs, places, head)

    def compare_by_pyiceberg(self) -> bool:
        """Once more by a reader that we did not write, if it can read all that is live; says whether it can."""
        files = [one.file for one in self.source.live("main", None)]
        if UNREAD_BY_PYICEBERG in self.source.codecs("main"):
            return False
        if any(one.content == EQUALITY_DELETES or one.file_format not in ("PARQUET", "PUFFIN") for one in files):
            return False
        want = self.comparison.rows(str(self.pointer("source.db")))
        for rows in (self.lake.source_rows(), self.lake.mirror_rows()):
            assert [(row["id"], row["city"]) for row in rows] == want
        return True

    def end(self, duckdb: DuckDbJudge) -> None:
        """The last state, mirrored: all of it once more by engines that we did not write.

        DuckDB reads the head, every ref and every other snapshot that the mirror keeps. A head that none of the engines
        can read is counted; `tests/e2e/test_histories_by_hand.py` lets Spark read such tables.
        """
        self.sync(0, 0, 1)
        is_read = self.compare_by_pyiceberg()
        ours, theirs = str(self.pointer("source.db")), str(self.pointer("mirror.db"))
        rows, before = len(self.comparison.rows(ours)), duckdb.read
        found = duckdb.differences(ours, {theirs: {None: rows}}, UNREAD_BY_DUCKDB)
        duckdb.unjudged += not is_read and duckdb.read == before
        found += duckdb.differences(ours, {theirs: self.comparison.counts(ours, theirs)}, UNREAD_BY_DUCKDB)
        assert found == [], found

    def pointer(self, database: str) -> str | None:
        """What a catalog's row says, read without any Iceberg library."""
        path = self.folder / database
        if not path.exists():
            return None
        with closing(sqlite3.connect(path)) as connection:
            found = connection.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
        return str(found[0][0]) if found else None
