"""The state database: what became visible in the mirror, and when. SQLite by default, PostgreSQL in production.

It is a record, never a source of truth: everything still works when it is lost, and only history and times are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakemirror.errors import TransientError
from lakemirror.model.table import TableRef

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table


class StateDatabase:
    """One row for each version that became visible; writing one twice keeps the first time."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._opened: tuple[Engine, Table] | None = None

    def record_visible(self, table: TableRef, version: int, snapshot_id: int | None, at: datetime) -> None:
        from sqlalchemy.exc import IntegrityError

        row = {
            "table_name": str(table),
            "version": version,
            "snapshot_id": _text(snapshot_id),
            "visible_at": at.isoformat(),
        }
        with suppress(IntegrityError), self._connection() as (connection, versions):
            connection.execute(versions.insert().values(row))

    def visible_at(self, table: TableRef, version: int) -> datetime | None:
        with self._connection() as (connection, versions):
            wanted = (versions.c.table_name == str(table)) & (versions.c.version == version)
            found = connection.execute(versions.select().where(wanted)).mappings().first()
        return None if found is None else datetime.fromisoformat(found["visible_at"]).astimezone(UTC)

    @contextmanager
    def _connection(self) -> Iterator[tuple[Connection, Table]]:
        from sqlalchemy.exc import DBAPIError, IntegrityError

        try:
            engine, versions = self._open()
            with engine.begin() as connection:
                yield connection, versions
        except IntegrityError:
            raise
        except DBAPIError as err:
            raise TransientError(
                "open state", "state database", f"it did not answer ({err.orig})", "run again"
            ) from err

    def _open(self) -> tuple[Engine, Table]:
        from sqlalchemy import BigInteger, Column, MetaData, String, Table, create_engine
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import OperationalError

        if self._opened is None:
            url = make_url(self._uri)
            if url.get_backend_name() == "sqlite" and url.database:
                Path(url.database).parent.mkdir(parents=True, exist_ok=True)
            metadata = MetaData()
            columns: list[Column[Any]] = [
                Column("table_name", String(1000), primary_key=True),
                Column("version", BigInteger, primary_key=True, autoincrement=False),
                Column("snapshot_id", String(40)),
                Column("visible_at", String(40), nullable=False),
            ]
            versions = Table("lakemirror_visible_versions", metadata, *columns)
            engine = create_engine(url)
            with suppress(OperationalError):  # another process may make the table at the same moment
                metadata.create_all(engine)
            metadata.create_all(engine)
            self._opened = engine, versions
        return self._opened


def _text(snapshot_id: int | None) -> str | None:
    return None if snapshot_id is None else str(snapshot_id)
