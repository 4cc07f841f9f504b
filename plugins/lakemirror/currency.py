"""The note that a table's newest version was the source's head at some moment: quiet tables must not hold a group back.

The replicator leaves it when it finds the source unchanged; the follower, which knows no source, reads it. It is a hint
about time, never about content: what is published and shown is decided by markers and catalog.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from lakemirror.errors import PermanentError
from lakemirror.model import bounded_json
from lakemirror.model.layout import TableLayout
from lakemirror.storage.port import ObjectNotFound, ObjectStore, Overwrite

_MAX_BYTES = 1 << 12


@dataclass(frozen=True, slots=True)
class Current:
    """Every commit on the source before `as_of` is in `version`.

    `source_committed_at` is when the source's state was committed that the run has seen, by the source's own clock:
    later than the version's own where the source has changed and gone back. None: an older Lakemirror noted it.
    """

    version: int
    as_of: datetime
    source_committed_at: datetime | None = None

    def is_of_after(self, committed_at: datetime) -> bool:
        """Whether the state that it speaks of came after one that was committed then; both by the source's clock."""
        return self.source_committed_at is not None and committed_at < self.source_committed_at


def note(store: ObjectStore, layout: TableLayout, current: Current) -> None:
    """The later note counts; two replicators that note at once differ by moments, and either is true."""
    document: dict[str, object] = {"version": current.version, "as_of": current.as_of.astimezone(UTC).isoformat()}
    if current.source_committed_at is not None:
        document["source_committed_at"] = current.source_committed_at.astimezone(UTC).isoformat()
    store.put(layout.current, json.dumps(document).encode(), Overwrite())


def read(store: ObjectStore, layout: TableLayout) -> Current | None:
    try:
        data = store.get(layout.current, max_bytes=_MAX_BYTES).data
    except ObjectNotFound:
        return None
    try:
        document = bounded_json.object_of(data, max_values=10)
        version, as_of = document["version"], datetime.fromisoformat(document["as_of"])
        told = document.get("source_committed_at")
        committed_at = None if told is None else datetime.fromisoformat(told)
        if committed_at is not None and committed_at.tzinfo is None:
            raise ValueError("a time has no zone")
        if type(version) is not int or version < 1 or as_of.tzinfo is None:
            raise ValueError("version or time are not as they should be")
    except (ValueError, KeyError, TypeError) as err:
        raise PermanentError(
            "read note", layout.current, f"not as it was written ({err!r})", "delete it: the next run writes it anew"
        ) from err
    return Current(version, as_of.astimezone(UTC), None if committed_at is None else committed_at.astimezone(UTC))
