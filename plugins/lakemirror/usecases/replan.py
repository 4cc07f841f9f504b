"""A planned file is gone at the source: plan anew at its current head, in the same run, a bounded number of times.

A table that is compacted and expired while it is copied loses files that its older state names; its newer state does
not. What was copied under the old plan and is still wanted is found in the mirror and adopted. Where the source's head
is what was planned, planning anew would change nothing: its own table is broken, and the error stands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from lakemirror.errors import SourceVanishedError
from lakemirror.model.results import MirrorResult, PlanResult, StageResult
from lakemirror.replicate.change import Change
from lakemirror.replicate.detect import Unchanged, snapshot_asked_for
from lakemirror.usecases import pinning

if TYPE_CHECKING:
    from lakemirror.replicate.stage import Engine
    from lakemirror.usecases.mirror import MirrorRun
    from lakemirror.usecases.stages import StagedRun

Step = Callable[[str, "Engine"], StageResult]
log = logging.getLogger(__name__)


def mirror(run: MirrorRun, found: Change, engine: Engine | None, *, full_verify: bool) -> MirrorResult:
    """All stages here. A plan made anew keeps the lane: what is under way does not start a JVM midway."""
    with run.lease.whole_run(found.plan_id):
        for left in range(run.knobs.max_replans, -1, -1):
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
                _check(run, err, found.plan_id, anew, left)
                found = anew
    raise AssertionError("the last round returns or raises")


def plan(run: StagedRun, plan_uri: str, source_name: str, engine: Engine) -> PlanResult:
    """The plan of this state of the source, or of its head where this one can no longer be read."""
    for left in range(run.knobs.max_replans, -1, -1):
        try:
            plan_uri, source_name = run.pinned_plan(plan_uri, source_name)
            return run.plan_once(plan_uri, source_name, engine)
        except SourceVanishedError as err:
            anew = run.detect(snapshot_asked_for(source_name))
            if isinstance(anew, Unchanged):
                raise
            _check(run, err, plan_uri.rsplit("/", 1)[-1], anew, left)
            plan_uri, source_name = run.layout.plan(anew.plan_id), anew.source_metadata_location
    raise AssertionError("the last round returns or raises")


def stage(run: StagedRun, plan_uri: str, engine: Engine, steps: tuple[Step, ...]) -> StageResult:
    """The last of `steps`, for a plan on which the others are done; all of them, for a plan made anew."""
    todo = steps[-1:]
    for left in range(run.knobs.max_replans, -1, -1):
        try:
            return [step(plan_uri, engine) for step in todo][-1]
        except SourceVanishedError as err:
            anew = run.detect(run.target_of(plan_uri))
            if isinstance(anew, Unchanged):
                raise
            _check(run, err, plan_uri.rsplit("/", 1)[-1], anew, left)
            plan_uri, todo = run.layout.plan(anew.plan_id), steps
            plan_uri = str(plan(run, plan_uri, anew.source_metadata_location, engine).plan_uri)
    raise AssertionError("the last round returns or raises")


def _check(run: MirrorRun, err: SourceVanishedError, plan_id: str, anew: Change, left: int) -> None:
    if anew.plan_id == plan_id:
        err.add_note("the source's head names it still: no new plan could do without it")
        raise err
    if left == 0:
        err.add_note(f"gave up after {run.knobs.max_replans} new plans (max_replans)")
        raise err
    log.warning("%s: %s; planning anew at snapshot %s", run.table, err, anew.head)
    run.lease.go_on(anew.plan_id)
