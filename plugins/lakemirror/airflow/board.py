"""Who watches what: the tables that the watchers of one triggerer process ask for, each with its own asset.

Airflow lets watchers of one kind share one stream, and the stream has to know for which tables it looks. A watcher that
joins rings a bell: its table is looked at now, not after the next rest, and as if it had never been seen. So nothing is
lost between the end of one watcher and the start of the next, and no watermark has to be kept.

All of this happens in the event loop of the triggerer; nothing here is for threads.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class Board:
    """The tables that one stream looks at."""

    def __init__(self) -> None:
        self._watchers: Counter[str] = Counter()
        self._fresh: set[str] = set()
        self._bell: asyncio.Future[None] | None = None

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(sorted(self._watchers))

    @contextmanager
    def joined(self, table: str) -> Iterator[None]:
        """For as long as a watcher of this table lives."""
        self._watchers[table] += 1
        self._fresh.add(table)
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)
        try:
            yield
        finally:
            self._watchers[table] -= 1
            if not self._watchers[table]:
                del self._watchers[table]
                self._fresh.discard(table)

    def take_fresh(self) -> tuple[str, ...]:
        """The tables that joined since this was last asked."""
        fresh, self._fresh = self._fresh, set()
        return tuple(sorted(fresh))

    def bell(self) -> asyncio.Future[None]:
        """Done when there are fresh tables; made anew for each wait, because an event loop is left behind at times."""
        self._bell = asyncio.get_running_loop().create_future()
        if self._fresh:
            self._bell.set_result(None)
        return self._bell


_boards: dict[Hashable, Board] = {}


def board_of(key: Hashable) -> Board:
    """The board of a stream in this process. There is one for each way in of each configuration: a handful."""
    return _boards.setdefault(key, Board())
