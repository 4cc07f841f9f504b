"""Waits, in the triggerer, until a newer version of a table is ready in the mirror bucket.

Nothing is kept in memory that matters: after a restart of the triggerer the same arguments give the same wait, and
running twice reports the same version twice. Airflow ends the wait at the timeout the task deferred with.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any, Literal, TypedDict

from airflow.triggers.base import BaseTrigger, TriggerEvent

from lakemirror.airflow.hook import LakemirrorHook
from lakemirror.errors import LakemirrorError
from lakemirror.model.table import TableRef


class ReadyEvent(TypedDict):
    """The payload: `version` if ready, `error` (the JSON form of the library's error) if asking failed."""

    status: Literal["ready", "error"]
    version: int | None
    error: dict[str, Any] | None


class ReadyMarkerTrigger(BaseTrigger):
    """Fires once, when `_ready` holds a version above `after_version`, or when it cannot be asked."""

    def __init__(self, *, table: str, after_version: int, config_path: str | None, poll_interval_s: float) -> None:
        super().__init__()
        self.table = table
        self.after_version = after_version
        self.config_path = config_path
        self.poll_interval_s = poll_interval_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            "lakemirror.airflow.triggers.ReadyMarkerTrigger",
            {
                "table": self.table,
                "after_version": self.after_version,
                "config_path": self.config_path,
                "poll_interval_s": self.poll_interval_s,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        try:
            version = await self._next_version()
            yield TriggerEvent(ReadyEvent(status="ready", version=version, error=None))
        except LakemirrorError as err:
            yield TriggerEvent(ReadyEvent(status="error", version=None, error=err.as_json()))

    async def _next_version(self) -> int:
        """Poll until there is one. Loading and asking block, so both happen in a thread."""
        table = TableRef.parse(self.table)
        with ExitStack() as stack:
            app = await asyncio.to_thread(stack.enter_context, LakemirrorHook(config_path=self.config_path).app())
            while True:
                newest = await asyncio.to_thread(app.newest_ready_version, table)
                if newest is not None and newest > self.after_version:
                    return newest
                await asyncio.sleep(self.poll_interval_s)
