"""A mirror catalog of pointers: the real SQL adapter, whose every statement is a request to a database in memory.

Glue, which is a catalog of pointers too, has no simulation of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
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


class Database:
    """One table of pointers; `moved` is told of every new head, and of None when there is no more."""

    def __init__(self, moved: Callable[[str | None], None]) -> None:
        self._moved = moved

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.execute(_TABLE)
        return connection

    @property
    def head(self) -> str | None:
        found = self._connection.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
        return None if found is None else str(found[0])

    def execute(self, statement: str, values: Mapping[str, str]) -> Rows:
        before = self.head
        try:
            cursor = self._connection.execute(statement, values)
        except sqlite3.IntegrityError:
            return Rows(is_refused=True)
        if self.head != before:
            self._moved(self.head)
        return Rows(tuple(cursor.fetchall()), cursor.rowcount)


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
