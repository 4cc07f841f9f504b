"""Follow: bring the mirror catalog to the newest ready version, by compare-and-set, and read back what was done.

It needs the mirror bucket and the mirror catalog, nothing of the source. Ten followers on one marker make one commit.
Nothing outside the table's own folder is ever read or committed. A head that Lakemirror did not write is a foreign
commit: it stops the follower until an operator says what to do with it. A version may be demoted while it is committed:
the follower looks again after that, and tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lakemirror import bridge
from lakemirror.catalogs.comparison import described, differing
from lakemirror.catalogs.ports import MirrorCatalog, MirrorHead, Published
from lakemirror.errors import LostRaceError, PermanentError, UnsupportedError
from lakemirror.follow import inbox
from lakemirror.follow.check import check, read_metadata
from lakemirror.formats.iceberg import metadata_json
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import Marker
from lakemirror.model.paths import canonical, is_below
from lakemirror.model.table import TableRef
from lakemirror.storage.port import ObjectNotFound, ObjectStore
from lakemirror.storage.wrappers.once import ReadOnceStore

_VERSION = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class Head:
    """What the mirror catalog shows; `version` is None if it is not what Lakemirror committed.

    `changed` names in what it is not, `details` says it with what was wanted and what was got.
    """

    shown: MirrorHead
    version: int | None
    snapshot_id: int | None
    table_uuid: str | None
    changed: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = field(default=None, repr=False)
    details: tuple[str, ...] = ()

    @property
    def metadata_uri(self) -> str:
        return self.shown.metadata_uri


@dataclass(frozen=True, slots=True)
class Outcome:
    """`is_demoted`: the version that readers see was demoted and not restored; `is_dropped`: the mirror was dropped."""

    marker: Marker | None
    head: Head | None
    committed: bool
    is_demoted: bool = False
    is_dropped: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        if self.head is None:
            return ()
        return demoted_head(self.head) if self.is_demoted else dropped_head(self.head) if self.is_dropped else ()


def demoted_head(head: Head) -> tuple[str, ...]:
    """What is to be told of a mirror whose head was demoted."""
    return (
        f"demoted head: readers see v{head.version}, which was demoted, or builds on what was demoted or dropped: some "
        "of its files may be missing or wrong; copy them in place and restore it, or publish a newer version",
    )


def dropped_head(head: Head) -> tuple[str, ...]:
    """What is to be told of a mirror that is shown though it was dropped."""
    return (
        f"dropped head: readers see v{head.version}, though the mirror was dropped: the drop was cut off, or a "
        "follower has registered it meanwhile; drop it again, or go on mirroring: the next version goes over it",
    )


def drop_foreign(table: TableRef) -> str:
    """The command that takes a table out of the catalog, whoever wrote its head."""
    return f"`drop-mirror {table} --yes --overwrite-foreign`"


def head_of(catalog: MirrorCatalog, store: ObjectStore, layout: TableLayout, table: TableRef) -> Head | None:
    """The mirror's head as catalog and bucket tell it.

    It is ours if it claims a version whose ready marker names this very file; or, where the catalog shows metadata
    itself, if that is exactly what the marker's file says, wherever the server keeps it. What cannot be read for good
    is not ours, so that an operator has a way out of it.
    """
    shown = catalog.load(table)
    if shown is None:
        return None
    if shown.problem is not None:
        return Head(shown, None, None, None, ("metadata",), details=(f"metadata ({shown.problem})",))
    metadata = shown.metadata
    if metadata is None:
        if not is_below(shown.metadata_uri, layout.root):
            details = (f"place (want it below {layout.root}, got {shown.metadata_uri})",)
            return Head(shown, None, None, None, ("place",), details=details)
        try:
            metadata = _read(store, shown.metadata_uri)
        except PermanentError as err:
            return Head(shown, None, None, None, ("file",), details=(f"file ({_told(err)})",))
    claimed = _claimed(metadata)
    changed: dict[str, str] = {"version": f"version (it claims {claimed or 'none'})"}
    if _VERSION.fullmatch(claimed) is not None:
        changed = _changed(store, layout, int(claimed), shown, metadata)
    return Head(
        shown,
        None if changed else int(claimed),
        metadata_json.current_snapshot_id(metadata),
        metadata.get("table-uuid"),
        tuple(changed),
        metadata,
        tuple(changed.values()),
    )


def _read(store: ObjectStore, uri: str) -> dict[str, Any]:
    return metadata_json.parse(read_metadata(store, uri), uri)


def _told(err: PermanentError) -> str:
    return "it is not in the bucket" if isinstance(err, ObjectNotFound) else err.message


def _changed(
    store: ObjectStore, layout: TableLayout, version: int, shown: MirrorHead, got: dict[str, Any]
) -> dict[str, str]:
    """In what the head is not the version that it claims to be: names, each with words for people.

    Under an ordinal that was demoted a run that came late may have left a ready marker, which never counted: what
    counts is the record of the one that was demoted.
    """
    try:
        found = _differing_from(store, bridge.read_published(store, layout, version), shown, got)
        if found and bridge.is_demoted(store, layout, version):
            was = bridge.read_published(store, layout, version, was_demoted=True)
            return _differing_from(store, was, shown, got)
        return found
    except ObjectNotFound:
        return {"version": f"version (it claims {version}, which was never ready)"}
    except UnsupportedError:  # of a newer Lakemirror, not damaged
        raise
    except PermanentError as err:
        return {"marker": f"marker (of v{version}: {err.message})"}


def _differing_from(store: ObjectStore, marker: Marker, shown: MirrorHead, got: dict[str, Any]) -> dict[str, str]:
    if shown.metadata is None and canonical(marker.metadata_uri) == canonical(shown.metadata_uri):
        return {}  # a server that keeps metadata itself may name our file and show another table
    try:
        want = _read(store, marker.metadata_uri)
    except PermanentError as err:
        return {"file": f"file (of v{marker.version}, to compare with: {_told(err)})"}
    found = {name: described(want, got, name) for name in differing(want, got)}
    if shown.metadata is None:  # a catalog of pointers: ours is that very file
        found = {"place": f"place (want {marker.metadata_uri}, got {shown.metadata_uri})", **found}
    return found


def follow(
    table: TableRef,
    layout: TableLayout,
    catalog: MirrorCatalog,
    store: ObjectStore,
    *,
    adopt: bool = False,
    overwrite_foreign: bool = False,
    before_commit: Callable[[Marker], None] = lambda marker: None,
) -> Outcome:
    """Apply the newest ready marker if the mirror is behind it; `before_commit` is told of it right before."""
    as_it_is = store
    store = ReadOnceStore(store)  # markers and metadata files never change once they are there
    waiting = inbox.look(store, layout)
    marker = waiting.newest
    head = head_of(catalog, store, layout, table)
    if head is not None and head.version is None:
        _judge_foreign(table, head, marker, adopt=adopt, overwrite_foreign=overwrite_foreign)
        _refuse_older(table, store, layout, head, marker)
    shown = None if head is None else head.version
    is_demoted = shown is not None and waiting.ordinals.lacks(shown)
    if marker is None or waiting.found is None:
        is_dropped = shown is not None and waiting.ordinals.has_dropped(shown)
        return Outcome(None, head, committed=False, is_demoted=is_demoted, is_dropped=is_dropped)
    if shown is not None and shown >= marker.version:
        return Outcome(marker, head, committed=False, is_demoted=is_demoted)
    is_first = head is None
    # whoever drops a mirror says so in the bucket before the table goes
    if is_first and not bridge.published(as_it_is, layout).counts(marker.version):
        told = f"v{marker.version} was dropped or demoted since this run has listed it"
        raise LostRaceError("follow", str(table), told, "run again")
    bridge.refuse_late(store, layout, waiting.found)
    waiting = inbox.check_chain(store, layout, waiting, shown)
    metadata = check(marker, waiting.before, layout, store, table, None if head is None else head.metadata)
    new = Published(marker.metadata_uri, metadata, waiting.ordinals.follows_drop(shown))
    before_commit(marker)
    catalog.commit(table, None if head is None else head.shown, new)
    head = _read_back(table, layout, catalog, store, marker, head, follows_drop=new.follows_drop)
    # whoever demotes looks at the catalog before and after, and undoes it; but it may have died between the two
    is_demoted = bridge.is_demoted_now(as_it_is, layout, marker.version) and head.version == marker.version
    is_dropped = False
    if is_first and head.version is not None:  # or registered by another and dropped, since this one has found no table
        now = bridge.published(as_it_is, layout)
        is_demoted, is_dropped = is_demoted or now.lacks(head.version), now.has_dropped(head.version)
    return Outcome(marker, head, committed=True, is_demoted=is_demoted, is_dropped=is_dropped)


def _judge_foreign(table: TableRef, head: Head, marker: Marker | None, *, adopt: bool, overwrite_foreign: bool) -> None:
    """Stop at a head that is not ours, unless the operator named a way out and it fits."""
    if overwrite_foreign and marker is not None:
        return
    if adopt and marker is not None:
        if head.table_uuid == marker.epoch:
            return
        raise PermanentError(
            "follow",
            str(table),
            f"cannot adopt: the mirror's table has uuid {head.table_uuid}, the source's has {marker.epoch}",
            "use --overwrite-foreign to replace it",
        )
    raise PermanentError(
        "follow",
        str(table),
        f"foreign commit: the mirror's head {head.metadata_uri} was not published by Lakemirror"
        f"; other {', '.join(head.details)}",
        "see who writes to the mirror; --adopt takes over a table of the same uuid, --overwrite-foreign replaces it; "
        f"where the catalog can do neither, {drop_foreign(table)} and then sync register it anew",
    )


def _refuse_older(table: TableRef, store: ObjectStore, layout: TableLayout, head: Head, marker: Marker | None) -> None:
    """LostRaceError if a foreign head was made from a version of ours that is newer than what would go over it.

    It came after this run has listed them, or was demoted since: either way readers would go back. A version that never
    was does not count. Of a head that cannot be read nobody knows what it was made from: it may be any that is there.
    """
    if marker is None:
        return
    if head.metadata is None:
        newest = bridge.published(store, layout).newest
        if newest is not None and newest > marker.version:
            told = f"the mirror's head cannot be read, and v{newest} was published since this run has listed them"
            raise LostRaceError("follow", head.metadata_uri, told, "run again")
        return
    claimed = _claimed(head.metadata)
    if _VERSION.fullmatch(claimed) is None or int(claimed) <= marker.version:
        return
    try:
        bridge.read_published(store, layout, int(claimed))
    except ObjectNotFound:
        return
    told = f"the mirror's head was made from v{claimed}, and this run knows none after v{marker.version} that counts"
    hint = f"run again; if v{claimed} was demoted, after the next `mirror {table}`, which publishes a newer version"
    hint += f"; if the source is gone, copy what v{claimed} lacks and restore it, or {drop_foreign(table)}"
    raise LostRaceError("follow", head.metadata_uri, told, hint)


def _claimed(metadata: dict[str, Any]) -> str:
    """The version of ours that it says it is."""
    return str((metadata.get("properties") or {}).get(metadata_json.VERSION_PROPERTY, ""))


def _read_back(
    table: TableRef,
    layout: TableLayout,
    catalog: MirrorCatalog,
    store: ObjectStore,
    marker: Marker,
    before: Head | None,
    *,
    follows_drop: bool,
) -> Head:
    """A success answer proves nothing: the catalog must show what was committed, or something newer of ours."""
    head = head_of(catalog, store, layout, table)
    if head is not None and head.version is not None and head.version >= marker.version:
        return head
    if not bridge.published(store, layout).counts(marker.version):  # whoever came then may show anything since
        told = f"the mirror was dropped, or v{marker.version} demoted, meanwhile"
        raise LostRaceError("follow", str(table), told, "run again")
    if head is None and (follows_drop or before is not None):
        told = "the catalog took the commit and shows no table: a drop came after it"
        raise LostRaceError("follow", str(table), told, "run again: it is registered anew")
    if head is None:
        raise _not_taken(table, "no table")
    if before is not None and head.metadata_uri == before.metadata_uri:
        raise _not_taken(table, f"the head that it had, {head.metadata_uri}")
    if head.version is None:
        raise _not_taken(table, f"other {'; '.join(head.details)}")
    raise LostRaceError("follow", str(table), f"after the commit the catalog shows {head.metadata_uri}", "run again")


def _not_taken(table: TableRef, shows: str) -> PermanentError:
    return PermanentError("follow", str(table), f"the catalog took the commit but shows {shows}", "check the catalog")
