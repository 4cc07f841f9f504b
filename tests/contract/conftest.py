"""The stores that the contract suites run over.

Real servers come by the fixtures of the services profile. Others join by the environment variable
LAKEMIRROR_TEST_STORES, a JSON object of name to `{"root": "s3://bucket/prefix", "properties": {"s3.endpoint": …}}`
(MinIO, versitygw, a cloud); without it they are not in the list at all.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import pytest

from dev.services.gcsemu import BUCKET
from lakemirror.storage.abilities import LOCAL, Abilities
from lakemirror.storage.clients import MemoryBuckets
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectStore
from lakemirror.storage.probe import abilities_of
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.fault import FaultyStore
from lakemirror.storage.wrappers.forward import ForwardingStore
from lakemirror.storage.wrappers.limit import RateLimitedStore, TokenBucket
from lakemirror.storage.wrappers.retry import RetryingStore
from tests.contract.s3_double import s3_double
from tests.contract.wire_homes import WireHome

_OTHERS = json.loads(os.environ.get("LAKEMIRROR_TEST_STORES", "{}"))
_WRAPPERS: dict[str, Callable[[ObjectStore], ObjectStore]] = {
    "forward": ForwardingStore,
    "count": CountingStore,
    "fault": FaultyStore,
    "limit": lambda inner: RateLimitedStore(inner, bytes_per_s=1e12, requests=TokenBucket(1e9)),
    "retry": RetryingStore,
}
# The fixtures are asked for by name, which pytest cannot see beforehand: the marks are those they would give.
_STARTED = (pytest.mark.services, pytest.mark.timeout(120, func_only=True))
_SERVERS = [pytest.param(name, marks=_STARTED) for name in ("seaweedfs", "gcsemu")]


@dataclass(frozen=True)
class Server:
    """A real store: where tests may write, how to get in, what it was found to be able to."""

    root: str
    properties: dict[str, str]
    abilities: Abilities


@dataclass(frozen=True)
class Place:
    """A store and an empty prefix in it that is this test's own."""

    store: ObjectStore
    root: str
    spoiled: str = ""
    lists_in_order: bool = True

    def uri(self, key: str) -> str:
        return f"{self.root}/{key}"

    def keys(self, below: str = "") -> list[str]:
        prefix = f"{self.root}/{below}" if below else self.root
        return [info.uri.removeprefix(f"{self.root}/") for info in self.store.list(prefix)]


def server_called(name: str, request: pytest.FixtureRequest) -> Server | None:
    """The server of this name, started if need be; None if it is none."""
    if name == "seaweedfs":
        store = request.getfixturevalue("services").mirror_store
        found = _probed(f"s3://{store.bucket}", tuple(store.properties.items()))
        # The probe may be lucky: of 16 that finish at once, several win in about every fourth round.
        return replace(found, abilities=replace(found.abilities, atomic_finish=False))
    if name == "gcsemu":
        endpoint = request.getfixturevalue("gcs_services").gcs_endpoint
        return _probed(f"gs://{BUCKET}", (("gcs.service.host", endpoint),))
    if name in _OTHERS:
        return _probed(_OTHERS[name]["root"], tuple(_OTHERS[name]["properties"].items()))
    return None


@lru_cache
def _probed(root: str, properties: tuple[tuple[str, str], ...]) -> Server:
    location = f"{root}/{uuid.uuid4()}"
    return Server(root, dict(properties), abilities_of(dict(properties), location, now=lambda: datetime.now(UTC)))


@pytest.fixture(params=["memory", "file", "s3-double", *_WRAPPERS, *_SERVERS, *_OTHERS])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    name = request.param
    if name == "file":
        yield Place(ObstoreStore({}), f"file://{tmp_path}")
    elif name == "s3-double":
        with s3_double() as double:
            yield Place(ObstoreStore(double.properties), "s3://bucket/some/where")
    elif server := server_called(name, request):
        store = ObstoreStore(server.properties, abilities=lambda: server.abilities)
        in_order = server.root.startswith("gs:")  # of S3 look-alikes not all do
        yield Place(store, f"{server.root}/{uuid.uuid4()}", server.abilities.spoiled, in_order)
    else:
        memory = ObstoreStore({})
        yield Place(_WRAPPERS[name](memory) if name in _WRAPPERS else memory, "memory://bucket/some/where")


@pytest.fixture(params=["memory", "file", *_SERVERS, *_OTHERS])
def wire_home(request: pytest.FixtureRequest, tmp_path: Path) -> WireHome:
    name = request.param
    if name == "file":
        return WireHome(f"file://{tmp_path}", {}, MemoryBuckets(), LOCAL)
    if server := server_called(name, request):
        return WireHome(f"{server.root}/{uuid.uuid4()}", server.properties, MemoryBuckets(), server.abilities)
    return WireHome("memory://bucket/some/where", {}, MemoryBuckets(), LOCAL)
