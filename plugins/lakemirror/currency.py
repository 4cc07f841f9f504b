"""The note that a table's newest version was the source's head at some moment: quiet tables must not hold a group back.

The replicator leaves it when it finds the source unchanged; the follower, which knows no source, reads it. It is a hint
about time, never about content: what is published and shown is decided by markers and catalog.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from lakemirror.errors import PermanentError
from lakemirror.model import bounded_json
from lakemirror.model.layout import TableLayout
from lakemirror.storage.port import Condition, ConditionFailed, Create, IfMatch, ObjectNotFound, ObjectStore

_MAX_BYTES = 1 << 12


@dataclass(frozen=True, slots=True)
class Current:
    """Every commit on the source before `as_of` is in `version`.

    `source_committed_at` is when the latest state of the source was committed that any run has seen, by the source's
    clock: later than the version's own where the source has changed and gone back. None: an older Lakemirror noted it.
    """

    version: int
    as_of: datetime
    source_committed_at: datetime | None = None

    def is_of_after(self, committed_at: datetime) -> bool:
        """Whether the state that it speaks of came after one that was committed then; both by the source's clock."""
        return self.source_committed_at is not None and committed_at < self.source_committed_at

    def beside(self, before: Current) -> Current:
        """With what was noted before of this version or an older one: the latest state of the source that was seen."""
        as_of = max(self.as_of, before.as_of) if self.version == before.version else self.as_of
        seen = [one for one in (self.source_committed_at, before.source_committed_at) if one is not None]
        return Current(self.version, as_of, max(seen, default=None))

    def to_bytes(self) -> bytes:
        document: dict[str, object] = {"version": self.version, "as_of": self.as_of.astimezone(UTC).isoformat()}
        if self.source_committed_at is not None:
            document["source_committed_at"] = self.source_committed_at.astimezone(UTC).isoformat()
        return json.dumps(document).encode()


def note(store: ObjectStore, layout: TableLayout, current: Current) -> None:
    """Nothing that was noted is forgotten, unless a newer version says more; a put that comes late changes nothing.

    Who is overtaken leaves it at that: either note is true, and the next run notes again.
    """
    try:
        blob = store.get(layout.current, max_bytes=_MAX_BYTES)
    except ObjectNotFound:
        condition: Condition = Create()
    else:
        condition = IfMatch(blob.info.e_tag or "")
        with suppress(PermanentError):  # one that is damaged is replaced
            before = _parsed(blob.data, layout.current)
            if before.version > current.version:
                return
            current = current.beside(before)
    with suppress(ConditionFailed):
        store.put(layout.current, current.to_bytes(), condition)


def read(store: ObjectStore, layout: TableLayout) -> Current | None:
    try:
        return _parsed(store.get(layout.current, max_bytes=_MAX_BYTES).data, layout.current)
    except ObjectNotFound:
        return None


def _parsed(data: bytes, uri: str) -> Current:
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
            "read note", uri, f"not as it was written ({err!r})", "delete it: the next run writes it anew"
        ) from err
    return Current(version, as_of.astimezone(UTC), None if committed_at is None else committed_at.astimezone(UTC))
