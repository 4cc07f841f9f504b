"""Which lane a change takes: told by its manifest lists and snapshot summaries alone, nothing else is read for it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from lakemirror.formats.iceberg import metadata_json
from lakemirror.formats.iceberg.metadata_json import Json
from lakemirror.model.results import Lane

_SIZE = re.compile(r"[0-9]{1,20}")


def bytes_at_most(metadata: Json, new: Iterable[int], mirrored: Collection[int]) -> int | None:
    """What the summaries say the files of these snapshots can weigh; None if they do not say.

    Each is followed back to an ancestor that the mirror has, adding up what was added; where the line is broken, the
    whole weight of the snapshot counts. So it does of one that the mirror shows: it is new because its manifests are
    not known any more, and then nothing tells which of its files are there.
    """
    there = metadata_json.snapshots(metadata)
    counted: set[int] = set()
    total = 0
    for snapshot_id in new:
        line = []
        at: int | None = snapshot_id
        while at is not None and at in there and at not in mirrored and at not in counted:
            line.append(there[at].get("summary") or {})
            counted.add(at)
            at = there[at].get("parent-snapshot-id")
        is_whole = at is None or at in mirrored or at in counted
        sizes = [_added(summary) for summary in line]
        if snapshot_id in mirrored or not is_whole or None in sizes:
            sizes = [_number((there[snapshot_id].get("summary") or {}).get("total-files-size"))]
        if None in sizes:
            return None
        total += sum(size for size in sizes if size is not None)
    return total


def _added(summary: Json) -> int | None:
    adds_nothing = summary.get("operation") in ("delete", "replace")
    return _number(summary.get("added-files-size", "0" if adds_nothing else None))


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and _SIZE.fullmatch(text) else None


def choose_lane(files_at_most: int, weight: int | None, small_files: int, small_bytes: int) -> Lane:
    """Small and known to be small: in the task. Nothing to copy at all is always small."""
    if files_at_most == 0:
        return "task"
    if weight is None:
        return "spark"
    return "task" if files_at_most <= small_files and weight <= small_bytes else "spark"
