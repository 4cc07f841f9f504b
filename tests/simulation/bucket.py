"""An object store in memory that tells a watcher of every write, and its face towards one actor.

Versions of objects are compared by content, as the e_tags of S3 are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Protocol

from lakemirror.storage.checksum import Tally, crc32c_of
from lakemirror.storage.keys import check_key, check_prefix
from lakemirror.storage.port import (
    CHUNK_BYTES,
    CREATE,
    MAX_GET_BYTES,
    Blob,
    Condition,
    ConditionFailed,
    Create,
    IfMatch,
    ObjectInfo,
    ObjectNotFound,
    Written,
    check_range,
)
from tests.simulation.world import START, Request


@lru_cache(maxsize=1 << 14)
def _blob(uri: str, data: bytes) -> Blob:
    """Remembered, like what is written: in every schedule there are the same objects."""
    e_tag = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return Blob(ObjectInfo(uri, len(data), e_tag, START), data)


@lru_cache(maxsize=1 << 14)
def _written(uri: str, data: bytes) -> Written:
    return Written(uri, len(data), crc32c_of(data), _blob(uri, data).info.e_tag)


class Watcher(Protocol):
    def before_put(self, uri: str, data: bytes) -> None: ...

    def after_put(self, uri: str, data: bytes) -> None: ...

    def before_delete(self, uri: str) -> None: ...


class Bucket:
    def __init__(self, watcher: Watcher | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.watcher = watcher

    def get(self, uri: str, byte_range: tuple[int, int] | None, max_bytes: int) -> Blob:
        blob = self._find(uri)
        start, length = check_range(uri, byte_range, blob.info.size_bytes, max_bytes)
        return blob if byte_range is None else Blob(blob.info, blob.data[start : start + length])

    def put(self, uri: str, data: bytes, condition: Condition) -> Written:
        there = self.objects.get(uri)
        if isinstance(condition, Create) and there is not None:
            raise ConditionFailed("put", uri, "the object exists already", "read it, and decide")
        if isinstance(condition, IfMatch) and (there is None or _blob(uri, there).info.e_tag != condition.e_tag):
            raise ConditionFailed("put", uri, "the object has changed", "read it again, and decide")
        if self.watcher is not None:
            self.watcher.before_put(uri, data)
        self.objects[uri] = data
        if self.watcher is not None:
            self.watcher.after_put(uri, data)
        return _written(uri, data)

    def head(self, uri: str) -> ObjectInfo:
        return self._find(uri).info

    def _find(self, uri: str) -> Blob:
        data = self.objects.get(uri)
        if data is None:
            raise ObjectNotFound("get", uri, "there is no such object", "check it")
        return _blob(uri, data)

    def list(self, prefix: str) -> list[ObjectInfo]:
        return [self.head(uri) for uri in sorted([uri for uri in self.objects if uri.startswith(prefix)])]

    def delete(self, uris: Sequence[str]) -> None:
        for uri in uris:
            if uri in self.objects:
                if self.watcher is not None:
                    self.watcher.before_delete(uri)
                del self.objects[uri]


@lru_cache(maxsize=1 << 14)
def _key(uri: str) -> str:
    return check_key(uri, "simulate").uri


@lru_cache(maxsize=1 << 12)
def _prefix(uri: str) -> str:
    return check_prefix(uri).uri.rstrip("/") + "/"


class Face:
    """The store port of one side: each verb is a request that is made through `perform`."""

    def __init__(self, side: str, perform: Callable[[Request], Any]) -> None:
        self._side, self._perform = side, perform

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None, max_bytes: int = MAX_GET_BYTES) -> Blob:
        found: Blob = self._perform(("get", _key(uri), self._side, byte_range, max_bytes))
        return found

    def stream(self, uri: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        return iter((self.get(uri).data,))

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        data = body if isinstance(body, bytes) else b"".join(Tally().over(body))
        found: Written = self._perform(("put", _key(uri), self._side, data, condition))
        return found

    def head(self, uri: str) -> ObjectInfo:
        found: ObjectInfo = self._perform(("head", _key(uri), self._side))
        return found

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        return iter(self._perform(("list", _prefix(prefix_uri), self._side)))

    def delete(self, uris: Sequence[str]) -> None:
        for uri in uris:
            self._perform(("delete", _key(uri), self._side))

    def copy(self, source_uri: str, target_uri: str, condition: Condition = CREATE) -> ObjectInfo:
        raise AssertionError("nothing copies within a store")
