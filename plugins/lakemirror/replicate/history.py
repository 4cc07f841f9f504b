"""History: which of the versions that were mirrored before stay in the mirror's metadata.

Whatever a branch or tag of the source names stays. Of the others the newest stay, as many as the budget allows: by
number, by age, and by the size of the metadata file, which some catalogs limit. A server that writes its own file adds
its own logs to what we publish: room is left for all that they can hold. All is counted from the source's own times, so
that a retry decides the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lakemirror.catalogs.dialect import room_for_logs
from lakemirror.errors import PermanentError
from lakemirror.formats.iceberg import metadata_json
from lakemirror.formats.iceberg.metadata_json import Json, MirrorMetadata

Make = Callable[[Iterable[int]], MirrorMetadata]


@dataclass(frozen=True, slots=True)
class HistoryBudget:
    """None: no limit. `catalog_bytes` is what the mirror's catalog takes at all: beyond it nothing can be published.

    `has_server_logs`: the catalog writes a file of its own, with its own logs of heads and of files.
    """

    versions: int | None = None
    age_s: float | None = None
    size_bytes: int | None = None
    catalog_bytes: int | None = None
    has_server_logs: bool = False

    @property
    def limits(self) -> tuple[int, ...]:
        return tuple(limit for limit in (self.size_bytes, self.catalog_bytes) if limit is not None)


@dataclass(frozen=True, slots=True)
class Retained:
    """The snapshots of the mirror's metadata, and in words which of the earlier ones went."""

    snapshots: tuple[int, ...]
    left_out: tuple[str, ...]


def retain(
    subject: str,
    metadata: Json,
    version: int,
    mirrored: Iterable[int],
    referenced: Iterable[int],
    budget: HistoryBudget,
    make: Make,
) -> Retained:
    """The snapshots that stay in `version` of the mirror; `make` gives the metadata file that holds them."""
    there = metadata_json.snapshots(metadata)
    always = {*referenced}
    earlier = sorted(
        (one for one in mirrored if one in there and one not in always),
        key=lambda one: (there[one]["timestamp-ms"], one),
    )
    oldest_ms = None if budget.age_s is None else metadata["last-updated-ms"] - budget.age_s * 1000
    left_out = []
    kept = [one for one in earlier if oldest_ms is None or there[one]["timestamp-ms"] >= oldest_ms]
    if len(kept) < len(earlier):
        left_out.append(f"{len(earlier) - len(kept)} earlier versions: older than history_age")
    if budget.versions is not None and len(kept) > budget.versions:
        left_out.append(f"{len(kept) - budget.versions} earlier versions: more than history_versions")
        kept = kept[len(kept) - budget.versions :]
    noted = Counter(entry["snapshot-id"] for entry in metadata.get("snapshot-log") or ())

    def size(snapshots: set[int]) -> int:
        made = make(snapshots).data  # made in any case: refuses what could not be written later
        if not budget.has_server_logs or not budget.limits:
            return len(made)
        heads = sum(max(1, noted[one]) for one in snapshots)
        return len(made) + room_for_logs(json.loads(made), heads, version)

    kept, dropped = _fit(subject, always, kept, budget, size)
    if dropped:
        left_out.append(f"{dropped} earlier versions: the metadata file would be larger than its budget")
    return Retained(tuple(sorted(always | {*kept})), tuple(left_out))


def _fit(
    subject: str, always: set[int], earlier: list[int], budget: HistoryBudget, size: Callable[[set[int]], int]
) -> tuple[list[int], int]:
    """As many of the newest earlier snapshots as the size allows, found by halving; and how many went."""
    whole = size({*always, *earlier})
    if not budget.limits or whole <= min(budget.limits):
        return earlier, 0
    low, high = 0, len(earlier)  # with `low` of them dropped it is too large, unless nothing else is known
    while low < high:
        middle = (low + high) // 2
        if size({*always, *earlier[middle:]}) <= min(budget.limits):
            high = middle
        else:
            low = middle + 1
    smallest = size({*always, *earlier[low:]})
    if budget.catalog_bytes is not None and smallest > budget.catalog_bytes:
        logs = ", the catalog's own logs counted" if budget.has_server_logs else ""
        raise PermanentError(
            "detect",
            subject,
            f"its metadata file is larger than the mirror's catalog takes (want at most {budget.catalog_bytes} bytes, "
            f"got {smallest} with the branches and tags alone{logs})",
            "drop tags, old schemas or properties on the source"
            + (", or lower write.metadata.previous-versions-max there" if budget.has_server_logs else ""),
        )
    return earlier[low:], low
