"""A line of the answer of `make bench`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the answer; `is_met` is None where no bar was set."""

    what: str
    measured: str
    bar: str
    is_met: bool | None
