"""The chain of ready markers in the mirror bucket: what was ever published, in order, create-only.

A new marker takes the ordinal after the newest that was ever ready and names it as its parent. Whoever comes second
at an ordinal with other content has lost the race. Safety rests on that alone: not on clocks, names or events.

A demoted marker stays for good: it keeps its ordinal used, and says which bytes alone may come back under it. Beside it
a ready marker counts only if it has those bytes and a record says that it was restored: a run that comes late may put
equal bytes, too, and it is not for a run to restore them. So a version stops counting by one write (the first time) or
one delete (of the record), and counts again by one write.

A ready marker that builds on a demoted one does not count either, whenever it was put: what its parent lacks it may
lack too. Nor does one that builds on a dropped one, whose files may be collected. Whoever reads finds that out by
walking back from the newest one, and only as far as there are demotions or drops that it does not name itself as older
than it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lakemirror.errors import LostRaceError, PermanentError
from lakemirror.model.layout import TableLayout, ordinal
from lakemirror.model.marker import MAX_BYTES, Marker
from lakemirror.model.paths import is_below
from lakemirror.storage.port import Blob, ConditionFailed, Create, IfMatch, ObjectNotFound, ObjectStore


@dataclass(frozen=True, slots=True)
class Ordinals:
    """The versions that markers claim; `last_used` counts all of them: no ordinal is ever used again.

    `ready` ends with the newest that counts: what builds on a demoted one is left out. `demoted` are those that were
    demoted once, also if they are ready again. Up to `dropped` the mirror was dropped by command, and what comes after
    begins anew.
    """

    ready: tuple[int, ...]
    last_used: int
    demoted: frozenset[int] = frozenset()
    dropped: int = 0
    newest_e_tag: str | None = field(default=None, compare=False)
    """Of the newest ready marker, when it was not demoted; None if it was once, or if the store's listings lack it."""

    @property
    def newest(self) -> int | None:
        return self.ready[-1] if self.ready else None

    @property
    def is_newest_last(self) -> bool:
        """Whether no later version was ever ready that does not count any more: readers cannot have seen one."""
        return self.newest == self.last_used

    @property
    def gone(self) -> frozenset[int]:
        """Those that are demoted now; the newest version builds on none of them."""
        return self.demoted.difference(self.ready)

    def counts(self, version: int) -> bool:
        """Whether this version is published, and nothing of its line was demoted or dropped."""
        return version in self.ready

    def has_dropped(self, version: int) -> bool:
        """Whether the mirror was dropped when it showed this version or a later one."""
        return version <= self.dropped

    def follows_drop(self, shown: int | None) -> bool:
        """Whether nothing was shown since the mirror was dropped, if this is (None: nothing of ours)."""
        return self.dropped > 0 if shown is None else self.has_dropped(shown)

    def lacks(self, version: int) -> bool:
        """Whether this version was known and does not count: demoted, or built on one that is."""
        return self.dropped < version <= self.last_used and version not in self.ready


def published(store: ObjectStore, layout: TableLayout) -> Ordinals:
    """What `_ready` holds; only ordinals that were demoted once, and what came after, need more than the listing."""
    kinds = ("ready", "demoted", "restored", "dropped", "marker")
    by_kind: dict[str, dict[int, str | None]] = {kind: {} for kind in kinds}
    for info in store.list(layout.ready_folder):
        if found := ordinal(info.uri):
            version, kind = found
            by_kind[kind][version] = info.e_tag
    dropped = max(by_kind["dropped"], default=0)
    demoted = frozenset(by_kind["demoted"])
    late = demoted.difference(by_kind["restored"])
    ready = sorted(version for version in by_kind["ready"] if version > dropped and version not in late)
    back = tuple(version for version in ready if version not in demoted or is_back(store, layout, version))
    last_used = max((0, *(version for kind in by_kind.values() for version in kind)))
    gone = frozenset(version for version in demoted.difference(back) if version > dropped)
    while back and _builds_on(store, layout, back[-1], gone, dropped):
        back = back[:-1]
    e_tag = by_kind["ready"][back[-1]] if back and back[-1] not in demoted else None
    return Ordinals(back, last_used, demoted, dropped, e_tag)


def _builds_on(store: ObjectStore, layout: TableLayout, version: int, gone: frozenset[int], dropped: int = 0) -> bool:
    """Whether the way back from this ready version leads over one of those, or to what was dropped.

    A marker names the ordinals that were demoted when it was planned, and the last that was dropped: its way back leads
    over none of them, for good.
    """
    if not dropped and (not gone or version < min(gone)):
        return False
    marker = _read_standing(store, layout, version)
    gone -= frozenset(marker.demoted)
    seeks_drop = dropped > marker.dropped
    while (gone or seeks_drop) and marker.parent is not None:
        if marker.parent in gone or (seeks_drop and marker.parent <= dropped):
            return True
        if not seeks_drop and marker.parent < min(gone):
            return False
        marker = _read_standing(store, layout, marker.parent)
    return False


def _read_standing(store: ObjectStore, layout: TableLayout, version: int) -> Marker:
    try:
        return read_ready(store, layout, version)
    except ObjectNotFound as err:
        uri = layout.ready(version)
        raise LostRaceError("read marker", uri, "it was demoted since it was listed", "run again") from err


def staged(store: ObjectStore, layout: TableLayout) -> tuple[int, ...]:
    """The versions that lie in `_inprogress`."""
    seen = (ordinal(info.uri) for info in store.list(layout.staged_folder))
    return tuple(sorted(found[0] for found in seen if found))


def read_ready(store: ObjectStore, layout: TableLayout, version: int) -> Marker:
    """A ready marker, checked: its hash, its own ordinal and that it stays inside its table's folder."""
    return _read(store, layout, version, layout.ready(version))


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest ready marker; `is_as_listed` if it is known to be the one that was not demoted when it was listed."""

    marker: Marker
    is_as_listed: bool


def read_newest(store: ObjectStore, layout: TableLayout, ordinals: Ordinals) -> Newest | None:
    """The newest ready marker of a listing; LostRaceError if it was demoted since."""
    if ordinals.newest is None:
        return None
    uri = layout.ready(ordinals.newest)
    try:
        blob = store.get(uri, max_bytes=MAX_BYTES)
    except ObjectNotFound as err:
        raise LostRaceError("read marker", uri, "it was demoted since it was listed", "run again") from err
    e_tag = blob.info.e_tag
    return Newest(_checked(blob, layout, ordinals.newest, uri), e_tag is not None and e_tag == ordinals.newest_e_tag)


def read_published(store: ObjectStore, layout: TableLayout, version: int, *, was_demoted: bool = False) -> Marker:
    """A marker that is, or once was, ready: of one that was demoted, what the record of that says."""
    if was_demoted:
        return _read(store, layout, version, layout.demoted(version))
    try:
        return read_ready(store, layout, version)
    except ObjectNotFound:
        return _read(store, layout, version, layout.demoted(version))


def _read(store: ObjectStore, layout: TableLayout, version: int, uri: str) -> Marker:
    return _checked(store.get(uri, max_bytes=MAX_BYTES), layout, version, uri)


def _checked(blob: Blob, layout: TableLayout, version: int, uri: str) -> Marker:
    marker = Marker.from_bytes(blob.data, uri)
    if marker.version != version:
        raise PermanentError("read marker", uri, f"it speaks of v{marker.version}", "it was moved or altered")
    for named in (marker.metadata_uri, marker.index_uri, marker.manifest_list_uri):
        if named is not None and not is_below(named, layout.root):
            raise PermanentError("read marker", uri, f"{named} lies outside {layout.root}", "it was moved or forged")
    return marker


def highest_token(store: ObjectStore, layout: TableLayout) -> int:
    """The highest token of the fence that staged markers and the newest ready one name; 0: none.

    For a table without a lease: where somebody deleted it, tokens go on rising from what was staged under them.
    """
    ordinals = published(store, layout)
    uris = [layout.staged(version) for version in staged(store, layout)]
    uris += [layout.ready(version) for version in ordinals.ready[-1:]]
    blobs = [(uri, _find(store, uri)) for uri in uris]
    return max((_facts_of(blob, uri)[1] or 0 for uri, blob in blobs if blob is not None), default=0)


def stage(
    store: ObjectStore, layout: TableLayout, marker: Marker, data: bytes, fence_token: int | None = None
) -> bytes:
    """Write the marker to `_inprogress`, and give the bytes that are to be published.

    What an equal earlier try left there is taken as it is. What another run left there is replaced, unless it was
    written under a higher token: then that run is the one at work, and this one has slept.
    """
    uri = layout.staged(marker.version)
    try:
        store.put(uri, data, Create())
        return data
    except ConditionFailed:
        there = _find(store, uri)
    if there is None:
        raise LostRaceError("stage", uri, "another run is working on this version", "run again")
    checksum, token = _facts_of(there, uri)
    if checksum == marker.checksum:
        return there.data
    if fence_token is not None and token is not None and token > fence_token:
        raise LostRaceError(
            "stage", uri, f"a later run staged it (want token {fence_token} or less, got {token})", "run again"
        )
    try:
        store.put(uri, data, IfMatch(there.info.e_tag or ""))
    except ConditionFailed as err:
        raise LostRaceError("stage", uri, "another run is working on this version", "run again") from err
    return data


def publish(store: ObjectStore, layout: TableLayout, marker: Marker, data: bytes) -> None:
    """Put the ready marker, create-only; if an equal one is there already that is success, too."""
    uri = layout.ready(marker.version)
    try:
        store.put(uri, data, Create())
    except ConditionFailed as err:
        there = _find(store, uri)
        got = "none: it was demoted since" if there is None else Marker.from_bytes(there.data, uri).checksum
        if got != marker.checksum:
            raise LostRaceError(
                "publish",
                uri,
                f"another run published this version first (want {marker.checksum}, got {got})",
                "run again: it plans from the winner",
            ) from err
    store.delete([layout.staged(marker.version)])


def take_back_between(store: ObjectStore, layout: TableLayout, parent: int | None, version: int) -> None:
    """Before a version is published: demote what it leaves out because it builds on something demoted.

    So gaps of the chain are demoted ordinals, whatever is restored later. LostRaceError if one of them counts again.
    """
    if version == (parent or 0) + 1:
        return
    found = published(store, layout)
    for number in range(max(parent or 0, found.dropped) + 1, version):
        if number in found.demoted:
            continue
        if number in found.ready:
            raise LostRaceError("publish", layout.ready(number), "it counts again since this run planned", "run again")
        _take_back(store, layout, number)


def refuse_demoted(store: ObjectStore, layout: TableLayout, marker: Marker) -> None:
    """LostRaceError if what was just published does not count, or must not.

    Another try may have published this ordinal since the run looked, also before it took its lease, and it was demoted
    again: then a ready marker that comes late changes nothing, whatever its bytes are, and stays where it is. Or the
    version that it builds on was demoted since: it is taken back as well. Or one further back was, by somebody who has
    not come up to its parent yet, or the mirror was dropped since: then it is passed over as it is, and the next run
    demotes it.
    """
    uri, found = layout.ready(marker.version), published(store, layout)
    parent = marker.parent
    if parent is not None and parent <= found.dropped < marker.version:
        raise LostRaceError("publish", uri, "the mirror was dropped since this run planned", "run again")
    if marker.version in found.gone:
        raise LostRaceError("publish", uri, "this ordinal was published and demoted", "run again")
    if parent is not None and parent > found.dropped and parent in found.gone:
        _take_back(store, layout, marker.version)
        raise LostRaceError("publish", uri, f"v{parent}, which it builds on, was demoted", "run again")
    if found.lacks(marker.version):
        raise LostRaceError("publish", uri, "a version that it builds on was demoted", "run again")


def refuse_late(store: ObjectStore, layout: TableLayout, newest: Newest) -> None:
    """LostRaceError if this is a marker that a late run left under an ordinal that was demoted: it never counted.

    For whoever builds on a marker that was listed before it was demoted and read after it was replaced. The record is
    written before the ready marker goes, so that it is there by then. What was read as it was listed is not late.
    """
    marker = newest.marker
    if newest.is_as_listed:
        return
    uri = layout.demoted(marker.version)
    record = _find(store, uri)
    if record is None:
        return
    is_other = Marker.from_bytes(record.data, uri).checksum != marker.checksum
    if is_other or not is_back(store, layout, marker.version):
        raise LostRaceError(
            "read marker", layout.ready(marker.version), "it was demoted, or came late and never counted", "run again"
        )


def is_demoted(store: ObjectStore, layout: TableLayout, version: int) -> bool:
    """Whether this ordinal was demoted once, asked of the store itself."""
    return _find(store, layout.demoted(version)) is not None


def is_demoted_now(store: ObjectStore, layout: TableLayout, version: int) -> bool:
    """Whether it was demoted and not restored since, asked of the store itself: one request if it never was."""
    return is_demoted(store, layout, version) and not is_back(store, layout, version)


def is_back(store: ObjectStore, layout: TableLayout, version: int) -> bool:
    """Whether a version that was demoted counts again: it is the one that was, and a record says that it was restored.

    That record is asked for last: demoting removes it first.
    """
    ready, demoted = _find(store, layout.ready(version)), _find(store, layout.demoted(version))
    is_same = ready is not None and demoted is not None and ready.data == demoted.data
    return is_same and _find(store, layout.restored(version)) is not None


def demote(store: ObjectStore, layout: TableLayout, version: int, shown: Callable[[], int | None]) -> None:
    """Take a ready marker back to `_inprogress`, and then all that build on it; their ordinals stay used.

    It goes first: from then on nothing that builds on it counts, and never is it the newest while they are gone.
    Doing it again changes nothing. What a run that has planned on it publishes later does not count. `shown` asks the
    catalog which version readers see, before and after: neither that one nor what came before it is ever demoted, and
    where a follower was faster this is undone.
    """
    uri, head = layout.ready(version), shown()
    if head is not None and head >= version:
        raise PermanentError(
            "demote", uri, f"readers see v{head}, which is it or came after it", "copy what it lacks in place"
        )
    if _find(store, uri) is None and _find(store, layout.demoted(version)) is None:
        raise PermanentError("demote", uri, "there is no such marker", "look at _ready")
    above = (number for number in published(store, layout).ready if number > version)
    taken = [version, *(number for number in above if _builds_on(store, layout, number, frozenset((version,))))]
    for number in taken:
        _take_back(store, layout, number)
    head = shown()
    if head is None or head < version:
        return
    for number in taken:
        if number <= head:
            restore(store, layout, number)
    raise LostRaceError("demote", uri, f"a follower made v{head} the mirror's head meanwhile", "copy it in place")


def _take_back(store: ObjectStore, layout: TableLayout, version: int) -> None:
    """The record first: from the moment that it is written, or that it is the only one, the version does not count."""
    known = _find(store, layout.demoted(version))
    blob = known or _find(store, layout.ready(version))
    if blob is None:
        raise LostRaceError("demote", layout.ready(version), "another run changed it meanwhile", "run again")
    if known is not None:
        store.delete([layout.restored(version)])
    for uri in (layout.demoted(version), layout.staged(version)):
        with suppress(ConditionFailed):
            store.put(uri, blob.data, Create())
    store.delete([layout.ready(version)])


def restore(store: ObjectStore, layout: TableLayout, version: int) -> Marker:
    """Make a demoted marker ready again, byte for byte; the caller has seen that its closure is whole again.

    The record of it comes last: from that moment the version counts. Doing it again changes nothing. LostRaceError if
    it was demoted again meanwhile: then the record goes, too, because it is not of that demotion.
    """
    there = _find(store, layout.demoted(version))
    if there is None:
        raise PermanentError("restore", layout.demoted(version), "it was never demoted", "look at _ready")
    marker = _read(store, layout, version, layout.demoted(version))
    uri = layout.ready(version)
    with suppress(ConditionFailed):
        store.put(uri, there.data, Create())
    again = LostRaceError("restore", uri, "it was demoted again meanwhile", "look at it again")
    ready = _find(store, uri)
    if ready is None:
        raise again
    if ready.data != there.data:
        told = "a run that came late left other bytes there"
        raise PermanentError("restore", uri, told, "remove that file: it never counted")
    store.delete([layout.staged(version)])
    record = json.dumps({"version": f"v{version}", "checksum": marker.checksum}).encode()
    with suppress(ConditionFailed):
        store.put(layout.restored(version), record, Create())
    if not is_back(store, layout, version):
        store.delete([layout.restored(version)])
        raise again
    return marker


def mark_dropped(store: ObjectStore, layout: TableLayout, version: int, now: datetime) -> None:
    """From now on no version up to this one is published any more; the next one begins a chain of its own."""
    document = {"version": f"v{version}", "dropped_at": now.astimezone(UTC).isoformat()}
    with suppress(ConditionFailed):
        store.put(layout.dropped(version), json.dumps(document).encode(), Create())


def _find(store: ObjectStore, uri: str) -> Blob | None:
    try:
        return store.get(uri, max_bytes=MAX_BYTES)
    except ObjectNotFound:
        return None


def _facts_of(blob: Blob, uri: str) -> tuple[str | None, int | None]:
    """Hash and token of a staged marker; of a damaged one neither: it is replaced like any other."""
    try:
        marker, envelope = Marker.read(blob.data, uri)
    except PermanentError:
        return None, None
    return marker.checksum, envelope.fence_token
