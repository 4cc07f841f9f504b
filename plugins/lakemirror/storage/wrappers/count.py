"""Counts the requests made to a store, by verb: the numbers that results report and that tests hold us to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from lakemirror.storage.metering import metered
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
from lakemirror.storage.wrappers.forward import ForwardingStore

T = TypeVar("T")


class CountingStore(ForwardingStore):
    """Counts requests, whether they succeed or not; a stream is a get.

    Stores over HTTP tell of each request that goes out: every attempt, every page of a listing, a look before a write,
    what the first write finds out about the store. A call to any other store is one. Pickles with its counts; from then
    on the copies count apart.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._counts = dict.fromkeys(("get", "head", "list", "put", "copy", "delete"), 0)

    @property
    def counts(self) -> dict[str, int]:
        """The requests so far; a copy, which later ones do not change."""
        with self._lock:
            return dict(self._counts)

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None, max_bytes: int = MAX_GET_BYTES) -> Blob:
        return self._counted("get", lambda: self._inner.get(uri, byte_range=byte_range, max_bytes=max_bytes))

    def stream(self, uri: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        return self._each(self._counted("get", lambda: self._inner.stream(uri, chunk_bytes=chunk_bytes)))

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        return self._counted("put", lambda: self._inner.put(uri, body, condition))

    def head(self, uri: str) -> ObjectInfo:
        return self._counted("head", lambda: self._inner.head(uri))

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        return self._each(self._counted("list", lambda: self._inner.list(prefix_uri)))

    def delete(self, uris: Sequence[str]) -> None:
        self._counted("delete", lambda: self._inner.delete(uris))

    def copy(self, source_uri: str, target_uri: str, condition: Condition = CREATE) -> ObjectInfo:
        return self._counted("copy", lambda: self._inner.copy(source_uri, target_uri, condition))

    def _counted(self, verb: str, call: Callable[[], T]) -> T:
        with metered() as made:
            try:
                return call()
            finally:
                self._add(made or {verb: 1})

    def _each(self, items: Iterator[T]) -> Iterator[T]:
        """The same items; what fetching them takes is counted as it happens."""
        while True:
            with metered() as made:
                try:
                    item = next(items)
                except StopIteration:
                    return
                finally:
                    self._add(made)
            yield item

    def _add(self, made: Mapping[str, int]) -> None:
        with self._lock:
            for verb, requests in made.items():
                self._counts[verb] += requests
