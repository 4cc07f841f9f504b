"""Everything that a schedule leaves to chance, as one list of small numbers: drawn from a seed, or played again.

0 is always the dull choice (go on with the same actor, no fault, no time passes). So a list can be shortened by
replacing numbers by 0, and a list that has come to its end goes on with dull choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


class Choices:
    """`made` are the numbers that were chosen so far."""

    def __init__(self, seed: int | None = None, script: Sequence[int] = ()) -> None:
        self._draw = None if seed is None else Random(seed).random
        self._script = script
        self.made: list[int] = []

    def of(self, options: int) -> int:
        """One of so many options, all equally likely."""
        if self._draw is not None:
            chosen = int(self._draw() * options)
        else:
            chosen = min(self._next(), options - 1)
        self.made.append(chosen)
        return chosen

    def happens(self, probability: float) -> bool:
        if self._draw is not None:
            chosen = int(self._draw() < probability)
        else:
            chosen = min(self._next(), 1)
        self.made.append(chosen)
        return chosen == 1

    def _next(self) -> int:
        place = len(self.made)
        return self._script[place] if place < len(self._script) else 0
