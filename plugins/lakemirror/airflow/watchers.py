"""Triggers of asset watchers: what wakes `mirror__…` and `follow__…` early. Each watches one table for one asset.

Watchers of one kind share one stream (Airflow runs it once for all of them), so that ten thousand tables are one scan
and one reader of a queue. An event says that a table is worth a look, never what is there; the run asks store and
catalog itself. Told is each state once, and again while the table stays behind, for its run may have failed for good:
after RETELL_S, then twice as late each time, up to LONGEST_RETELL_S. Trouble that comes and goes is no new state each
time, nor is what was there before it. After a restart every table is looked at anew, and one that is behind is told: at
worst one look too many, never one too few. Class paths and arguments are public (T48); no argument is a secret.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Hashable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from lakemirror.airflow.board import Board, board_of
from lakemirror.airflow.looking import Looker, payload

if TYPE_CHECKING:
    from lakemirror.app import App
    from lakemirror.usecases.watch import ReadyWatch, SourceWatch

RETELL_S: Final = 600.0  # RELIST_S of the watch, which by then has looked whether the table is still behind
LONGEST_RETELL_S: Final = 3600.0
STATES_KEPT: Final = 8  # of one table; more kinds of trouble make the oldest one new again


class _Memory:
    """What was told of one table: its last state and the trouble since, each with when it is due again.

    A new state makes the rest forgotten, trouble does not: a table that is refused every other time is not told each
    time.
    """

    def __init__(self) -> None:
        self._told: dict[str, tuple[float, float]] = {}

    def is_due(self, hint: str, now: float) -> bool:
        """Whether to tell this now; it then counts as told."""
        from lakemirror.usecases.watch import is_broken

        if hint in self._told:
            due, last_pause_s = self._told[hint]
            if now < due:
                return False
            pause_s = min(2 * last_pause_s, LONGEST_RETELL_S)
        else:
            pause_s = RETELL_S
            if not is_broken(hint):
                self._told.clear()
            elif len(self._told) == STATES_KEPT:
                del self._told[next(iter(self._told))]
        self._told[hint] = now + pause_s, pause_s
        return True


class TableWatchTrigger(BaseEventTrigger):
    """What all watchers have in common; use one of the classes below."""

    path: ClassVar[str]

    def __init__(self, *, table: str, config_path: str | None, poll_interval_s: float) -> None:
        super().__init__()
        self.table = table
        self.config_path = config_path
        self.poll_interval_s = poll_interval_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return self.path, {"table": self.table, **self._shared()}

    def shared_stream_key(self) -> Hashable:
        """All tables of one configuration that are watched in the same way."""
        return self.key_of(self._shared())

    async def filter_shared_stream(self, shared_stream: AsyncIterator[dict[str, str]]) -> AsyncIterator[TriggerEvent]:
        """An event whenever the stream tells something of this table that it has not told before, or not lately."""
        memory, clock = _Memory(), asyncio.get_running_loop().time
        with board_of(self.shared_stream_key()).joined(self.table):
            async for hints in shared_stream:
                hint = hints.get(self.table)
                if hint is not None and memory.is_due(hint, clock()):
                    yield TriggerEvent(payload(self.table, hint))

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """The same for a watcher that is alone."""
        stream = self.open_shared_stream(self._shared())
        async for event in self.filter_shared_stream(stream):
            yield event

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[dict[str, str]]:
        """What the tables ask for: all of them after each rest, and those that join as soon as they do."""
        board, looker = cls.board(kwargs), Looker(kwargs["config_path"], cls.watch_of, kwargs["poll_interval_s"])
        rest: asyncio.Future[None] | None = None
        try:
            while True:
                is_over = rest is None or rest.done()
                fresh = board.take_fresh()
                told = await looker.look(board.tables if is_over else fresh, fresh=fresh)
                if told.hints:
                    yield told.hints
                if rest is None or rest.done():
                    rest = asyncio.ensure_future(asyncio.sleep(looker.rest_s()))
                await asyncio.wait({rest, board.bell()}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if rest is not None:
                rest.cancel()
            looker.close()

    @classmethod
    def key_of(cls, shared: dict[str, Any]) -> Hashable:
        return cls.path, *((name, value) for name, value in sorted(shared.items()) if name != "table")

    @classmethod
    def board(cls, kwargs: dict[str, Any]) -> Board:
        return board_of(cls.key_of(kwargs))

    @staticmethod
    @abstractmethod
    def watch_of(app: App) -> ReadyWatch | SourceWatch:
        """What looks at the tables."""

    def _shared(self) -> dict[str, Any]:
        """The arguments that all watchers of one stream have in common."""
        return {"config_path": self.config_path, "poll_interval_s": self.poll_interval_s}


class ReadyFolderTrigger(TableWatchTrigger):
    """Polls the table's `_ready/` folder in the mirror bucket: one HEAD a look."""

    path = "lakemirror.airflow.watchers.ReadyFolderTrigger"

    @staticmethod
    def watch_of(app: App) -> ReadyWatch:
        return app.watch_ready()


class SourceHeadTrigger(TableWatchTrigger):
    """Polls the head of the table in the source's catalog: one cheap call a look, or one query for all tables."""

    path = "lakemirror.airflow.watchers.SourceHeadTrigger"

    @staticmethod
    def watch_of(app: App) -> SourceWatch:
        return app.watch_source()
