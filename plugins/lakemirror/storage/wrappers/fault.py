"""Breaks a store on purpose, at a named call, so that tests can see what the code above it does.

Faults are data: the nth call of a verb whose URI contains a text meets an action. Each fault counts its own matching
calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from lakemirror.errors import TransientError
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

Verb = Literal["get", "stream", "put", "head", "list", "delete", "copy", "*"]


class SimulatedCrash(BaseException):
    """The process ends here: not an Exception, so that nothing but a test catches it."""


class Action(Enum):
    """What happens to the call that a fault names."""

    FAIL = "TransientError, nothing done"
    FAIL_AFTER = "done, then TransientError"
    CUT = "TransientError in the middle of a stream, or of the body of a put"
    DELAY = "done after `delay_s`"
    STALE_LIST = "a listing as the one before it was, empty if there was none"
    KILL = "SimulatedCrash, nothing done"
    KILL_AFTER = "done, then SimulatedCrash"
    KILL_MIDWAY = "SimulatedCrash in the middle of a stream, or of the body of a put"


_BEFORE: Final = {Action.FAIL, Action.KILL}
_MIDWAY: Final = {Action.CUT, Action.KILL_MIDWAY}
_AFTER: Final = {Action.FAIL_AFTER, Action.KILL_AFTER}
_CRASHES: Final = {Action.KILL, Action.KILL_AFTER, Action.KILL_MIDWAY}


@dataclass(frozen=True, slots=True)
class Fault:
    """The nth (from 1) call of `verb` (`*`: any) with `uri_contains` in one of its URIs meets `action`."""

    verb: Verb
    action: Action
    nth: int = 1
    uri_contains: str = ""
    delay_s: float = 0.0


class FaultyStore(ForwardingStore):
    """Meets each fault once; `met` lists those that have happened, in order, so that a test can tell that they did.

    Listings are read whole, because a stale one is the one before; this wrapper is for tests.
    """

    def __init__(
        self, inner: ObjectStore, faults: Iterable[Fault] = (), *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(inner)
        self.met: list[Fault] = []
        self._faults = tuple(faults)
        self._seen = [0] * len(self._faults)
        self._sleep = sleep
        self._listings: dict[str, list[ObjectInfo]] = {}

    def get(self, uri: str, *, byte_range: tuple[int, int] | None = None, max_bytes: int = MAX_GET_BYTES) -> Blob:
        with self._meeting("get", uri):
            return self._inner.get(uri, byte_range=byte_range, max_bytes=max_bytes)

    def stream(self, uri: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        with self._meeting("stream", uri) as due:
            return _broken_off(self._inner.stream(uri, chunk_bytes=chunk_bytes), due, "stream", uri)

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        with self._meeting("put", uri) as due:
            if _actions(due) & _MIDWAY:
                body = _broken_off(iter((body,)) if isinstance(body, bytes) else body, due, "put", uri)
            return self._inner.put(uri, body, condition)

    def head(self, uri: str) -> ObjectInfo:
        with self._meeting("head", uri):
            return self._inner.head(uri)

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        with self._meeting("list", prefix_uri) as due:
            if Action.STALE_LIST not in _actions(due):
                self._listings[prefix_uri] = [*self._inner.list(prefix_uri)]
            return iter(self._listings.get(prefix_uri, []))

    def delete(self, uris: Sequence[str]) -> None:
        with self._meeting("delete", *uris):
            self._inner.delete(uris)

    def copy(self, source_uri: str, target_uri: str, condition: Condition = CREATE) -> ObjectInfo:
        with self._meeting("copy", source_uri, target_uri):
            return self._inner.copy(source_uri, target_uri, condition)

    @contextmanager
    def _meeting(self, verb: Verb, *uris: str) -> Iterator[Sequence[Fault]]:
        """The faults that this call meets: those before it happen here, those after it once the block has ended."""
        due = self._due(verb, uris)
        for fault in due:
            if fault.action is Action.DELAY:
                self._sleep(fault.delay_s)
        _raise_first(due, _BEFORE if verb in ("stream", "put") else _BEFORE | _MIDWAY, verb, uris)
        yield due
        _raise_first(due, _AFTER, verb, uris)

    def _due(self, verb: Verb, uris: Sequence[str]) -> Sequence[Fault]:
        due = []
        with self._lock:
            for place, fault in enumerate(self._faults):
                if fault.verb in (verb, "*") and any(fault.uri_contains in uri for uri in uris):
                    self._seen[place] += 1
                    if self._seen[place] == fault.nth:
                        due.append(fault)
            self.met.extend(due)
        return due


def _actions(due: Iterable[Fault]) -> set[Action]:
    return {fault.action for fault in due}


def _raise_first(due: Iterable[Fault], actions: set[Action], verb: Verb, uris: Sequence[str]) -> None:
    for fault in due:
        if fault.action in actions:
            if fault.action in _CRASHES:
                raise SimulatedCrash(f"{verb} {', '.join(uris)}: {fault.action.value}")
            raise TransientError(verb, ", ".join(uris), f"injected fault: {fault.action.value}", "run again")


def _broken_off(pieces: Iterator[bytes], due: Sequence[Fault], verb: Verb, uri: str) -> Iterator[bytes]:
    """The pieces; if a fault says so, only half of the first one and then its error."""
    for piece in pieces:
        if _actions(due) & _MIDWAY:
            yield piece[: len(piece) // 2]
            break
        yield piece
    _raise_first(due, _MIDWAY, verb, (uri,))
