"""Where a table stands: the heads of both sides, how far the mirror is behind, and what lies in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from lakemirror import bridge
from lakemirror.errors import PermanentError, SourceVanishedError, TransientError
from lakemirror.follow.follower import head_of
from lakemirror.formats.iceberg import metadata_json
from lakemirror.formats.iceberg.metadata_json import Json
from lakemirror.model.marker import Marker
from lakemirror.model.results import MirrorState, PlanResult, SourceState, StatusResult
from lakemirror.model.table import TableRef
from lakemirror.replicate.detect import read_metadata
from lakemirror.usecases.ports import Ports


@dataclass(frozen=True, slots=True)
class _Source:
    state: SourceState
    location: str | None = None
    metadata: Json | None = None


def status(table: TableRef, ports: Ports, now: datetime, backlog: Callable[[], PlanResult]) -> StatusResult:
    """`backlog` makes a dry plan; it is asked only if the mirror's newest marker is behind the source."""
    layout, store = ports.layout(table), ports.mirror_store
    ordinals = bridge.published(store, layout)
    newest = None if ordinals.newest is None else bridge.read_ready(store, layout, ordinals.newest)
    head = head_of(ports.mirror_catalog, store, layout, table)
    mirror_state: MirrorState = "missing" if head is None else "foreign" if head.version is None else "ok"
    version = None if head is None else head.version
    source = _look(table, ports) if ports.has_source else None
    shown = bridge.read_ready(store, layout, version) if version is not None else None
    visible_at = None if ports.state is None or version is None else ports.state.visible_at(table, version)
    plan = _backlog(table, source, newest, backlog)
    files, weight = (None, None) if plan is None else (plan.files, plan.bytes)
    is_newest_current = plan is not None and plan.lane == "none"
    current = None if source is None or source.metadata is None else source.metadata
    return StatusResult(
        table=table,
        epoch=None if newest is None else newest.epoch,
        source_state=None if source is None else source.state,
        source_snapshot_id=None if current is None else metadata_json.current_snapshot_id(current),
        source_committed_at=None if current is None else metadata_json.at(current["last-updated-ms"]),
        mirror_state=mirror_state,
        mirror_version=version,
        mirror_snapshot_id=None if head is None else head.snapshot_id,
        visible_at=visible_at,
        lag_s=_lag(source, newest, shown, now, is_newest_current=is_newest_current),
        backlog_files=files,
        backlog_bytes=weight,
        ready=ordinals.ready,
        in_progress=tuple(one for one in bridge.staged(store, layout) if one not in ordinals.ready),
    )


def _look(table: TableRef, ports: Ports) -> _Source:
    try:
        location = ports.source_catalog.head(table)
        if location is None:
            return _Source("dropped")
        return _Source("ok", location, read_metadata(ports.source_store, location))
    except (TransientError, PermanentError):
        return _Source("unreachable")


def _lag(
    source: _Source | None, newest: Marker | None, shown: Marker | None, now: datetime, *, is_newest_current: bool
) -> float | None:
    """Seconds since the first source commit that the mirror does not show; 0 if it shows the source's head.

    Without a source only the newest marker can be compared with what is shown.
    """
    if source is None or source.metadata is None:
        if newest is None or (source is not None and source.state == "unreachable"):
            return None
        is_shown = shown is not None and shown.version == newest.version
        return 0.0 if is_shown else max(0.0, (now - newest.source_committed_at).total_seconds())
    if is_newest_current and shown == newest:
        return 0.0
    if shown is not None and shown.epoch == source.metadata["table-uuid"]:
        log = source.metadata.get("snapshot-log") or ()
        since = shown.source_committed_at.timestamp() * 1000
        later = [entry["timestamp-ms"] for entry in log if entry["timestamp-ms"] > since]
        first = min(later, default=source.metadata["last-updated-ms"])
    else:
        log = source.metadata.get("snapshot-log") or ()
        first = min((entry["timestamp-ms"] for entry in log), default=source.metadata["last-updated-ms"])
    return max(0.001, (now - metadata_json.at(first)).total_seconds())


def _backlog(
    table: TableRef, source: _Source | None, newest: Marker | None, backlog: Callable[[], PlanResult]
) -> PlanResult | None:
    """What is still to be copied; None if that cannot be told."""
    if source is None or source.metadata is None:
        return None
    if newest is not None and newest.source_metadata_location == source.location:
        return PlanResult(table, newest.version, newest.snapshot_id, 0, 0, 0, 0, 0, "none")
    try:
        return backlog()
    except (SourceVanishedError, PermanentError):
        return None
