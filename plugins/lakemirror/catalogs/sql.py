"""The Iceberg SQL catalog (SQLite, PostgreSQL): pointers read and moved by single statements.

The tables are those of pyiceberg's SqlCatalog and Iceberg's JdbcCatalog; pyiceberg makes them where they are missing.
On the source side nothing is ever written, not even an empty database file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakemirror.catalogs.abilities import CatalogAbilities, CatalogDemands
from lakemirror.catalogs.ports import MirrorHead, Published
from lakemirror.catalogs.sql_engine import bounded_engine, bounded_uri, bounded_url, cleaned
from lakemirror.errors import LostRaceError, PermanentError, TransientError
from lakemirror.model.table import TableRef

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.exc import DBAPIError

ATTEMPTS = 5
_PRIMARY_CODE = 0xFF  # of SQLite's codes; the bits above tell details
_WHERE = "catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name"
_HEAD = f"SELECT metadata_location FROM iceberg_tables WHERE {_WHERE}"
_SWAP = (
    "UPDATE iceberg_tables SET metadata_location = :new, previous_metadata_location = :old "
    f"WHERE {_WHERE} AND metadata_location = :old"
)
_DROP = f"DELETE FROM iceberg_tables WHERE {_WHERE} AND metadata_location = :old"
_REGISTER = (
    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
    "VALUES (:catalog, :namespace, :name, :new)"
)
_LIST = "SELECT * FROM iceberg_tables WHERE catalog_name = :catalog ORDER BY table_namespace, table_name"


def _lacked_tables(err: TransientError | PermanentError) -> bool:
    return "iceberg_tables" in str(getattr(err.__cause__, "orig", ""))


class _NoCatalogYetError(PermanentError):
    """The database has no catalog tables, or there is no database."""


class SqlCatalog:
    """Both ports over one database; `name` is the catalog name inside it.

    A mirror `may_be_new`: a database without catalog tables is then an empty catalog, made by the first register.
    """

    def __init__(self, name: str, properties: Mapping[str, str], *, may_be_new: bool = False) -> None:
        self._name = name
        self._may_be_new = may_be_new
        self._properties = dict(properties)
        self._engine: Engine | None = None

    def __repr__(self) -> str:
        return f"SqlCatalog({self._name!r})"

    def head(self, table: TableRef) -> str | None:
        rows = self._select("read head", str(table), _HEAD, self._key(table))
        return str(rows[0][0]) if rows else None

    def tables(self) -> tuple[TableRef, ...]:
        rows = self._select("list tables", self._name, _LIST, {"catalog": self._name})
        # catalogs of the older layout have no iceberg_type; those of the newer one keep views in the same table
        kinds = ((row._mapping, row._mapping.get("iceberg_type")) for row in rows)
        tables = (row for row, kind in kinds if kind in (None, "TABLE"))
        return tuple(TableRef(tuple(row["table_namespace"].split(".")), row["table_name"]) for row in tables)

    def heads(self) -> Mapping[TableRef, str]:
        """The heads of all tables, in one query."""
        rows = self._select("read heads", self._name, _LIST, {"catalog": self._name})
        found = {}
        for row in (row._mapping for row in rows):
            if row.get("iceberg_type") in (None, "TABLE") and row["metadata_location"]:
                found[TableRef(tuple(row["table_namespace"].split(".")), row["table_name"])] = row["metadata_location"]
        return found

    def load(self, table: TableRef) -> MirrorHead | None:
        place = self.head(table)
        return None if place is None else MirrorHead(place)

    def file_io(self) -> Mapping[str, str]:
        return self._properties

    def demands(self) -> CatalogDemands:
        return CatalogDemands()

    def abilities(self) -> CatalogAbilities:
        return CatalogAbilities("sql", "pointer", has_namespace_levels=True)

    def commit(self, table: TableRef, expected: MirrorHead | None, new: Published) -> None:
        if expected is None:
            self.register(table, new.metadata_uri)
        else:
            self.swap(table, expected.metadata_uri, new.metadata_uri)

    def register(self, table: TableRef, metadata_uri: str) -> None:
        from sqlalchemy.exc import IntegrityError

        self._ensure_namespace(table)
        try:
            with self._connection("register", str(table)) as connection:
                connection.execute(_text(_REGISTER), {**self._key(table), "new": metadata_uri})
        except IntegrityError as err:
            raise LostRaceError("register", str(table), "somebody registered it first", "run again") from err
        except _NoCatalogYetError:
            raise
        except (TransientError, PermanentError) as err:
            self._settle(table, None, metadata_uri, err)

    def swap(self, table: TableRef, expected: str, metadata_uri: str) -> None:
        values = {**self._key(table), "old": expected, "new": metadata_uri}
        try:
            with self._connection("commit", str(table)) as connection:
                moved = connection.execute(_text(_SWAP), values).rowcount
        except _NoCatalogYetError:
            raise
        except (TransientError, PermanentError) as err:
            self._settle(table, expected, metadata_uri, err)
            return
        if moved != 1:
            raise _lost("commit", table, expected, self.head(table))

    def _settle(self, table: TableRef, expected: str | None, new: str, err: TransientError | PermanentError) -> None:
        """The database went silent, perhaps after it had done it: where the pointer is now decides.

        Whatever the driver calls it: a line that was cut has many names, and not all are errors that pass.
        """
        try:
            now = self.head(table)
        except (TransientError, PermanentError) as silence:
            told = f"{err.message}; whether it was made cannot be read back now ({silence.message})"
            raise _like(silence, err.op, err.subject, told, silence.hint) from err
        if now == new:
            return
        if now != expected:
            raise _lost(err.op, table, expected, now) from err
        raise _like(err, err.op, err.subject, f"{err.message}; the head is as before", err.hint) from err

    def drop(self, table: TableRef, expected: MirrorHead) -> None:
        values = {**self._key(table), "old": expected.metadata_uri}
        with self._connection("drop", str(table)) as connection:
            is_done = connection.execute(_text(_DROP), values).rowcount == 1
        got = None if is_done else self.head(table)
        if got is not None:
            raise _lost("drop", table, expected.metadata_uri, got)

    def _select(self, op: str, subject: str, statement: str, values: Mapping[str, str]) -> list[Any]:
        def select() -> list[Any]:
            with self._connection(op, subject) as connection:
                return list(connection.execute(_text(statement), values).all())

        try:
            return select()
        except _NoCatalogYetError:
            if self._may_be_new:
                return []
            raise
        except (TransientError, PermanentError) as err:
            if not _lacked_tables(err):
                raise
            return select()  # another process has made the catalog's tables since

    def _key(self, table: TableRef) -> dict[str, str]:
        return {"catalog": self._name, "namespace": ".".join(table.namespace), "name": table.name}

    @contextmanager
    def _connection(self, op: str, subject: str) -> Iterator[Connection]:
        from sqlalchemy import inspect
        from sqlalchemy.exc import DBAPIError, IntegrityError

        engine = self._connect(op)
        try:
            with engine.begin() as connection:
                yield connection
        except IntegrityError:
            raise
        except DBAPIError as err:
            try:
                is_catalog = inspect(engine).has_table("iceberg_tables")
            except DBAPIError:
                is_catalog = True
            if not is_catalog:
                raise _NoCatalogYetError(
                    op, subject, f"the database of catalog {self._name} has no Iceberg tables", "check catalog.uri"
                ) from err
            raise self._explained(op, subject, err) from err

    def _explained(self, op: str, subject: str, err: DBAPIError) -> TransientError | PermanentError:
        """A database that is busy or away may come back; one that says no will say it again."""
        from sqlalchemy.exc import IntegrityError, OperationalError

        cause = type(err.orig).__name__ if err.orig is not None else type(err).__name__
        said = cleaned(str(err.orig), self._properties["uri"])
        message = f"the database of catalog {self._name} did not answer ({cause}: {said})"
        if _is_read_only(err):
            return PermanentError(op, subject, message, "make its file and folder writable, or check catalog.uri")
        if isinstance(err, OperationalError | IntegrityError):
            return TransientError(op, subject, message, "run again")
        return PermanentError(op, subject, message, "check catalog.uri and what the database says")

    def _connect(self, op: str) -> Engine:
        if self._engine is None:
            url = bounded_url(self._properties["uri"])
            if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
                raise _NoCatalogYetError(
                    op, f"catalog {self._name}", "its database file does not exist", "check catalog.uri, or create it"
                )
            self._engine = bounded_engine(url)
        return self._engine

    def _ensure_namespace(self, table: TableRef) -> None:
        """Namespace and catalog tables are made by pyiceberg: it owns their shape."""
        from pyiceberg.catalog.sql import SqlCatalog as PyicebergCatalog
        from sqlalchemy.exc import DBAPIError

        uri = self._properties["uri"]
        if uri.startswith("sqlite:///"):
            Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        # an attempt may lose against another follower that makes the same tables or namespace; then they are there
        for attempt in range(1, ATTEMPTS + 1):
            catalog = None
            try:
                catalog = PyicebergCatalog(self._name, **{**self._properties, "uri": bounded_uri(uri)})
                catalog.create_namespace_if_not_exists(table.namespace)
                return
            except DBAPIError as err:
                if attempt == ATTEMPTS:
                    raise self._explained("register", str(table), err) from err
            finally:
                if catalog is not None:
                    catalog.close()


def _is_read_only(err: DBAPIError) -> bool:
    """SQLite may not write here. A file that was moved away is told the same way, but opened anew it is another one."""
    import sqlite3

    code = getattr(err.orig, "sqlite_errorcode", 0)
    return code & _PRIMARY_CODE == sqlite3.SQLITE_READONLY and code != sqlite3.SQLITE_READONLY_DBMOVED


def _like(err: TransientError | PermanentError, *told: str) -> TransientError | PermanentError:
    return TransientError(*told) if isinstance(err, TransientError) else PermanentError(*told)


def _lost(op: str, table: TableRef, want: str | None, got: str | None) -> LostRaceError:
    return LostRaceError(op, str(table), f"head moved (want {want}, got {got})", "run again: it re-plans")


def _text(statement: str) -> Any:
    from sqlalchemy import text

    return text(statement)
