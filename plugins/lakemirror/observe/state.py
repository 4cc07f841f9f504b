"""The state database: what became visible in the mirror, and when. SQLite by default, PostgreSQL in production.

It is a record, never a source of truth: everything still works when it is lost, and only history and times are gone.
So `note_visible` and `look_up_visible`, which the use cases call, warn of its trouble and go on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakemirror.catalogs.sql_engine import bounded_engine, bounded_url, cleaned
from lakemirror.errors import LakemirrorError, TransientError
from lakemirror.model.table import TableRef

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table


_log = logging.getLogger(__name__)


def note_visible(
    state: StateDatabase | None, table: TableRef, version: int, snapshot_id: int | None, at: datetime
) -> bool:
    """Record that readers see this version, unless that is on record; whether this call was the one that did.

    Whoever finds the version in the mirror may call it, not only who committed it: so a record that is missing, because
    of a crash or because this database was away, is made up for. Its time is then an upper bound.
    """
    try:
        return state is not None and state.record_visible(table, version, snapshot_id, at)
    except LakemirrorError as err:
        _log.warning("%s: that v%d is visible was not recorded: %s", table, version, err)
        return False


def look_up_visible(state: StateDatabase | None, table: TableRef, version: int | None) -> datetime | None:
    """When the version became visible; None if that is not on record or cannot be told now."""
    try:
        return None if state is None or version is None else state.visible_at(table, version)
    except LakemirrorError as err:
        _log.warning("%s: since when v%d is visible cannot be told: %s", table, version, err)
        return None


class StateDatabase:
    """One row for each version that became visible; writing one twice keeps the first time."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._opened: tuple[Engine, Table] | None = None

    def record_visible(self, table: TableRef, version: int, snapshot_id: int | None, at: datetime) -> bool:
        """True if there was no record of the version: of many who try, one."""
        from sqlalchemy.exc import IntegrityError

        row = {
            "table_name": str(table),
            "version": version,
            "snapshot_id": _text(snapshot_id),
            "visible_at": at.isoformat(),
        }
        if self.visible_at(table, version) is not None:
            return False
        with self._connection() as (connection, versions):
            try:
                connection.execute(versions.insert().values(row))
            except IntegrityError:  # another one was the first
                connection.rollback()
                return False
        return True

    def visible_at(self, table: TableRef, version: int) -> datetime | None:
        with self._connection() as (connection, versions):
            wanted = (versions.c.table_name == str(table)) & (versions.c.version == version)
            found = connection.execute(versions.select().where(wanted)).mappings().first()
        return None if found is None else datetime.fromisoformat(found["visible_at"]).astimezone(UTC)

    @contextmanager
    def _connection(self) -> Iterator[tuple[Connection, Table]]:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            engine, versions = self._open()
            with engine.begin() as connection:
                yield connection, versions
        except (SQLAlchemyError, OSError, ImportError) as err:
            # of other errors than the driver's only the name: their text may hold the URI, and that a password
            said = getattr(err, "orig", None)
            cause = type(err).__name__ if said is None else cleaned(str(said), self._uri)
            raise TransientError(
                "open state", "state database", f"it did not answer ({cause})", "check state.uri, run again"
            ) from err

    def _open(self) -> tuple[Engine, Table]:
        from sqlalchemy import BigInteger, Column, MetaData, String, Table
        from sqlalchemy.exc import DBAPIError

        if self._opened is None:
            url = bounded_url(self._uri, "state.uri")
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
            engine = bounded_engine(url)
            with suppress(DBAPIError):  # another process may make the table at the same moment: each server's own error
                metadata.create_all(engine)
            metadata.create_all(engine)
            self._opened = engine, versions
        return self._opened


def _text(snapshot_id: int | None) -> str | None:
    return None if snapshot_id is None else str(snapshot_id)
