"""Uploads in parts that were begun and never finished: aborted before and after a run copies.

A killed task leaves the upload of its file, a request to begin one whose answer was lost too, and a plan that is made
anew never looks at those of the plan before it. Whoever holds the table's lease works alone, and before and after he
copies has none under way: all that is there is left over, but what his own plan wrote down to go on with. Without a
fence somebody else may be at work: only what is old is aborted then. The lease is looked at right before: whoever slept
past it would abort what another run is sending.

An upload whose key has an object is left: some servers delete that object's bytes with it. It costs room.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from lakemirror.copying.copier import ABORT_S, Copier
from lakemirror.copying.crew import run_loop
from lakemirror.copying.model import CopyItem
from lakemirror.copying.ports import opened
from lakemirror.copying.retry import Patience
from lakemirror.errors import LakemirrorError, LostRaceError
from lakemirror.replicate.stage import Requests, StageContext, sum_requests
from lakemirror.storage.wire import Upload

UNFENCED_AGE: Final = timedelta(days=7)
MOST: Final = 1000
"""Of each kind, looked at once, the newest first; the next time goes on."""
LIST_S: Final = 600.0
"""What listing all objects of a table may take."""
Listing = Callable[[str], AsyncIterator[Upload]]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Below which folder they are looked for, and from which time; None: from any.

    `check` raises if the lease under which they are nobody else's is lost.
    """

    root: str
    begun_before: datetime | None
    check: Callable[[], None]


def abort_leftovers(
    leftovers: Leftovers, kept: Collection[str], context: StageContext, *, is_thorough: bool
) -> Requests:
    """The requests that it took; `is_thorough`: also for those that only lack their name, for which all is listed.

    One that cannot be aborted costs room, and stops nobody: it is told in the log. LostRaceError if the lease is lost.
    """
    try:
        leftovers.check()
    except LostRaceError:
        raise
    except LakemirrorError as err:
        _tell_left(leftovers, err)
        return sum_requests([])
    return run_loop(_abort(leftovers, kept, context, is_thorough=is_thorough))


async def _abort(leftovers: Leftovers, kept: Collection[str], context: StageContext, *, is_thorough: bool) -> Requests:
    async with opened(context.copying, "leftovers") as made:
        wire = made.copier.mirror.wire
        aborted = 0
        try:
            aborted += await _abort_those(made.copier, leftovers, kept, wire.uploads, ABORT_S, looks=True)
            if is_thorough:
                aborted += await _abort_those(made.copier, leftovers, kept, wire.unnamed, LIST_S, looks=False)
        except LakemirrorError as err:
            _tell_left(leftovers, err)
        if aborted:
            log.info("%s: %d unfinished uploads of earlier tries were aborted", leftovers.root, aborted)
        return sum_requests([made.counts.take()])


def _tell_left(leftovers: Leftovers, err: LakemirrorError) -> None:
    log.warning("%s: unfinished uploads of earlier tries are left there (%s)", leftovers.root, err)


async def _abort_those(
    copier: Copier, leftovers: Leftovers, kept: Collection[str], listing: Listing, patience_s: float, *, looks: bool
) -> int:
    """What lacks only its name is an object of its own: no other is made of it, and no look is needed."""
    before = leftovers.begun_before

    async def found() -> list[Upload]:
        return [one async for one in listing(leftovers.root)]

    def is_due(one: Upload) -> bool:
        return (before is None or one.begun_at < before) and not any(goes_on.startswith(one.upload) for goes_on in kept)

    due = list(filter(is_due, await copier.mirror.retrying(found, Patience(leftovers.root, patience_s))))
    due.sort(key=lambda one: one.begun_at, reverse=True)
    return sum([await copier.abort(CopyItem("", one.uri, 0), one.upload, looks=looks) for one in due[:MOST]])
