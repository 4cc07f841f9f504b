"""Which lane a change takes: told by its manifest lists and snapshot summaries alone, nothing else is read for it."""

from __future__ import annotations

from lakemirror.formats.iceberg import metadata_json
from lakemirror.formats.iceberg.metadata_json import Json
from lakemirror.model.marker import Marker
from lakemirror.model.results import Lane


def bytes_at_most(metadata: Json, head: int | None, newest: Marker | None) -> int | None:
    """What the summaries say the change can weigh; None if they do not say."""
    if head is None:
        return 0
    there = metadata_json.snapshots(metadata)
    known = newest.sequence_number if newest else 0
    sizes = [there[head].get("summary", {}).get("total-files-size")] if newest is None else []
    if newest is not None:
        later = [snapshot for snapshot in there.values() if snapshot.get("sequence-number", 0) > known]
        sizes = [
            summary.get("added-files-size", "0" if summary.get("operation") in ("delete", "replace") else None)
            for summary in (snapshot.get("summary", {}) for snapshot in later)
        ]
    if any(size is None for size in sizes):
        return None
    return sum(int(size) for size in sizes if size is not None)


def choose_lane(files_at_most: int, weight: int | None, small_files: int, small_bytes: int) -> Lane:
    """Small and known to be small: in the task. Nothing to copy at all is always small."""
    if files_at_most == 0:
        return "task"
    if weight is None:
        return "spark"
    return "task" if files_at_most <= small_files and weight <= small_bytes else "spark"
