"""Notices are hints: doubled, reordered, lost, forged and late ones all lead to the same events (T43)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from lakemirror import bridge
from lakemirror.airflow import inboxes, watchers
from lakemirror.airflow.inboxes import SqsNoticeTrigger
from lakemirror.airflow.looking import Looker, Told
from lakemirror.airflow.queues import Message
from lakemirror.errors import TransientError
from lakemirror.model.table import TableRef
from lakemirror.usecases import watch
from tests.lake import ORDERS, Lake, rows
from tests.unit.airflow.triggerer import Triggerer, failing, play

LATE = TableRef.parse("shop.late")


class Queue:
    """Delivers what lies in it, again and again, until it is told that it is done with."""

    def __init__(self) -> None:
        self.waiting: dict[str, Message] = {}
        self.finished: list[str] = []
        self.trouble: list[Exception] = []

    def put(self, *uris: str, age_s: float = 0) -> None:
        handle = f"m{len(self.waiting) + len(self.finished)}"
        self.waiting[handle] = Message(handle, uris, datetime.now(UTC) - timedelta(seconds=age_s))

    async def receive(self) -> list[Message]:
        await asyncio.sleep(0.01)
        if self.trouble:
            raise self.trouble.pop()
        return list(self.waiting.values())

    async def done(self, handles: Sequence[str]) -> None:
        for handle in handles:
            if self.waiting.pop(handle, None) is not None:
                self.finished.append(handle)

    async def close(self) -> None:
        pass


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path, tables=[{"name": str(ORDERS)}, {"name": str(LATE)}])
    made.create().append(rows(1))
    return made


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    made = Queue()
    monkeypatch.setattr(inboxes, "EMPTY_REST_S", 0.01)
    with patch.object(SqsNoticeTrigger, "inbox_of", return_value=made):
        yield made


def trigger(lake: Lake, table: TableRef = ORDERS) -> SqsNoticeTrigger:
    queue = {"conn_id": "aws", "queue_url": "https://q", "region": None}
    return SqsNoticeTrigger(table=str(table), config_path=str(lake.follower_config_path), poll_interval_s=0.01, **queue)


def marker(lake: Lake, version: int, table: TableRef = ORDERS) -> str:
    return f"file://{lake.mirror_folder}/{table.folder}/_ready/v{version}.ready.json"


def commit(lake: Lake, count: int = 1) -> None:
    for _ in range(count):
        lake.source.load_table(str(ORDERS)).append(rows(1))
        lake.mirror()


def test_a_message_leads_to_one_event_and_is_then_done_with(lake: Lake, queue: Queue) -> None:
    async def story(triggerer: Triggerer) -> None:
        triggerer.start(trigger(lake))
        triggerer.start(trigger(lake, LATE))
        await asyncio.to_thread(lake.mirror)
        queue.put(marker(lake, 1))
        await triggerer.until(lambda: not queue.waiting)
        assert triggerer.events == {"shop.orders": ["v1"], "shop.late": []}

    play(story)


@pytest.mark.parametrize("seed", range(3))
def test_doubled_reordered_and_lost_messages_converge(lake: Lake, queue: Queue, seed: int) -> None:
    """Whichever messages come, how often and in which order: the newest version is told, and nothing twice."""
    chance = random.Random(seed)

    async def story(triggerer: Triggerer) -> None:
        triggerer.start(trigger(lake))
        await triggerer.until(lambda: str(ORDERS) in triggerer.events)
        await asyncio.to_thread(commit, lake, 3)
        versions = chance.choices(range(1, 4), k=6)
        for version in versions:
            queue.put(marker(lake, version))
        await triggerer.until(lambda: not queue.waiting)
        told = triggerer.events[str(ORDERS)]
        assert told[-1] == "v3", "what is there counts, not what a message says"
        assert len(told) == len(set(told))

    play(story)


def test_forged_messages_start_nothing_and_are_done_with(
    lake: Lake, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    lake.sync()
    read: list[str] = []
    original = bridge.published

    def published(store: Any, layout: Any) -> Any:
        read.append(layout.root)
        return original(store, layout)

    async def story(triggerer: Triggerer) -> None:
        triggerer.start(trigger(lake))
        await triggerer.until(lambda: bool(read))
        queue.put(marker(lake, 99))  # a version that is not there
        queue.put(marker(lake, 1))  # one that was followed long ago
        queue.put(marker(lake, 1, TableRef.parse("other.table")))  # a table that nobody configured
        queue.put("s3://elsewhere/shop/orders/_ready/v7.ready.json", "file:///etc/passwd")
        queue.put()
        await triggerer.until(lambda: not queue.waiting)
        assert triggerer.events == {"shop.orders": []}

    with patch.object(bridge, "published", published), caplog.at_level("INFO"):
        play(story)
    assert {*read} == {f"file://{lake.mirror_folder}/shop/orders"}, "nothing else was looked at"
    assert "objects ignored that are no ready markers of configured tables" in caplog.text


def test_messages_that_were_lost_while_nobody_watched_are_made_up_for(lake: Lake, queue: Queue) -> None:
    commit(lake)

    async def story(triggerer: Triggerer) -> None:
        triggerer.start(trigger(lake))
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1"])

    play(story)
    assert queue.finished == []


def test_the_only_message_is_lost_while_somebody_watches(
    lake: Lake, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else will ever come: the slow look at all tables finds it, and tells it once for a while."""
    monkeypatch.setattr(inboxes, "LOOK_ANYWAY_S", 0.2)
    looks: list[list[str]] = []
    original = Looker.look

    async def look(looker: Looker, tables: Sequence[str], **more: Any) -> Told:
        found = await original(looker, tables, **more)
        looks.append([*tables])
        return found

    async def story(triggerer: Triggerer) -> None:
        triggerer.start(trigger(lake))
        await triggerer.until(lambda: bool(looks))
        await asyncio.to_thread(commit, lake)
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1"])
        seen = len(looks)
        await triggerer.until(lambda: len(looks) > seen + 1)
        assert triggerer.events[str(ORDERS)] == ["v1"]

    with patch.object(Looker, "look", look):
        play(story)
    assert queue.finished == []


def test_a_version_whose_run_failed_is_told_again_without_a_message(
    lake: Lake, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((inboxes, "LOOK_ANYWAY_S"), (watch, "RELIST_S"), (watchers, "RETELL_S")):
        monkeypatch.setattr(module, name, 0.2)

    async def story(triggerer: Triggerer) -> None:
        triggerer.start(trigger(lake))
        await asyncio.to_thread(commit, lake)
        queue.put(marker(lake, 1))
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1", "v1", "v1"])

    play(story)
    assert queue.waiting == {}


def test_a_message_stays_in_the_queue_until_its_event_is_persisted(lake: Lake, queue: Queue) -> None:
    """The triggerer dies between telling and persisting: the next one tells it."""

    async def dies(triggerer: Triggerer) -> None:
        triggerer.is_persisting = False
        triggerer.start(trigger(lake))
        triggerer.start(trigger(lake, LATE))
        await asyncio.to_thread(lake.mirror)
        queue.put(marker(lake, 1))
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1"])
        await asyncio.sleep(0.1)
        assert queue.finished == []

    play(dies)

    async def lives(triggerer: Triggerer) -> None:
        triggerer.start(trigger(lake))
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1"])
        await triggerer.until(lambda: not queue.waiting)

    play(lives)


def test_a_table_that_another_triggerer_watches_is_left_to_it_for_a_while(lake: Lake, queue: Queue) -> None:
    async def story(triggerer: Triggerer) -> None:
        triggerer.start(trigger(lake, LATE))
        queue.put(marker(lake, 1), age_s=inboxes.GIVE_BACK_S + 1)
        queue.put(marker(lake, 2))
        await triggerer.until(lambda: queue.finished == ["m0"])
        await asyncio.sleep(0.1)
        assert list(queue.waiting) == ["m1"]

    play(story)


def test_a_queue_and_a_bucket_that_are_away_are_waited_out(lake: Lake, queue: Queue) -> None:
    away = TransientError("list", "x", "away")
    queue.trouble = [TransientError("read queue", "q", "no such queue")] * 2

    async def story(triggerer: Triggerer) -> None:
        triggerer.start(trigger(lake))
        await triggerer.until(lambda: not queue.trouble)
        await asyncio.to_thread(lake.mirror)
        with patch.object(bridge, "published", side_effect=away) as asked:
            queue.put(marker(lake, 1))
            await triggerer.until(lambda: asked.call_count >= 2)
            assert queue.waiting, "nobody could look, so nobody is done"
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1"])
        await triggerer.until(lambda: not queue.waiting)

    play(story)


def test_a_table_that_fails_again_and_again_keeps_nobody_back(lake: Lake, queue: Queue) -> None:
    """Its messages stay in the queue; those of others are done with, in the same batch and after it."""
    lake.create(LATE).append(rows(1))

    async def story(triggerer: Triggerer) -> None:
        with failing(LATE) as asked:
            triggerer.start(trigger(lake, LATE))
            triggerer.start(trigger(lake))
            await triggerer.until(lambda: bool(asked))
            await asyncio.to_thread(lake.mirror, LATE)
            await asyncio.to_thread(lake.mirror)
            queue.put(marker(lake, 1, LATE))
            queue.put(marker(lake, 1))
            await triggerer.until(lambda: queue.finished == ["m1"])
            await asyncio.to_thread(commit, lake)
            queue.put(marker(lake, 2))
            await triggerer.until(lambda: queue.finished == ["m1", "m2"])
            assert triggerer.events == {str(ORDERS): ["v1", "v2"], str(LATE): []}
            assert list(queue.waiting) == ["m0"]
        await triggerer.until(lambda: not queue.waiting)
        assert triggerer.events[str(LATE)] == ["v1"]

    play(story)


def test_a_table_that_failed_is_looked_at_again_without_a_message(lake: Lake, queue: Queue) -> None:
    """Its watcher joined at a bad moment: it does not wait for the slow look at all tables."""
    lake.create(LATE).append(rows(1))
    lake.mirror(LATE)

    async def story(triggerer: Triggerer) -> None:
        with failing(LATE) as asked:
            triggerer.start(trigger(lake))
            triggerer.start(trigger(lake, LATE))
            await triggerer.until(lambda: bool(asked))
        await triggerer.until(lambda: triggerer.events[str(LATE)] == ["v1"])

    play(story)
