"""The same question about many tables: never more than `workers` at once, and one that fails keeps nobody back.

A TransientError belongs to the table whose question it answered. So that a server that is away does not cost a timeout
for each table, nobody else is asked after FAILURES_AT_MOST of them. Any other error ends it and is raised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from lakemirror.errors import TransientError

FAILURES_AT_MOST: Final = 16
Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Answers(Generic[Item, Result]):
    """In the order of the items. Who is neither told of nor failed was not asked, because too many had failed."""

    told: dict[Item, Result]
    failed: dict[Item, TransientError]


def ask_all(ask: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Answers[Item, Result]:
    """The answers of all of them, or of as many as could be asked."""
    told: dict[Item, Result] = {}
    failed: dict[Item, TransientError] = {}
    has_ended = threading.Event()

    def guarded(item: Item) -> None:
        if has_ended.is_set():
            return
        try:
            told[item] = ask(item)
        except TransientError as err:
            failed[item] = err
            if len(failed) >= FAILURES_AT_MOST:
                has_ended.set()
        except BaseException:
            has_ended.set()
            raise

    if len(items) <= 1:
        for item in items:
            guarded(item)
        return Answers(told, failed)
    with ThreadPoolExecutor(min(workers, len(items)), thread_name_prefix="lakemirror-watch") as pool:
        for future in [pool.submit(guarded, item) for item in items]:
            future.result()
    return Answers(
        {item: told[item] for item in items if item in told}, {item: failed[item] for item in items if item in failed}
    )
