"""A planned file is gone at the source: plan anew at its current head, in the same run, a bounded number of times.

A table that is compacted and expired while it is copied loses files that its older state names; its newer state does
not. What was copied under the old plan and is still wanted is found in the mirror and adopted. Where the source's head
is what was planned, planning anew would change nothing: its own table is broken, and the error stands. One `Replans`
counts all of it: also the plans that fail while a stage gets a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from lakemirror.errors import SourceVanishedError
from lakemirror.model.results import MirrorResult, PlanResult, StageResult
from lakemirror.model.source_name import snapshot_asked_for
from lakemirror.replicate.change import Change
from lakemirror.replicate.detect import Unchanged
from lakemirror.usecases import pinning

if TYPE_CHECKING:
    from lakemirror.replicate.stage import Engine
    from lakemirror.usecases.mirror import MirrorRun
    from lakemirror.usecases.stages import StagedRun

Step = Callable[[str, "Engine"], StageResult]
log = logging.getLogger(__name__)


def mirror(run: MirrorRun, found: Change, engine: Engine | None, *, full_verify: bool) -> MirrorResult:
    """All stages here. A plan made anew keeps the lane: what is under way does not start a JVM midway."""
    replans = Replans(run)
    with run.lease.whole_run(found.plan_id):
        while True:
            try:
                pinned = pinning.pinned(run, found)
                if isinstance(pinned, Unchanged):
                    return run.unchanged(pinned)
                found = pinned
                return run.run(found, engine, full_verify=full_verify)
            except SourceVanishedError as err:
                anew = run.detect(snapshot_asked_for(found.source_metadata_location))
                if isinstance(anew, Unchanged):
                    return run.unchanged(anew)
                replans.take(err, found.plan_id, anew)
                found = anew


def plan(run: StagedRun, plan_uri: str, source_name: str, engine: Engine, replans: Replans | None = None) -> PlanResult:
    """The plan of this state of the source, or of its head where this one can no longer be read."""
    replans = replans or Replans(run)
    while True:
        try:
            plan_uri, source_name = run.pinned_plan(plan_uri, source_name)
            return run.plan_once(plan_uri, source_name, engine)
        except SourceVanishedError as err:
            anew = run.detect(snapshot_asked_for(source_name))
            if isinstance(anew, Unchanged):
                raise
            replans.take(err, plan_uri.rsplit("/", 1)[-1], anew)
            plan_uri, source_name = run.layout.plan(anew.plan_id), anew.source_metadata_location


def stage(run: StagedRun, plan_uri: str, engine: Engine, steps: tuple[Step, ...]) -> StageResult:
    """The last of `steps`, for a plan on which the others are done; all of them, for a plan made anew."""
    todo, replans = steps[-1:], Replans(run)
    while True:
        try:
            return [step(plan_uri, engine) for step in todo][-1]
        except SourceVanishedError as err:
            anew = run.detect(run.target_of(plan_uri))
            if isinstance(anew, Unchanged):
                raise
            replans.take(err, plan_uri.rsplit("/", 1)[-1], anew)
            plan_uri, todo = run.layout.plan(anew.plan_id), steps
            plan_uri = str(plan(run, plan_uri, anew.source_metadata_location, engine, replans).plan_uri)


class Replans:
    """New plans that are left to one call of `mirror`, `plan` or `stage`."""

    def __init__(self, run: MirrorRun) -> None:
        self._run = run
        self._left = run.knobs.max_replans

    def take(self, err: SourceVanishedError, plan_id: str, anew: Change) -> None:
        """Go on with another plan than the one that failed; the error, if there is none or too many were made."""
        run = self._run
        if anew.plan_id == plan_id:
            err.add_note("the source's head names it still: no new plan could do without it")
            raise err
        if self._left == 0:
            err.add_note(f"gave up after {run.knobs.max_replans} new plans (max_replans)")
            raise err
        self._left -= 1
        log.warning("%s: %s; planning anew at snapshot %s", run.table, err, anew.head)
        run.lease.go_on(anew.plan_id)
