"""As much of Airflow's triggerer as runs watchers, over its own manager of shared streams."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import structlog
from airflow.triggers.shared_stream import SharedStreamManager

from lakemirror import bridge
from lakemirror.airflow.watchers import TableWatchTrigger
from lakemirror.errors import TransientError
from lakemirror.model.table import TableRef
from lakemirror.usecases import watch


class Triggerer:
    """The events of each watcher, by table. What it has seen is persisted at once, unless `is_persisting` is off."""

    is_persisting = True

    def __init__(self) -> None:
        self.manager = SharedStreamManager(log=structlog.get_logger())
        self.events: dict[str, list[str]] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._number = 0

    def start(self, trigger: TableWatchTrigger) -> None:
        self._number += 1
        self.events.setdefault(trigger.table, [])
        self.tasks[trigger.table] = asyncio.create_task(self._run(self._number, trigger))

    async def stop(self, table: TableRef) -> None:
        task = self.tasks.pop(str(table))
        task.cancel()
        await asyncio.wait({task})

    async def _run(self, number: int, trigger: TableWatchTrigger) -> None:
        key = trigger.shared_stream_key()
        stream = self.manager.subscribe(trigger_id=number, trigger=trigger, key=key)
        try:
            async for event in trigger.filter_shared_stream(stream):
                assert event.payload["table"] == trigger.table
                self.events[trigger.table].append(event.payload["seen"])
                seq = self.manager.bind_pending_event(trigger_id=number, key=key)
                if seq is not None and self.is_persisting:
                    self.manager.confirm_persisted([seq])
        finally:
            await self.manager.unsubscribe(number, key)

    async def until(self, is_true: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not is_true():
                for task in self.tasks.values():
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)


def play(story: Callable[[Triggerer], Awaitable[None]]) -> None:
    async def whole() -> None:
        triggerer = Triggerer()
        try:
            await story(triggerer)
        finally:
            await triggerer.manager.stop_all()
            for task in triggerer.tasks.values():
                task.cancel()
            if triggerer.tasks:
                await asyncio.wait({*triggerer.tasks.values()})

    asyncio.run(whole())


@contextmanager
def failing(table: TableRef) -> Iterator[list[str]]:
    """A watch that looks for markers of this table fails in passing; the list is as long as that was tried."""
    asked: list[str] = []

    def published(store: Any, layout: Any) -> Any:
        if layout.root.endswith(f"/{table.folder}"):
            asked.append(layout.root)
            raise TransientError("list", str(table), "503")
        return bridge.published(store, layout)

    with patch.object(watch, "bridge", SimpleNamespace(published=published, read_ready=bridge.read_ready)):
        yield asked
