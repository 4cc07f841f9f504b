import asyncio
import importlib
import json
import threading
from typing import Any
from unittest.mock import MagicMock

import pytest
from airflow.triggers.base import TriggerEvent

from lakemirror.airflow.triggers import ReadyMarkerTrigger
from lakemirror.errors import PermanentError, TransientError
from lakemirror.model.table import TableRef


def _trigger(after_version: int = 7) -> ReadyMarkerTrigger:
    return ReadyMarkerTrigger(table="sales.orders", after_version=after_version, config_path="/c", poll_interval_s=0)


def _events(trigger: ReadyMarkerTrigger) -> list[dict[str, Any]]:
    async def collect() -> list[TriggerEvent]:
        return [event async for event in trigger.run()]

    return [event.payload for event in asyncio.run(asyncio.wait_for(collect(), timeout=30))]


def test_it_is_rebuilt_from_its_serialised_form() -> None:
    """T48: the class path and the names of the arguments are public."""
    path, kwargs = _trigger().serialize()
    assert path == "lakemirror.airflow.triggers.ReadyMarkerTrigger"
    assert kwargs == {"table": "sales.orders", "after_version": 7, "config_path": "/c", "poll_interval_s": 0}
    module, _, name = path.rpartition(".")
    again = getattr(importlib.import_module(module), name)(**json.loads(json.dumps(kwargs)))
    assert type(again) is ReadyMarkerTrigger
    assert again.serialize() == (path, kwargs)


def test_it_fires_once_when_a_newer_version_is_ready(app: MagicMock) -> None:
    app.newest_ready_version.side_effect = [None, 7, 9]
    assert _events(_trigger(7)) == [{"status": "ready", "version": 9, "error": None}]
    app.newest_ready_version.assert_called_with(TableRef.parse("sales.orders"))
    app.close.assert_called_once_with()


def test_run_twice_it_says_the_same(app: MagicMock) -> None:
    app.newest_ready_version.return_value = 8
    trigger = _trigger(7)
    assert _events(trigger) == _events(trigger) == [{"status": "ready", "version": 8, "error": None}]


@pytest.mark.parametrize("family", [TransientError, PermanentError])
def test_an_error_is_handed_to_the_task(app: MagicMock, family: type[TransientError] | type[PermanentError]) -> None:
    err = family("list", "s3://m/_ready", "denied", "check the role")
    app.newest_ready_version.side_effect = err
    assert _events(_trigger()) == [{"status": "error", "version": None, "error": err.as_json()}]
    app.close.assert_called_once_with()


def test_the_payload_is_json(app: MagicMock) -> None:
    app.newest_ready_version.return_value = 8
    (payload,) = _events(_trigger(7))
    assert json.loads(json.dumps(payload)) == payload


def test_asking_does_not_block_the_event_loop(app: MagicMock) -> None:
    """Two triggers whose stores wait for each other both get through, so they run in threads."""
    barrier = threading.Barrier(2, timeout=10)

    def ask(table: TableRef) -> int:
        barrier.wait()
        return 8

    app.newest_ready_version.side_effect = ask

    async def both() -> list[list[TriggerEvent]]:
        async def one() -> list[TriggerEvent]:
            return [event async for event in _trigger(7).run()]

        return list(await asyncio.gather(one(), one()))

    answers = asyncio.run(asyncio.wait_for(both(), timeout=30))
    assert [event.payload["version"] for events in answers for event in events] == [8, 8]
