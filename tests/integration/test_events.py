"""From a marker in a real bucket to an event in the triggerer, by real servers of SQS and Pub/Sub.

The bucket sends its own notifications. Connections are Airflow's, through the hooks of its providers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog

from lakemirror.airflow import queues
from lakemirror.airflow.inboxes import PubsubNoticeTrigger, SqsNoticeTrigger
from lakemirror.app import App
from lakemirror.config.loader import load_config
from lakemirror.model.table import TableRef
from lakemirror.usecases.watch import ReadyWatch
from tests import notifying
from tests.notifying import Bucket
from tests.unit.airflow.triggerer import Triggerer, play

pytestmark = [pytest.mark.waits, pytest.mark.timeout(120)]
ORDERS, LATE = TableRef.parse("shop.orders"), TableRef.parse("shop.late")
ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


@dataclass
class Scene:
    """A source in files, a mirror in a bucket that tells of its objects, and a trigger that hears it."""

    folder: Path
    bucket: Bucket

    def __post_init__(self) -> None:
        folder = self.folder
        source = {"name": "onprem", "type": "sql", "uri": f"sqlite:///{folder}/source.db"}
        mirror = {"name": "cloud", "type": "sql", "uri": f"sqlite:///{folder}/mirror.db", **self.bucket.properties}
        document = {
            "source": {"catalog": {**source, "warehouse": self.warehouse}},
            "mirror": {"catalog": mirror, "location": self.bucket.location, "weaker_create": "look_then_write"},
            "tables": [{"name": str(ORDERS)}, {"name": str(LATE)}],
        }
        self.config.write_text(yaml.safe_dump(document), encoding="utf-8")

    @property
    def config(self) -> Path:
        return self.folder / "lake.yaml"

    @property
    def warehouse(self) -> str:
        return f"file://{self.folder}/source"

    def trigger(self, table: TableRef) -> SqsNoticeTrigger | PubsubNoticeTrigger:
        common: dict[str, Any] = {"table": str(table), "config_path": str(self.config), "poll_interval_s": 0.5}
        if "sqs" in self.bucket.events:
            return SqsNoticeTrigger(**common, region=None, **self.bucket.events["sqs"])
        return PubsubNoticeTrigger(**common, **self.bucket.events["pubsub"])

    def commit(self) -> None:
        source = SqlCatalog("onprem", uri=f"sqlite:///{self.folder}/source.db", warehouse=self.warehouse)
        source.create_namespace_if_not_exists("shop")
        source.create_table_if_not_exists(str(ORDERS), ROWS.schema).append(ROWS)
        with App(load_config(self.config)) as app:
            app.mirror(ORDERS)

    def follow(self) -> None:
        with App(load_config(self.config)) as app:
            app.follow(ORDERS)

    async def all_read(self, triggerer: Triggerer) -> None:
        """The reader has had time for all messages. SQS tells their number; Pub/Sub does not while somebody reads."""
        if "sqs" in self.bucket.events:
            await triggerer.until(lambda: self.bucket.left() == 0)
        else:
            await asyncio.sleep(1)

    def shown(self) -> int | None:
        """The version that the mirror's catalog shows."""
        with App(load_config(self.config)) as app:
            return app.mirror_version(ORDERS)


@pytest.fixture(scope="module")
def aws_endpoint() -> Iterator[str]:
    with notifying.aws() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def google_endpoints() -> Iterator[tuple[str, str]]:
    with notifying.google() as endpoints:
        yield endpoints


@pytest.fixture
def s3_scene(aws_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return _scene(tmp_path, notifying.s3_with_sqs(aws_endpoint), monkeypatch)


@pytest.fixture
def gcs_scene(google_endpoints: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with notifying.gcs_with_pubsub(google_endpoints, tmp_path.name) as bucket:
        yield _scene(tmp_path, bucket, monkeypatch)


def _scene(folder: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(queues, "SQS_WAIT_S", 1)  # whoever stops the trigger waits as long
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    return Scene(folder, bucket)


@pytest.mark.parametrize("kind", ["s3", "gcs"])
def test_a_published_version_wakes_its_follower(kind: str, request: pytest.FixtureRequest) -> None:
    """With other people's objects, forged markers and unknown tables in between, which wake nobody."""
    scene: Scene = request.getfixturevalue(f"{kind}_scene")

    async def story(triggerer: Triggerer) -> None:
        triggerer.start(scene.trigger(ORDERS))
        triggerer.start(scene.trigger(LATE))
        await asyncio.to_thread(scene.commit)
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1"])
        await asyncio.to_thread(scene.follow)
        for key in ("shop/late/data/x", "other/table/_ready/v1.ready.json", "shop/a b/_ready/v1.ready.json"):
            await asyncio.to_thread(scene.bucket.put, f"{scene.bucket.prefix}/{key}")
        await asyncio.to_thread(scene.commit)
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1", "v2"])
        assert triggerer.events[str(LATE)] == []
        await scene.all_read(triggerer)

    play(story)
    assert scene.bucket.left() == 0


@pytest.mark.parametrize("kind", ["s3", "gcs"])
def test_doubled_and_reordered_messages_lead_the_mirror_to_the_newest_version(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """Messages of old versions, twice, in the wrong order, before and after the mirror has the newest."""
    scene: Scene = request.getfixturevalue(f"{kind}_scene")
    folder = f"{scene.bucket.prefix}/{ORDERS.folder}/_ready"

    def tell(*versions: int) -> None:
        for version in versions:
            scene.bucket.tell(f"{folder}/v{version}.ready.json")

    async def story(triggerer: Triggerer) -> None:
        for _ in range(3):
            await asyncio.to_thread(scene.commit)
        await asyncio.to_thread(tell, 3, 1, 2, 2, 1)
        triggerer.start(scene.trigger(ORDERS))
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v3"])
        await asyncio.to_thread(scene.follow)
        assert await asyncio.to_thread(scene.shown) == 3
        await asyncio.to_thread(tell, 1, 9, 3)
        await asyncio.to_thread(scene.commit)
        await asyncio.to_thread(tell, 4, 2, 4)
        await triggerer.until(lambda: triggerer.events[str(ORDERS)][-1] == "v4")
        await asyncio.to_thread(scene.follow)
        assert await asyncio.to_thread(scene.shown) == 4
        assert triggerer.events[str(ORDERS)] == ["v3", "v4"]

    play(story)


@pytest.mark.parametrize("kind", ["s3", "gcs"])
def test_a_message_whose_event_was_not_persisted_comes_again(kind: str, request: pytest.FixtureRequest) -> None:
    """The triggerer dies after it has told, before anybody wrote it down: the queue has it still."""
    scene: Scene = request.getfixturevalue(f"{kind}_scene")

    async def dies(triggerer: Triggerer) -> None:
        triggerer.is_persisting = False
        looks: list[object] = []
        with patch.object(ReadyWatch, "look", _noted(looks)):
            triggerer.start(scene.trigger(ORDERS))
            await triggerer.until(lambda: bool(looks))
        await asyncio.to_thread(scene.commit)  # after the first look: only a message can tell of it
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1"])
        await asyncio.sleep(1)  # whoever takes it from the queue too early does it now

    async def lives(triggerer: Triggerer) -> None:
        triggerer.start(scene.trigger(ORDERS))
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1"])
        await asyncio.to_thread(scene.follow)
        await asyncio.to_thread(scene.commit)
        await triggerer.until(lambda: triggerer.events[str(ORDERS)] == ["v1", "v2"])
        await scene.all_read(triggerer)

    play(dies)
    assert scene.bucket.left() > 0
    play(lives)
    assert scene.bucket.left() == 0


def _noted(looks: list[object]) -> Any:
    look = ReadyWatch.look

    def noted(self: ReadyWatch, *args: Any, **options: Any) -> Any:
        found = look(self, *args, **options)
        looks.append(found)
        return found

    return noted
