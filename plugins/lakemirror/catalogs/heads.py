"""The heads of many source tables: in one query where the catalog has one, else in one cheap call per table.

Bounded: never more than `workers` calls at once. A catalog that cannot be asked now raises its TransientError and the
rest is not asked; a table that it refuses to tell of has its PermanentError as the answer, and keeps nobody else back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from typing import Protocol, TypeVar, runtime_checkable

from lakemirror.catalogs.ports import SourceCatalog
from lakemirror.errors import PermanentError
from lakemirror.model.table import TableRef

Head = str | PermanentError | None
Item = TypeVar("Item")
Result = TypeVar("Result")


@runtime_checkable
class TellsAllHeads(Protocol):
    """A catalog that knows the heads of all its tables in one go."""

    def heads(self) -> Mapping[TableRef, str]:
        """The metadata location of every table. Errors as of SourceCatalog."""


def read_heads(catalog: SourceCatalog, tables: Sequence[TableRef], workers: int) -> dict[TableRef, Head]:
    """The head of each of these tables; None if there is no such table."""
    if isinstance(catalog, TellsAllHeads):
        known = catalog.heads()
        return {table: known.get(table) for table in tables}

    def head(table: TableRef) -> tuple[TableRef, Head]:
        try:
            return table, catalog.head(table)
        except PermanentError as err:
            return table, err

    return dict(in_parallel(head, tables, workers))


def in_parallel(work: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    """The results in the order of the items; the first error ends it, and what has not begun by then never does."""
    if len(items) <= 1:
        yield from map(work, items)
        return
    has_failed = threading.Event()

    def guarded(item: Item) -> Result:
        if has_failed.is_set():
            raise CancelledError  # nobody sees it: an item before this one has raised
        try:
            return work(item)
        except BaseException:
            has_failed.set()
            raise

    pool = ThreadPoolExecutor(min(workers, len(items)), thread_name_prefix="lakemirror-watch")
    try:
        # an item that is skipped comes after the one that failed only in time, so the failed one is looked for
        futures = [pool.submit(guarded, item) for item in items]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            if future.done() and not isinstance(err := future.exception(), (CancelledError, type(None))):
                raise err
        yield from (future.result() for future in futures)
    finally:
        pool.shutdown(cancel_futures=True)
