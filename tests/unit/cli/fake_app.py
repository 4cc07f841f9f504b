"""An App that answers from a script: what each table's use case returns or raises."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from lakemirror.cli.commands import LoadApp
from lakemirror.cli.interrupts import CtrlC
from lakemirror.cli.main import run
from lakemirror.errors import UsageError
from lakemirror.model.results import FollowResult, GroupResult, MirrorResult, PlanResult, Rewritten, StatusResult
from lakemirror.model.table import TableRef

ORDERS = TableRef.parse("sales.orders")
ITEMS = TableRef.parse("sales.items")
COMMITTED_AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def plan_result(table: TableRef) -> PlanResult:
    return PlanResult(table, 7, 8830, 3, 3_000_000, 1, 2, 998, "task")


def mirror_result(table: TableRef) -> MirrorResult:
    return MirrorResult(
        table,
        version=8,
        snapshot_id=8830,
        lane="spark",
        copied_files=300,
        copied_bytes=2_500_000,
        skipped_files=4,
        rewritten=Rewritten(2, 1, 0, 0),
        requests={"source": {"get": 5}, "mirror": {"put": 9, "head": 1}},
        seconds={"detect": 0.1, "copy": 2.0, "total": 2.34567},
        marker="file:///mirror/_ready/v8.ready.json",
    )


def follow_result(table: TableRef) -> FollowResult:
    return FollowResult(table, 8, 8830, committed=True, seconds={"total": 0.25})


def status_result(table: TableRef, **changes: Any) -> StatusResult:
    facts: dict[str, Any] = {
        "epoch": "11111111-2222-3333-4444-555555555555",
        "source_state": "ok",
        "source_snapshot_id": 8830,
        "source_committed_at": COMMITTED_AT,
        "mirror_state": "ok",
        "mirror_version": 8,
        "mirror_snapshot_id": 8830,
        "visible_at": COMMITTED_AT,
        "lag_s": 0.0,
        "latency_s": 12.5,
        "backlog_files": 0,
        "backlog_bytes": 0,
        "ready": (7, 8),
        "in_progress": (),
    }
    return StatusResult(table, **{**facts, **changes})


@dataclass
class FakeApp:
    """`script[(use case, table)]` is raised if it is an exception, called if it can be, else returned."""

    script: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    known: Sequence[TableRef] = (ORDERS, ITEMS)
    refused: Sequence[str] = ()
    listing: BaseException | None = None
    groups: Mapping[str, GroupResult] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    is_closed: bool = False

    def tables(self, names: Sequence[str] = (), *, all: bool = False) -> tuple[TableRef, ...]:
        if self.listing is not None:
            raise self.listing
        if all:
            return tuple(self.known)
        found = tuple(TableRef.parse(name) for name in names)
        for table in found:
            if table not in self.known:
                raise UsageError("find table", str(table), "not in the configuration", "add it under tables:")
        return found

    def refused_tables(self) -> dict[str, UsageError]:
        return {name: UsageError("find table", name, "no folder of the mirror", "rename it") for name in self.refused}

    def plan(self, table: TableRef) -> PlanResult:
        return cast(PlanResult, self._play("plan", table, plan_result(table)))

    def mirror(self, table: TableRef, **options: Any) -> MirrorResult:
        return cast(MirrorResult, self._play("mirror", table, mirror_result(table), **options))

    def follow(self, table: TableRef, **options: Any) -> FollowResult:
        return cast(FollowResult, self._play("follow", table, follow_result(table), **options))

    def status(self, table: TableRef) -> StatusResult:
        return cast(StatusResult, self._play("status", table, status_result(table)))

    def group_names(self) -> tuple[str, ...]:
        return tuple(self.groups)

    def group(self, name: str) -> GroupResult:
        if name not in self.groups:
            raise UsageError("find group", name, "no table belongs to it", "see `group:`")
        return self.groups[name]

    def forget_in_group(self, name: str, table: str) -> GroupResult:
        self.calls.append(("forget", name, {"table": table}))
        return self.group(name)

    def __enter__(self) -> FakeApp:
        return self

    def __exit__(self, *failure: object) -> None:
        self.is_closed = True

    def _play(self, use_case: str, table: TableRef, otherwise: Any, **options: Any) -> Any:
        self.calls.append((use_case, str(table), options))
        result = self.script.get((use_case, str(table)), otherwise)
        if isinstance(result, BaseException):
            raise result
        if callable(result):
            result()
            return otherwise
        return result


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str


class Pressed(CtrlC):
    """Ctrl-C was pressed, and something else caught it."""

    def was_pressed(self) -> bool:
        return True


def run_cli(line: str, app: FakeApp | Exception | None = None, ctrl_c: CtrlC | None = None) -> Ran:
    """Runs a command line, split at spaces, over a fake App; an exception is what loading the App raises."""
    loaded = FakeApp() if app is None else app

    def load(path: str | None) -> Any:
        if isinstance(loaded, Exception):
            raise loaded
        loaded.calls.append(("load", path))
        return loaded

    out, err = io.StringIO(), io.StringIO()
    code = run(line.split(), stdout=out, stderr=err, load=cast(LoadApp, load), ctrl_c=ctrl_c)
    return Ran(code, out.getvalue(), err.getvalue())
