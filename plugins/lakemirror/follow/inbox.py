"""The inbox of a follower: the newest ready marker, and the chain that leads to it from what the mirror shows.

Names and listings are hints. What counts is that each marker names the one before it by number and by hash, back to the
version that readers see; ordinals that a step leaves out must be demoted ones, or have been dropped with the mirror.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakemirror import bridge
from lakemirror.bridge import Newest, Ordinals
from lakemirror.errors import LostRaceError, PermanentError
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import Marker
from lakemirror.storage.port import ObjectNotFound, ObjectStore

LINKS_WITHOUT_HEAD = 1000
"""How far back a chain is looked at when the mirror shows nothing yet; behind that lies only what nobody sees."""


@dataclass(frozen=True, slots=True)
class Inbox:
    """What waits; `before` is the marker that `newest` names as its parent."""

    ordinals: Ordinals
    found: Newest | None = None
    before: Marker | None = None

    @property
    def newest(self) -> Marker | None:
        return None if self.found is None else self.found.marker


def look(store: ObjectStore, layout: TableLayout) -> Inbox:
    """The newest ready marker, checked by itself."""
    ordinals = bridge.published(store, layout)
    return Inbox(ordinals, bridge.read_newest(store, layout, ordinals))


def check_chain(store: ObjectStore, layout: TableLayout, inbox: Inbox, shown: int | None) -> Inbox:
    """The same, with the marker before the newest; PermanentError if the chain does not lead back to `shown`."""
    newest, ordinals = inbox.newest, inbox.ordinals
    if newest is None:
        return inbox
    before, marker = None, newest
    for links in range(marker.version):
        if shown is None and links == LINKS_WITHOUT_HEAD:
            break
        seen = max(shown or 0, ordinals.dropped)
        parent = _parent(store, layout, ordinals, marker, seen)
        before = parent if links == 0 else before
        if parent is None or parent.version <= seen:
            break
        marker = parent
    return replace(inbox, before=before)


def _parent(store: ObjectStore, layout: TableLayout, ordinals: Ordinals, marker: Marker, seen: int) -> Marker | None:
    """The marker before this one; None for the first of a chain.

    One that nobody has `seen` must be ready: what builds on a demoted version does not count.
    """
    number = marker.parent or 0
    for skipped in range(max(number, ordinals.dropped) + 1, marker.version):
        if skipped not in ordinals.demoted and not bridge.is_demoted(store, layout, skipped):
            raise _broken(layout, marker, f"v{skipped} before it is missing, and was not demoted")
    if marker.parent is None:
        return None
    was_demoted = number in ordinals.demoted
    try:
        if number > seen and not was_demoted:
            parent = bridge.read_ready(store, layout, number)
        else:
            parent = bridge.read_published(store, layout, number, was_demoted=was_demoted)
    except ObjectNotFound as err:
        _refuse_demoted(store, layout, marker, number)
        raise _broken(layout, marker, f"its parent v{number} is gone") from err
    if parent.checksum != marker.parent_checksum:
        if not was_demoted:  # then a run that came late may have left another in its place
            _refuse_demoted(store, layout, marker, number)
        raise _broken(
            layout, marker, f"its parent is not v{number} (want {marker.parent_checksum}, got {parent.checksum})"
        )
    return parent


def _refuse_demoted(store: ObjectStore, layout: TableLayout, marker: Marker, parent: int) -> None:
    """LostRaceError if that is why the parent is not there as it was listed."""
    if bridge.is_demoted(store, layout, parent):
        told = f"v{parent}, which it builds on, was demoted since"
        raise LostRaceError("follow", layout.ready(marker.version), told, "run again")


def _broken(layout: TableLayout, marker: Marker, why: str) -> PermanentError:
    return PermanentError(
        "follow",
        layout.ready(marker.version),
        f"the chain of markers is broken: {why}",
        "somebody altered or removed markers: restore them from a backup of the bucket",
    )
