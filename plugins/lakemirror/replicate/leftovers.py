"""Uploads in parts that were begun and never finished: aborted before and after a run copies.

A killed task leaves the upload of its file, a request to begin one whose answer was lost too, and a plan that is made
anew never looks at those of the plan before it. Whoever holds the table's lease works alone, and before and after he
copies has none under way: all that is there is left over, but what his own plan wrote down to go on with. Without a
fence somebody else may be at work: only what is old is aborted then.
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
from lakemirror.errors import LakemirrorError
from lakemirror.replicate.stage import Requests, StageContext, sum_requests
from lakemirror.storage.wire import Upload

UNFENCED_AGE: Final = timedelta(days=7)
MOST: Final = 1000
"""Of each kind, aborted at once; the next time goes on."""
LIST_S: Final = 600.0
"""What listing all objects of a table may take."""
Listing = Callable[[str], AsyncIterator[Upload]]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Below which folder they are looked for, and from which time; None: from any."""

    root: str
    begun_before: datetime | None


def abort_leftovers(
    leftovers: Leftovers, kept: Collection[str], context: StageContext, *, is_thorough: bool
) -> Requests:
    """The requests that it took; `is_thorough`: also for those that only lack their name, for which all is listed.

    One that cannot be aborted costs room, and stops nobody: it is told in the log.
    """
    return run_loop(_abort(leftovers, kept, context, is_thorough=is_thorough))


async def _abort(leftovers: Leftovers, kept: Collection[str], context: StageContext, *, is_thorough: bool) -> Requests:
    async with opened(context.copying, "leftovers") as made:
        wire = made.copier.mirror.wire
        aborted = 0
        try:
            aborted += await _abort_those(made.copier, leftovers, kept, wire.uploads, ABORT_S)
            if is_thorough:
                aborted += await _abort_those(made.copier, leftovers, kept, wire.unnamed, LIST_S)
        except LakemirrorError as err:
            log.warning("%s: unfinished uploads of earlier tries are left there (%s)", leftovers.root, err)
        if aborted:
            log.info("%s: %d unfinished uploads of earlier tries were aborted", leftovers.root, aborted)
        return sum_requests([made.counts.take()])


async def _abort_those(
    copier: Copier, leftovers: Leftovers, kept: Collection[str], listing: Listing, patience_s: float
) -> int:
    before = leftovers.begun_before

    async def found() -> list[Upload]:
        return [one async for one in listing(leftovers.root)]

    def is_due(one: Upload) -> bool:
        return (before is None or one.begun_at < before) and not any(goes_on.startswith(one.upload) for goes_on in kept)

    due = list(filter(is_due, await copier.mirror.retrying(found, Patience(leftovers.root, patience_s))))
    for one in due[:MOST]:
        await copier.abort(CopyItem("", one.uri, 0), one.upload)
    return len(due[:MOST])
