"""Waits for the next ready version of a table, for a follower that shares nothing with the mirror but the bucket."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue
from airflow.sdk.exceptions import AirflowSensorTimeout, AirflowSkipException, TaskDeferralTimeout, TaskDeferred

from lakemirror.airflow.errors import airflow_errors, exception_from_result
from lakemirror.airflow.hook import LakemirrorHook
from lakemirror.airflow.triggers import ReadyEvent, ReadyMarkerTrigger
from lakemirror.model.table import TableRef


class ReadyMarkerSensor(BaseSensorOperator):
    """Succeeds when `_ready` holds a version above `after_version`; None means above the mirror's own.

    If nothing comes within `timeout` the task is skipped: that nothing was committed is no failure. Errors are
    errors; `soft_fail` would hide them and is not used.
    """

    template_fields: Sequence[str] = ("table", "config_path", "after_version")
    ui_color = "#e7def5"

    def __init__(
        self,
        *,
        table: str,
        config_path: str | None = None,
        after_version: int | str | None = None,
        deferrable: bool = True,
        poke_interval: timedelta | float = 10,
        timeout: timedelta | float = 3600,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, timeout=timeout, **kwargs)
        self.table = table
        self.config_path = config_path
        self.after_version = after_version
        self.deferrable = deferrable

    def poke(self, context: Context) -> PokeReturnValue:
        after = self._after()
        with airflow_errors(), LakemirrorHook(config_path=self.config_path).app() as app:
            newest = app.newest_ready_version(TableRef.parse(self.table))
        return PokeReturnValue(is_done=newest is not None and newest > after, xcom_value=newest)

    def execute(self, context: Context) -> int | None:
        if not self.deferrable:
            try:
                version: int | None = super().execute(context)
            except AirflowSensorTimeout as err:
                raise self._nothing_came() from err
            return version
        first = self.poke(context)
        if first:
            return self._found(int(first.xcom_value or 0))
        self.log.info("%s: waiting for a version above v%d", self.table, self._after())
        raise TaskDeferred(
            trigger=ReadyMarkerTrigger(
                table=self.table,
                after_version=self._after(),
                config_path=self.config_path,
                poll_interval_s=self.poke_interval,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def execute_complete(self, context: Context, event: ReadyEvent) -> int:
        if event["error"] is not None:
            raise exception_from_result(event["error"])
        return self._found(int(event["version"] or 0))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except (AirflowSensorTimeout, TaskDeferralTimeout) as err:
            raise self._nothing_came() from err

    def _after(self) -> int:
        """Asked once per try: what is ready beyond the mirror's head at the start is what this run is for."""
        if self.after_version in (None, ""):
            with airflow_errors(), LakemirrorHook(config_path=self.config_path).app() as app:
                self.after_version = app.mirror_version(TableRef.parse(self.table)) or 0
        return int(self.after_version or 0)

    def _found(self, version: int) -> int:
        self.log.info("%s: v%d is ready", self.table, version)
        return version

    def _nothing_came(self) -> AirflowSkipException:
        return AirflowSkipException(f"{self.table}: nothing to do, no new version within {self.timeout:.0f} s")
