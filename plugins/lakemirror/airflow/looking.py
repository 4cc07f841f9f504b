"""A watch of the library, for use from an event loop: looks happen in a thread, and trouble is told and waited out.

The installation is opened by the first look and opened anew after trouble, which brings new credentials, and when the
configuration file has changed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from lakemirror.airflow.hook import LakemirrorHook
from lakemirror.errors import LakemirrorError
from lakemirror.model.notices import tables_named
from lakemirror.model.table import TableRef

if TYPE_CHECKING:
    from lakemirror.app import App
    from lakemirror.usecases.watch import Hints, ReadyWatch, SourceWatch

_log = logging.getLogger(__name__)
LONGEST_REST_S: Final = 60.0


class Looker:
    """Opens a watch over the configuration at `config_path` and keeps it; one look at a time."""

    def __init__(self, config_path: str | None, watch_of: Callable[[App], ReadyWatch | SourceWatch]) -> None:
        self._config_path = config_path
        self._watch_of = watch_of
        self._open: tuple[ReadyWatch | SourceWatch, App, int] | None = None
        self._stack = ExitStack()
        self._failures = 0

    async def look(
        self, tables: Iterable[str], *, fresh: Iterable[str] = (), named: Iterable[str] = ()
    ) -> dict[str, str] | None:
        """What these tables ask for, by name; None if nobody could tell now, and then the caller rests."""
        try:
            hints = await asyncio.to_thread(self._look, _refs(tables), _refs(fresh), _refs(named))
        except LakemirrorError as err:
            self._failures += 1
            _log.warning("watch: looking failed %d times in a row: %s", self._failures, err)
            await asyncio.to_thread(self.close)
            return None
        self._failures = 0
        return {str(table): hint for table, hint in hints.items()}

    async def named(self, uris: Iterable[str]) -> tuple[list[str], int] | None:
        """The tables of this configuration that notices name, and how many objects they name beside; None as above."""

        def find() -> tuple[list[str], int]:
            config = self._opened()[1].config
            found = tables_named(uris, config.mirror.location)
            known = [str(table) for table in found.tables if config.entry_for(table) is not None]
            return known, found.ignored + len(found.tables) - len(known)

        try:
            return await asyncio.to_thread(find)
        except LakemirrorError as err:
            self._failures += 1
            _log.warning("watch: the configuration cannot be read: %s", err)
            return None

    def rest_s(self, poll_s: float) -> float:
        """How long to rest: twice as long after each failure in a row, up to a bound."""
        return min(poll_s * float(1 << min(self._failures, 10)), max(poll_s, LONGEST_REST_S))

    def close(self) -> None:
        self._open = None
        self._stack.close()

    def _look(self, tables: list[TableRef], fresh: list[TableRef], named: list[TableRef]) -> Hints:
        watch, _, _ = self._opened()
        watch.forget(fresh)
        return watch.look(tables, named=frozenset(named))

    def _opened(self) -> tuple[ReadyWatch | SourceWatch, App, int]:
        from lakemirror.app import config_path

        version = _version_of(config_path(self._config_path))
        if self._open is not None and self._open[2] == version:
            return self._open
        self.close()
        app = self._stack.enter_context(LakemirrorHook(config_path=self._config_path).app())
        self._open = self._watch_of(app), app, version
        return self._open


def payload(table: str, hint: str) -> Mapping[str, str]:
    """What an asset event of a watcher carries: for people to read, nobody decides by it."""
    return {"table": table, "seen": hint}


def _version_of(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0  # reading it will say what is wrong


def _refs(names: Iterable[str]) -> list[TableRef]:
    return [TableRef.parse(name) for name in names]
