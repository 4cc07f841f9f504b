"""A watch of the library, for use from an event loop: looks happen in a thread, and trouble is told and waited out.

A table that fails in passing rests, twice as long after each failure in a row, up to LONGEST_REST_S; others are told
meanwhile, and are asked before it. So tables that fail for ever cost each look a few calls at most.

The installation is opened by the first look and opened anew, which brings new credentials, after a look that could tell
of no table, every REOPEN_S while some table fails, and when the configuration file has changed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakemirror.airflow.hook import LakemirrorHook
from lakemirror.errors import LakemirrorError
from lakemirror.model.notices import tables_named
from lakemirror.model.table import TableRef

if TYPE_CHECKING:
    from lakemirror.app import App
    from lakemirror.usecases.watch import Look, ReadyWatch, SourceWatch

_log = logging.getLogger(__name__)
LONGEST_REST_S: Final = 60.0
REOPEN_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Told:
    """What tables ask for, by name; of the `untold` nobody could tell now."""

    hints: dict[str, str]
    untold: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Rest:
    """A table has failed so many times in a row, and is not asked again before `until`."""

    failures: int
    until: float


class Looker:
    """Opens a watch over the configuration at `config_path` and keeps it; one look at a time."""

    def __init__(
        self,
        config_path: str | None,
        watch_of: Callable[[App], ReadyWatch | SourceWatch],
        poll_s: float,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config_path = config_path
        self._watch_of = watch_of
        self._poll_s = poll_s
        self._timer = timer
        self._open: tuple[ReadyWatch | SourceWatch, App, int] | None = None
        self._opened_at = 0.0
        self._stack = ExitStack()
        self._failures = 0
        self._rests: dict[str, _Rest] = {}

    async def look(self, tables: Iterable[str], *, fresh: Iterable[str] = (), named: Iterable[str] = ()) -> Told:
        """What these tables ask for; those that rest are not asked, unless they are fresh."""
        now, tables = self._timer(), frozenset(tables)
        for table in (fresh := [*fresh]):
            self._rests.pop(table, None)
        due = [table for table in tables if table not in self._rests or self._rests[table].until <= now]
        due.sort(key=lambda table: (self._rests[table].failures if table in self._rests else 0, table))
        if not due:
            return Told({}, tables)
        try:
            seen = await asyncio.to_thread(self._look, _refs(due), _refs(fresh), _refs(named))
        except LakemirrorError as err:
            await self._fail(err)
            return Told({}, tables)
        failed = {str(table): err for table, err in seen.failed.items()}
        unasked = {*map(str, seen.unasked)}
        self._let_rest(due, failed, unasked)
        if failed and len(failed) + len(unasked) == len(due):
            await self._fail(next(iter(failed.values())))
        else:
            self._failures = 0
            await self._tell(failed, unasked)
        hints = {str(table): hint for table, hint in seen.hints.items()}
        return Told(hints, frozenset([*(tables - {*due}), *failed, *unasked]))

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

    def rest_s(self) -> float:
        """How long to rest between two looks: twice as long after each in a row that failed, up to a bound."""
        return self._rest_after(self._failures)

    def close(self) -> None:
        self._open = None
        self._stack.close()

    def _let_rest(self, due: Iterable[str], failed: Collection[str], unasked: Collection[str]) -> None:
        now = self._timer()
        for table in due:
            if table in failed:
                failures = 1 + (self._rests[table].failures if table in self._rests else 0)
                self._rests[table] = _Rest(failures, now + self._rest_after(failures))
            elif table not in unasked:
                self._rests.pop(table, None)

    async def _fail(self, err: LakemirrorError) -> None:
        """Nobody could be told of."""
        self._failures += 1
        _log.warning("watch: looking failed %d times in a row: %s", self._failures, err)
        await asyncio.to_thread(self.close)

    async def _tell(self, failed: Mapping[str, LakemirrorError], unasked: Collection[str]) -> None:
        for table, err in failed.items():
            rest_s = self._rest_after(self._rests[table].failures)
            _log.warning("watch: %s cannot be told of now, it is asked again after %.0f s: %s", table, rest_s, err)
        if unasked:
            _log.warning("watch: %d tables were not asked, because so many others failed", len(unasked))
        if failed and self._timer() - self._opened_at >= REOPEN_S:
            await asyncio.to_thread(self.close)

    def _rest_after(self, failures: int) -> float:
        return min(self._poll_s * float(1 << min(failures, 10)), max(self._poll_s, LONGEST_REST_S))

    def _look(self, tables: list[TableRef], fresh: list[TableRef], named: list[TableRef]) -> Look:
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
        self._open, self._opened_at = (self._watch_of(app), app, version), self._timer()
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
