"""Uploads in parts that earlier tries at a version began and never finished: aborted before copying goes on.

A killed task leaves the upload of its file, and a plan that is made anew never looks at those of the plan before it.
Whoever holds the table's lease works alone, and has begun none himself yet: all that is there is left over, but what
his own plan wrote down to go on with. Without a fence somebody else may be at work: only what is old is aborted then.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from lakemirror.copying.copier import ABORT_S
from lakemirror.copying.crew import run_loop
from lakemirror.copying.model import CopyItem
from lakemirror.copying.ports import opened
from lakemirror.copying.retry import Patience
from lakemirror.errors import LakemirrorError
from lakemirror.replicate.stage import Requests, StageContext, sum_requests
from lakemirror.storage.wire import Upload

UNFENCED_AGE: Final = timedelta(days=7)
MOST: Final = 1000
"""Aborted by one run; the next one goes on."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Below which folder they are looked for, and from which time; None: from any."""

    root: str
    begun_before: datetime | None


def abort_leftovers(leftovers: Leftovers, kept: Collection[str], context: StageContext) -> Requests:
    """The requests that it took. One that cannot be aborted costs room, and stops nobody: it is told in the log."""
    return run_loop(_abort(leftovers, kept, context))


async def _abort(leftovers: Leftovers, kept: Collection[str], context: StageContext) -> Requests:
    before = leftovers.begun_before
    async with opened(context.copying, "leftovers") as made:

        async def uploads() -> list[Upload]:
            return [one async for one in made.copier.mirror.wire.uploads(leftovers.root)]

        aborted = 0
        try:
            found = await made.copier.mirror.retrying(uploads, Patience(leftovers.root, ABORT_S))
            due = [one for one in found if one.upload not in kept and (before is None or one.begun_at < before)]
            for one in due[:MOST]:
                await made.copier.abort(CopyItem("", one.uri, 0), one.upload)
                aborted += 1
        except LakemirrorError as err:
            log.warning("%s: unfinished uploads of earlier tries are left there (%s)", leftovers.root, err)
        if aborted:
            log.info("%s: %d unfinished uploads of earlier tries were aborted", leftovers.root, aborted)
        return sum_requests([made.counts.take()])
