"""The stages of a run one by one, for tasks that share nothing but the bucket.

The change, the plan and each stage's result lie below the plan's URI, and the last task puts the whole answer together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from lakemirror.errors import LostRaceError, PermanentError
from lakemirror.model.paths import is_below
from lakemirror.model.results import MirrorResult, PlanResult, Rewritten, StageResult
from lakemirror.model.source_name import snapshot_asked_for
from lakemirror.replicate import assemble as assembling
from lakemirror.replicate import change as changes
from lakemirror.replicate import control, pipeline
from lakemirror.replicate import plan as planning
from lakemirror.replicate.change import Change
from lakemirror.replicate.detect import Unchanged, detect_again
from lakemirror.replicate.plan import Plan
from lakemirror.replicate.stage import Engine, Requests, sum_requests
from lakemirror.replicate.transfer import copy_objects
from lakemirror.storage.port import Overwrite
from lakemirror.usecases import pinning, replan
from lakemirror.usecases.mirror import MirrorRun

_RESULT: dict[str, control.Check] = {
    **dict.fromkeys(("table", "stage", "plan_uri"), control.is_text),
    **dict.fromkeys(("files", "bytes", "skipped_files"), control.is_count),
    "ok": lambda value: value is True,
    "seconds": control.is_seconds,
    "rewritten": control.map_of(control.is_count),
    "requests": control.map_of(control.map_of(control.is_count)),
}


@dataclass
class StagedRun(MirrorRun):
    """A run whose stages are called by different processes, each under the lease of the run."""

    def plan_stage(self, plan_uri: str, source_name: str, engine: Engine) -> PlanResult:
        """What each stage answers names the plan that it leaves: another one, if a source file of this one is gone."""
        with self.lease.one_stage(_id_of(plan_uri)):
            return replan.plan(self, plan_uri, source_name, engine)

    def pinned_plan(self, plan_uri: str, source_name: str) -> tuple[str, str]:
        """The names of the plan and of the source's state, once what it reads there is pinned."""
        if self.knobs.source_pin_seconds is None:
            return plan_uri, source_name
        found = pinning.pinned(self, self._detect_again(plan_uri, source_name))
        if isinstance(found, Unchanged):
            raise LostRaceError("plan", str(self.table), f"nothing is left to do: {found.reason}", "run again")
        return self.layout.plan(found.plan_id), found.source_metadata_location

    def plan_once(self, plan_uri: str, source_name: str, engine: Engine) -> PlanResult:
        """Works the change out anew and saves it only once planning has accepted it: a refusal leaves nothing."""
        with self.timed("plan"):
            change = self._detect_again(plan_uri, source_name)
            context, narrow = self.bench.for_tasks(change, engine, change.rows("added").num_rows)
            plan = pipeline.plan_diff(change, context, narrow, self.progress, is_first=self.lease.held.is_first)
            change.save(self.bench.mirror, self.layout)
        result = StageResult(self.table, "plan", plan_uri, self.seconds["plan"], plan.files, plan.bytes, 0, Rewritten())
        self._keep(result, plan.requests)
        return replace(self.plan_result(change, plan), plan_uri=plan_uri)

    def _detect_again(self, plan_uri: str, source_name: str) -> Change:
        change = detect_again(self.table, self.layout, self.bench.sides, self.bench.policy, source_name)
        if self.layout.plan(change.plan_id) != plan_uri:
            raise LostRaceError(
                "plan",
                str(self.table),
                f"the mirror or its configuration has changed since detect (want {plan_uri}, "
                f"got {self.layout.plan(change.plan_id)})",
                "run again: it plans anew",
            )
        return change

    def copy_stage(self, plan_uri: str, engine: Engine) -> StageResult:
        with self.lease.one_stage(_id_of(plan_uri)):
            return replan.stage(self, plan_uri, engine, (self._copy_stage,))

    def rewrite_stage(self, plan_uri: str, engine: Engine) -> StageResult:
        with self.lease.one_stage(_id_of(plan_uri)):
            return replan.stage(self, plan_uri, engine, (self._copy_stage, self._rewrite_stage))

    def target_of(self, plan_uri: str) -> int | None:
        """The snapshot that somebody asked for by this plan; None: the head."""
        change, _ = self._load(plan_uri)
        return snapshot_asked_for(change.source_metadata_location)

    def _copy_stage(self, plan_uri: str, engine: Engine) -> StageResult:
        change, plan = self._load(plan_uri)
        with self.timed("copy"):
            started = self.layout.started(change.version)
            self.bench.begin_copy(self.owner)
            context, narrow = self.bench.for_copy(change, engine, plan)
            copied = copy_objects(plan, context, narrow, started, self.progress, self.leftovers)
        spent = self.seconds["copy"]
        result = StageResult(self.table, "copy", plan_uri, spent, copied.files, copied.bytes, copied.skipped)
        return self._keep(result, copied.requests)

    def _rewrite_stage(self, plan_uri: str, engine: Engine) -> StageResult:
        change, plan = self._load(plan_uri)
        with self.timed("rewrite"):
            rows = max(change.rows("added").num_rows, len(plan.of("delete")))
            context, narrow = self.bench.for_tasks(change, engine, rows)
            assembled = pipeline.rewrite_metadata(change, plan, context, narrow, self.layout, self.progress)
            assembling.save(self.bench.mirror, plan_uri, assembled)
        spent = self.seconds["rewrite"]
        result = StageResult(self.table, "rewrite", plan_uri, spent, rewritten=assembled.rewritten)
        return self._keep(result, assembled.requests)

    def publish_stage(self, plan_uri: str, *, full_verify: bool) -> MirrorResult:
        with self.lease.whole_run(_id_of(plan_uri)):
            return self._publish_stage(plan_uri, full_verify=full_verify)

    def _publish_stage(self, plan_uri: str, *, full_verify: bool) -> MirrorResult:
        change, plan = self._load(plan_uri)
        assembled = assembling.load(self.bench.mirror, plan_uri)
        stages = {name: self._kept(plan_uri, name) for name in ("plan", "copy", "rewrite")}
        marker = self.put_marker(change, plan, assembled, full_verify=full_verify)
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
            seconds={**spent, **self.all_seconds(), "total": sum(spent.values()) + sum(self.seconds.values())},
            marker=self.layout.ready(marker.version),
            left_out=assembled.left_out,
        )

    def _load(self, plan_uri: str) -> tuple[Change, Plan]:
        if not is_below(plan_uri, self.layout.root):
            raise PermanentError(
                "load plan", plan_uri, f"it lies outside {self.layout.root}", "name the table's own plan"
            )
        plan = planning.load(self.bench.mirror, plan_uri)
        change = changes.load(self.bench.mirror, plan_uri)
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
        return control.read(self.bench.mirror, f"{plan_uri}/{stage}.result.json", _RESULT)


def _id_of(plan_uri: str) -> str:
    return plan_uri.rpartition("/")[2]
