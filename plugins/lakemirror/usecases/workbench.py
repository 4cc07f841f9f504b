"""What the stages of one run work with: both stores, counted and limited, and the context that each task is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from lakemirror.config.knobs import Knobs
from lakemirror.copying.model import CopySettings
from lakemirror.copying.pace import Rates
from lakemirror.copying.ports import CopyPorts
from lakemirror.model.table import TableRef
from lakemirror.replicate.change import Change
from lakemirror.replicate.detect import Policy, Sides
from lakemirror.replicate.history import HistoryBudget
from lakemirror.replicate.plan import Plan
from lakemirror.replicate.stage import Engine, Requests, StageContext
from lakemirror.replicate.transfer import work_rows
from lakemirror.replicate.verify import Sampling
from lakemirror.storage.port import ObjectStore
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.limit import BURST_S, RateLimitedStore, TokenBucket
from lakemirror.storage.wrappers.once import ReadOnceStore
from lakemirror.storage.wrappers.own_writes import OwnWritesStore
from lakemirror.usecases.copy_deadline import shared_deadline
from lakemirror.usecases.ports import Ports

Clock = Callable[[], datetime]
LEAST_SHARE_BYTES_PER_S = 4_000_000  # of a limited line for one process; more processes than that would only wait


@dataclass(frozen=True, slots=True)
class EpochSeconds:
    """The clock of a run as seconds of the epoch; it pickles if the clock does, so that tasks have the same one."""

    now: Clock

    def __call__(self) -> float:
        return self.now().timestamp()


@dataclass
class Workbench:
    """The ports and limits of one table's run; `counts` holds what this process asked of the stores.

    `mirror_at_once` is for what cannot wait for its turn: the lease.
    """

    table: TableRef
    ports: Ports
    knobs: Knobs
    now: Clock

    def __post_init__(self) -> None:
        self.layout = self.ports.layout(self.table)
        self._source, self.mirror_at_once = (
            CountingStore(self.ports.source_store),
            CountingStore(self.ports.mirror_store),
        )
        source, self.mirror = self._limited(self._source, self.mirror_at_once, 1, BURST_S)
        self._source_once = ReadOnceStore(source)
        self._mirror_here = OwnWritesStore(
            self.mirror, self.layout.plan(""), self.layout.ledger(""), apart_from=(self.layout.index_folder,)
        )
        self._copy_until: float | None = None

    def begin_copy(self, run: str | None = None) -> None:
        """The deadline of all copying of this run counts from the first time; a plan made anew keeps it.

        With the name of a `run` other processes may have begun it, and keep to the same deadline.
        """
        seconds = self.knobs.copy_deadline_seconds
        if self._copy_until is not None or seconds is None:
            return
        now = EpochSeconds(self.now)()
        if run is None:
            self._copy_until = now + seconds
        else:
            self._copy_until = shared_deadline(self.mirror, self.layout.copy_deadline, run, now, seconds)

    @property
    def counts(self) -> Requests:
        return {"source": dict(self._source.counts), "mirror": dict(self.mirror_at_once.counts)}

    @property
    def sides(self) -> Sides:
        ports = self.ports
        return Sides(ports.source_catalog, self._source_once, self.mirror, ports.roots, ports.private_places)

    @property
    def policy(self) -> Policy:
        demands = self.ports.mirror_catalog.demands()
        return Policy(
            small_change_files=self.knobs.small_change_files,
            small_change_bytes=self.knobs.small_change_bytes,
            follow_rollback=self.knobs.on_source_rollback == "follow",
            follow_recreated=self.knobs.on_source_recreated == "follow",
            accepts_v1=1 in demands.formats,
            lifts_column_ids=demands.has_requirements,
            history=self._history,
        )

    def sampling(self, *, is_full: bool) -> Sampling:
        knobs = self.knobs
        return Sampling(knobs.p, knobs.k_min, knobs.k_max, knobs.max_concurrency, full=is_full)

    @property
    def _history(self) -> HistoryBudget:
        age, catalog = self.knobs.history_age, self.ports.mirror_catalog.demands()
        return HistoryBudget(
            self.knobs.history_versions,
            None if age is None else age.total_seconds(),
            self.knobs.history_bytes,
            catalog.max_metadata_bytes,
            has_server_logs=catalog.has_server_logs,
        )

    def context(self, change: Change, *, mirror: ObjectStore | None = None) -> StageContext:
        return self._stage_context(change, self._source_once, mirror or self._mirror_here, 1)

    def for_copy(self, change: Change, engine: Engine, plan: Plan) -> tuple[StageContext, Engine]:
        """For copying: as many tasks as processes share `max_concurrency`, whatever the cluster grows to later.

        Each is begun once and has its rows of work dealt to it; what the ledger has it need not do again.
        """
        stores = self.ports.source_store, self.ports.mirror_store
        rows = work_rows(plan, self._stage_context(change, *stores, 1))
        return self.for_tasks(change, engine, rows, is_bound=True)

    def for_tasks(
        self, change: Change, engine: Engine, rows: int, *, is_bound: bool = False
    ) -> tuple[StageContext, Engine]:
        """For tasks in other processes: no more at once than may have requests in flight, or can share the line."""
        rate = self._rate
        stores = self.ports.source_store, self.ports.mirror_store
        if rows == 0:
            return self._stage_context(change, *stores, 1), engine
        most = max(1, min(rows, self.knobs.max_concurrency))
        if rate is not None:
            most = max(1, min(most, int(rate // LEAST_SHARE_BYTES_PER_S)))
        narrow, processes = engine.narrow(most)
        is_limited = rate is not None or self.knobs.requests_limit_per_s is not None
        limited = self._limited(*stores, processes * engine.attempts, 0.0)
        context = self._stage_context(change, *limited, processes, engine.attempts)
        return context, narrow if is_bound or is_limited or processes == most < rows else engine

    def _stage_context(
        self, change: Change, source: ObjectStore, mirror: ObjectStore, processes: int, attempts: int = 1
    ) -> StageContext:
        return StageContext(
            source=source,
            mirror=mirror,
            paths=change.paths,
            plan_uri=self.layout.plan(change.plan_id),
            ledger_uri=self.layout.ledger(change.plan_id),
            copying=self._copy_ports(processes, attempts),
            bin_files=self.knobs.bin_files,
            bin_bytes=self.knobs.bin_bytes,
            split_bytes=self.knobs.copy_split_bytes,
            ledger_flush_files=self.knobs.ledger_flush_files,
        )

    def _copy_ports(self, processes: int, attempts: int) -> CopyPorts:
        knobs = self.knobs
        settings = CopySettings(
            concurrency=max(1, knobs.max_concurrency // processes),
            memory_bytes=knobs.copy_memory_bytes,
            part_bytes=knobs.copy_part_bytes,
            whole_bytes=knobs.copy_whole_bytes,
            attempts=knobs.copy_attempts,
            retry_budget=knobs.copy_retry_budget,
            object_deadline_s=float(knobs.object_deadline_seconds),
            deadline_at=self._copy_until,
        )
        return CopyPorts(
            self.ports.source_wire,
            self.ports.mirror_wire,
            settings,
            Rates(self._rate, knobs.requests_limit_per_s),
            processes,
            attempts,
            is_one_store=self.ports.is_one_store,
            now=EpochSeconds(self.now),
        )

    @property
    def _rate(self) -> float | None:
        peak = self.knobs.peak_bandwidth_bytes_per_s
        return None if peak is None else peak * self.knobs.rate_limit

    def _limited(
        self, source: ObjectStore, mirror: ObjectStore, processes: int, burst_s: float
    ) -> tuple[ObjectStore, ObjectStore]:
        """Both stores within one process's share of the rates; requests to either stand in one line."""
        rate, requests = self._rate, self.knobs.requests_limit_per_s
        line = None if requests is None else TokenBucket(requests / processes, burst_s=burst_s)
        if rate is not None or line is not None:
            share = None if rate is None else rate / processes
            source = RateLimitedStore(source, bytes_per_s=share, requests=line, burst_s=burst_s)
        return source, mirror if line is None else RateLimitedStore(mirror, requests=line)
