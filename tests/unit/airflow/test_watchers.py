"""Watchers over a real lake, by Airflow's own manager of shared streams."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from airflow.sdk import AssetWatcher
from airflow.serialization.encoders import encode_trigger

from lakemirror import bridge
from lakemirror.airflow import watchers
from lakemirror.airflow.inboxes import PubsubNoticeTrigger, SqsNoticeTrigger
from lakemirror.airflow.watchers import ReadyFolderTrigger, SourceHeadTrigger, TableWatchTrigger
from lakemirror.errors import PermanentError, TransientError, UnsupportedError
from lakemirror.model.table import TableRef
from lakemirror.usecases import watch
from lakemirror.usecases.watch import ReadyWatch
from tests.lake import ORDERS, Lake, rows
from tests.unit.airflow.triggerer import Triggerer, failing, play

LATE = TableRef.parse("shop.late")
SHARED = {"config_path": "/c", "poll_interval_s": 5}
PUBLIC: list[tuple[TableWatchTrigger, str, dict[str, Any]]] = [
    (ReadyFolderTrigger(table="a.b", **SHARED), "lakemirror.airflow.watchers.ReadyFolderTrigger", {}),
    (SourceHeadTrigger(table="a.b", **SHARED), "lakemirror.airflow.watchers.SourceHeadTrigger", {}),
    (
        PubsubNoticeTrigger(table="a.b", conn_id="g", project_id="p", subscription="s", **SHARED),
        "lakemirror.airflow.inboxes.PubsubNoticeTrigger",
        {"conn_id": "g", "project_id": "p", "subscription": "s"},
    ),
    (
        SqsNoticeTrigger(table="a.b", conn_id="a", queue_url="https://q", region="eu", **SHARED),
        "lakemirror.airflow.inboxes.SqsNoticeTrigger",
        {"conn_id": "a", "queue_url": "https://q", "region": "eu"},
    ),
]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path, tables=[{"name": str(ORDERS)}, {"name": str(LATE)}])
    made.create().append(rows(1))
    return made


@pytest.mark.parametrize(("trigger", "path", "more"), PUBLIC, ids=lambda one: getattr(one, "path", ""))
def test_a_watcher_is_rebuilt_from_its_serialised_form(
    trigger: TableWatchTrigger, path: str, more: dict[str, Any]
) -> None:
    """T48: the class path and the names of the arguments are public, and Airflow's own encoder takes them."""
    assert trigger.serialize() == (path, {"table": "a.b", **SHARED, **more})
    encoded = encode_trigger(trigger)
    assert encoded["classpath"] == path
    module, _, name = path.rpartition(".")
    again = getattr(importlib.import_module(module), name)(**json.loads(json.dumps(encoded["kwargs"])))
    assert again.serialize() == trigger.serialize()
    assert AssetWatcher(name="w", trigger=again).trigger is again


def test_watchers_of_one_kind_and_configuration_share_a_stream() -> None:
    keys = {trigger.shared_stream_key() for trigger, _, _ in PUBLIC}
    assert len(keys) == len(PUBLIC)
    other = ReadyFolderTrigger(table="c.d", **SHARED)
    assert other.shared_stream_key() == PUBLIC[0][0].shared_stream_key()
    assert ReadyFolderTrigger(table="c.d", config_path="/d", poll_interval_s=5).shared_stream_key() not in keys


def ready(lake: Lake, table: TableRef = ORDERS, poll_s: float = 0.05) -> ReadyFolderTrigger:
    return ReadyFolderTrigger(table=str(table), config_path=str(lake.follower_config_path), poll_interval_s=poll_s)


def head(lake: Lake, table: TableRef = ORDERS) -> SourceHeadTrigger:
    return SourceHeadTrigger(table=str(table), config_path=str(lake.config_path), poll_interval_s=0.05)


def commit(lake: Lake) -> str:
    table = lake.source.load_table(str(ORDERS))
    table.append(rows(1))
    return str(table.metadata_location)


def test_each_ready_version_is_told_once(lake: Lake) -> None:
    async def story(triggerer: Triggerer) -> None:
        triggerer.start(ready(lake))
        triggerer.start(ready(lake, LATE))
        await asyncio.to_thread(lake.mirror)
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1"])
        await asyncio.to_thread(commit, lake)
        await asyncio.to_thread(lake.mirror)
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1", "v2"])
        assert triggerer.events[str(LATE)] == []

    play(story)


def test_each_head_of_the_source_is_told_once(lake: Lake) -> None:
    first = str(lake.source.load_table(str(ORDERS)).metadata_location)

    async def story(triggerer: Triggerer) -> None:
        triggerer.start(head(lake))
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == [first])
        second = await asyncio.to_thread(commit, lake)
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == [first, second])

    play(story)


def test_after_a_restart_what_is_behind_is_told_again_and_nothing_else(lake: Lake) -> None:
    """The watermark is what bucket and catalogs say: there is no other."""

    async def story(triggerer: Triggerer) -> None:
        triggerer.start(head(lake))
        await triggerer.until(lambda: len(triggerer.events[str(ORDERS)]) == 1)

    play(story)
    lake.mirror()
    missed = commit(lake)  # while nobody watched

    async def again(triggerer: Triggerer) -> None:
        triggerer.start(head(lake))
        triggerer.start(ready(lake, LATE))
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == [missed])

    play(again)
    lake.sync()

    async def done(triggerer: Triggerer) -> None:
        looks: list[int] = []
        with counted_looks(looks):
            triggerer.start(ready(lake))
            await triggerer.until(lambda: len(looks) > 3)
        assert triggerer.events == {str(ORDERS): []}

    play(done)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told again after a moment; the watch itself looks as often as that."""
    monkeypatch.setattr(watch, "RELIST_S", 0.2)
    monkeypatch.setattr(watchers, "RETELL_S", 0.2)
    monkeypatch.setattr(watchers, "LONGEST_RETELL_S", 0.6)


def test_a_table_is_told_again_not_before_it_was_looked_at_again() -> None:
    assert watchers.RETELL_S >= watch.RELIST_S


@pytest.mark.usefixtures("quick")
def test_a_version_whose_run_failed_for_good_is_told_again_until_it_is_shown(lake: Lake) -> None:
    """There is no schedule, and no new version comes: nothing else would ever bring it to the mirror."""
    lake.mirror()

    async def story(triggerer: Triggerer) -> None:
        times: list[float] = []
        triggerer.start(ready(lake))
        for count in range(1, 5):
            await triggerer.until(lambda count=count: len(triggerer.events[str(ORDERS)]) == count)  # type: ignore[misc]
            times.append(asyncio.get_running_loop().time())
        assert triggerer.events[str(ORDERS)] == ["v1"] * 4
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert [pause > least for pause, least in zip(pauses, (0.15, 0.35, 0.55), strict=True)] == [True] * 3, pauses
        await asyncio.to_thread(lake.follow)
        told = len(triggerer.events[str(ORDERS)])
        await asyncio.sleep(1.5)
        assert len(triggerer.events[str(ORDERS)]) <= told + 1, "at most what was on its way"

    play(story)


@pytest.mark.usefixtures("quick")
def test_a_head_whose_run_failed_for_good_is_told_again_until_it_is_mirrored(lake: Lake) -> None:
    async def story(triggerer: Triggerer) -> None:
        triggerer.start(head(lake))
        await triggerer.until(lambda: len(triggerer.events[str(ORDERS)]) == 3)
        await asyncio.to_thread(lake.mirror)
        told = len(triggerer.events[str(ORDERS)])
        await asyncio.sleep(1.5)
        assert len(triggerer.events[str(ORDERS)]) <= told + 1

    play(story)


class Denying:
    """Stands before the bucket's markers and refuses, each time in other words, whenever its `kind` is set."""

    def __init__(self, kind: type[PermanentError] | None = None) -> None:
        self.kind, self.count, self.is_flapping, self._original = kind, 0, False, bridge.published

    def __call__(self, *args: Any) -> Any:
        self.count += 1
        if self.kind is not None and (self.count % 2 or not self.is_flapping):
            raise self.kind("list", "x", f"denied in {self.count} us")
        return self._original(*args)


@pytest.mark.parametrize("kind", [ready, head])
def test_a_table_that_is_refused_for_good_is_told_once_whatever_words_are_used(lake: Lake, kind: Any) -> None:
    """Otherwise each look would start a run. Trouble of another kind is told, and what is there when it is gone."""
    lake.mirror()
    newest = "v1" if kind is ready else commit(lake)
    denied, other = ("error: list x (PermanentError)", "error: list x (UnsupportedError)")

    async def story(triggerer: Triggerer) -> None:
        with patch.object(bridge, "published", Denying(PermanentError)) as bucket:
            triggerer.start(kind(lake))
            await triggerer.until(lambda: bucket.count >= 5)
            assert triggerer.events[str(ORDERS)] == [denied]
            bucket.kind, seen = UnsupportedError, bucket.count
            await triggerer.until(lambda: bucket.count >= seen + 5)
            assert triggerer.events[str(ORDERS)] == [denied, other]
            bucket.kind = None
            await triggerer.until(lambda: triggerer.events[str(ORDERS)] == [denied, other, newest])

    play(story)


def test_a_table_that_is_refused_every_other_time_is_not_told_each_time(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing is allowed and HEAD is not, or one server of two refuses: both are known after one round."""
    monkeypatch.setattr(watch, "RELIST_S", 0.0)
    lake.mirror()

    async def story(triggerer: Triggerer) -> None:
        with patch.object(bridge, "published", Denying(PermanentError)) as bucket:
            bucket.is_flapping = True
            triggerer.start(ready(lake))
            await triggerer.until(lambda: bucket.count >= 9)
            denied = "error: list x (PermanentError)"
            assert triggerer.events[str(ORDERS)] == [denied, "v1", denied]

    play(story)


@pytest.mark.usefixtures("quick")
def test_a_table_that_is_refused_for_good_is_told_again_twice_as_late_each_time(lake: Lake) -> None:
    async def story(triggerer: Triggerer) -> None:
        times: list[float] = []
        with patch.object(bridge, "published", Denying(PermanentError)):
            triggerer.start(ready(lake))
            for count in range(1, 5):
                await triggerer.until(lambda count=count: len(triggerer.events[str(ORDERS)]) == count)  # type: ignore[misc]
                times.append(asyncio.get_running_loop().time())
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert [pause > least for pause, least in zip(pauses, (0.15, 0.35, 0.55), strict=True)] == [True] * 3, pauses

    play(story)


def test_ten_watchers_make_one_look(lake: Lake) -> None:
    lake.mirror()

    async def story(triggerer: Triggerer) -> None:
        looks: list[int] = []
        with counted_looks(looks):
            for number in range(9):
                triggerer.start(ready(lake, TableRef(("shop",), f"t{number}"), poll_s=3600))
            triggerer.start(ready(lake, poll_s=3600))
            await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1"])
            triggerer.start(ready(lake, LATE, poll_s=3600))
            await triggerer.until(lambda: sum(looks) >= 11)
        assert sum(looks) == 11, "each joined table is looked at once, without waiting for the next round"

    play(story)


def test_a_watcher_that_joins_again_is_told_what_is_behind_now(lake: Lake) -> None:
    """Its DAG was paused while others went on: the stream has seen the version, this watcher has not told it."""
    lake.mirror()

    async def story(triggerer: Triggerer) -> None:
        triggerer.start(ready(lake, LATE, poll_s=3600))
        triggerer.start(ready(lake, poll_s=3600))
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1"])
        await triggerer.stop(ORDERS)
        triggerer.start(ready(lake, poll_s=3600))
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1", "v1"])
        await triggerer.stop(ORDERS)
        await asyncio.to_thread(lake.follow)
        looks: list[int] = []
        with counted_looks(looks):
            triggerer.start(ready(lake, poll_s=3600))
            await triggerer.until(lambda: looks == [1])
        await asyncio.to_thread(commit, lake)
        await triggerer.stop(LATE)
        assert triggerer.events[str(ORDERS)] == ["v1", "v1"], "followed meanwhile: there is nothing to tell"

    play(story)


def test_trouble_is_waited_out(lake: Lake) -> None:
    lake.mirror()

    async def story(triggerer: Triggerer) -> None:
        away = TransientError("list", "x", "away")
        with patch.object(bridge, "published", side_effect=away) as asked:
            triggerer.start(ready(lake))
            await triggerer.until(lambda: asked.call_count >= 2)
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1"])

    play(story)


@pytest.mark.parametrize("kind", [ready, head])
def test_a_table_that_fails_again_and_again_keeps_nobody_back(
    lake: Lake, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The catalog answers 503 for one table, for ever: the others are told, and it is as soon as it can be."""
    lake.create(LATE).append(rows(1))
    for table in (ORDERS, LATE):
        lake.mirror(table)
    if kind is head:
        for table in (ORDERS, LATE):
            lake.source.load_table(str(table)).append(rows(1))

    async def story(triggerer: Triggerer) -> None:
        with failing(LATE) as asked:
            for table in (LATE, ORDERS):
                triggerer.start(kind(lake, table))
            await triggerer.until(lambda: len(triggerer.events[str(ORDERS)]) == 1)
            await triggerer.until(lambda: len(asked) >= 2)
            await asyncio.to_thread(commit, lake)
            await asyncio.to_thread(lake.mirror) if kind is ready else None
            await triggerer.until(lambda: len(triggerer.events[str(ORDERS)]) == 2)
            assert triggerer.events[str(LATE)] == []
        await triggerer.until(lambda: len(triggerer.events[str(LATE)]) == 1)

    play(story)
    assert "shop.late cannot be told of now" in caplog.text


def test_a_configuration_that_is_broken_for_a_while_is_waited_out_and_a_new_one_taken(lake: Lake) -> None:
    lake.mirror()
    text = lake.follower_config_path.read_text()

    async def story(triggerer: Triggerer) -> None:
        lake.follower_config_path.write_text("mirror: {")
        triggerer.start(ready(lake))
        await asyncio.sleep(0)
        lake.follower_config_path.write_text(text)
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1"])

    play(story)


def test_a_watcher_alone_does_the_same(lake: Lake) -> None:
    lake.mirror()

    async def first(stream: AsyncIterator[Any]) -> Any:
        async for event in stream:
            return event.payload
        return None

    payload = asyncio.run(asyncio.wait_for(first(ready(lake).run()), timeout=30))
    assert payload == {"table": "shop.orders", "seen": "v1"}


def counted_looks(looks: list[int]) -> Any:
    original = ReadyWatch.look

    def look(self: ReadyWatch, tables: Any, **options: Any) -> Any:
        looks.append(len(tables))
        return original(self, tables, **options)

    return patch.object(ReadyWatch, "look", look)
