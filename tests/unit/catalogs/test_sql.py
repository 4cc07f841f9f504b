"""The SQL catalog: pointers are read in one statement and moved by one winner; nothing is written on the source."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog as PyicebergCatalog
from sqlalchemy import event
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import make_url

from lakemirror.catalogs.open import open_mirror, open_source
from lakemirror.catalogs.ports import MirrorHead
from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.catalogs.sql_engine import bounded_engine
from lakemirror.config.sections import CatalogConfig
from lakemirror.errors import LakemirrorError, LostRaceError, PermanentError, TransientError, UsageError
from lakemirror.model.table import TableRef
from tests.lake import SCHEMA

T = TableRef.parse("shop.orders")
NESTED = TableRef.parse("a.b.orders")


def mirror(folder: Path, query: str = "") -> SqlCatalog:
    return SqlCatalog("cloud", {"uri": f"sqlite:///{folder}/m.db{query}"}, may_be_new=True)


def source(folder: Path, query: str = "") -> SqlCatalog:
    return SqlCatalog("cloud", {"uri": f"sqlite:///{folder}/m.db{query}"})


def test_missing_database_of_a_source_is_an_error_and_stays_missing(tmp_path: Path) -> None:
    for ask in (lambda: source(tmp_path).head(T), lambda: source(tmp_path).tables()):
        with pytest.raises(PermanentError, match="its database file does not exist"):
            ask()
    assert list(tmp_path.iterdir()) == []


def test_missing_database_of_a_mirror_is_an_empty_catalog_made_by_the_first_register(tmp_path: Path) -> None:
    catalog = mirror(tmp_path / "deep" / "er")
    assert (catalog.head(T), catalog.tables()) == (None, ())
    assert list(tmp_path.iterdir()) == []
    catalog.register(T, "gs://m/1.json")
    assert (catalog.head(T), catalog.tables()) == ("gs://m/1.json", (T,))


def test_tables_that_another_process_makes_while_they_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the query that misses them and the look whether there is a catalog at all."""
    sqlite3.connect(tmp_path / "m.db").execute("CREATE TABLE other (x)").connection.close()

    def made_meanwhile(dialect: SQLiteDialect_pysqlite, connection: Any, name: str, *more: Any, **options: Any) -> bool:
        monkeypatch.undo()
        mirror(tmp_path).register(T, "gs://m/1.json")
        return True

    monkeypatch.setattr(SQLiteDialect_pysqlite, "has_table", made_meanwhile)
    assert mirror(tmp_path).head(T) == "gs://m/1.json"


def test_database_without_catalog_tables(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "m.db").execute("CREATE TABLE other (x)").connection.close()
    with pytest.raises(PermanentError, match="has no Iceberg tables"):
        source(tmp_path).head(T)
    catalog = mirror(tmp_path)
    assert catalog.head(T) is None
    catalog.register(T, "gs://m/1.json")
    assert catalog.head(T) == "gs://m/1.json"


def test_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "m.db").write_bytes(b"this is not SQLite" * 100)
    asks: list[Callable[[], object]] = [
        source(tmp_path).tables,
        lambda: source(tmp_path).head(T),
        lambda: mirror(tmp_path).head(T),
        lambda: mirror(tmp_path).register(T, "x"),
        lambda: mirror(tmp_path).swap(T, "x", "y"),
    ]
    for ask in asks:
        with pytest.raises(LakemirrorError, match="file is not a database"):
            ask()


def test_locked_database_is_transient(tmp_path: Path) -> None:
    mirror(tmp_path).register(T, "gs://m/1.json")
    holder = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    asks: list[Callable[[], object]] = [
        lambda: mirror(tmp_path, "?timeout=0.05").head(T),
        lambda: mirror(tmp_path, "?timeout=0.05").swap(T, "gs://m/1.json", "gs://m/2.json"),
        lambda: mirror(tmp_path, "?timeout=0.05").register(NESTED, "gs://m/2.json"),
    ]
    for ask in asks:
        with pytest.raises(TransientError, match="locked"):
            ask()
    holder.execute("ROLLBACK")
    holder.close()
    assert mirror(tmp_path).head(T) == "gs://m/1.json"


class _ReadOnlyError(sqlite3.OperationalError):
    sqlite_errorcode = sqlite3.SQLITE_READONLY


def test_database_that_may_not_be_written_is_permanent(tmp_path: Path) -> None:
    mirror(tmp_path).register(T, "gs://m/1.json")
    catalog = mirror(tmp_path)
    catalog._engine = bounded_engine(make_url(f"sqlite:///file:{tmp_path}/m.db?mode=ro&uri=true"))
    asks: list[Callable[[], object]] = [
        lambda: catalog.swap(T, "gs://m/1.json", "gs://m/2.json"),
        lambda: catalog.drop(T, MirrorHead("gs://m/1.json")),
    ]
    for ask in asks:
        with pytest.raises(PermanentError, match=r"readonly database.*make its file and folder writable"):
            ask()
    assert catalog.head(T) == "gs://m/1.json"


def test_database_file_that_was_put_in_anothers_place_is_transient(tmp_path: Path) -> None:
    """Whoever opens it anew has the new one."""
    catalog = mirror(tmp_path)
    catalog.register(T, "gs://m/1.json")
    catalog.head(T)
    (tmp_path / "copy.db").write_bytes((tmp_path / "m.db").read_bytes())
    (tmp_path / "copy.db").replace(tmp_path / "m.db")
    with pytest.raises(TransientError, match="readonly database"):
        catalog.swap(T, "gs://m/1.json", "gs://m/2.json")
    mirror(tmp_path).swap(T, "gs://m/1.json", "gs://m/2.json")


def test_head_is_one_statement(tmp_path: Path) -> None:
    mirror(tmp_path).register(T, "gs://m/1.json")
    catalog = source(tmp_path)
    catalog.head(T)
    statements: list[str] = []
    event.listen(catalog._engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    assert catalog.head(T) == "gs://m/1.json"
    assert len(statements) == 1


def test_swap_needs_the_expected_head(tmp_path: Path) -> None:
    catalog = mirror(tmp_path)
    catalog.register(T, "gs://m/1.json")
    catalog.swap(T, "gs://m/1.json", "gs://m/2.json")
    with pytest.raises(LostRaceError, match=r"head moved \(want gs://m/1.json, got gs://m/2.json\)") as caught:
        catalog.swap(T, "gs://m/1.json", "gs://m/3.json")
    assert caught.value.exit_code == 5
    assert catalog.head(T) == "gs://m/2.json"


def test_swap_of_a_table_that_is_not_there(tmp_path: Path) -> None:
    catalog = mirror(tmp_path)
    catalog.register(T, "gs://m/1.json")
    with pytest.raises(LostRaceError, match="got None"):
        catalog.swap(NESTED, "gs://m/1.json", "gs://m/3.json")


def test_register_twice_is_a_lost_race(tmp_path: Path) -> None:
    catalog = mirror(tmp_path)
    catalog.register(T, "gs://m/1.json")
    with pytest.raises(LostRaceError, match="somebody registered it first"):
        catalog.register(T, "gs://m/2.json")
    assert catalog.head(T) == "gs://m/1.json"


def test_names_with_dots_and_quotes_are_kept_apart(tmp_path: Path) -> None:
    catalog = mirror(tmp_path)
    tables = [TableRef.parse(name) for name in ("a.b.c", "a.b'; --", "a.bc", "ü.x y", "ab.c")]
    for number, table in enumerate(tables):
        catalog.register(table, f"gs://m/{number}")
    assert [catalog.head(table) for table in tables] == [f"gs://m/{number}" for number in range(len(tables))]
    assert catalog.tables() == tuple(sorted(tables, key=lambda t: (".".join(t.namespace), t.name)))


def test_catalogs_of_one_database_do_not_see_each_other(tmp_path: Path) -> None:
    mirror(tmp_path).register(T, "gs://m/1.json")
    other = SqlCatalog("other", {"uri": f"sqlite:///{tmp_path}/m.db"}, may_be_new=True)
    assert (other.head(T), other.tables()) == (None, ())


def test_pyiceberg_reads_what_was_registered_and_the_other_way_round(tmp_path: Path) -> None:
    theirs = PyicebergCatalog("cloud", uri=f"sqlite:///{tmp_path}/m.db", warehouse=f"file://{tmp_path}/wh")
    theirs.create_namespace("shop")
    table = theirs.create_table("shop.orders", SCHEMA)
    assert source(tmp_path).head(T) == table.metadata_location
    mirror(tmp_path).register(NESTED, table.metadata_location)
    assert theirs.load_table("a.b.orders").metadata_location == table.metadata_location
    theirs.close()


def test_threads_that_register_at_once_on_a_new_database_have_one_winner(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def register(number: int) -> str:
        start.wait(10)
        try:
            mirror(tmp_path).register(T, f"gs://m/{number}")
        except (LostRaceError, TransientError):
            return "lost"
        return f"gs://m/{number}"

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(register, range(8)))
    winners = [one for one in outcomes if one != "lost"]
    assert winners == [mirror(tmp_path).head(T)]


def _swap(folder: Path, number: int, outcomes: multiprocessing.Queue[str]) -> None:
    try:
        mirror(folder, "?timeout=20").swap(T, "gs://m/0", f"gs://m/{number}")
        outcomes.put(f"gs://m/{number}")
    except LostRaceError:
        outcomes.put("lost")


def test_processes_that_swap_at_once_have_one_winner(tmp_path: Path) -> None:
    mirror(tmp_path).register(T, "gs://m/0")
    context = multiprocessing.get_context("fork")
    outcomes: multiprocessing.Queue[str] = context.Queue()
    racers = [context.Process(target=_swap, args=(tmp_path, number, outcomes)) for number in (1, 2, 3)]
    for racer in racers:
        racer.start()
    told = sorted(outcomes.get(timeout=30) for _ in racers)
    for racer in racers:
        racer.join(30)
    assert told[1:] == ["lost", "lost"]
    assert told[0] == mirror(tmp_path).head(T)


class TestADatabaseThatGoesSilent:
    """Before or after it has done what it was told: where the pointer is then decides."""

    @pytest.fixture
    def opened(self, tmp_path: Path) -> SqlCatalog:
        opened = mirror(tmp_path)
        opened.register(T, "gs://m/0")
        return opened

    def silent(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        done: bool,
        meanwhile: Callable[[], None] = lambda: None,
        kind: type[sqlite3.Error] = sqlite3.OperationalError,
    ) -> None:
        """The next commit of a transaction of ours ends in silence."""
        real = SQLiteDialect_pysqlite.do_commit

        def commit(dialect: Any, connection: Any) -> None:
            monkeypatch.setattr(SQLiteDialect_pysqlite, "do_commit", real)
            if done:
                real(dialect, connection)
            else:
                connection.rollback()
            meanwhile()
            raise kind("server closed the connection unexpectedly")

        monkeypatch.setattr(SQLiteDialect_pysqlite, "do_commit", commit)

    @pytest.mark.parametrize(
        "kind",
        [
            sqlite3.OperationalError,
            sqlite3.DatabaseError,
            sqlite3.InterfaceError,
            sqlite3.InternalError,
            _ReadOnlyError,
        ],
    )
    def test_done(self, opened: SqlCatalog, monkeypatch: pytest.MonkeyPatch, kind: type[sqlite3.Error]) -> None:
        """Drivers have several names for a line that was cut."""
        self.silent(monkeypatch, done=True, kind=kind)
        opened.swap(T, "gs://m/0", "gs://m/1")
        assert opened.head(T) == "gs://m/1"
        self.silent(monkeypatch, done=True, kind=kind)
        opened.register(TableRef.parse("shop.lines"), "gs://m/5")

    def test_said_no_and_not_done(self, opened: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is permanent as it was, and tells that nothing was changed."""
        self.silent(monkeypatch, done=False, kind=sqlite3.InternalError)
        with pytest.raises(PermanentError, match="the head is as before"):
            opened.swap(T, "gs://m/0", "gs://m/1")
        assert opened.head(T) == "gs://m/0"

    def test_and_cannot_be_read_back(self, opened: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is wrong then tells whether it may pass."""

        def away(table: TableRef) -> str:
            raise TransientError("read head", str(table), "away", "run again")

        self.silent(monkeypatch, done=True, kind=sqlite3.InternalError)
        monkeypatch.setattr(opened, "head", away)
        with pytest.raises(TransientError, match=r"closed the connection.*cannot be read back now \(away\)"):
            opened.swap(T, "gs://m/0", "gs://m/1")

    def test_not_done(self, opened: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
        self.silent(monkeypatch, done=False)
        with pytest.raises(TransientError, match="the head is as before") as caught:
            opened.swap(T, "gs://m/0", "gs://m/1")
        assert not isinstance(caught.value, LostRaceError)
        assert opened.head(T) == "gs://m/0"

    def test_overtaken(self, opened: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        other = mirror(tmp_path)
        self.silent(monkeypatch, done=False, meanwhile=lambda: other.swap(T, "gs://m/0", "gs://m/2"))
        with pytest.raises(LostRaceError, match="got gs://m/2"):
            opened.swap(T, "gs://m/0", "gs://m/1")


def test_drop_compares_in_one_step(tmp_path: Path) -> None:
    opened = mirror(tmp_path)
    opened.register(T, "gs://m/0")
    with pytest.raises(LostRaceError, match="want gs://m/1, got gs://m/0"):
        opened.drop(T, MirrorHead("gs://m/1"))
    opened.drop(T, MirrorHead("gs://m/0"))
    assert opened.head(T) is None
    opened.drop(T, MirrorHead("gs://m/0"))


def test_repr_shows_no_secret() -> None:
    properties = {"uri": "postgresql://u:secret@h/d"}  # pragma: allowlist secret
    assert repr(SqlCatalog("cloud", properties)) == "SqlCatalog('cloud')"


def test_open_by_type(tmp_path: Path) -> None:
    config = CatalogConfig.model_validate({"name": "c", "type": "sql", "uri": f"sqlite:///{tmp_path}/m.db"})
    assert open_mirror(config).load(T) is None
    with pytest.raises(PermanentError):
        open_source(config).head(T)
    with pytest.raises(UsageError, match="is missing"):
        open_mirror(CatalogConfig.model_validate({"name": "c", "type": "blms"}))
    with pytest.raises(UsageError, match="type blms is not in this version"):
        open_source(CatalogConfig.model_validate({"name": "c", "type": "blms"}))
    with pytest.raises(UsageError, match="type dlf is not in this version"):
        open_source(CatalogConfig.model_validate({"name": "c", "type": "dlf"}))
