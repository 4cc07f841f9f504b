"""The stores that the contract suite runs over.

Servers join by the environment variable LAKEMIRROR_TEST_STORES, a JSON object of name to
`{"root": "s3://bucket/prefix", "properties": {"s3.endpoint": …}}`; without it they are not in the list at all.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakemirror.storage.clients import MemoryBuckets
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectStore
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.fault import FaultyStore
from lakemirror.storage.wrappers.forward import ForwardingStore
from lakemirror.storage.wrappers.limit import RateLimitedStore
from lakemirror.storage.wrappers.retry import RetryingStore
from tests.contract.s3_double import s3_double
from tests.contract.wire_homes import WireHome

_SERVERS = json.loads(os.environ.get("LAKEMIRROR_TEST_STORES", "{}"))
_WRAPPERS: dict[str, Callable[[ObjectStore], ObjectStore]] = {
    "forward": ForwardingStore,
    "count": CountingStore,
    "fault": FaultyStore,
    "limit": lambda inner: RateLimitedStore(inner, bytes_per_s=1e12, requests_per_s=1e9),
    "retry": RetryingStore,
}


@dataclass(frozen=True)
class Place:
    """A store and an empty prefix in it that is this test's own."""

    store: ObjectStore
    root: str

    def uri(self, key: str) -> str:
        return f"{self.root}/{key}"

    def keys(self, below: str = "") -> list[str]:
        prefix = f"{self.root}/{below}" if below else self.root
        return [info.uri.removeprefix(f"{self.root}/") for info in self.store.list(prefix)]


@pytest.fixture(params=["memory", "file", "s3-double", *_WRAPPERS, *_SERVERS])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    name = request.param
    if name == "file":
        yield Place(ObstoreStore({}), f"file://{tmp_path}")
    elif name == "s3-double":
        with s3_double() as double:
            yield Place(ObstoreStore(double.properties), "s3://bucket/some/where")
    elif name in _SERVERS:
        yield Place(ObstoreStore(_SERVERS[name]["properties"]), f"{_SERVERS[name]['root']}/{uuid.uuid4()}")
    else:
        memory = ObstoreStore({})
        yield Place(_WRAPPERS[name](memory) if name in _WRAPPERS else memory, "memory://bucket/some/where")


@pytest.fixture(params=["memory", "file", *_SERVERS])
def wire_home(request: pytest.FixtureRequest, tmp_path: Path) -> WireHome:
    name = request.param
    if name == "file":
        return WireHome(f"file://{tmp_path}", {}, MemoryBuckets())
    if name in _SERVERS:
        return WireHome(f"{_SERVERS[name]['root']}/{uuid.uuid4()}", _SERVERS[name]["properties"], MemoryBuckets())
    return WireHome("memory://bucket/some/where", {}, MemoryBuckets())
