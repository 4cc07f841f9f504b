"""Builds the DAGs from their specs. Called at parse: reads two local files, and does nothing else that can be seen.

When a worker parses a file to run one task, only that task's DAG is built, however many tables there are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from airflow.sdk import (
    DAG,
    Asset,
    AssetOrTimeSchedule,
    AssetWatcher,
    CronTriggerTimetable,
    Param,
    chain,
    get_parsing_context,
)

import lakemirror
from lakemirror.airflow import assets, tables_file
from lakemirror.airflow.operators import (
    DetectChangeOperator,
    FollowOperator,
    PublishVersionOperator,
    ResolveTablesOperator,
)
from lakemirror.airflow.params import FORM
from lakemirror.airflow.sensors import ReadyMarkerSensor
from lakemirror.airflow.spec import (
    SENSOR_POLL_S,
    SENSOR_TIMEOUT_S,
    SPARK_JOBS,
    FollowDagSpec,
    MirrorDagSpec,
    ResolveDagSpec,
    TaskRules,
    WatchSpec,
    follow_specs,
    mirror_specs,
    resolve_spec,
)
from lakemirror.config.loader import load_config
from lakemirror.config.models import Config

# fixed, so that every parse is the same; with catchup off it only has to lie in the past
START_DATE = datetime(2025, 1, 1, tzinfo=UTC)
# Each task takes the plan from the one before it: a stage that finds a source file gone goes on with a new plan.
PLAN_URI = "{{{{ ti.xcom_pull(task_ids='{}')['plan_uri'] }}}}"
SOURCE_NAME = "{{ ti.xcom_pull(task_ids='detect_change')['source_name'] }}"

Spec = TypeVar("Spec", MirrorDagSpec, FollowDagSpec, ResolveDagSpec)


class Setup(NamedTuple):
    """What a parse reads."""

    config: Config
    config_path: str
    tables_path: str
    resolved_names: tuple[str, ...]


def read_setup(dags_folder: Path, env: Mapping[str, str] = os.environ) -> Setup:
    """`$LAKEMIRROR_CONFIG`, else `include/config/lakemirror.yaml` next to the DAGs folder; and the resolved tables."""
    default = dags_folder.resolve().parent / "include" / "config" / "lakemirror.yaml"
    config_path = env.get("LAKEMIRROR_CONFIG") or str(default)
    config = load_config(config_path, env=env)
    tables_path = tables_file.path_for(config_path, env)
    return Setup(config, config_path, tables_path, tables_file.read(tables_path) if config.has_patterns else ())


def mirror_dags(setup: Setup, doc: str | None) -> Iterator[DAG]:
    """The mirror DAGs, by name."""
    for spec in _wanted(mirror_specs(setup.config, setup.config_path, setup.resolved_names)):
        yield build_mirror_dag(spec, doc)


def follow_dags(setup: Setup, doc: str | None) -> Iterator[DAG]:
    """The follow DAGs, by name."""
    for spec in _wanted(follow_specs(setup.config, setup.config_path, setup.resolved_names)):
        yield build_follow_dag(spec, doc)


def resolve_dags(setup: Setup, doc: str | None) -> Iterator[DAG]:
    """The DAG that resolves patterns, if there are any."""
    spec = resolve_spec(setup.config, setup.config_path, setup.tables_path)
    for one in _wanted(() if spec is None else (spec,)):
        yield build_resolve_dag(one, doc)


def build_mirror_dag(spec: MirrorDagSpec, doc: str | None = None) -> DAG:
    from lakemirror.airflow.spark import SparkJobOperator

    common: dict[str, Any] = {"table": str(spec.table), "config_path": spec.config_path}
    jobs_folder = _jobs_folder()
    with _dag(spec, doc, _mirror_schedule(spec)) as dag:
        tasks: list[Any] = [
            DetectChangeOperator(task_id="detect_change", outlets=[assets.ready_alias(spec.table)], **common)
        ]
        plan_uri = PLAN_URI.format("detect_change")
        for job in SPARK_JOBS:
            names = {"plan_uri": plan_uri, **({"source_name": SOURCE_NAME} if job == "plan_diff" else {})}
            application = str(jobs_folder / f"{job}.py")
            tasks.append(
                SparkJobOperator(task_id=job, application=application, conn_id=spec.spark_conn_id, **names, **common)
            )
            plan_uri = PLAN_URI.format(job)
        ready = [assets.ready_asset(spec.table)]
        tasks.append(PublishVersionOperator(task_id="publish_version", plan_uri=plan_uri, outlets=ready, **common))
        chain(*tasks)
    # after the tasks: each would take a deep copy of the form, at every class it derives from, which is half the parse
    dag.params.update(_form())
    return dag


def build_follow_dag(spec: FollowDagSpec, doc: str | None = None) -> DAG:
    common: dict[str, Any] = {"table": str(spec.table), "config_path": spec.config_path}
    with _dag(spec, doc, _follow_schedule(spec)) as dag:
        tasks: list[Any] = []
        if spec.trigger == "sensor":
            bounds: dict[str, Any] = {"poke_interval": SENSOR_POLL_S, "timeout": SENSOR_TIMEOUT_S}
            tasks.append(ReadyMarkerSensor(task_id="await_ready", **bounds, **common))
        visible = [assets.visible_alias(spec.table)]
        tasks.append(FollowOperator(task_id="follow_marker", outlets=visible, **common))
        chain(*tasks)
    return dag


def build_resolve_dag(spec: ResolveDagSpec, doc: str | None = None) -> DAG:
    with _dag(spec, doc, _cron(spec.schedule)) as dag:
        ResolveTablesOperator(task_id="resolve_tables", config_path=spec.config_path, tables_path=spec.tables_path)
    return dag


def _dag(spec: MirrorDagSpec | FollowDagSpec | ResolveDagSpec, doc: str | None, schedule: Any) -> DAG:
    return DAG(
        spec.dag_id,
        description=spec.description,
        doc_md=doc,
        schedule=schedule,
        tags=list(spec.tags),
        start_date=START_DATE,
        catchup=False,
        max_active_runs=1,
        default_args=_default_args(spec.rules),
    )


def _default_args(rules: TaskRules) -> dict[str, Any]:
    return {
        "owner": "lakemirror",
        "retries": rules.retries,
        "retry_delay": timedelta(seconds=rules.retry_delay_s),
        "execution_timeout": timedelta(seconds=rules.execution_timeout_s),
        "priority_weight": rules.priority,
        "weight_rule": "absolute",
        "pool": "default_pool",
    }


def _cron(expression: str | None) -> CronTriggerTimetable | None:
    return None if expression is None else CronTriggerTimetable(expression, timezone="UTC")


def _mirror_schedule(spec: MirrorDagSpec) -> Any:
    if spec.watch is None:
        return _cron(spec.schedule)
    return _woken_by(assets.changed_asset(spec.table, _watcher(spec, spec.watch)), spec.schedule)


def _follow_schedule(spec: FollowDagSpec) -> Any:
    if spec.watch is not None:
        return _woken_by(assets.arrived_asset(spec.table, _watcher(spec, spec.watch)), spec.schedule)
    if spec.trigger == "sensor":
        return _cron(spec.schedule)
    return _woken_by(assets.ready_asset(spec.table), spec.schedule)


def _woken_by(asset: Asset, schedule: str | None) -> Any:
    """By an event, with the schedule as the net below it."""
    cron = _cron(schedule)
    return [asset] if cron is None else AssetOrTimeSchedule(assets=[asset], timetable=cron)


def _watcher(spec: MirrorDagSpec | FollowDagSpec, watch: WatchSpec) -> AssetWatcher:
    """Making a trigger asks nobody for anything; only the class is imported, and no provider with it."""
    from lakemirror.airflow import inboxes, watchers

    kinds: dict[str, type[watchers.TableWatchTrigger]] = {
        "source": watchers.SourceHeadTrigger,
        "bucket": watchers.ReadyFolderTrigger,
        "pubsub": inboxes.PubsubNoticeTrigger,
        "sqs": inboxes.SqsNoticeTrigger,
    }
    trigger = kinds[watch.kind](
        table=str(spec.table),
        config_path=spec.config_path,
        poll_interval_s=watch.poll_interval_s,
        **dict(watch.arguments),
    )
    return AssetWatcher(name=spec.table.dag_id(f"watch_{watch.kind}"), trigger=trigger)


def _form() -> dict[str, Param]:
    return {name: Param(default, **schema) for name, (default, schema) in FORM.items()}


def _jobs_folder() -> Path:
    """The Spark jobs that belong to this very library: they lie next to the folder it was installed from."""
    return Path(lakemirror.__file__).resolve().parents[2] / "spark_jobs"


def _wanted(specs: Sequence[Spec]) -> Iterator[Spec]:
    only = get_parsing_context().dag_id
    return (spec for spec in specs if only is None or spec.dag_id == only)
