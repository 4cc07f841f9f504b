"""Watch: which of some tables ask for a run, told cheaply and again and again. Never what a run will find.

| watch | a look costs for a table | it asks for a run when |
|---|---|---|
| ReadyWatch | a HEAD of the next marker, seldom more | a ready version is above what the mirror's catalog shows |
| SourceWatch | a call to the source's catalog | the head is not the one that the newest ready marker was made from |

More is a listing, when the next marker is there, when a table is named, and after RELIST_S; and a call to the mirror's
catalog, when the newest version is another one, and after RELIST_S. Calls to the source's catalog: all tables in one
query where it has one, otherwise one per table, answered by 304 where the server knows ETags.

What was seen is compared with bucket and catalogs, not with a memory: a watch that starts anew asks for each table that
is behind, and for no other. What it does remember only saves it from asking twice, and is forgotten after RELIST_S: of
a table that asks for a run, because the run may have brought it up to date, or have failed; of one that the mirror
shows in step, because its catalog may have been put back. Only that a head of the source was mirrored is remembered for
as long as it is the head. A table that cannot be told of for good asks for a run, whose task says why: by the kind of
its trouble, since the same one may be worded anew each time (a request's id, the time that it took). When the trouble
is gone, what was seen before it is forgotten. A table that cannot be told of now has failed, is not half remembered,
and keeps nobody back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakemirror import bridge
from lakemirror.catalogs.asking import Answers, ask_all
from lakemirror.catalogs.heads import read_heads
from lakemirror.errors import PermanentError, TransientError
from lakemirror.follow.follower import head_of
from lakemirror.model.table import TableRef
from lakemirror.storage.port import ObjectNotFound

if TYPE_CHECKING:
    from lakemirror.usecases.ports import Ports

log = logging.getLogger(__name__)
WORKERS: Final = 8  # calls at once; within the connections that a client keeps open
RELIST_S: Final = 600.0
_BROKEN: Final = "error: "  # begins the mark of a table that cannot be told of; no version and no location does

Hints = dict[TableRef, str]


@dataclass(frozen=True, slots=True)
class Look:
    """What tables ask for. Of those that failed, and of those that were then not asked, nobody can tell now."""

    hints: Hints
    failed: Mapping[TableRef, TransientError]
    unasked: tuple[TableRef, ...]


@dataclass(frozen=True, slots=True)
class _Seen:
    """The state of a table as looked at: `mark` names it, `hint` is the same if it asks for a run."""

    mark: str
    hint: str | None
    at: float

    def is_old(self, now: float) -> bool:
        return now - self.at >= RELIST_S


class ReadyWatch:
    """Of the mirror's side: needs the bucket and the mirror's catalog, nothing of the source."""

    def __init__(self, ports: Ports, timer: Callable[[], float], *, workers: int = WORKERS) -> None:
        self._ports = ports
        self._timer = timer
        self._workers = workers
        self._newest: dict[TableRef, tuple[int, float]] = {}
        self._seen: dict[TableRef, _Seen] = {}

    def look(self, tables: Sequence[TableRef], *, named: Collection[TableRef] = ()) -> Look:
        """The tables that are behind, each with its newest version; `named` are listed for sure."""
        return _look(tables, ask_all(lambda table: self._hint(table, is_named=table in named), tables, self._workers))

    def forget(self, tables: Collection[TableRef]) -> None:
        """The next look at these is like a first one."""
        for table in tables:
            self._newest.pop(table, None)
            self._seen.pop(table, None)

    def _hint(self, table: TableRef, *, is_named: bool) -> str | None:
        try:
            newest = self._find(table, is_named=is_named)
            seen, mark, now = self._seen.get(table), f"v{newest}", self._timer()
            if seen is None or seen.mark != mark or seen.is_old(now):
                seen = self._seen[table] = _Seen(mark, mark if newest > self._shown(table) else None, now)
            return seen.hint
        except PermanentError as err:
            return _remember(self._seen, table, err, self._timer())

    def _find(self, table: TableRef, *, is_named: bool) -> int:
        """The newest ready version; 0 if there is none."""
        store, layout = self._ports.mirror_store, self._ports.layout(table)
        known, listed_at = self._newest.get(table, (None, 0.0))
        if known is not None and not is_named and self._timer() - listed_at < RELIST_S:
            try:
                store.head(layout.ready(known + 1))
            except ObjectNotFound:
                return known
        newest = bridge.published(store, layout).newest or 0
        self._newest[table] = newest, self._timer()
        return newest

    def _shown(self, table: TableRef) -> int:
        """The version that readers see; 0 if there is none, or a foreign one, which the follower will report."""
        ports = self._ports
        head = head_of(ports.mirror_catalog, ports.mirror_store, ports.layout(table), table)
        return 0 if head is None or head.version is None else head.version


class SourceWatch:
    """Of the source's side: needs its catalog and, for heads that are new, the ready markers in the mirror's bucket."""

    def __init__(self, ports: Ports, timer: Callable[[], float], *, workers: int = WORKERS) -> None:
        self._ports = ports
        self._timer = timer
        self._workers = workers
        self._seen: dict[TableRef, _Seen] = {}

    def look(self, tables: Sequence[TableRef], *, named: Collection[TableRef] = ()) -> Look:
        """The tables whose head is not mirrored, each with that head; a table that was dropped asks for nothing.

        Every look asks the catalog for every head, so that `named` changes nothing.
        """
        heads = read_heads(self._ports.source_catalog, tables, self._workers)

        def hint(table: TableRef) -> str | None:
            head = heads.told[table]
            if isinstance(head, PermanentError):
                return _remember(self._seen, table, head, self._timer())
            return None if head is None else self._hint(table, head)

        known = {table: self._seen[table].hint for table, head in heads.told.items() if self._is_known(table, head)}
        found = ask_all(hint, [table for table in heads.told if table not in known], self._workers)
        return _look(tables, Answers({**known, **found.told}, {**heads.failed, **found.failed}))

    def forget(self, tables: Collection[TableRef]) -> None:
        """The next look at these is like a first one."""
        for table in tables:
            self._seen.pop(table, None)

    def _is_known(self, table: TableRef, head: object) -> bool:
        """A head that is mirrored stays so, as far as the source is concerned."""
        seen = self._seen.get(table)
        return seen is not None and seen.mark == head and (seen.hint is None or not seen.is_old(self._timer()))

    def _hint(self, table: TableRef, head: str) -> str | None:
        try:
            hint = None if self._mirrored_from(table) == head else head
        except PermanentError as err:
            return _remember(self._seen, table, err, self._timer())
        self._seen[table] = _Seen(head, hint, self._timer())
        return hint

    def _mirrored_from(self, table: TableRef) -> str | None:
        store, layout = self._ports.mirror_store, self._ports.layout(table)
        found = bridge.published(store, layout)
        if found.newest is None or not found.is_newest_last:  # nothing yet, or what a run publishes once more
            return None
        return bridge.read_ready(store, layout, found.newest).source_metadata_location


Watch = ReadyWatch | SourceWatch


def _look(tables: Sequence[TableRef], answers: Answers[TableRef, str | None]) -> Look:
    hints = {table: hint for table in tables if (hint := answers.told.get(table)) is not None}
    unasked = tuple(table for table in tables if table not in answers.told and table not in answers.failed)
    return Look(hints, answers.failed, unasked)


def is_broken(hint: str) -> bool:
    """Whether this hint is of a table that cannot be told of for good."""
    return hint.startswith(_BROKEN)


def _remember(seen: dict[TableRef, _Seen], table: TableRef, err: PermanentError, now: float) -> str:
    """The same trouble asks for one run, however it is worded, and other trouble for another; the log has its words."""
    mark, last = f"{_BROKEN}{err.op} {err.subject} ({type(err).__name__})", seen.get(table)
    if last is None or last.mark != mark or last.is_old(now):
        log.warning("watch: %s cannot be told of for good, a run is asked for: %s", table, err)
        seen[table] = _Seen(mark, mark, now)
    return mark
