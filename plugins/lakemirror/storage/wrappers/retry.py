"""Tries again what failed for a passing reason, a bounded number of times, with growing random pauses.

Only TransientErrors are retried, and only where a second attempt cannot do harm:

- get, head, delete, and puts and copies of whole bodies: again.
- stream and list: again until the first piece has come; a later failure is the caller's, who knows what to drop.
- put of an iterator: never, since its pieces are gone; the caller makes a new one.
- Create (put, copy) that fails, is tried again and then finds the object there: it may be our own first attempt. Size
  and CRC32C of what is there decide: equal is success, otherwise ConditionFailed. Without a failed attempt of ours
  before, ConditionFailed passes at once, equal or not: another writer won.
- IfMatch that is tried again may fail by its own first attempt: then ConditionFailed passes, and the caller reads and
  decides.
"""

from __future__ import annotations

import random as random_module
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar

from lakemirror.errors import TransientError, UsageError
from lakemirror.storage.checksum import Tally, checksum_of
from lakemirror.storage.port import (
    CHUNK_BYTES,
    CREATE,
    MAX_GET_BYTES,
    Blob,
    Condition,
    ConditionFailed,
    Create,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    Written,
)
from lakemirror.storage.wrappers.forward import ForwardingStore

T = TypeVar("T")
Failures = list[str]  # what each said: an error that is kept would hold on to the frame that keeps it


class RetryingStore(ForwardingStore):
    """Makes up to `attempts` attempts; the nth waits at random up to `base_delay_s` * 2^(n-2), at most `max_delay_s`.

    None is begun later than `patience_s` after the first: a server that is silent, or drips, takes long to fail. When
    all have failed, the last error is raised with a note of how many there were.
    """

    def __init__(
        self,
        inner: ObjectStore,
        *,
        attempts: int = 7,
        base_delay_s: float = 0.2,
        max_delay_s: float = 20.0,
        patience_s: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        if attempts < 1:
            raise UsageError("retry", f"{attempts} attempts", "at least one attempt is needed", "use 1 for no retries")
        super().__init__(inner)
        self._attempts = attempts
        self._base_delay_s = base_delay_s
        self._max_delay_s = max_delay_s
        self._patience_s = patience_s
        self._clock = clock
        self._sleep = sleep
        self._random = random

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None, max_bytes: int = MAX_GET_BYTES) -> Blob:
        return self._tried(lambda: self._inner.get(uri, byte_range=byte_range, max_bytes=max_bytes))

    def stream(self, uri: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        return self._tried(lambda: _started(self._inner.stream(uri, chunk_bytes=chunk_bytes)))

    def head(self, uri: str) -> ObjectInfo:
        return self._tried(lambda: self._inner.head(uri))

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        return self._tried(lambda: _started(self._inner.list(prefix_uri)))

    def delete(self, uris: Sequence[str]) -> None:
        self._tried(lambda: self._inner.delete(uris))

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        if not isinstance(body, bytes):
            return self._inner.put(uri, body, condition)
        failures: Failures = []
        try:
            return self._tried(lambda: self._inner.put(uri, body, condition), failures)
        except ConditionFailed:
            if not failures or not isinstance(condition, Create):
                raise
            ours = Tally()
            ours.add(body)
            there = self._same(uri, ours)
            if there is None:
                raise
            return Written(there.uri, ours.size_bytes, ours.crc32c, there.e_tag)

    def copy(self, source_uri: str, target_uri: str, condition: Condition = CREATE) -> ObjectInfo:
        failures: Failures = []
        try:
            return self._tried(lambda: self._inner.copy(source_uri, target_uri, condition), failures)
        except ConditionFailed:
            if not failures or not isinstance(condition, Create):
                raise
            there = self._same(target_uri, self._tried(lambda: checksum_of(self._inner, source_uri)))
            if there is None:
                raise
            return there

    def _same(self, uri: str, ours: Tally) -> ObjectInfo | None:
        """What is there, if it has our content; what came and went meanwhile was another writer's."""
        try:
            there = self.head(uri)
            if there.size_bytes != ours.size_bytes:
                return None
            theirs = self._tried(lambda: checksum_of(self._inner, uri))
        except ObjectNotFound:
            return None
        return there if (theirs.size_bytes, theirs.crc32c) == (ours.size_bytes, ours.crc32c) else None

    def _tried(self, attempt: Callable[[], T], failures: Failures | None = None) -> T:
        failed = failures if failures is not None else []
        end_at = self._clock() + self._patience_s
        while True:
            try:
                return attempt()
            except TransientError as err:
                failed.append(err.message)
                ceiling_s = min(self._max_delay_s, self._base_delay_s * 2 ** (len(failed) - 1))
                delay_s = self._random() * ceiling_s
                if len(failed) >= self._attempts or self._clock() + delay_s > end_at:
                    err.add_note(f"gave up after {len(failed)} attempts")
                    raise
            self._sleep(delay_s)


def _started(items: Iterator[T]) -> Iterator[T]:
    """The same items, the first of them fetched now."""
    return chain(tuple(islice(items, 1)), items)
