"""The way of a commit: detect, plan, copy, rewrite, stage, verify, publish. The order, and nothing else.

Every stage can be killed anywhere and run again; it finds what earlier tries completed and gives the same result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from lakemirror import bridge
from lakemirror.errors import PermanentError
from lakemirror.formats.iceberg.metadata_json import at
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import Marker
from lakemirror.replicate import assemble as assembling
from lakemirror.replicate import plan as planning
from lakemirror.replicate.assemble import Assembled
from lakemirror.replicate.change import Change
from lakemirror.replicate.copy import COPIED, CopySegments
from lakemirror.replicate.plan import Plan
from lakemirror.replicate.stage import Engine, LocalEngine, Progress, Report, Requests, StageContext, requests_of
from lakemirror.replicate.verify import Sampling, verify_l0
from lakemirror.storage.port import ConditionFailed, Create, ObjectStore


@dataclass(frozen=True, slots=True)
class Copied:
    files: int
    bytes: int
    skipped: int
    requests: Requests


def plan_diff(change: Change, context: StageContext, engine: Engine, progress: Progress | None = None) -> Plan:
    """The plan that an earlier try completed, or a new one."""
    known = planning.load(context.mirror, context.plan_uri)
    return known or planning.make(change, context, engine, _rows(progress, "plan", change.rows("added").num_rows))


def copy_objects(
    plan: Plan, context: StageContext, engine: Engine, started_uri: str, progress: Progress | None = None
) -> Copied:
    """Copy what the plan names and the ledger does not have yet.

    `started_uri` tells whether an earlier try at this version may have left files that no ledger tells of; then each
    key is looked at before it is written. A first try writes without looking.
    """
    resumes = bool(plan.of("copy")) and not _is_first(context.mirror, started_uri)
    report = None
    if progress is not None and plan.of("copy"):
        told = _Files(progress, plan)
        if engine.name == LocalEngine.name:
            context = replace(context, on_file=told.file)
        else:
            report = told.segments
    rows = engine.run(CopySegments(context, resumes), plan.rows("copy"), COPIED, report)
    copied = Copied(
        sum(rows["files"].to_pylist()),
        sum(rows["bytes"].to_pylist()),
        sum(rows["skipped"].to_pylist()),
        requests_of(rows),
    )
    want = sum(segment.files for segment in plan.of("copy"))
    if copied.files + copied.skipped != want:
        raise PermanentError(
            "copy", context.plan_uri, f"want {want} files, got {copied.files + copied.skipped}", "report this"
        )
    return copied


def _is_first(store: ObjectStore, started_uri: str) -> bool:
    try:
        store.put(started_uri, b"", Create())
    except ConditionFailed:
        return False
    return True


def rewrite_metadata(
    change: Change,
    plan: Plan,
    context: StageContext,
    engine: Engine,
    layout: TableLayout,
    progress: Progress | None = None,
) -> Assembled:
    report = _rows(progress, "rewrite", change.rows("added").num_rows)
    return assembling.assemble(change, plan, context, engine, layout, report)


def publish(
    change: Change,
    plan: Plan,
    assembled: Assembled,
    context: StageContext,
    layout: TableLayout,
    sampling: Sampling,
    *,
    now: datetime,
    producer: str,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> Marker:
    """Stage the marker, verify, and put the ready marker: from then on the version is the mirror's newest."""
    marker = marker_of(change, plan, assembled)
    data = bridge.stage(context.mirror, layout, marker, marker.to_bytes(created_at=now, producer=producer))
    on_stage("verify")
    verify_l0(context.mirror, change, plan, assembled, context.ledger_uri, sampling)
    on_stage("publish")
    bridge.publish(context.mirror, layout, marker, data)
    return marker


def marker_of(change: Change, plan: Plan, assembled: Assembled) -> Marker:
    return Marker(
        table=str(change.table),
        version=change.version,
        epoch=change.epoch,
        kind="head",
        parent=change.from_version,
        parent_checksum=change.parent_checksum,
        metadata_uri=assembled.metadata_uri,
        metadata_sha256=assembled.metadata_sha256,
        manifest_list_uri=assembled.manifest_list_uri,
        manifest_count=assembled.manifest_count,
        index_uri=assembled.index_uri,
        index_sha256=assembled.index_sha256,
        closure_digest=assembled.closure_digest,
        source_metadata_location=change.source_metadata_location,
        source_fingerprint=change.source_fingerprint,
        snapshot_id=change.head,
        sequence_number=assembled.sequence_number,
        source_committed_at=at(assembled.committed_at_ms),
        files=plan.files,
        size_bytes=plan.bytes,
    )


def _rows(progress: Progress | None, stage: str, total: int) -> Report | None:
    """Tells at once that a stage has begun, and then how far it is."""
    if progress is None or not total:
        return None
    progress(stage, 0, total, 0)
    return lambda done, total: progress(stage, done, total, 0)


class _Files:
    """How many of the plan's files are copied: told one by one, or worked out from the segments that are done."""

    def __init__(self, progress: Progress, plan: Plan) -> None:
        self._progress, self._lock = progress, threading.Lock()
        self._parts = plan.of("copy")
        self._total = sum(part.files for part in self._parts)
        self._weight = sum(part.bytes for part in self._parts)
        self._files = self._bytes = 0
        progress("copy", 0, self._total, 0)

    def file(self, size_bytes: int) -> None:
        with self._lock:
            self._files += 1
            self._bytes += size_bytes
            self._progress("copy", self._files, self._total, self._bytes)

    def segments(self, done: int, total: int) -> None:
        self._progress("copy", self._total * done // total, self._total, self._weight * done // total)
