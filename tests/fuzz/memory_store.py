"""An object store in memory that notes every URI that is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lakemirror.storage.checksum import Tally
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

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class MemoryStore:
    """The port over a dict; `calls` are (verb, URI) in order, of URIs that a store would look up."""

    objects: dict[str, bytes] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None, max_bytes: int = MAX_GET_BYTES) -> Blob:
        info, data = self._find("get", uri)
        start, length = check_range(uri, byte_range, len(data), max_bytes)
        return Blob(info, data[start : start + length])

    def stream(self, uri: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        _, data = self._find("stream", uri)
        return (data[start : start + chunk_bytes] for start in range(0, len(data), chunk_bytes))

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        key = self._note("put", uri)
        tally = Tally()
        data = b"".join(tally.over(iter((body,)) if isinstance(body, bytes) else body))
        there = self.objects.get(key)
        if isinstance(condition, Create) and there is not None:
            raise ConditionFailed("put", uri, "the object exists already", "read it, and decide")
        if isinstance(condition, IfMatch) and (there is None or _e_tag(there) != condition.e_tag):
            raise ConditionFailed("put", uri, "the object has changed", "read it again, and decide")
        self.objects[key] = data
        return Written(key, tally.size_bytes, tally.crc32c, _e_tag(data))

    def head(self, uri: str) -> ObjectInfo:
        return self._find("head", uri)[0]

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        self.calls.append(("list", prefix_uri))
        prefix = check_prefix(prefix_uri).uri.rstrip("/") + "/"
        return (_info(uri, data) for uri, data in sorted(self.objects.items()) if uri.startswith(prefix))

    def delete(self, uris: Sequence[str]) -> None:
        for uri in uris:
            self.objects.pop(self._note("delete", uri), None)

    def copy(self, source_uri: str, target_uri: str, condition: Condition = CREATE) -> ObjectInfo:
        raise AssertionError("nothing copies within a store")

    def _note(self, verb: str, uri: str) -> str:
        key = check_key(uri, verb).uri
        self.calls.append((verb, key))
        return key

    def _find(self, verb: str, uri: str) -> tuple[ObjectInfo, bytes]:
        key = self._note(verb, uri)
        if key not in self.objects:
            raise ObjectNotFound(verb, uri, "there is no such object", "check it")
        return _info(key, self.objects[key]), self.objects[key]


def _info(uri: str, data: bytes) -> ObjectInfo:
    return ObjectInfo(uri, len(data), _e_tag(data), LONG_AGO)


def _e_tag(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
