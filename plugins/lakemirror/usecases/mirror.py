"""Mirror one table: run the stages in the right lane, time them, count their requests.

In the task lane everything happens here. In the Spark lane of Airflow each stage is a task of its own; then the change,
the plan and each stage's result lie below the plan's URI, and the last task puts the whole answer together.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from lakemirror import bridge
from lakemirror.config.knobs import Knobs
from lakemirror.copying.model import CopySettings
from lakemirror.copying.pace import Rates
from lakemirror.copying.ports import CopyPorts
from lakemirror.errors import LostRaceError, PermanentError
from lakemirror.model.paths import is_below
from lakemirror.model.results import Detected, MirrorResult, PlanResult, Rewritten, StageResult
from lakemirror.model.table import TableRef
from lakemirror.replicate import assemble as assembling
from lakemirror.replicate import change as changes
from lakemirror.replicate import control, pipeline
from lakemirror.replicate import plan as planning
from lakemirror.replicate.change import Change
from lakemirror.replicate.detect import Policy, Sides, Unchanged, detect, detect_again, snapshot_asked_for
from lakemirror.replicate.history import HistoryBudget
from lakemirror.replicate.plan import Plan
from lakemirror.replicate.stage import Engine, LocalEngine, Progress, Requests, StageContext, sum_requests
from lakemirror.replicate.transfer import copy_objects
from lakemirror.replicate.verify import Sampling
from lakemirror.storage.port import ObjectStore, Overwrite
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.dry_run import DryRunStore
from lakemirror.storage.wrappers.limit import RateLimitedStore
from lakemirror.storage.wrappers.once import ReadOnceStore
from lakemirror.usecases import replan
from lakemirror.usecases.ports import Ports

_RESULT: dict[str, control.Check] = {
    **dict.fromkeys(("table", "stage", "plan_uri"), control.is_text),
    **dict.fromkeys(("files", "bytes", "skipped_files"), control.is_count),
    "ok": lambda value: value is True,
    "seconds": control.is_seconds,
    "rewritten": control.map_of(control.is_count),
    "requests": control.map_of(control.map_of(control.is_count)),
}
Clock = Callable[[], datetime]
Timer = Callable[[], float]
THREADS = 8  # of planning and rewriting in this process
LEAST_SHARE_BYTES_PER_S = 4_000_000  # of a limited line for one process; more processes than that would only wait
CATALOG_METADATA_BYTES = {"blms": 1_000_000, "glue": 20_000_000}  # the largest metadata file that a catalog takes


@dataclass
class MirrorRun:
    """One run of one table. `counts` holds what this process asked of the stores; Spark tasks count for themselves."""

    table: TableRef
    ports: Ports
    knobs: Knobs
    now: Clock
    timer: Timer
    progress: Progress | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.layout = self.ports.layout(self.table)
        self._source = CountingStore(self._limited(self.ports.source_store))
        self._mirror = CountingStore(self.ports.mirror_store)
        self._source_once = ReadOnceStore(self._source)

    def detect(self, target_snapshot_id: int | None = None) -> Change | Unchanged:
        with self._timed("detect"):
            return detect(self.table, self.layout, self._sides, self._policy, target_snapshot_id)

    def dry_plan(self, change: Change) -> PlanResult:
        """What the change would copy; reads the changed manifests and writes nothing."""
        context = self._context(change, mirror=DryRunStore(self._mirror))
        plan = planning.make(change, context, LocalEngine(THREADS))
        return self._plan_result(change, plan)

    def run(self, change: Change, engine: Engine | None, *, full_verify: bool) -> MirrorResult:
        """All stages here: in threads for a small change, otherwise on `engine`."""

        def spread(rows: int) -> tuple[StageContext, Engine]:
            if engine is None:
                return self._context(change), LocalEngine(THREADS)
            return self._for_tasks(change, engine, rows)

        manifests = change.rows("added").num_rows
        with self._timed("plan"):
            plan = pipeline.plan_diff(change, *spread(manifests), self.progress)
        with self._timed("copy"):
            started = self.layout.started(change.version)
            copied = copy_objects(plan, *spread(_copy_rows(plan)), started, self.progress)
        with self._timed("rewrite"):
            rows = max(manifests, len(plan.of("delete")))
            assembled = pipeline.rewrite_metadata(change, plan, *spread(rows), self.layout, self.progress)
        marker = self._publish(change, plan, assembled, full_verify=full_verify)
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
            seconds=self._all_seconds(),
            marker=self.layout.ready(marker.version),
            left_out=assembled.left_out,
        )

    # The stages one by one, for tasks that share nothing but the bucket.

    def plan_stage(self, plan_uri: str, source_name: str, engine: Engine) -> PlanResult:
        """What each stage answers names the plan that it leaves: another one, if a source file of this one is gone."""
        return replan.plan(self, plan_uri, source_name, engine)

    def plan_once(self, plan_uri: str, source_name: str, engine: Engine) -> PlanResult:
        """Works the change out anew and saves it only once planning has accepted it: a refusal leaves nothing."""
        with self._timed("plan"):
            change = detect_again(self.table, self.layout, self._sides, self._policy, source_name)
            if self.layout.plan(change.plan_id) != plan_uri:
                raise LostRaceError(
                    "plan",
                    str(self.table),
                    f"the mirror or its configuration has changed since detect (want {plan_uri}, "
                    f"got {self.layout.plan(change.plan_id)})",
                    "run again: it plans anew",
                )
            context, narrow = self._for_tasks(change, engine, change.rows("added").num_rows)
            plan = pipeline.plan_diff(change, context, narrow, self.progress)
            change.save(self._mirror, self.layout)
        result = StageResult(self.table, "plan", plan_uri, self.seconds["plan"], plan.files, plan.bytes, 0, Rewritten())
        self._keep(result, plan.requests)
        return replace(self._plan_result(change, plan), plan_uri=plan_uri)

    def copy_stage(self, plan_uri: str, engine: Engine) -> StageResult:
        return replan.stage(self, plan_uri, engine, (self._copy_stage,))

    def rewrite_stage(self, plan_uri: str, engine: Engine) -> StageResult:
        return replan.stage(self, plan_uri, engine, (self._copy_stage, self._rewrite_stage))

    def target_of(self, plan_uri: str) -> int | None:
        """The snapshot that somebody asked for by this plan; None: the head."""
        change, _ = self._load(plan_uri)
        return snapshot_asked_for(change.source_metadata_location)

    def _copy_stage(self, plan_uri: str, engine: Engine) -> StageResult:
        change, plan = self._load(plan_uri)
        with self._timed("copy"):
            started = self.layout.started(change.version)
            context, narrow = self._for_tasks(change, engine, _copy_rows(plan))
            copied = copy_objects(plan, context, narrow, started, self.progress)
        spent = self.seconds["copy"]
        result = StageResult(self.table, "copy", plan_uri, spent, copied.files, copied.bytes, copied.skipped)
        return self._keep(result, copied.requests)

    def _rewrite_stage(self, plan_uri: str, engine: Engine) -> StageResult:
        change, plan = self._load(plan_uri)
        with self._timed("rewrite"):
            rows = max(change.rows("added").num_rows, len(plan.of("delete")))
            context, narrow = self._for_tasks(change, engine, rows)
            assembled = pipeline.rewrite_metadata(change, plan, context, narrow, self.layout, self.progress)
        spent = self.seconds["rewrite"]
        result = StageResult(self.table, "rewrite", plan_uri, spent, rewritten=assembled.rewritten)
        return self._keep(result, assembled.requests)

    def publish_stage(self, plan_uri: str, *, full_verify: bool) -> MirrorResult:
        change, plan = self._load(plan_uri)
        assembled = assembling.load(self._mirror, plan_uri)
        stages = {name: self._kept(plan_uri, name) for name in ("plan", "copy", "rewrite")}
        marker = self._publish(change, plan, assembled, full_verify=full_verify)
        copied = stages["copy"]
        spent = {name: float(result.get("seconds", 0.0)) for name, result in stages.items()}
        return MirrorResult(
            table=self.table,
            version=marker.version,
            snapshot_id=marker.snapshot_id,
            lane="spark",
            copied_files=int(copied.get("files", 0)),
            copied_bytes=int(copied.get("bytes", 0)),
            skipped_files=int(copied.get("skipped_files", 0)),
            rewritten=assembled.rewritten,
            requests=sum_requests([self.counts, *(result.get("requests", {}) for result in stages.values())]),
            seconds={**spent, **self._all_seconds(), "total": sum(spent.values()) + sum(self.seconds.values())},
            marker=self.layout.ready(marker.version),
            left_out=assembled.left_out,
        )

    @property
    def counts(self) -> Requests:
        return {"source": dict(self._source.counts), "mirror": dict(self._mirror.counts)}

    def unchanged(self, found: Unchanged) -> MirrorResult:
        newest = found.newest
        return MirrorResult(
            table=self.table,
            version=None if newest is None else newest.version,
            snapshot_id=None if newest is None else newest.snapshot_id,
            lane="none",
            requests=self.counts,
            seconds=self._all_seconds(),
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

    def _publish(self, change: Change, plan: Plan, assembled: assembling.Assembled, *, full_verify: bool) -> Any:
        sampling = Sampling(
            self.knobs.p, self.knobs.k_min, self.knobs.k_max, self.knobs.max_concurrency, full=full_verify
        )
        marks = [("publish", self.timer())]
        bridge.announce(self._mirror, self.ports.config.mirror.location, self.table)
        marker = pipeline.publish(
            change,
            plan,
            assembled,
            self._context(change),
            self.layout,
            sampling,
            now=self.now(),
            producer=f"{socket.gethostname()}:{os.getpid()}",
            on_stage=lambda stage: marks.append((stage, self.timer())),
        )
        marks.append(("end", self.timer()))
        for (stage, start), (_, end) in pairwise(marks):
            self.seconds[stage] = self.seconds.get(stage, 0.0) + end - start
        return marker

    def _load(self, plan_uri: str) -> tuple[Change, Plan]:
        if not is_below(plan_uri, self.layout.root):
            raise PermanentError(
                "load plan", plan_uri, f"it lies outside {self.layout.root}", "name the table's own plan"
            )
        plan = planning.load(self._mirror, plan_uri)
        change = changes.load(self._mirror, plan_uri)
        if plan is None or change is None:
            raise PermanentError("load plan", plan_uri, "there is no complete plan", "run plan_diff first")
        return change, plan

    def _keep(self, result: StageResult, by_tasks: Requests) -> StageResult:
        full = StageResult(
            result.table,
            result.stage,
            result.plan_uri,
            result.seconds,
            result.files,
            result.bytes,
            result.skipped_files,
            result.rewritten,
            sum_requests([self.counts, by_tasks]),
        )
        body = json.dumps(full.as_json()).encode()
        self.ports.mirror_store.put(f"{result.plan_uri}/{result.stage}.result.json", body, Overwrite())
        return full

    def _kept(self, plan_uri: str, stage: str) -> dict[str, Any]:
        """What a stage told, for the whole answer."""
        return control.read(self._mirror, f"{plan_uri}/{stage}.result.json", _RESULT)

    @property
    def _sides(self) -> Sides:
        ports = self.ports
        return Sides(ports.source_catalog, self._source_once, self._mirror, ports.roots, ports.private_places)

    @property
    def _policy(self) -> Policy:
        return Policy(
            small_change_files=self.knobs.small_change_files,
            small_change_bytes=self.knobs.small_change_bytes,
            follow_rollback=self.knobs.on_source_rollback == "follow",
            follow_recreated=self.knobs.on_source_recreated == "follow",
            accepts_v1=self.ports.config.mirror.catalog.type != "blms",
            history=self._history,
        )

    @property
    def _history(self) -> HistoryBudget:
        age = self.knobs.history_age
        return HistoryBudget(
            self.knobs.history_versions,
            None if age is None else age.total_seconds(),
            self.knobs.history_bytes,
            CATALOG_METADATA_BYTES.get(self.ports.config.mirror.catalog.type),
        )

    def _context(self, change: Change, *, mirror: ObjectStore | None = None) -> StageContext:
        return self._stage_context(change, self._source_once, mirror or self._mirror, 1)

    def _for_tasks(self, change: Change, engine: Engine, rows: int) -> tuple[StageContext, Engine]:
        """For tasks in other processes: no more at once than may have requests in flight, or can share the line."""
        source, rate = self.ports.source_store, self._rate
        if rows == 0:
            return self._stage_context(change, source, self.ports.mirror_store, 1), engine
        most = max(1, min(rows, self.knobs.max_concurrency))
        if rate is not None:
            most = max(1, min(most, int(rate // LEAST_SHARE_BYTES_PER_S)))
        narrow, processes = engine.narrow(most)
        is_bound = processes == most < rows or rate is not None or self.knobs.requests_limit_per_s is not None
        if rate is not None:
            source = RateLimitedStore(source, bytes_per_s=rate / processes, burst_s=0.0)
        context = self._stage_context(change, source, self.ports.mirror_store, processes)
        return context, narrow if is_bound else engine

    def _stage_context(self, change: Change, source: ObjectStore, mirror: ObjectStore, processes: int) -> StageContext:
        return StageContext(
            source=source,
            mirror=mirror,
            paths=change.paths,
            plan_uri=self.layout.plan(change.plan_id),
            ledger_uri=self.layout.ledger(change.plan_id),
            copying=self._copy_ports(processes),
            bin_files=self.knobs.bin_files,
            bin_bytes=self.knobs.bin_bytes,
            split_bytes=self.knobs.copy_split_bytes,
            ledger_flush_files=self.knobs.ledger_flush_files,
        )

    def _copy_ports(self, processes: int) -> CopyPorts:
        knobs = self.knobs
        seconds = knobs.copy_deadline_seconds
        settings = CopySettings(
            concurrency=max(1, knobs.max_concurrency // processes),
            memory_bytes=knobs.copy_memory_bytes,
            part_bytes=knobs.copy_part_bytes,
            attempts=knobs.copy_attempts,
            retry_budget=knobs.copy_retry_budget,
            object_deadline_s=float(knobs.object_deadline_seconds),
            deadline_at=None if seconds is None else self.now().timestamp() + seconds,
        )
        return CopyPorts(
            self.ports.source_wire,
            self.ports.mirror_wire,
            settings,
            Rates(self._rate, knobs.requests_limit_per_s),
            processes,
            is_one_store=self.ports.is_one_store,
        )

    @property
    def _rate(self) -> float | None:
        peak = self.knobs.peak_bandwidth_bytes_per_s
        return None if peak is None else peak * self.knobs.rate_limit

    def _limited(self, store: ObjectStore) -> ObjectStore:
        return store if self._rate is None else RateLimitedStore(store, bytes_per_s=self._rate)

    def _plan_result(self, change: Change, plan: Plan) -> PlanResult:
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

    def _all_seconds(self) -> dict[str, float]:
        return {**self.seconds, "total": sum(self.seconds.values())}

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = self.timer()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + self.timer() - start


def _copy_rows(plan: Plan) -> int:
    return len(plan.of("copy")) + len(plan.of("split"))
