"""The tasks of the mirror and follow DAGs that run inside the Airflow worker: one use case each, then a report.

Each may be killed at any moment and run again. What a task hands on by XCom is a reference or a count, never data.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, BaseXCom, Context, SkipMixin
from airflow.sdk.exceptions import AirflowSkipException

from lakemirror.airflow import assets, tables_file
from lakemirror.airflow.errors import airflow_errors
from lakemirror.airflow.hook import LakemirrorHook, run_name
from lakemirror.airflow.params import RunParams
from lakemirror.errors import TableBusyError
from lakemirror.model.table import TableRef

if TYPE_CHECKING:
    from lakemirror.model.results import MirrorResult
    from lakemirror.replicate.progress import LogLines


class TableOperator(BaseOperator):
    """A task about one table; `table` is its full name, `config_path` the configuration file."""

    template_fields: Sequence[str] = ("table", "config_path")

    def __init__(self, *, table: str, config_path: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.config_path = config_path

    def progress_lines(self) -> LogLines:
        """How far the work is, in the task's log."""
        from lakemirror.replicate.progress import LogLines

        return LogLines(self.table, self.log.info, time.monotonic)

    def report(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.log.info("%s", line)


class DetectChangeOperator(TableOperator, SkipMixin):
    """Asks what changed, and for a small change does the whole way to publish, here, without starting a JVM.

    Nothing to do, or another run at work on the table: this task and the rest are skipped. Small change, or dry run:
    this task succeeds, the rest is skipped. Large change: returns where the plan is, and the Spark tasks follow.

    A later try that finds nothing to do tells of the newest version as `ready`: the try before it may have died after
    it had published that and before Airflow took its event. Events are hints, and told twice is fine.
    """

    ui_color = "#d7e8f7"

    def execute(self, context: Context) -> dict[str, Any]:
        hook = LakemirrorHook(config_path=self.config_path)
        with airflow_errors(), hook.app(owner=run_name(context)) as app, self.progress_lines() as progress:
            params = RunParams.of(context["params"], context["dag_run"].conf)
            table = TableRef.parse(self.table)
            if params.dry_run:
                plan = app.plan(table, target_snapshot_id=params.target_snapshot_id)
                self.report([*plan.report(), "dry run: nothing was written"])
                return self._end_here(context, plan.as_json())
            try:
                detected = app.detect(table, target_snapshot_id=params.target_snapshot_id, progress=progress)
            except TableBusyError as err:  # another installation, or a run that was forced: it does what is to be done
                self.log.info("nothing to do here: %s", err)
                raise AirflowSkipException(str(err)) from err
            self.log.info("%s", detected.summary)
            is_later_try = context["ti"].try_number > 1
            if detected.lane == "none" and not is_later_try:
                raise AirflowSkipException(detected.summary)
            if detected.lane == "spark":
                names = {"plan_uri": detected.plan_uri, "source_name": detected.source_name}
                return {"lane": detected.lane, "version": detected.version, **names}
            result = app.mirror(table, detected=detected, full_verify=params.full_verify)
        self.report(result.report())
        if result.lane == "none" and not (is_later_try and result.version is not None):
            raise AirflowSkipException(result.report()[0])
        assets.emit(context, assets.ready_alias(table), assets.ready_asset(table), _event(result))
        return self._end_here(context, _brief(result))

    def _end_here(self, context: Context, result: dict[str, Any]) -> dict[str, Any]:
        """Succeed and skip all that would follow. Airflow's word for that is an exception, so the result goes first."""
        context["ti"].xcom_push(key=BaseXCom.XCOM_RETURN_KEY, value=result)
        self.skip(context["ti"], self.get_flat_relatives(upstream=False))
        return result


class PublishVersionOperator(TableOperator):
    """Stages the marker, checks what was copied and publishes the version; its success is the `ready` event."""

    template_fields: Sequence[str] = (*TableOperator.template_fields, "plan_uri")
    ui_color = "#d8f0d8"

    def __init__(self, *, plan_uri: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan_uri = plan_uri

    def execute(self, context: Context) -> dict[str, Any]:
        table, hook = TableRef.parse(self.table), LakemirrorHook(config_path=self.config_path)
        with airflow_errors(is_plan_fixed=True), hook.app(owner=run_name(context)) as app:
            params = RunParams.of(context["params"])
            result = app.publish(table, self.plan_uri, full_verify=params.full_verify)
        self.report(result.report())
        context["outlet_events"][assets.ready_asset(table)].extra = _event(result)
        return _brief(result)


class FollowOperator(TableOperator):
    """Moves the mirror to its newest ready version; needs no access to the source. Skipped if it is there already.

    A version that an earlier try committed, and could not record before it failed, is still told as `visible`. So is
    what a later try finds at the head: the try before it may have died after it had recorded the version and before
    Airflow took its event. Events are hints, and told twice is fine.
    """

    ui_color = "#f4e7c8"

    def execute(self, context: Context) -> dict[str, Any]:
        table = TableRef.parse(self.table)
        with airflow_errors(), LakemirrorHook(config_path=self.config_path).app() as app:
            result = app.follow(table)
        self.report(result.report())
        is_told_again = context["ti"].try_number > 1 and result.version is not None
        if not (result.committed or result.first_seen or is_told_again):
            raise AirflowSkipException(result.report()[0])
        facts = result.as_json()
        event = {key: facts[key] for key in ("table", "version", "snapshot_id")}
        assets.emit(context, assets.visible_alias(table), assets.visible_asset(table), event)
        return event


class ResolveTablesOperator(BaseOperator):
    """Asks the catalog which tables the patterns in the configuration match, and writes the list that parsing reads.

    A table that is no longer found stays in the list as long as the configuration matches its name: its mirror stays
    too, and its DAGs keep telling that the source is gone.
    """

    template_fields: Sequence[str] = ("config_path", "tables_path")

    def __init__(self, *, config_path: str, tables_path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config_path = config_path
        self.tables_path = tables_path

    def execute(self, context: Context) -> dict[str, Any]:
        with airflow_errors(), LakemirrorHook(config_path=self.config_path).app() as app:
            known = tables_file.read(self.tables_path)
            found = [str(table) for table in app.resolve_patterns()]
            names = [str(table) for table in app.config.match({*known, *found})]
            added, removed = sorted({*names} - {*known}), sorted({*known} - {*names})
            if added or removed:
                tables_file.write(self.tables_path, names)
            refused = app.refused_tables()
            app.join_groups()
        for error in refused.values():
            self.log.warning("not mirrored: %s", error)
        for name in added:
            self.log.info("%s: new, its DAGs appear at the next parse", name)
        for name in removed:
            self.log.info("%s: no longer in the configuration, its DAGs go at the next parse", name)
        self.log.info("%d tables match the patterns", len(names))
        return {"tables": len(names), "added": len(added), "removed": len(removed)}


def _brief(result: MirrorResult) -> dict[str, Any]:
    facts = result.as_json()
    return {key: facts[key] for key in ("table", "lane", "version", "snapshot_id", "copied_files", "copied_bytes")}


def _event(result: MirrorResult) -> dict[str, Any]:
    facts = result.as_json()
    return {key: facts[key] for key in ("table", "version", "snapshot_id", "marker")}
