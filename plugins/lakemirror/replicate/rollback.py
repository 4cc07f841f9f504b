"""Whether the source went back behind the snapshot that the mirror shows: told from the source's metadata alone.

The line of a snapshot is itself, its parent, and so on, as far as the source still has them; expiry cuts it.

| the snapshot that is mirrored | the source |
|---|---|
| is on the line of the head, or is the parent at which that line is cut | goes on |
| is not, and on that line is one that is older: the writer took it back, and may have written since | went back |
| is not, and since it was main, main was at one that is older (the snapshot log) | went back |
| is not, and the line has its end at a newer one that has no parent: the table was replaced | goes on |
| is not, and the line is cut before that can be seen: expiry is ordinary, going back is not | goes on |

And a table that has no snapshot any more went back. Older is by sequence number; format version 1 has none, there it is
by ancestry and by time.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakemirror.formats.iceberg import metadata_json
from lakemirror.formats.iceberg.metadata_json import Json


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The head of the mirror's newest version, as its marker tells it."""

    snapshot_id: int | None
    sequence_number: int  # 0 in format version 1
    committed_at_ms: int  # of the table, not before that of the snapshot


@dataclass(frozen=True, slots=True)
class _Line:
    snapshots: tuple[int, ...]  # those that are there, the newest first
    cut_at: int | None  # a parent that is not there


def went_back(metadata: Json, head: int | None, mirrored: Mirrored) -> str | None:
    """In words to where; None: it goes on from what is mirrored, or nothing tells otherwise."""
    if mirrored.snapshot_id is None:
        return None
    if head is None:
        return "to no snapshot at all"
    there = metadata_json.snapshots(metadata)
    line = _line(there, head)
    if mirrored.snapshot_id in (*line.snapshots, line.cut_at):
        return None
    older = _Older(there, mirrored, is_whole=line.cut_at is None)
    for one in (*line.snapshots, *_heads_since(metadata, mirrored.snapshot_id)):
        if one in there and older.has(one):
            return f"to snapshot {one}" if one == head else f"to snapshot {one}, and written to since"
    return None


class _Older:
    """Which snapshots are older than the mirrored one; `is_whole`: the line of the head goes to its beginning."""

    def __init__(self, there: dict[int, Json], mirrored: Mirrored, *, is_whole: bool) -> None:
        self._there, self._sequence_number = there, mirrored.sequence_number
        own = there.get(mirrored.snapshot_id) if mirrored.snapshot_id is not None else None
        self._behind = frozenset() if own is None else frozenset(_line(there, own["snapshot-id"]).snapshots[1:])
        # Once it is gone itself, only the time of the table is known: then what was on a branch looks older, too.
        self._before_ms = own["timestamp-ms"] if own else mirrored.committed_at_ms + 1 if is_whole else None

    def has(self, snapshot_id: int) -> bool:
        number = int(self._there[snapshot_id].get("sequence-number") or 0)
        if snapshot_id in self._behind:
            return True
        if number or self._sequence_number:
            return number < self._sequence_number
        return self._before_ms is not None and self._there[snapshot_id]["timestamp-ms"] < self._before_ms


def _line(there: dict[int, Json], head: int) -> _Line:
    found: dict[int, None] = {}
    at: int | None = head
    while at is not None and at in there and at not in found:
        found[at] = None
        at = there[at].get("parent-snapshot-id")
    return _Line(tuple(found), at if at not in there else None)


def _heads_since(metadata: Json, snapshot_id: int) -> list[int]:
    """What main was at after it was last at this snapshot."""
    log = [entry["snapshot-id"] for entry in metadata.get("snapshot-log") or ()]
    return log[len(log) - log[::-1].index(snapshot_id) :] if snapshot_id in log else []
