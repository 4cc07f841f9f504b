"""Mirror one table: run the stages in the right lane, time them, count their requests.

In the task lane everything happens here; for the Spark lane of Airflow see `lakemirror.usecases.stages`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from lakemirror import register
from lakemirror.config.knobs import Knobs
from lakemirror.model.results import Detected, MirrorResult, PlanResult
from lakemirror.model.table import TableRef
from lakemirror.replicate import assemble as assembling
from lakemirror.replicate import pipeline
from lakemirror.replicate import plan as planning
from lakemirror.replicate.change import Change
from lakemirror.replicate.detect import Unchanged, detect
from lakemirror.replicate.ledger import Ledgers
from lakemirror.replicate.leftovers import UNFENCED_AGE, Leftovers
from lakemirror.replicate.plan import Plan
from lakemirror.replicate.stage import Engine, LocalEngine, Progress, Requests, StageContext, sum_requests
from lakemirror.replicate.transfer import copy_objects
from lakemirror.storage.wrappers.dry_run import DryRunStore
from lakemirror.usecases import grouping, pinning
from lakemirror.usecases.fencing import RunLease, fence_of
from lakemirror.usecases.ports import Ports
from lakemirror.usecases.workbench import Clock, Workbench

Timer = Callable[[], float]
THREADS = 8  # of planning and rewriting in this process


@dataclass
class MirrorRun:
    """One run of one table. `counts` holds what this process asked of the stores; Spark tasks count for themselves."""

    table: TableRef
    ports: Ports
    knobs: Knobs
    now: Clock
    timer: Timer
    progress: Progress | None = None
    owner: str = ""
    holder: str = ""
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bench = Workbench(self.table, self.ports, self.knobs, self.now)
        self.layout = self.bench.layout
        fence = fence_of(self.bench.mirror_at_once, self.layout, self.knobs, self.now, self.owner, self.holder)
        self.lease = RunLease(fence)
        self._asked_at: datetime | None = None

    def detect(self, target_snapshot_id: int | None = None) -> Change | Unchanged:
        """Looks only: the lease is taken by whoever goes on with what was found."""
        self._asked_at = self.now() if target_snapshot_id is None else None
        with self.timed("detect"):
            return detect(self.table, self.layout, self.bench.sides, self.bench.policy, target_snapshot_id)

    def note_current(self, found: Unchanged) -> None:
        """A quiet table of a group must not hold its watermark back: as of when nothing was missing is written down."""
        if self.knobs.group is None or self._asked_at is None or found.newest is None or not found.is_current:
            return
        as_of = self._asked_at - timedelta(seconds=self.knobs.clock_skew_seconds)
        committed_at = found.committed_at or found.newest.source_committed_at
        grouping.note_current(self.bench.mirror, self.layout, found.newest.version, as_of, committed_at)

    def take_lease(self, found: Change | Unchanged) -> None:
        """An unchanged table costs no lease."""
        if isinstance(found, Change):
            self.lease.take(found.plan_id)

    def dry_plan(self, change: Change) -> PlanResult:
        """What the change would copy; reads the changed manifests and writes nothing."""
        context = self.bench.context(change, mirror=DryRunStore(self.bench.mirror))
        plan = planning.make(change, context, LocalEngine(THREADS))
        return self.plan_result(change, plan)

    def run(self, change: Change, engine: Engine | None, *, full_verify: bool) -> MirrorResult:
        """All stages here, under the lease: in threads for a small change, otherwise on `engine`."""

        def spread(rows: int) -> tuple[StageContext, Engine]:
            if engine is None:
                return self.bench.context(change), LocalEngine(THREADS)
            return self.bench.for_tasks(change, engine, rows)

        manifests = change.rows("added").num_rows
        with self.timed("plan"):
            plan = pipeline.plan_diff(change, *spread(manifests), self.progress, is_first=self.lease.held.is_first)
        self.lease.held.confirm()
        with self.timed("copy"):
            self.bench.begin_copy()
            started = self.layout.started(change.version)
            copying = spread(0) if engine is None else self.bench.for_copy(change, engine, plan)
            copied = copy_objects(plan, *copying, started, self.progress, self.leftovers)
        self.lease.held.confirm()
        with self.timed("rewrite"):
            rows = max(manifests, len(plan.of("delete")))
            assembled = pipeline.rewrite_metadata(change, plan, *spread(rows), self.layout, self.progress)
        marker = self.put_marker(change, plan, assembled, copied.ledgers, full_verify=full_verify)
        by_tasks = [copied.wire_requests]
        if engine is not None:
            by_tasks = [plan.requests, copied.requests, assembled.requests]
        return MirrorResult(
            table=self.table,
            version=marker.version,
            snapshot_id=marker.snapshot_id,
            lane="task" if engine is None else "spark",
            copied_files=copied.files,
            copied_bytes=copied.bytes,
            skipped_files=copied.skipped,
            rewritten=assembled.rewritten,
            requests=sum_requests([self.counts, *by_tasks]),
            seconds=self.all_seconds(),
            marker=self.layout.ready(marker.version),
            left_out=assembled.left_out,
        )

    @property
    def counts(self) -> Requests:
        return self.bench.counts

    @property
    def leftovers(self) -> Leftovers:
        """Of earlier tries at this table, whose uploads nobody else is at work on."""
        is_alone = self.lease.held.token is not None
        return Leftovers(self.layout.root, None if is_alone else self.now() - UNFENCED_AGE, self.lease.held.check)

    def unchanged(self, found: Unchanged) -> MirrorResult:
        newest = found.newest
        return MirrorResult(
            table=self.table,
            version=None if newest is None else newest.version,
            snapshot_id=None if newest is None else newest.snapshot_id,
            lane="none",
            requests=self.counts,
            seconds=self.all_seconds(),
            marker=None if newest is None else self.layout.ready(newest.version),
            reason=found.reason,
        )

    def detected(self, found: Change | Unchanged) -> Detected:
        if isinstance(found, Unchanged):
            version = None if found.newest is None else found.newest.version
            return Detected(self.table, "none", version, version, None, 0, reason=found.reason)
        return Detected(
            self.table,
            found.lane,
            found.from_version,
            found.version,
            found.head,
            found.files_at_most,
            self.layout.plan(found.plan_id),
            found.source_metadata_location,
        )

    def put_marker(
        self,
        change: Change,
        plan: Plan,
        assembled: assembling.Assembled,
        ledgers: Ledgers | None = None,
        *,
        full_verify: bool,
    ) -> Any:
        marks = [("publish", self.timer())]
        if change.from_version is None:  # every later version comes after one that was announced
            register.announce(self.bench.mirror, self.ports.config.mirror.location, self.table)
            if self.knobs.group is not None:
                grouping.join(self.ports, self.knobs.group, grouping.at_source(self.ports), self.now())
        marker = pipeline.publish(
            change,
            plan,
            assembled,
            self.bench.context(change, mirror=self.bench.mirror if full_verify else None),
            self.layout,
            self.bench.sampling(is_full=full_verify),
            now=self.now(),
            producer=f"{socket.gethostname()}:{os.getpid()}",
            held=self.lease.held,
            ledgers=ledgers,
            on_stage=lambda stage: marks.append((stage, self.timer())),
        )
        pinning.unpin(self, change)
        self.lease.held.release()
        marks.append(("end", self.timer()))
        for (stage, start), (_, end) in pairwise(marks):
            self.seconds[stage] = self.seconds.get(stage, 0.0) + end - start
        return marker

    def plan_result(self, change: Change, plan: Plan) -> PlanResult:
        reused = change.rows("reused").num_rows
        lists, lane = len(change.new_lists), change.lane
        return PlanResult(
            self.table,
            change.from_version,
            change.head,
            plan.files,
            plan.bytes,
            lists,
            plan.manifests_read,
            reused,
            lane,
        )

    def all_seconds(self) -> dict[str, float]:
        return {**self.seconds, "total": sum(self.seconds.values())}

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        start = self.timer()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + self.timer() - start
