"""Every knob of a table, with its default: the one place that knows them.

A knob may stand under `defaults:` or in any entry of `tables:`. What `takes_effect="planned"` is validated and shown,
and no code reads it yet; the documentation says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from lakemirror.config.knobs.copying import CopyKnobs
from lakemirror.config.knobs.fencing import FenceKnobs
from lakemirror.config.knobs.garbage import GcKnobs
from lakemirror.config.knobs.history import HistoryKnobs
from lakemirror.config.knobs.levels import LevelKnobs
from lakemirror.config.knobs.scheduling import SchedulingKnobs
from lakemirror.config.knobs.verifying import VerifyKnobs

__all__ = [
    "CopyKnobs",
    "FenceKnobs",
    "GcKnobs",
    "HistoryKnobs",
    "Knobs",
    "LevelKnobs",
    "SchedulingKnobs",
    "VerifyKnobs",
    "knob_names",
]


class Knobs(LevelKnobs, HistoryKnobs, VerifyKnobs, FenceKnobs, CopyKnobs, SchedulingKnobs, defer_build=False):
    """All knobs of one table."""

    gc: GcKnobs = Field(default=GcKnobs(), description=GcKnobs.__doc__)

    def overridden_by(self, other: Knobs) -> Knobs:
        """These knobs, except where `other` was given a value of its own; `gc` key by key."""
        merged = self._taking(other, other.model_fields_set - {"gc"})
        gc = self.gc._taking(other.gc, other.gc.model_fields_set)
        return merged if gc is self.gc else merged.model_copy(update={"gc": gc})


def knob_names() -> Iterator[tuple[str, ...]]:
    """Every knob as its path of keys, in the order the documentation shows them: `("p",)`, `("gc", "trash")`."""
    for name in Knobs.model_fields:
        if name == "gc":
            yield from (("gc", inner) for inner in GcKnobs.model_fields)
        else:
            yield (name,)
