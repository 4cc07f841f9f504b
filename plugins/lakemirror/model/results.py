"""What each command answers: small frozen values with one JSON form and one text form.

The JSON keys are fixed interfaces. Versions are integers, snapshot ids are strings, times are ISO-8601 UTC,
what does not exist yet is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from lakemirror.model.group import MoveBack, Reached
from lakemirror.model.table import TableRef

Lane = Literal["none", "task", "spark"]
SourceState = Literal["ok", "dropped", "unreachable"]
MirrorState = Literal["ok", "missing", "foreign"]

VERBS = ("get", "head", "list", "put", "copy", "delete")
SIDES = ("source", "mirror")
STAGES = ("detect", "plan", "copy", "rewrite", "verify", "publish")


def iso(moment: datetime | None) -> str | None:
    """ISO-8601 in UTC with millisecond precision, or null."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def human_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def describe_volume(bytes_done: int, seconds: float, bytes_total: int = 0) -> str:
    """`12.0 MB of 36.0 MB, 4.0 MB/s, 6 s left`; nothing where no bytes move, no rate before there is one to tell."""
    if not bytes_done:
        return ""
    parts = [human_bytes(bytes_done) + (f" of {human_bytes(bytes_total)}" if bytes_total else "")]
    if seconds > 0:
        parts.append(f"{human_bytes(int(bytes_done / seconds))}/s")
        if bytes_total > bytes_done:
            parts.append(f"{human_seconds((bytes_total - bytes_done) * seconds / bytes_done)} left")
    return ", ".join(parts)


def human_seconds(seconds: float) -> str:
    """`42 s`, `3 min`, `2 h 5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _at_rate(size_bytes: int, seconds: float) -> str:
    return f" at {human_bytes(int(size_bytes / seconds))}/s" if size_bytes and seconds >= 0.1 else ""


def _nothing_to_do(table: TableRef, reason: str | None, version: int | None) -> str:
    why = f": {reason}" if reason else ""
    return f"{table}: nothing to do{why} (newest version v{version})"


def _id(snapshot_id: int | None) -> str | None:
    return None if snapshot_id is None else str(snapshot_id)


@dataclass(frozen=True, slots=True)
class PlanResult:
    """What a run would do: the dry run's answer, and the first part of the real one's."""

    table: TableRef
    from_version: int | None
    to_snapshot_id: int | None
    files: int
    bytes: int
    manifest_lists_read: int
    manifests_read: int
    manifests_reused: int
    lane: Lane
    plan_uri: str | None = None  # where the plan is; a dry run leaves none

    def as_json(self) -> dict[str, Any]:
        made = {**asdict(self), "table": str(self.table), "ok": True, "to_snapshot_id": _id(self.to_snapshot_id)}
        if self.plan_uri is None:
            del made["plan_uri"]
        return made

    def report(self) -> list[str]:
        if self.lane == "none":
            return [_nothing_to_do(self.table, None, self.from_version)]
        start = "nothing" if self.from_version is None else f"v{self.from_version}"
        return [
            f"{self.table}: from {start} to snapshot {self.to_snapshot_id}",
            f"copy {self.files} files, {human_bytes(self.bytes)}, in lane {self.lane}",
            f"read {self.manifest_lists_read} manifest lists and {self.manifests_read} manifests, "
            f"reuse {self.manifests_reused} manifests",
        ]


@dataclass(frozen=True, slots=True)
class Rewritten:
    manifests: int = 0
    manifest_lists: int = 0
    delete_files: int = 0
    puffins: int = 0


@dataclass(frozen=True, slots=True)
class StageResult:
    """What one stage of a run did; stages that find their work done already say so with zeros."""

    table: TableRef
    stage: str
    plan_uri: str
    seconds: float
    files: int = 0
    bytes: int = 0
    skipped_files: int = 0
    rewritten: Rewritten = field(default_factory=Rewritten)
    requests: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "table": str(self.table), "ok": True}

    def report(self) -> list[str]:
        lines = [f"{self.table}: {self.stage} took {self.seconds:.1f} s"]
        if self.stage == "rewrite":
            lines.append(
                f"rewrote {self.rewritten.manifests} manifests, {self.rewritten.manifest_lists} manifest lists, "
                f"{self.rewritten.delete_files} delete files"
            )
        else:
            rate = _at_rate(self.bytes, self.seconds) if self.stage == "copy" else ""
            size = f"{human_bytes(self.bytes)}{rate}"
            lines.append(f"{self.files} files, {size}, {self.skipped_files} were there already")
            lines += _requests_lines(self.requests) if self.stage == "copy" else []
        return lines


def _requests_lines(requests: Mapping[str, Mapping[str, int]]) -> list[str]:
    """`requests: source 12 get; mirror 12 put, 1 list`; nothing where none were counted."""
    sides = []
    for side in SIDES:
        counted = [f"{count} {verb}" for verb in VERBS if (count := requests.get(side, {}).get(verb, 0))]
        if counted:
            sides.append(f"{side} {', '.join(counted)}")
    return [f"requests: {'; '.join(sides)}"] if sides else []


@dataclass(frozen=True, slots=True)
class Detected:
    """Whether there is anything to do, and by which lane."""

    table: TableRef
    lane: Lane
    from_version: int | None
    version: int | None
    snapshot_id: int | None
    files_at_most: int
    plan_uri: str | None = None
    source_name: str | None = None  # the source's state, for `plan_diff` to start from the very same
    reason: str | None = None

    @property
    def summary(self) -> str:
        if self.lane == "none":
            return _nothing_to_do(self.table, self.reason, self.from_version)
        start = "nothing" if self.from_version is None else f"v{self.from_version}"
        return (
            f"{self.table}: from {start} to v{self.version} (snapshot {self.snapshot_id}), "
            f"at most {self.files_at_most} files, lane {self.lane}"
        )


@dataclass(frozen=True, slots=True)
class MirrorResult:
    """What detect … publish did."""

    table: TableRef
    version: int | None
    snapshot_id: int | None
    lane: Lane
    copied_files: int = 0
    copied_bytes: int = 0
    skipped_files: int = 0
    rewritten: Rewritten = field(default_factory=Rewritten)
    requests: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    marker: str | None = None
    left_out: tuple[str, ...] = ()
    reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        requests = {side: {verb: self.requests.get(side, {}).get(verb, 0) for verb in VERBS} for side in SIDES}
        seconds = {stage: round(self.seconds.get(stage, 0.0), 3) for stage in (*STAGES, "total")}
        return {
            **asdict(self),
            "table": str(self.table),
            "ok": True,
            "snapshot_id": _id(self.snapshot_id),
            "requests": requests,
            "seconds": seconds,
            "copied_bytes_per_s": None if not seconds["copy"] else int(self.copied_bytes / seconds["copy"]),
            "left_out": list(self.left_out),
        }

    def report(self) -> list[str]:
        if self.lane == "none":
            return [_nothing_to_do(self.table, self.reason, self.version)]
        stages = ", ".join(f"{name} {spent:.1f}" for name, spent in self.seconds.items() if name != "total")
        lines = [
            f"{self.table}: published v{self.version} (snapshot {self.snapshot_id}) in lane {self.lane}",
            f"copied {self.copied_files} files, {human_bytes(self.copied_bytes)}"
            f"{_at_rate(self.copied_bytes, self.seconds.get('copy', 0.0))}; "
            f"{self.skipped_files} were there already",
            f"rewrote {self.rewritten.manifests} manifests, {self.rewritten.manifest_lists} manifest lists, "
            f"{self.rewritten.delete_files} delete files",
            f"took {self.seconds.get('total', 0.0):.1f} s ({stages})",
        ]
        return lines + [f"left out: {what}" for what in self.left_out]


@dataclass(frozen=True, slots=True)
class FollowResult:
    """What the follower did: `committed` is false when the mirror was at the newest marker already.

    `first_seen`: this call was the first to record the version as visible, whoever committed it. `warnings`: what a
    reader of the mirror should know, also what its catalog cannot take (`unsupported_by_catalog`).
    """

    table: TableRef
    version: int | None
    snapshot_id: int | None
    committed: bool
    seconds: Mapping[str, float] = field(default_factory=dict)
    first_seen: bool = False
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "table": str(self.table),
            "ok": True,
            "version": self.version,
            "snapshot_id": _id(self.snapshot_id),
            "committed": self.committed,
            "seconds": {"total": round(self.seconds.get("total", 0.0), 3)},
            "warnings": list(self.warnings),
        }

    def report(self) -> list[str]:
        return [*self._news(), *(f"{self.table}: warning: {one}" for one in self.warnings)]

    def _news(self) -> list[str]:
        if self.version is None:
            return [f"{self.table}: nothing to do, no version is ready"]
        if not self.committed and self.first_seen:
            return [
                f"{self.table}: the mirror is at v{self.version}, committed by an earlier run that did not record it"
            ]
        if not self.committed:
            return [f"{self.table}: nothing to do, the mirror is at v{self.version}"]
        took = self.seconds.get("total", 0.0)
        return [f"{self.table}: mirror moved to v{self.version} (snapshot {self.snapshot_id}) in {took:.1f} s"]


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The watermark of a group: every commit up to it, on every table of the group, is visible in the mirror."""

    group: str
    watermark: datetime | None
    lag_s: float | None
    slowest: str | None
    tables: Mapping[str, Reached | None]
    moves_back: tuple[MoveBack, ...] = ()
    elsewhere: tuple[str, ...] = ()  # members that the configuration which was asked does not have in this group

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "watermark": iso(self.watermark),
            "lag_s": None if self.lag_s is None else round(self.lag_s, 3),
            "slowest": self.slowest,
            "tables": {
                name: None if one is None else {"version": one.version, "through": iso(one.through)}
                for name, one in self.tables.items()
            },
            "moves_back": [
                {"at": iso(move.at), "was": iso(move.was), "now": iso(move.now), "table": move.table}
                for move in self.moves_back
            ],
            "elsewhere": list(self.elsewhere),
        }


@dataclass(frozen=True, slots=True)
class DropResult:
    """`version` is what readers saw last, None if there was no table; the next one comes after `last_used`."""

    table: TableRef
    version: int | None
    last_used: int | None

    def as_json(self) -> dict[str, Any]:
        return {"table": str(self.table), "ok": True, "version": self.version, "last_used": self.last_used}


@dataclass(frozen=True, slots=True)
class StatusResult:
    """Where a table stands. `epoch` is the source table's UUID as the newest marker has it.

    `problem` is the error, as JSON, because of which something here is unknown. `catalog` is what the mirror's catalog
    can do, `warnings` what a reader should know of this table on it; `latency_s` how long the version that readers
    see took, from the source's commit until it was visible in the mirror's catalog. `is_head_demoted`: they see a
    version that was demoted; `is_head_dropped`: one that was dropped with the mirror; a warning says so.
    """

    table: TableRef
    epoch: str | None
    source_state: SourceState | None
    source_snapshot_id: int | None
    source_committed_at: datetime | None
    mirror_state: MirrorState
    mirror_version: int | None
    mirror_snapshot_id: int | None
    visible_at: datetime | None
    lag_s: float | None
    backlog_files: int | None
    backlog_bytes: int | None
    ready: tuple[int, ...]
    in_progress: tuple[int, ...]
    latency_s: float | None = None
    level: str | None = None
    problem: Mapping[str, Any] | None = None
    catalog: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()
    is_head_demoted: bool = False
    is_head_dropped: bool = False

    @property
    def is_behind(self) -> bool:
        """Something a person or a script should look at: exit code 3."""
        is_trouble = self.source_state in ("dropped", "unreachable") or self.problem is not None
        is_wrong = self.is_head_demoted or self.is_head_dropped
        return self.mirror_state != "ok" or is_trouble or is_wrong or self.backlog

    @property
    def backlog(self) -> bool:
        return self.source_state in ("ok", None) and self.lag_s is not None and self.lag_s > 0

    def as_json(self) -> dict[str, Any]:
        source = None
        if self.source_state is not None:
            source = {
                "snapshot_id": _id(self.source_snapshot_id),
                "committed_at": iso(self.source_committed_at),
                "state": self.source_state,
            }
        return {
            "table": str(self.table),
            "ok": True,
            "epoch": self.epoch,
            "source": source,
            "mirror": {
                "version": self.mirror_version,
                "snapshot_id": _id(self.mirror_snapshot_id),
                "visible_at": iso(self.visible_at),
                "state": self.mirror_state,
            },
            "lag_s": None if self.lag_s is None else round(self.lag_s, 3),
            "latency_s": None if self.latency_s is None else round(self.latency_s, 3),
            "backlog_files": self.backlog_files,
            "backlog_bytes": self.backlog_bytes,
            "level": self.level,
            "markers": {"ready": list(self.ready), "in_progress": list(self.in_progress)},
            "problem": None if self.problem is None else dict(self.problem),
            "catalog": None if self.catalog is None else dict(self.catalog),
            "warnings": list(self.warnings),
        }
