"""What the DAGs are, as plain values made from the configuration: no Airflow here, no I/O, no clock.

The same configuration and list of tables always give the same specs, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from lakemirror.model.table import TableRef

if TYPE_CHECKING:
    from lakemirror.config.knobs import Knobs
    from lakemirror.config.models import Config

RESOLVE_DAG_ID = "lakemirror__resolve_tables"
RESOLVE_SCHEDULE = "*/5 * * * *"
SENSOR_TIMEOUT_S = 3600
SENSOR_POLL_S = 10

SPARK_JOBS = ("plan_diff", "copy_objects", "rewrite_metadata")


class Tag(StrEnum):
    """Every tag there is."""

    LAKEMIRROR = "lakemirror"
    MIRROR = "mirror"
    FOLLOW = "follow"
    UPKEEP = "upkeep"


@dataclass(frozen=True, slots=True)
class TaskRules:
    """How often, how long and how urgently the tasks of a DAG run."""

    retries: int
    retry_delay_s: float
    execution_timeout_s: float
    priority: int = 1

    @classmethod
    def of(cls, knobs: Knobs) -> TaskRules:
        return cls(knobs.retries, knobs.retry_delay_seconds, knobs.execution_timeout_seconds, knobs.priority)


@dataclass(frozen=True, slots=True)
class WatchSpec:
    """A watcher beside the schedule: what it looks at, how often, and the other arguments of its trigger."""

    kind: Literal["source", "bucket", "pubsub", "sqs"]
    poll_interval_s: float
    arguments: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class MirrorDagSpec:
    """`mirror__<ns>__<table>`: from the source's head to a ready marker."""

    table: TableRef
    config_path: str
    schedule: str | None
    rules: TaskRules
    spark_conn_id: str
    watch: WatchSpec | None = None

    @property
    def dag_id(self) -> str:
        return self.table.dag_id("mirror")

    @property
    def description(self) -> str:
        return f"Copies new versions of {self.table} to the mirror bucket and publishes them"

    @property
    def tags(self) -> tuple[str, ...]:
        return (Tag.LAKEMIRROR.value, Tag.MIRROR.value)


@dataclass(frozen=True, slots=True)
class FollowDagSpec:
    """`follow__<ns>__<table>`: from a ready marker to the mirror catalog's head."""

    table: TableRef
    config_path: str
    schedule: str | None
    trigger: Literal["asset", "sensor", "watch"]
    rules: TaskRules
    watch: WatchSpec | None = None

    @property
    def dag_id(self) -> str:
        return self.table.dag_id("follow")

    @property
    def description(self) -> str:
        return f"Moves the mirror of {self.table} to its newest ready version"

    @property
    def tags(self) -> tuple[str, ...]:
        return (Tag.LAKEMIRROR.value, Tag.FOLLOW.value)


@dataclass(frozen=True, slots=True)
class ResolveDagSpec:
    """`lakemirror__resolve_tables`: from the patterns in the configuration to the list that parsing reads."""

    config_path: str
    tables_path: str
    rules: TaskRules
    dag_id: str = RESOLVE_DAG_ID
    schedule: str = RESOLVE_SCHEDULE
    description: str = "Finds the tables that the patterns in the configuration match"

    @property
    def tags(self) -> tuple[str, ...]:
        return (Tag.LAKEMIRROR.value, Tag.UPKEEP.value)


def configured_tables(config: Config, resolved_names: Iterable[str]) -> tuple[TableRef, ...]:
    """The tables named in the configuration, and those of the resolved list that it (still) matches, by name."""
    return tuple(sorted({*config.exact_tables(), *config.match(resolved_names)}, key=str))


def mirror_specs(config: Config, config_path: str, resolved_names: Iterable[str]) -> tuple[MirrorDagSpec, ...]:
    """One per table; none if the configuration has no source (a follower)."""
    if config.source is None:
        return ()
    specs = []
    for table in configured_tables(config, resolved_names):
        knobs = config.knobs_for(table)
        watch = WatchSpec("source", config.events.poll_seconds) if knobs.mirror_trigger == "watch" else None
        rules = TaskRules.of(knobs)
        specs.append(MirrorDagSpec(table, config_path, knobs.schedule, rules, config.spark.conn_id, watch))
    return tuple(specs)


def follow_specs(config: Config, config_path: str, resolved_names: Iterable[str]) -> tuple[FollowDagSpec, ...]:
    """One per table."""
    specs = []
    for table in configured_tables(config, resolved_names):
        knobs = config.knobs_for(table)
        watch, rules = _follow_watch(config, knobs), TaskRules.of(knobs)
        trigger: Literal["asset", "sensor", "watch"]
        trigger = "watch" if watch is not None else "sensor" if knobs.follow_trigger == "sensor" else "asset"
        specs.append(FollowDagSpec(table, config_path, knobs.follow_schedule, trigger, rules, watch))
    return tuple(specs)


def _follow_watch(config: Config, knobs: Knobs) -> WatchSpec | None:
    poll_s, queues = config.events.poll_seconds, config.events
    if knobs.follow_trigger == "bucket":
        return WatchSpec("bucket", poll_s)
    if knobs.follow_trigger == "pubsub" and queues.pubsub is not None:
        names = ("conn_id", "project_id", "subscription")
        return WatchSpec("pubsub", poll_s, tuple((name, getattr(queues.pubsub, name)) for name in names))
    if knobs.follow_trigger == "sqs" and queues.sqs is not None:
        names = ("conn_id", "queue_url", "region")
        return WatchSpec("sqs", poll_s, tuple((name, getattr(queues.sqs, name)) for name in names))
    return None


def resolve_spec(config: Config, config_path: str, tables_path: str) -> ResolveDagSpec | None:
    """Only where there is a pattern to resolve. The next run is minutes away, so it is not retried for long."""
    if not config.has_patterns:
        return None
    return ResolveDagSpec(config_path, tables_path, TaskRules(retries=1, retry_delay_s=30, execution_timeout_s=300))
