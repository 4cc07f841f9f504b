"""What goes wrong on the wire: faults, and the requests that meet them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Headers = tuple[tuple[str, str], ...]
SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
EXPIRED = b"<?xml version='1.0'?><Error><Code>ExpiredToken</Code><Message>The token has expired.</Message></Error>"


@dataclass(frozen=True, slots=True)
class Answer:
    """The proxy answers by itself; the server never hears of the request."""

    status: int
    body: bytes = b""
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset before anything is sent on."""


@dataclass(frozen=True, slots=True)
class CutRequest:
    """The connection breaks, on both sides, after so many bytes of the request's body."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FlipRequest:
    """One bit of the request's body is another one when it arrives."""

    at: int = 0


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """The server does what it was asked, and nobody hears of it: the connection is reset."""


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """The connection is reset after so many bytes of the answer's body."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ShortenAnswer:
    """The answer ends early, and its head says that this is all."""

    to_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FlipAnswer:
    """One bit of the answer's body is another one."""

    at: int = 0


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing moves for so long, before the answer begins; then all is well."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """The request waits, before the server hears of it, until `released`; `ports` are those it was sent from."""

    released: threading.Event = field(default_factory=threading.Event)
    ports: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StallInAnswer:
    """Nothing moves after so many bytes of the answer's body, for so long; then the rest comes."""

    after_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Drip:
    """The answer's body comes at so many bytes a second, which may be less than one."""

    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Kill:
    """`end` kills whoever asks: before the server hears of the request, or when it has done what it was asked."""

    end: Callable[[], None]
    is_after: bool = False


Fault = (
    Kill
    | Answer
    | Reset
    | CutRequest
    | FlipRequest
    | LoseAnswer
    | CutAnswer
    | ShortenAnswer
    | FlipAnswer
    | Hold
    | Stall
    | StallInAnswer
    | Drip
)


@dataclass
class Rule:
    """Requests whose method and target match meet the fault: after `skip` of them, `times` often (None: always)."""

    fault: Fault
    method: str | None = None
    target: str = ""
    skip: int = 0
    times: int | None = 1
    met: int = field(default=0, init=False)
    seen: threading.Event = field(default_factory=threading.Event, init=False)
    """Set when the fault is first met."""

    def takes(self, method: str, target: str) -> bool:
        if (self.method is not None and method != self.method) or re.search(self.target, target) is None:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None and self.met >= self.times:
            return False
        self.met += 1
        self.seen.set()
        return True


def storm(
    status: int, *, times: int | None, retry_after_s: int | None = None, method: str | None = None, target: str = ""
) -> Rule:
    """A server that is asked too much, for so many requests."""
    headers: Headers = () if retry_after_s is None else (("Retry-After", str(retry_after_s)),)
    answer = Answer(status, SLOW_DOWN, (("Content-Type", "application/xml"), *headers))
    return Rule(answer, method=method, target=target, times=times)


def expired(*, skip: int = 0) -> Rule:
    """From some request on the credentials are no longer good."""
    return Rule(Answer(403, EXPIRED, (("Content-Type", "application/xml"),)), skip=skip, times=None)


def first(rules: Sequence[Rule], method: str, target: str) -> Fault | None:
    return next((rule.fault for rule in rules if rule.takes(method, target)), None)
