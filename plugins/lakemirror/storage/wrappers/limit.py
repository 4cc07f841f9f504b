"""Keeps a store's traffic below a rate of bytes and of requests, so that copying leaves room for others on the line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from lakemirror.errors import UsageError
from lakemirror.storage.port import CHUNK_BYTES, CREATE, Blob, Condition, ObjectInfo, ObjectStore, Written
from lakemirror.storage.wrappers.forward import ForwardingStore

BURST_S = 1.0


class TokenBucket:
    """Lets through at most `rate` units a second, after a pause a second's worth at once; threads share it."""

    def __init__(self, rate: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        if rate <= 0:
            raise UsageError("limit", f"{rate:g} per second", "a rate must be above zero", "leave it out for no limit")
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._paid_until = clock() - BURST_S

    def take(self, units: float) -> None:
        """Wait until so many units may pass; they may be more than a second's worth."""
        with self._lock:
            now = self._clock()
            self._paid_until = max(self._paid_until, now - BURST_S) + units / self._rate
            wait_s = self._paid_until - now
        if wait_s > 0:
            self._sleep(wait_s)

    def __reduce__(self) -> tuple[type[TokenBucket], tuple[object, ...]]:
        return TokenBucket, (self._rate, self._clock, self._sleep)


class RateLimitedStore(ForwardingStore):
    """Waits before each call and each piece of a body so that the rates hold; None means no limit.

    The rates are those of this process: a copy that was pickled into another one has its own. What `get` returns
    is paid for afterwards, since its size is not known before.
    """

    def __init__(
        self,
        inner: ObjectStore,
        *,
        bytes_per_s: float | None = None,
        requests_per_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(inner)
        self._bytes = None if bytes_per_s is None else TokenBucket(bytes_per_s, clock, sleep)
        self._requests = None if requests_per_s is None else TokenBucket(requests_per_s, clock, sleep)

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None) -> Blob:
        self._call()
        blob = super().get(uri, byte_range=byte_range)
        self._pass(blob.data)
        return blob

    def stream(self, uri: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        self._call()
        return map(self._pass, super().stream(uri, chunk_bytes=chunk_bytes))

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        self._call()
        return super().put(uri, self._pass(body) if isinstance(body, bytes) else map(self._pass, body), condition)

    def head(self, uri: str) -> ObjectInfo:
        self._call()
        return super().head(uri)

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        self._call()
        return super().list(prefix_uri)

    def delete(self, uris: Sequence[str]) -> None:
        self._call()
        super().delete(uris)

    def copy(self, source_uri: str, target_uri: str, condition: Condition = CREATE) -> ObjectInfo:
        self._call()
        return super().copy(source_uri, target_uri, condition)

    def _call(self) -> None:
        if self._requests is not None:
            self._requests.take(1)

    def _pass(self, data: bytes) -> bytes:
        if self._bytes is not None:
            self._bytes.take(len(data))
        return data
