"""Drop a mirror: readers no longer find the table, and nothing that was published before is published any more.

Its files stay for garbage collection. Ordinals go on: if the source is mirrored again, its next version begins a chain
of its own, and the follower registers the table anew.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from lakemirror import bridge
from lakemirror.catalogs.ports import MirrorCatalog
from lakemirror.errors import LostRaceError, PermanentError, TableBusyError
from lakemirror.follow.follower import Head, drop_foreign, head_of
from lakemirror.model.results import DropResult
from lakemirror.model.table import TableRef
from lakemirror.replicate.fence import TakesLease
from lakemirror.usecases.ports import Ports


def drop_mirror(
    table: TableRef,
    ports: Ports,
    fence: TakesLease,
    now: datetime,
    *,
    overwrite_foreign: bool = False,
    before_drop: Callable[[], None] = lambda: None,
) -> DropResult:
    """Under the lease, so that no run in flight publishes meanwhile; TableBusyError if one is at work.

    First the markers, then the catalog: whatever is cut in between, followers do not bring the table back, and dropping
    it again finishes the work. `before_drop` is called in between: whoever relies on the table is told first.

    A head that somebody else wrote is dropped only if the operator says so, and only the one that was seen here: no
    catalog deletes a file for it, so that theirs stay where they are, too.
    """
    layout, store, catalog = ports.layout(table), ports.mirror_store, ports.mirror_catalog
    held = fence.acquire()
    try:
        head = head_of(catalog, store, layout, table)
        if head is not None and head.version is None and not overwrite_foreign:
            raise PermanentError(
                "drop mirror",
                str(table),
                f"its head {head.metadata_uri} was not published by Lakemirror; other {', '.join(head.details)}",
                f"see who writes to the mirror; {drop_foreign(table)} drops theirs, too: files stay",
            )
        if head is not None and not catalog.abilities().has_drop:
            message = "unsupported_by_catalog: the catalog cannot drop tables"
            raise PermanentError(
                "drop mirror", str(table), message, "nothing was changed; drop it there by hand and run this again"
            )
        ordinals = bridge.published(store, layout)
        if ordinals.last_used > ordinals.dropped:
            bridge.mark_dropped(store, layout, ordinals.last_used, now)
        before_drop()
        if head is not None:
            _drop(catalog, table, head)
            if catalog.load(table) is not None:
                raise LostRaceError("drop mirror", str(table), "a follower registered it again meanwhile", "run again")
    finally:
        held.release()
    return DropResult(table, None if head is None else head.version, ordinals.last_used or None)


def _drop(catalog: MirrorCatalog, table: TableRef, head: Head) -> None:
    try:
        catalog.drop(table, head.shown)
    except TableBusyError as err:
        told = f"its versions count as dropped, and readers still see it: {err.message}"
        raise TableBusyError("drop mirror", str(table), told, err.hint) from err
