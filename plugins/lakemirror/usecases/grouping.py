"""Groups of tables and their watermark, as configuration, bucket and followers make them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial

from lakemirror import bridge, currency
from lakemirror.config.models import Config
from lakemirror.errors import PermanentError, UsageError
from lakemirror.follow import groups
from lakemirror.model.group import GroupWatermark, Reached
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import Marker
from lakemirror.model.results import GroupResult
from lakemirror.model.table import TableRef
from lakemirror.storage.port import ObjectStore
from lakemirror.usecases.ports import Ports


def members(config: Config, tables: Iterable[TableRef], group: str) -> tuple[str, ...]:
    return tuple(str(table) for table in tables if config.knobs_for(table).group == group)


def group_names(config: Config, tables: Iterable[TableRef]) -> tuple[str, ...]:
    return tuple(sorted({name for table in tables if (name := config.knobs_for(table).group) is not None}))


def at_source(ports: Ports) -> tuple[TableRef, ...]:
    """Tables of the source catalog that patterns choose from; none where there are no patterns, or no source."""
    config = ports.config
    if not config.has_patterns or not ports.has_source:
        return ()
    return config.match(map(str, ports.source_catalog.tables()))


def join(ports: Ports, group: str, tables: Iterable[TableRef], now: datetime) -> None:
    """Say which tables `at_source` belong to a group: patterns only a source tells; named ones every follower knows."""
    config = ports.config
    if found := members(config, tables, group):
        groups.join(ports.mirror_store, config.mirror.location, group, found, now)


def note_current(
    store: ObjectStore, layout: TableLayout, version: int, as_of: datetime, source_committed_at: datetime
) -> None:
    currency.note(store, layout, currency.Current(version, as_of, source_committed_at))


def announce(
    store: ObjectStore, location: str, group: str, table: TableRef, layout: TableLayout, coming: Marker, now: datetime
) -> None:
    """The mirror catalog is about to show this version."""
    covered = partial(groups.reached, store, layout, coming)
    groups.announce(store, location, group, str(table), coming.version, covered, now)


def record_shown(
    store: ObjectStore,
    location: str,
    group: str,
    tables: Iterable[str],
    table: TableRef,
    layout: TableLayout,
    version: int,
    now: datetime,
    shown_now: Callable[[], int | None],
) -> GroupWatermark:
    """The mirror catalog showed this version: say so in the group's watermark. `shown_now` asks the catalog again.

    It may be demoted by now: then the record of that counts. Or dropped: then it counts for nothing.
    """

    def reached(shown: int) -> Reached:
        was_demoted = bridge.is_demoted(store, layout, shown)
        return groups.reached(store, layout, bridge.read_published(store, layout, shown, was_demoted=was_demoted))

    def ask_again() -> Reached | None:
        shown = shown_now()
        return None if shown is None or bridge.published(store, layout).has_dropped(shown) else reached(shown)

    return groups.record(store, location, group, tables, str(table), reached(version), now, ask_again)


def record_drop(store: ObjectStore, location: str, table: TableRef, now: datetime) -> None:
    """This table is about to go: say so in all groups that have it. One that nobody can read promises nothing: it stops
    nothing here, and is told by `record_gone` when the table is gone.
    """
    for name in groups.names(store, location):
        with suppress(PermanentError):
            groups.record_gone(store, location, name, str(table), now, lambda: True)


def record_gone(
    store: ObjectStore, location: str, table: TableRef, now: datetime, is_gone: Callable[[], bool], group: str | None
) -> None:
    """The mirror catalog shows nothing of this table that counts: say so in this group, or (None) in all of it."""
    for name in groups.names(store, location) if group is None else (group,):
        groups.record_gone(store, location, name, str(table), now, is_gone)


def forget(
    store: ObjectStore, config: Config, tables: Iterable[TableRef], group: str, name: str, now: datetime
) -> None:
    """Take a table out of a group's document; it must not be in that group by this configuration any more."""
    if name in members(config, tables, group):
        told = f"{config.path} still has it in group {group}, so that its next follow would join it again"
        raise UsageError("forget table", name, told, "change its `group:` there, on every installation, then forget it")
    groups.forget(store, config.mirror.location, group, name, now)


def describe(store: ObjectStore, location: str, group: str, tables: Iterable[str], now: datetime) -> GroupResult:
    """What readers may rely on: the document as it is, and members that it does not know yet.

    `elsewhere` are members that these `tables` do not have: of other configurations, or to be forgotten.
    """
    tables = set(tables)
    found = groups.load(store, location, group)
    known = {} if found is None else dict(found.tables)
    missing = sorted(tables - known.keys())
    watermark = None if found is None or missing else found.watermark
    slowest = missing[0] if missing else None if found is None else found.slowest
    return GroupResult(
        group=group,
        watermark=watermark,
        lag_s=None if watermark is None else max(0.0, (now - watermark).total_seconds()),
        slowest=slowest,
        tables={name: known.get(name) for name in sorted({*known, *missing})},
        moves_back=() if found is None else found.moves_back,
        elsewhere=tuple(sorted(known.keys() - tables)),
    )
