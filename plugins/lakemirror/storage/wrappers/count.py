"""Counts the calls made to a store, by verb: the numbers that results report and that tests hold us to."""

from __future__ import annotations

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
from lakemirror.storage.wrappers.forward import ForwardingStore


class CountingStore(ForwardingStore):
    """Counts calls of the port, whether they succeed or not; a stream is a get, a listing one list whatever its pages.

    Pickles with its counts; from then on the copies count apart.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._counts = dict.fromkeys(("get", "head", "list", "put", "copy", "delete"), 0)

    @property
    def counts(self) -> dict[str, int]:
        """The calls so far; a copy, which later calls do not change."""
        with self._lock:
            return dict(self._counts)

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None, max_bytes: int = MAX_GET_BYTES) -> Blob:
        self._count("get")
        return super().get(uri, byte_range=byte_range, max_bytes=max_bytes)

    def stream(self, uri: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        self._count("get")
        return super().stream(uri, chunk_bytes=chunk_bytes)

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        self._count("put")
        return super().put(uri, body, condition)

    def head(self, uri: str) -> ObjectInfo:
        self._count("head")
        return super().head(uri)

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        self._count("list")
        return super().list(prefix_uri)

    def delete(self, uris: Sequence[str]) -> None:
        self._count("delete")
        super().delete(uris)

    def copy(self, source_uri: str, target_uri: str, condition: Condition = CREATE) -> ObjectInfo:
        self._count("copy")
        return super().copy(source_uri, target_uri, condition)

    def _count(self, verb: str) -> None:
        with self._lock:
            self._counts[verb] += 1
