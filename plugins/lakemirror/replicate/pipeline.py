"""The way of a commit: detect, plan, copy, rewrite, stage, verify, publish. The order, and nothing else.

Every stage can be killed anywhere and run again; it finds what earlier tries completed and gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from lakemirror import bridge
from lakemirror.formats.iceberg.metadata_json import at
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import HEAD, Marker
from lakemirror.replicate import assemble as assembling
from lakemirror.replicate import plan as planning
from lakemirror.replicate.assemble import Assembled
from lakemirror.replicate.change import Change
from lakemirror.replicate.fence import Held, NoFence
from lakemirror.replicate.ledger import Ledgers
from lakemirror.replicate.plan import Plan
from lakemirror.replicate.stage import Engine, Progress, Report, StageContext
from lakemirror.replicate.verify import Sampling, verify_l0

NO_FENCE = NoFence()


def plan_diff(
    change: Change, context: StageContext, engine: Engine, progress: Progress | None = None, *, is_first: bool = False
) -> Plan:
    """The plan that an earlier try completed, or a new one; the first try need not look."""
    known = None if is_first else planning.load(context.mirror, context.plan_uri)
    return known or planning.make(change, context, engine, _rows(progress, "plan", change.rows("added").num_rows))


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
    held: Held = NO_FENCE,
    ledgers: Ledgers | None = None,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> Marker:
    """Stage the marker, verify, and put the ready marker: from then on the version is the mirror's newest."""
    held.confirm()
    marker = marker_of(change, plan, assembled)
    data = marker.to_bytes(created_at=now, producer=producer, fence_token=held.token)
    data = bridge.stage(context.mirror, layout, marker, data, held.token)
    on_stage("verify")
    verify_l0(context.mirror, change, plan, assembled, context.ledger_uri, sampling, ledgers)
    on_stage("publish")
    held.check()
    bridge.take_back_between(context.mirror, layout, marker.parent, marker.version)
    bridge.publish(context.mirror, layout, marker, data)
    bridge.refuse_demoted(context.mirror, layout, marker)
    return marker


def marker_of(change: Change, plan: Plan, assembled: Assembled) -> Marker:
    return Marker(
        table=str(change.table),
        version=change.version,
        epoch=change.epoch,
        kind=HEAD,
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
        demoted=change.demoted,
        dropped=change.dropped,
    )


def _rows(progress: Progress | None, stage: str, total: int) -> Report | None:
    """Tells at once that a stage has begun, and then how far it is."""
    if progress is None or not total:
        return None
    progress(stage, 0, total, 0, 0)
    return lambda done, total: progress(stage, done, total, 0, 0)
