"""Group watermarks in the mirror bucket: each follower writes its own table's entry, by compare-and-set.

So a follow costs one read and at most one write, however many tables the group has, and nothing where nothing moved; a
commit is announced before it is made, by one more of each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from urllib.parse import quote, unquote

from lakemirror import currency
from lakemirror.errors import LostRaceError, UsageError
from lakemirror.model.group import MAX_BYTES, GroupWatermark, Reached
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import Marker
from lakemirror.model.source_name import snapshot_asked_for
from lakemirror.storage.port import Condition, ConditionFailed, Create, IfMatch, ObjectNotFound, ObjectStore

_TRIES = 64  # each time somebody was faster: all tables of a group may be followed at once
log = logging.getLogger(__name__)


def reached(store: ObjectStore, layout: TableLayout, shown: Marker) -> Reached:
    """How far the mirror of a table covers its source, now that it shows this version.

    What was noted of an earlier version says nothing: this one may be of an older snapshot, and otherwise it was
    committed after that. Unless the source has gone through this state and back to the one before: a run that found it
    on its way publishes it after another one has noted that the version before is all there is. By the time that a slow
    follower comes to it a note of the next version may have replaced that one.
    """
    current = currency.read(store, layout)
    through = shown.source_committed_at
    if current is not None and current.version == shown.version:
        through = max(through, current.as_of)
    is_chosen = snapshot_asked_for(shown.source_metadata_location) is not None
    was_left = current is not None and current.version != shown.version and current.is_of_after(through)
    return Reached(shown.version, through, is_chosen or was_left)


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

    An entry that says more may be that of a follower which was faster since this one looked, and where there is
    none the mirror may have been dropped since. So before one is lowered or made `ask_again` tells what the catalog
    shows now (None: nothing of ours; then all stays as it is), and once more after it was made. The first entry of a
    table is announced before that, so that whoever drops the mirror meanwhile has something to take back.

    While a newer version is announced the entry says no more than it does: that one may be shown at any time, even if
    it was demoted since.
    """
    uri, names = uri_of(location, group), tuple(members)
    was_none = False

    def change(before: GroupWatermark) -> GroupWatermark:
        nonlocal was_none
        known, shown = before.tables.get(table), found
        was_none = known is None
        coming = before.coming.get(table, 0)
        if ask_again is not None and (known is None or found.is_below(known) or coming > found.version):
            asked = ask_again()
            if asked is None:
                return before
            shown = asked
            if known is None and table not in before.coming:
                return before.joined(names, now).announced(table, shown.version)
        if coming > shown.version and not (known is not None and shown.is_below(known)):
            return before.joined(names, now)
        return before.advanced(names, table, shown, now)

    after = _change(store, uri, group, change)
    if was_none and after.tables.get(table) is None and table in after.coming:
        after = _change(store, uri, group, change)
    if was_none and ask_again is not None and after.tables.get(table) is not None and ask_again() is None:
        return record_gone(store, location, group, table, now, lambda: ask_again() is None)
    return after


def join(store: ObjectStore, location: str, group: str, members: Iterable[str], now: datetime) -> None:
    """These tables belong to the group, also those that were never mirrored: a follower without a source knows none."""
    names = tuple(members)
    _change(store, uri_of(location, group), group, lambda before: before.joined(names, now))


def announce(
    store: ObjectStore,
    location: str,
    group: str,
    table: str,
    version: int,
    covered: Callable[[], Reached],
    now: datetime,
) -> None:
    """Before the catalog shows a version: if it covers less than the entry says, readers are told of less first.

    What it covers is asked when it is announced, because until then others may raise the entry.
    """
    uri = uri_of(location, group)
    known = _change(store, uri, group, lambda before: before.announced(table, version)).tables.get(table)
    coming = covered()
    if known is not None and coming.is_below(known):
        _change(store, uri, group, lambda before: before.lowered(table, coming, now))


def record_gone(
    store: ObjectStore, location: str, group: str, table: str, now: datetime, is_gone: Callable[[], bool]
) -> GroupWatermark:
    """The group's watermark without a view of this table; `is_gone` asks the catalog right before that is written."""

    def change(before: GroupWatermark) -> GroupWatermark:
        has_entry = before.tables.get(table) is not None or table in before.coming
        return before.without_view_of(table, now) if has_entry and is_gone() else before

    return _change(store, uri_of(location, group), group, change)


def forget(store: ObjectStore, location: str, group: str, table: str, now: datetime) -> GroupWatermark:
    """The group's watermark without this member; UsageError if it is none, or if there is no such group."""
    uri = uri_of(location, group)

    def change(before: GroupWatermark) -> GroupWatermark:
        if table not in before.tables:
            known = ", ".join(before.tables) or "none"
            raise UsageError(
                "forget table", table, f"it is no member of group {group} (members: {known})", "see groups"
            )
        return before.forgotten(table, now)

    return _change(store, uri, group, change)


def _change(
    store: ObjectStore, uri: str, group: str, change: Callable[[GroupWatermark], GroupWatermark]
) -> GroupWatermark:
    """By compare-and-set; what has not changed is not written."""
    for _ in range(_TRIES):
        before, condition = _find(store, uri, group)
        after = change(before)
        if after == before:
            return before
        try:
            store.put(uri, after.to_bytes(), condition)
        except ConditionFailed:
            continue
        _tell(before, after)
        return after
    raise LostRaceError("write watermark", uri, "others write it at the same time", "run again; it is safe at any time")


def _tell(before: GroupWatermark, after: GroupWatermark) -> None:
    if after.moves_back != before.moves_back:
        move = after.moves_back[-1]
        told = "group %s: the watermark goes back from %s to %s, because of %s"
        log.warning(told, after.group, move.was, move.now, move.table)
    for name, one in after.tables.items():
        was = before.tables.get(name)
        if was is not None and one is not None and one.through < was.through:
            log.warning("group %s: %s goes back from %s to %s", after.group, name, was.through, one.through)
    for name in before.tables.keys() - after.tables.keys():
        told = "group %s: %s is no member any more; the watermark was %s and is %s"
        log.warning(told, after.group, name, before.watermark, after.watermark)


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
