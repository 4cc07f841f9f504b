"""The application: one installation of Lakemirror, made from its configuration, and all that can be asked of it.

CLI, Airflow operators and Spark jobs are thin layers over this. Making it is cheap; ports open when they are needed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from lakemirror.config.connections import ResolveConnection, environment_connection
from lakemirror.config.loader import load_config
from lakemirror.config.models import Config
from lakemirror.errors import UsageError
from lakemirror.model.results import (
    Detected,
    DropResult,
    FollowResult,
    GroupResult,
    MirrorResult,
    PlanResult,
    StageResult,
    StatusResult,
)
from lakemirror.model.table import TableRef

if TYPE_CHECKING:
    from lakemirror.config.knobs import Knobs
    from lakemirror.model.marker import Marker
    from lakemirror.replicate.change import Change
    from lakemirror.replicate.detect import Unchanged
    from lakemirror.replicate.fence import Held
    from lakemirror.replicate.stage import Engine, Progress
    from lakemirror.storage.port import ObjectStore
    from lakemirror.usecases.mirror import MirrorRun
    from lakemirror.usecases.ports import Ports, WrapStore, WrapWire
    from lakemirror.usecases.stages import StagedRun
    from lakemirror.usecases.watch import ReadyWatch, SourceWatch

DEFAULT_CONFIG = "include/config/lakemirror.yaml"


def config_path(given: str | None = None) -> str:
    """The configuration file: as given, else `$LAKEMIRROR_CONFIG`, else the one that comes with the project."""
    return given or os.environ.get("LAKEMIRROR_CONFIG") or str(Path(__file__).resolve().parents[2] / DEFAULT_CONFIG)


def utc_now() -> datetime:
    return datetime.now(UTC)


class App:
    """Everything Lakemirror does for one configuration; close it when done (it may hold a Spark session)."""

    def __init__(
        self,
        config: Config,
        *,
        now: Callable[[], datetime] = utc_now,
        timer: Callable[[], float] = time.monotonic,
        wrap_store: WrapStore | None = None,
        wrap_wire: WrapWire | None = None,
        connections: ResolveConnection = environment_connection,
        owner: str | None = None,
    ) -> None:
        self.config = config
        self._owner = owner
        self._now = now
        self._timer = timer
        self._wrap_store = wrap_store
        self._wrap_wire = wrap_wire
        self._connections = connections
        self._opened: Ports | None = None
        self._spark: Engine | None = None
        self._runs: dict[TableRef, tuple[MirrorRun, Change | Unchanged]] = {}

    @classmethod
    def load(
        cls,
        path: str | None = None,
        *,
        connections: ResolveConnection = environment_connection,
        owner: str | None = None,
    ) -> App:
        """`owner` names the run that leases are taken for, where several processes make one run."""
        return cls(load_config(config_path(path)), connections=connections, owner=owner)

    def __enter__(self) -> App:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        from lakemirror.spark.session import LazySparkEngine

        if isinstance(self._spark, LazySparkEngine):
            self._spark.stop()
        self._spark = None

    def tables(self, names: Sequence[str] = (), *, all: bool = False) -> tuple[TableRef, ...]:
        """The named tables, or all that the configuration covers; a name it does not cover is a UsageError."""
        if all or not names:
            return tuple(sorted({*self.config.exact_tables(), *self.resolve_patterns()}, key=str))
        named = tuple(TableRef.parse(name) for name in names)
        for table in named:
            if self.config.entry_for(table) is None:
                raise UsageError(
                    "find table", str(table), f"no entry of {self.config.path} covers it", "add it to tables"
                )
        return named

    def resolve_patterns(self) -> tuple[TableRef, ...]:
        """The tables that patterns match, also those that were dropped at the source and are still in the mirror."""
        return self.config.match(self._known_names())

    def refused_tables(self) -> dict[str, UsageError]:
        """Names that patterns match but that cannot be mirrored, each with the reason: they are to be told of."""
        hint = "rename the table, or exclude it in the configuration"
        return {
            name: UsageError("find table", name, f"a pattern matches it, but {why}", hint)
            for name, why in self.config.refused(self._known_names()).items()
        }

    def plan(self, table: TableRef, *, target_snapshot_id: int | None = None) -> PlanResult:
        """The dry run: what `mirror` would do; writes nothing."""
        from lakemirror.replicate.detect import Unchanged

        run = self._run(table, None)
        found = run.detect(target_snapshot_id)
        if isinstance(found, Unchanged):
            version, snapshot = (found.newest.version, found.newest.snapshot_id) if found.newest else (None, None)
            return PlanResult(table, version, snapshot, 0, 0, 0, 0, 0, "none")
        return run.dry_plan(found)

    def detect(
        self, table: TableRef, *, target_snapshot_id: int | None = None, progress: Progress | None = None
    ) -> Detected:
        """Is there anything to do, by which lane, and under which name later stages will find the plan.

        If there is, the table's lease is taken for this App's owner.
        """
        from lakemirror.replicate.detect import Unchanged

        run = self._run(table, progress)
        found = run.detect(target_snapshot_id)
        run.take_lease(found)
        if isinstance(found, Unchanged):
            run.note_current(found)
        self._runs[table] = run, found
        return run.detected(found)

    def mirror(
        self,
        table: TableRef,
        *,
        detected: Detected | None = None,
        engine: Engine | None = None,
        target_snapshot_id: int | None = None,
        full_verify: bool = False,
        progress: Progress | None = None,
    ) -> MirrorResult:
        """Detect … publish, here. `detected` goes on from what `detect` of this same App found."""
        from lakemirror.replicate.detect import Unchanged
        from lakemirror.usecases import replan

        if detected is None:
            run = self._run(table, progress)
            found = run.detect(target_snapshot_id)
            if isinstance(found, Unchanged):
                run.note_current(found)
        else:
            run, found = self._runs.pop(table)
        if isinstance(found, Unchanged):
            return run.unchanged(found)
        chosen = (engine or self.spark_engine()) if found.lane == "spark" else None
        return replan.mirror(run, found, chosen, full_verify=full_verify)

    def plan_diff(
        self, table: TableRef, plan_uri: str, source_name: str, engine: Engine, progress: Progress | None = None
    ) -> PlanResult:
        """The plan of the change that `detect` named by `plan_uri` and `source_name`."""
        return self._staged_run(table, progress).plan_stage(plan_uri, source_name, engine)

    def copy_objects(
        self, table: TableRef, plan_uri: str, engine: Engine, progress: Progress | None = None
    ) -> StageResult:
        return self._staged_run(table, progress).copy_stage(plan_uri, engine)

    def rewrite_metadata(
        self, table: TableRef, plan_uri: str, engine: Engine, progress: Progress | None = None
    ) -> StageResult:
        return self._staged_run(table, progress).rewrite_stage(plan_uri, engine)

    def publish(
        self, table: TableRef, plan_uri: str, *, full_verify: bool = False, progress: Progress | None = None
    ) -> MirrorResult:
        return self._staged_run(table, progress).publish_stage(plan_uri, full_verify=full_verify)

    def follow(self, table: TableRef, *, adopt: bool = False, overwrite_foreign: bool = False) -> FollowResult:
        """Bring the mirror catalog to the newest ready version; needs no source.

        A version that has no record yet is recorded as visible, also if an earlier run committed it.
        """
        from lakemirror.catalogs.left_out import warnings_of
        from lakemirror.follow.follower import follow
        from lakemirror.observe.state import note_visible

        start = self._timer()
        ports = self._ports
        outcome = follow(
            table,
            ports.layout(table),
            ports.mirror_catalog,
            ports.mirror_store,
            adopt=adopt,
            overwrite_foreign=overwrite_foreign,
            before_commit=partial(self._announce_in_group, table),
        )
        head = outcome.head
        version, snapshot = (None, None) if head is None else (head.version, head.snapshot_id)
        if head is None or version is not None:
            self._record_in_group(table, None if outcome.is_dropped else version)
        # last: a try that fails before it is repeated, and the next one finds that nobody has told of the version yet
        is_first = version is not None and note_visible(ports.state, table, version, snapshot, self._now())
        spent = {"total": self._timer() - start}
        return FollowResult(
            table,
            version,
            snapshot,
            committed=outcome.committed,
            seconds=spent,
            first_seen=is_first,
            warnings=()
            if head is None
            else (*outcome.warnings, *warnings_of(ports.mirror_catalog.abilities(), head.metadata)),
        )

    def group_names(self) -> tuple[str, ...]:
        """The groups that tables of the configuration belong to."""
        from lakemirror.usecases import grouping

        return grouping.group_names(self.config, self.tables())

    def group(self, name: str) -> GroupResult:
        """The time up to which all tables of the group are visible, and which of them holds it back."""
        from lakemirror.usecases import grouping

        members = grouping.members(self.config, self.tables(), name)
        if not members:
            raise UsageError("find group", name, f"no table of {self.config.path} belongs to it", "see `group:` there")
        ports = self._ports
        return grouping.describe(ports.mirror_store, self.config.mirror.location, name, members, self._now())

    def join_groups(self) -> None:
        """Tell the groups of all tables that patterns match at the source; writes what is new, and nothing else."""
        from lakemirror.usecases import grouping

        tables = grouping.at_source(self._ports)
        for name in grouping.group_names(self.config, tables):
            grouping.join(self._ports, name, tables, self._now())

    def forget_in_group(self, name: str, table: str) -> GroupResult:
        """The group without this table, which the configuration must not have in it; the only way out of a group."""
        from lakemirror.usecases import grouping

        store, location, tables = self._ports.mirror_store, self.config.mirror.location, self.tables()
        grouping.forget(store, self.config, tables, name, table, self._now())
        return grouping.describe(store, location, name, grouping.members(self.config, tables, name), self._now())

    def _announce_in_group(self, table: TableRef, coming: Marker) -> None:
        from lakemirror.usecases import grouping

        group = self.config.knobs_for(table).group
        if group is not None:
            store, location, layout = self._ports.mirror_store, self.config.mirror.location, self._ports.layout(table)
            grouping.announce(store, location, group, table, layout, coming, self._now())

    def _record_in_group(self, table: TableRef, version: int | None) -> None:
        """None: the catalog shows no table, or one that was dropped."""
        from lakemirror.usecases import grouping

        group = self.config.knobs_for(table).group
        if group is None:
            return
        store, location, now = self._ports.mirror_store, self.config.mirror.location, self._now()
        if version is None:
            grouping.record_gone(store, location, table, now, partial(self._is_gone, table), group)
            return
        members = grouping.members(self.config, self._told_by_mirror(), group)
        layout, shown_now = self._ports.layout(table), partial(self.mirror_version, table)
        grouping.record_shown(store, location, group, members, table, layout, version, now, shown_now)

    def _is_gone(self, table: TableRef) -> bool:
        """Whether readers find nothing that counts: no table, or one that is shown though the mirror was dropped."""
        from lakemirror import bridge
        from lakemirror.follow.follower import head_of

        store, layout = self._ports.mirror_store, self._ports.layout(table)
        head = head_of(self._ports.mirror_catalog, store, layout, table)
        if head is None:
            return True
        return head.version is not None and bridge.published(store, layout).has_dropped(head.version)

    def drop_mirror(self, table: TableRef, *, overwrite_foreign: bool = False) -> DropResult:
        """Take the table out of the mirror catalog for good; its files stay for garbage collection.

        A head that is not ours only with `overwrite_foreign`.
        """
        from lakemirror.usecases import grouping
        from lakemirror.usecases.drop import drop_mirror
        from lakemirror.usecases.fencing import fence_of

        ports, knobs = self._ports, self.config.knobs_for(table)
        fence = fence_of(ports.mirror_store, ports.layout(table), knobs, self._now, *self._names())
        store, location = ports.mirror_store, self.config.mirror.location

        def before_drop() -> None:
            grouping.record_drop(store, location, table, self._now())

        result = drop_mirror(
            table, ports, fence, self._now(), overwrite_foreign=overwrite_foreign, before_drop=before_drop
        )
        is_gone = partial(self._is_gone, table)  # a follower may have told of it once more
        grouping.record_gone(store, location, table, self._now(), is_gone, None)
        return result

    def status(self, table: TableRef) -> StatusResult:
        from lakemirror.usecases.status import status

        return status(table, self._ports, self._now(), lambda: self.plan(table))

    def newest_ready_version(self, table: TableRef) -> int | None:
        from lakemirror import bridge

        return bridge.published(self._ports.mirror_store, self._ports.layout(table)).newest

    def mirror_version(self, table: TableRef) -> int | None:
        """The version that readers of the mirror see; None if there is none, or if it is foreign."""
        from lakemirror.follow.follower import head_of

        ports = self._ports
        head = head_of(ports.mirror_catalog, ports.mirror_store, ports.layout(table), table)
        return None if head is None else head.version

    def watch_ready(self) -> ReadyWatch:
        """Tells which tables have a ready version that the mirror does not show; needs no source."""
        from lakemirror.usecases.watch import ReadyWatch

        return ReadyWatch(self._ports, self._timer)

    def watch_source(self) -> SourceWatch:
        """Tells which tables have a head that is not mirrored."""
        from lakemirror.usecases.watch import SourceWatch

        return SourceWatch(self._ports, self._timer)

    def spark_engine(self) -> Engine:
        """The engine that all Spark work of this App shares; its session starts with the first stage."""
        from lakemirror.spark.session import LazySparkEngine

        if self._spark is None:
            self._spark = LazySparkEngine(self.config.spark.master, self.config.spark.conf)
        return self._spark

    @property
    def mirror_store(self) -> ObjectStore:
        return self._ports.mirror_store

    @property
    def _ports(self) -> Ports:
        if self._opened is None:
            from lakemirror.usecases.ports import Ports, as_it_is, wire_as_it_is

            self._opened = Ports(
                self.config,
                self._wrap_store or as_it_is,
                self._connections,
                self._wrap_wire or wire_as_it_is,
                self._swapping,
            )
        return self._opened

    def _swapping(self, table: TableRef) -> AbstractContextManager[Held] | None:
        """None: without the fence nothing is committed that the catalog does not compare."""
        from lakemirror.usecases.fencing import swapping

        ports, knobs = self._ports, self.config.knobs_for(table)
        if not knobs.fence:
            return None
        _, name = self._names()
        return swapping(ports.mirror_store, ports.layout(table), knobs, self._now, name)

    def _known_names(self) -> set[str]:
        """What patterns choose from: the source catalog's tables, and all that the mirror bucket ever had."""
        from lakemirror import register

        if not self.config.has_patterns:
            return set()
        ports = self._ports
        in_source = ports.source_catalog.tables() if ports.has_source else ()
        return {*map(str, in_source), *register.announced(ports.mirror_store, self.config.mirror.location)}

    def _told_by_mirror(self) -> tuple[TableRef, ...]:
        """The tables that are named, and those that patterns match of all that the mirror ever had; asks no source.

        What patterns match at the source besides, the replicator tells the groups.
        """
        from lakemirror import register

        exact = self.config.exact_tables()
        if not self.config.has_patterns:
            return exact
        matched = self.config.match(register.announced(self._ports.mirror_store, self.config.mirror.location))
        return tuple(sorted({*exact, *matched}, key=str))

    def _run(self, table: TableRef, progress: Progress | None) -> MirrorRun:
        from lakemirror.usecases.mirror import MirrorRun

        return MirrorRun(table, *self._with_what(table), progress, *self._names())

    def _staged_run(self, table: TableRef, progress: Progress | None) -> StagedRun:
        from lakemirror.usecases.stages import StagedRun

        return StagedRun(table, *self._with_what(table), progress, *self._names())

    def _with_what(self, table: TableRef) -> tuple[Ports, Knobs, Callable[[], datetime], Callable[[], float]]:
        return self._ports, self.config.knobs_for(table), self._now, self._timer

    def _names(self) -> tuple[str, str]:
        """Who leases are taken for, and who takes this one."""
        from lakemirror.replicate.process import name_of_this_process

        self._owner = self._owner or name_of_this_process()
        return self._owner, name_of_this_process()
