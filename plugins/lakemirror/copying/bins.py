"""How files are spread over tasks: pure functions of sizes.

A bin is the work of one task. Bins are balanced by bytes and by count at once: each file weighs its bytes plus what a
request costs, the heaviest go first, and each goes to the lightest bin that still has room. A file above a bound is
cut into ranges, each a task's work, that meet in one upload of parts.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lakemirror.copying.model import MAX_PARTS
from lakemirror.errors import PermanentError

FILE_COST_BYTES: Final = 256 * 1024
"""A file costs the requests for it as well as its bytes: about as long as so many bytes take."""


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive parts of one file: numbers from 1, all of `part_bytes` but the file's last one."""

    first_part: int
    parts: int


@dataclass(frozen=True, slots=True)
class PartPlan:
    """One part: its number, and the bytes of the file that it holds."""

    number: int
    start: int
    length: int


def pack(sizes: Sequence[int], max_files: int, max_bytes: int) -> list[list[int]]:
    """The positions of `sizes`, each in exactly one bin.

    A file of `max_bytes` or more is alone. The others share as many bins as their bytes or their count ask for, no bin
    more than `max_files`; since files are not cut here, a bin may exceed `max_bytes` by one file.
    """
    alone = [[position] for position, size in enumerate(sizes) if size >= max_bytes]
    shared = sorted((position for position, size in enumerate(sizes) if size < max_bytes), key=lambda at: -sizes[at])
    total = sum(sizes[position] for position in shared)
    bins: list[list[int]] = [[] for _ in range(max(-(-len(shared) // max_files), -(-total // max_bytes)))]
    lightest = [(0, number) for number in range(len(bins))]
    for position in shared:
        weight, number = lightest[0]
        bins[number].append(position)
        if len(bins[number]) < max_files:
            heapq.heapreplace(lightest, (weight + sizes[position] + FILE_COST_BYTES, number))
        else:
            heapq.heappop(lightest)
    return [*alone, *(chosen for chosen in bins if chosen)]


def deal(weights: Sequence[int], tasks: int) -> list[list[int]]:
    """The positions of `weights`, dealt to so many tasks: the heaviest first, each to the one that has least."""
    dealt: list[list[int]] = [[] for _ in range(tasks)]
    lightest = [(0, number) for number in range(tasks)]
    for position in sorted(range(len(weights)), key=lambda at: -weights[at]):
        weight, number = lightest[0]
        dealt[number].append(position)
        heapq.heapreplace(lightest, (weight + max(1, weights[position]), number))
    return dealt


def part_bytes_for(size_bytes: int, wanted_bytes: int, most_bytes: int, uri: str, max_parts: int = MAX_PARTS) -> int:
    """The size of the parts of a file: as wanted, or larger where there would be too many of them."""
    part_bytes = max(wanted_bytes, -(-size_bytes // max_parts))
    if part_bytes > most_bytes:
        raise PermanentError(
            "copy",
            uri,
            f"parts of {part_bytes} bytes are needed to stay within {max_parts} of them (want at most {most_bytes})",
            "raise copy_memory_bytes",
        )
    return part_bytes


def parts_of(size_bytes: int, part_bytes: int, chosen: Range | None = None) -> list[PartPlan]:
    """The parts of a file, or those of one of its ranges."""
    count = -(-size_bytes // part_bytes)
    first, end = (1, count) if chosen is None else (chosen.first_part, chosen.first_part + chosen.parts - 1)
    return [
        PartPlan(number, (number - 1) * part_bytes, min(part_bytes, size_bytes - (number - 1) * part_bytes))
        for number in range(first, end + 1)
    ]


def ranges_of(size_bytes: int, part_bytes: int, range_bytes: int) -> list[Range]:
    """Ranges of about `range_bytes`, as equal as whole parts allow, that cover the file."""
    count = -(-size_bytes // part_bytes)
    ranges = min(count, max(1, -(-size_bytes // range_bytes)))
    least, more = divmod(count, ranges)
    found, first = [], 1
    for number in range(ranges):
        parts = least + (1 if number < more else 0)
        found.append(Range(first, parts))
        first += parts
    return found
