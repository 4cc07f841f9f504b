"""A run that may commit on the source pins what it reads there: between plan and copy nothing of it can be expired.

The tag comes first and the plan after it, made from the state that has the tag: a retry finds both, and the same plan.
Its name tells whose it is: several mirrors of one source leave each other's alone.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Final

from lakemirror.errors import TransientError
from lakemirror.formats.iceberg.metadata_json import PIN_PREFIX
from lakemirror.model.paths import canonical
from lakemirror.model.source_name import snapshot_asked_for
from lakemirror.replicate.change import Change
from lakemirror.replicate.detect import Unchanged

if TYPE_CHECKING:
    from lakemirror.usecases.mirror import MirrorRun

_TRIES: Final = 3
_DIGITS: Final = 12  # of the hash by which a mirror table is known on its source
log = logging.getLogger(__name__)


def pinned(run: MirrorRun, found: Change) -> Change | Unchanged:
    """The same step, or that to a newer head, with the snapshots it reads tagged; the run's lease names its plan."""
    if run.knobs.source_pin_seconds is None:
        return found
    plan_id = found.plan_id
    for _ in range(_TRIES):
        if not _change(run, found, is_last=False):
            break
        anew = run.detect(snapshot_asked_for(found.source_metadata_location))
        if isinstance(anew, Unchanged):
            return anew
        found = anew
    else:
        log.warning("%s: its head moves faster than it can be tagged; copying without a tag", run.table)
    if found.plan_id != plan_id:
        run.lease.go_on(found.plan_id)
    return found


def unpin(run: MirrorRun, published: Change) -> None:
    """What was to be done is done: a tag that cannot be dropped is left to the next run, or to its age."""
    if run.knobs.source_pin_seconds is not None:
        try:
            _change(run, published, is_last=True)
        except TransientError as err:
            log.warning("%s", err)


def _change(run: MirrorRun, change: Change, *, is_last: bool) -> bool:
    """Whoever holds the lease works alone on this mirror: all other pins of it are of runs that are dead."""
    is_alone = run.lease.held.token is not None
    mine = f"{PIN_PREFIX}{hashlib.sha256(canonical(run.layout.root).encode()).hexdigest()[:_DIGITS]}-"
    ours = {f"{mine}{snapshot_id}": snapshot_id for snapshot_id, *_ in change.new_lists}
    return run.ports.source_pins.change(
        run.table,
        {} if is_last else ours,
        drops=lambda name: name.startswith(mine) and (is_alone or (is_last and name in ours)),
        seconds=run.knobs.source_pin_seconds or 0,
        now_ms=int(run.now().timestamp() * 1000),
    )
