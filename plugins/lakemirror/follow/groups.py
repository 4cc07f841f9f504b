"""Group watermarks in the mirror bucket: each follower writes its own table's entry, by compare-and-set.

So a follow costs one read and at most one write, however many tables the group has, and nothing where nothing moved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from urllib.parse import quote, unquote

from lakemirror import currency
from lakemirror.errors import LostRaceError
from lakemirror.model.group import MAX_BYTES, GroupWatermark, Reached
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import Marker
from lakemirror.storage.port import Condition, ConditionFailed, Create, IfMatch, ObjectNotFound, ObjectStore

_TRIES = 16
log = logging.getLogger(__name__)


def reached(store: ObjectStore, layout: TableLayout, shown: Marker) -> Reached:
    """How far the mirror of a table covers its source, now that it shows this version."""
    current = currency.read(store, layout)
    through = shown.source_committed_at
    if current is not None and current.version <= shown.version:
        through = max(through, current.as_of)
    return Reached(shown.version, through)


def record(
    store: ObjectStore,
    location: str,
    group: str,
    members: Iterable[str],
    table: str,
    found: Reached,
    now: datetime,
    ask_again: Callable[[], Reached | None] | None = None,
) -> GroupWatermark:
    """The group's watermark with this table's entry in it. A move back is told in the log, and in the document.

    An entry of a newer version may be that of a follower which was faster since this one looked. So before one is
    lowered `ask_again` tells what the catalog shows now (None: nothing of ours; then the entry stays).
    """
    uri, names = uri_of(location, group), tuple(members)
    for _ in range(_TRIES):
        before, condition = _find(store, uri, group)
        known = before.tables.get(table)
        if ask_again is not None and known is not None and found.version < known.version:
            now_shown = ask_again()
            if now_shown is None:
                return before
            found = now_shown
        after = before.advanced(names, table, found, now)
        if after == before:
            return before
        try:
            store.put(uri, after.to_bytes(), condition)
        except ConditionFailed:
            continue
        if len(after.moves_back) and after.moves_back != before.moves_back:
            move = after.moves_back[-1]
            log.warning(
                "group %s: the watermark goes back from %s to %s, because of %s", group, move.was, move.now, move.table
            )
        return after
    raise LostRaceError("write watermark", uri, "others write it at the same time", "run again; it is safe at any time")


def load(store: ObjectStore, location: str, group: str) -> GroupWatermark | None:
    uri = uri_of(location, group)
    try:
        return GroupWatermark.from_bytes(store.get(uri, max_bytes=MAX_BYTES).data, uri)
    except ObjectNotFound:
        return None


def names(store: ObjectStore, location: str) -> tuple[str, ...]:
    """All groups that have a watermark."""
    found = (info.uri.rsplit("/", 1)[-1] for info in store.list(_folder(location)))
    return tuple(sorted(unquote(name.removesuffix(".json")) for name in found if name.endswith(".json")))


def uri_of(location: str, group: str) -> str:
    return f"{_folder(location)}{quote(group, safe='')}.json"


def _folder(location: str) -> str:
    return f"{location.rstrip('/')}/_groups/"


def _find(store: ObjectStore, uri: str, group: str) -> tuple[GroupWatermark, Condition]:
    try:
        blob = store.get(uri, max_bytes=MAX_BYTES)
    except ObjectNotFound:
        return GroupWatermark(group), Create()
    return GroupWatermark.from_bytes(blob.data, uri), IfMatch(blob.info.e_tag or "")
