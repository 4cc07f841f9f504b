"""How many requests a call of a wire really makes: several for some, as finishing an upload on GCS.

Whoever wants to know opens a meter around the call; HTTP marks every request on all meters that are open in its task.
Stores of this machine make no requests and mark nothing.
"""

from __future__ import annotations

from collections import Counter
from contextvars import ContextVar, Token
from typing import Final

_OPEN: Final[ContextVar[tuple[Counter[str], ...]]] = ContextVar("lakemirror_request_meters", default=())


class metered:  # noqa: N801 - used as a function: a generator would cost twice as much, twice for each request
    """Requests by verb, those of tasks that begin in here included."""

    __slots__ = ("_made", "_token")

    def __enter__(self) -> Counter[str]:
        self._made: Counter[str] = Counter()
        self._token: Token[tuple[Counter[str], ...]] = _OPEN.set((*_OPEN.get(), self._made))
        return self._made

    def __exit__(self, *_: object) -> None:
        _OPEN.reset(self._token)


def mark(verb: str) -> None:
    for meter in _OPEN.get():
        meter[verb] += 1
