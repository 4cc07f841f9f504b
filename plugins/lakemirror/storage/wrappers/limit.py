"""Keeps a store's traffic below a rate of bytes and of requests, so that copying leaves room for others on the line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from lakemirror.errors import UsageError
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

BURST_S = 1.0
LEAST_CHUNK_BYTES = 64 * 1024
Pay = Callable[[int], None]
_PAYS: Final[ContextVar[Pay | None]] = ContextVar("lakemirror_pays", default=None)


@contextmanager
def paid_by(pay: Pay) -> Iterator[None]:
    """Requests in here, in tasks and threads that begin in here too, stand in this line instead of their store's own.

    For work that has a line of requests already: two lines would together be more than the rate.
    """
    token = _PAYS.set(pay)
    try:
        yield
    finally:
        _PAYS.reset(token)


class TokenBucket:
    """Lets through at most `rate` units a second, after a pause `burst_s` seconds' worth at once; threads share it."""

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        burst_s: float = BURST_S,
    ) -> None:
        if rate <= 0:
            raise UsageError("limit", f"{rate:g} per second", "a rate must be above zero", "leave it out for no limit")
        self._rate = rate
        self._burst_s = burst_s
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._paid_until = clock() - burst_s

    def take(self, units: float) -> None:
        """Wait until so many units may pass; they may be more than a second's worth."""
        with self._lock:
            now = self._clock()
            self._paid_until = max(self._paid_until, now - self._burst_s) + units / self._rate
            wait_s = self._paid_until - now
        if wait_s > 0:
            self._sleep(wait_s)

    def __reduce__(self) -> tuple[type[TokenBucket], tuple[object, ...]]:
        return TokenBucket, (self._rate, self._clock, self._sleep, self._burst_s)


class RateLimitedStore(ForwardingStore):
    """Waits before each call and each piece of a body so that the rates hold; None means no limit.

    `requests` may be the line of several stores. The rates are those of this process; a copy that was pickled into
    another one has its own, hence no burst where processes come and go. Streams are read in pieces of at most a quarter
    of a second, so that none of them waits long for its turn. What `get` returns is paid for afterwards, since its size
    is not known before.
    """

    def __init__(
        self,
        inner: ObjectStore,
        *,
        bytes_per_s: float | None = None,
        requests: TokenBucket | None = None,
        burst_s: float = BURST_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(inner)
        self._bytes = None if bytes_per_s is None else TokenBucket(bytes_per_s, clock, sleep, burst_s)
        self._requests = requests
        self._most_bytes = None if bytes_per_s is None else max(LEAST_CHUNK_BYTES, int(bytes_per_s / 4))

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None, max_bytes: int = MAX_GET_BYTES) -> Blob:
        self._call()
        blob = super().get(uri, byte_range=byte_range, max_bytes=max_bytes)
        self._pass(blob.data)
        return blob

    def stream(self, uri: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        self._call()
        chunk_bytes = chunk_bytes if self._most_bytes is None else min(chunk_bytes, self._most_bytes)
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
            pay = _PAYS.get()
            if pay is None:
                self._requests.take(1)
            else:
                pay(1)

    def _pass(self, data: bytes) -> bytes:
        if self._bytes is not None:
            self._bytes.take(len(data))
        return data
