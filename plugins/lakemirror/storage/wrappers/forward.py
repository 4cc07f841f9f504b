"""A store that passes every call on to another one: what the wrappers have in common."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from lakemirror.storage.port import (
    CHUNK_BYTES,
    CREATE,
    MAX_GET_BYTES,
    Blob,
    Condition,
    ObjectInfo,
    ObjectStore,
    Written,
)


class ForwardingStore:
    """The ObjectStore port, passed on unchanged; a wrapper overrides what it changes and guards state by `_lock`."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self._lock = threading.Lock()

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None, max_bytes: int = MAX_GET_BYTES) -> Blob:
        return self._inner.get(uri, byte_range=byte_range, max_bytes=max_bytes)

    def stream(self, uri: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        return self._inner.stream(uri, chunk_bytes=chunk_bytes)

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        return self._inner.put(uri, body, condition)

    def head(self, uri: str) -> ObjectInfo:
        return self._inner.head(uri)

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        return self._inner.list(prefix_uri)

    def delete(self, uris: Sequence[str]) -> None:
        self._inner.delete(uris)

    def copy(self, source_uri: str, target_uri: str, condition: Condition = CREATE) -> ObjectInfo:
        return self._inner.copy(source_uri, target_uri, condition)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner!r})"

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())
