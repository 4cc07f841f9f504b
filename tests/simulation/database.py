"""A mirror catalog of pointers: the real SQL adapter, whose every statement is a request to a database in memory.

Glue, which is a catalog of pointers too, has no simulation of its own.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy.exc import IntegrityError

from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.model.table import TableRef
from tests.simulation.world import Request

_TABLE = """CREATE TABLE iceberg_tables (
catalog_name TEXT, table_namespace TEXT, table_name TEXT, metadata_location TEXT, previous_metadata_location TEXT,
PRIMARY KEY (catalog_name, table_namespace, table_name))"""


@dataclass(frozen=True)
class Rows:
    """What a statement led to; `is_refused` if there is such a row already."""

    rows: tuple[Any, ...] = ()
    rowcount: int = 0
    is_refused: bool = False

    def all(self) -> tuple[Any, ...]:
        return self.rows


@lru_cache(maxsize=1)
def _opened(process: int) -> sqlite3.Connection:
    """One for all schedules of a process, one after the other."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(_TABLE)
    return connection


class Database:
    """One table of pointers; `moved` is told of every new head, and of None when there is no more.

    Only the newest one may be used: it has the table to itself.
    """

    def __init__(self, moved: Callable[[str | None], None]) -> None:
        self._moved = moved
        self.head: str | None = None
        self._connection = _opened(os.getpid())
        self._connection.execute("DELETE FROM iceberg_tables")

    def execute(self, statement: str, values: Mapping[str, str]) -> Rows:
        try:
            cursor = self._connection.execute(statement, values)
        except sqlite3.IntegrityError:
            return Rows(is_refused=True)
        rows = Rows(tuple(cursor.fetchall()), cursor.rowcount)
        if not statement.startswith("SELECT"):
            self._look()
        return rows

    def _look(self) -> None:
        found = self._connection.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
        before, self.head = self.head, None if found is None else str(found[0])
        if self.head != before:
            self._moved(self.head)


class SqlFace(SqlCatalog):
    """The adapter as it is, over such a database."""

    def __init__(self, perform: Callable[[Request], Any]) -> None:
        super().__init__("mirror", {})
        self._perform = perform

    @contextmanager
    def _connection(self, op: str, subject: str) -> Iterator[Any]:
        yield self

    def execute(self, given: object, values: Mapping[str, str]) -> Rows:
        statement = str(given)
        verb = "select" if statement.startswith("SELECT") else "commit"
        rows: Rows = self._perform((verb, statement, tuple(values.items())))
        if rows.is_refused:
            raise IntegrityError(statement, None, ValueError("it is there"))
        return rows

    def _ensure_namespace(self, table: TableRef) -> None:
        pass
