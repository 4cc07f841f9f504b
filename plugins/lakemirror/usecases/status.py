"""Where a table stands: the heads of both sides, how far the mirror is behind, and what lies in between.

What cannot be told of the source is null and comes with the error that says why. Trouble with the mirror itself is
raised: without it there is nothing to tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from lakemirror import bridge
from lakemirror.catalogs.left_out import warnings_of
from lakemirror.errors import LakemirrorError, PermanentError, TransientError
from lakemirror.follow.follower import Head, demoted_head, dropped_head, head_of
from lakemirror.formats.iceberg import metadata_json
from lakemirror.formats.iceberg.metadata_json import Json
from lakemirror.model.marker import Marker
from lakemirror.model.results import MirrorState, PlanResult, SourceState, StatusResult
from lakemirror.model.table import TableRef
from lakemirror.observe.state import look_up_visible
from lakemirror.replicate.detect import read_metadata
from lakemirror.usecases.ports import Ports


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the source's metadata file tells here; `commits` are the times of its log."""

    snapshot_id: int | None
    committed_at: datetime
    epoch: str | None
    commits: tuple[datetime, ...]


@dataclass(frozen=True, slots=True)
class _Source:
    state: SourceState
    location: str | None = None
    facts: _Facts | None = None
    problem: LakemirrorError | None = None


def status(table: TableRef, ports: Ports, now: datetime, backlog: Callable[[], PlanResult]) -> StatusResult:
    """`backlog` makes a dry plan; it is asked only if the mirror's newest marker is behind the source."""
    layout, store = ports.layout(table), ports.mirror_store
    ordinals = bridge.published(store, layout)
    newest = None if ordinals.newest is None else bridge.read_ready(store, layout, ordinals.newest)
    head = head_of(ports.mirror_catalog, store, layout, table)
    abilities = ports.mirror_catalog.abilities()
    mirror_state: MirrorState = "missing" if head is None else "foreign" if head.version is None else "ok"
    version = None if head is None else head.version
    is_demoted = version is not None and ordinals.lacks(version)
    is_dropped = version is not None and ordinals.has_dropped(version)
    source = _look(table, ports) if ports.has_source else None
    facts = None if source is None else source.facts
    shown = bridge.read_published(store, layout, version) if version is not None else None
    plan, problem = _backlog(table, source, newest, backlog)
    visible_at = look_up_visible(ports.state, table, version)
    is_newest_current = plan is not None and plan.lane == "none"
    return StatusResult(
        table=table,
        epoch=None if newest is None else newest.epoch,
        source_state=None if source is None else source.state,
        source_snapshot_id=None if facts is None else facts.snapshot_id,
        source_committed_at=None if facts is None else facts.committed_at,
        mirror_state=mirror_state,
        mirror_version=version,
        mirror_snapshot_id=None if head is None else head.snapshot_id,
        visible_at=visible_at,
        lag_s=_lag(source, newest, shown, now, is_newest_current=is_newest_current),
        latency_s=_latency(shown, visible_at),
        backlog_files=None if plan is None else plan.files,
        backlog_bytes=None if plan is None else plan.bytes,
        ready=ordinals.ready,
        in_progress=tuple(one for one in bridge.staged(store, layout) if one not in ordinals.ready),
        problem=None if problem is None else problem.as_json(),
        catalog=abilities.as_json(),
        is_head_demoted=is_demoted,
        is_head_dropped=is_dropped,
        warnings=() if head is None else (*_told(head, is_demoted, is_dropped), *warnings_of(abilities, head.metadata)),
    )


def _told(head: Head, is_demoted: bool, is_dropped: bool) -> tuple[str, ...]:
    if head.version is not None:
        return demoted_head(head) if is_demoted else dropped_head(head) if is_dropped else ()
    return (f"foreign commit: {head.metadata_uri} was not published by Lakemirror; other {', '.join(head.details)}",)


def _look(table: TableRef, ports: Ports) -> _Source:
    """Unreachable is a source that does not answer; one that answers with something broken is there, and broken."""
    try:
        location = ports.source_catalog.head(table)
    except (TransientError, PermanentError) as err:
        return _Source("unreachable", problem=err)
    if location is None:
        return _Source("dropped")
    try:
        return _Source("ok", location, _facts(read_metadata(ports.source_store, location), location))
    except TransientError as err:
        return _Source("unreachable", location, problem=err)
    except PermanentError as err:
        return _Source("ok", location, problem=err)


def _facts(metadata: Json, location: str) -> _Facts:
    try:
        return _Facts(
            snapshot_id=metadata_json.current_snapshot_id(metadata),
            committed_at=metadata_json.at(metadata["last-updated-ms"]),
            epoch=metadata.get("table-uuid"),
            commits=tuple(metadata_json.at(entry["timestamp-ms"]) for entry in metadata.get("snapshot-log") or ()),
        )
    except (KeyError, TypeError, ValueError, OverflowError, OSError) as err:
        raise PermanentError(
            "read metadata", location, f"not whole ({type(err).__name__}: {err})", "the file is damaged"
        ) from err


def _lag(
    source: _Source | None, newest: Marker | None, shown: Marker | None, now: datetime, *, is_newest_current: bool
) -> float | None:
    """Seconds since the first source commit that the mirror does not show; 0 if it shows the source's head.

    Without a source only the newest marker can be compared with what is shown.
    """
    if source is None or source.state == "dropped":
        if newest is None:
            return None
        is_shown = shown is not None and shown.version == newest.version
        return 0.0 if is_shown else max(0.0, (now - newest.source_committed_at).total_seconds())
    facts = source.facts
    if facts is None:
        return None
    if is_newest_current and shown == newest:
        return 0.0
    is_same_table = shown is not None and shown.epoch == facts.epoch
    later = [at for at in facts.commits if shown is None or not is_same_table or at > shown.source_committed_at]
    return max(0.001, (now - min(later, default=facts.committed_at)).total_seconds())


def _latency(shown: Marker | None, visible_at: datetime | None) -> float | None:
    """Of a version whose visibility is on record; clocks of two machines may differ, time does not run backwards."""
    if shown is None or visible_at is None:
        return None
    return max(0.0, (visible_at - shown.source_committed_at).total_seconds())


def _backlog(
    table: TableRef, source: _Source | None, newest: Marker | None, backlog: Callable[[], PlanResult]
) -> tuple[PlanResult | None, LakemirrorError | None]:
    """What is still to be copied; None if that cannot be told, and then why, if it is not for a missing source."""
    if source is None or source.facts is None:
        return None, None if source is None else source.problem
    if newest is not None and newest.source_metadata_location == source.location:
        return PlanResult(table, newest.version, newest.snapshot_id, 0, 0, 0, 0, 0, "none"), None
    try:
        return backlog(), None
    except (TransientError, PermanentError) as err:
        return None, err
