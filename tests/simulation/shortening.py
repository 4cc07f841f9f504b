"""Makes a schedule that fails as short and dull as it can be, and still fail in the same way."""

from __future__ import annotations

from collections.abc import Callable

TRIES_AT_MOST = 600
Fails = Callable[[list[int]], list[int] | None]


def shortened(script: list[int], fails: Fails, tries_at_most: int = TRIES_AT_MOST) -> list[int]:
    """`fails` plays a script and gives the choices that were made, if it still fails in the same way."""
    tries = 0
    best = script
    size = max(1, len(script) // 2)
    while size and tries < tries_at_most:
        place = 0
        while place < len(best) and tries < tries_at_most:
            for attempt in _attempts(best, place, size):
                tries += 1
                found = fails(attempt)
                if found is not None:
                    best = _without_end(attempt if len(attempt) <= len(found) else found)
                    break
            place += size
        size //= 2
    return best


def _attempts(script: list[int], place: int, size: int) -> list[list[int]]:
    """Without this part, or with nothing happening in it."""
    part = script[place : place + size]
    if not any(part):
        return []
    return [script[:place] + script[place + size :], script[:place] + [0] * len(part) + script[place + size :]]


def _without_end(script: list[int]) -> list[int]:
    end = len(script)
    while end and script[end - 1] == 0:
        end -= 1
    return script[:end]
