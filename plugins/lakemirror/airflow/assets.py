"""The assets that tie the DAGs together. An event is a hint: whoever is woken by one asks the store what is true.

`ready` wakes the follower, `visible` is for the users' own DAGs that read the mirror. Both are emitted through an
alias, because a task's plain outlets emit at every success and most runs find nothing to do. `changed` and `arrived`
are emitted by watchers in the triggerer and wake the replicator and the follower.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Asset, AssetAlias, AssetWatcher, Context

from lakemirror.model.table import TableRef


def ready_asset(table: TableRef) -> Asset:
    """A version of the table was published to the mirror bucket (`_ready/vN.ready.json`)."""
    return _asset("ready", table)


def ready_alias(table: TableRef) -> AssetAlias:
    return AssetAlias(name=_name("ready", table))


def visible_asset(table: TableRef) -> Asset:
    """The mirror catalog names a new version of the table: readers see it."""
    return _asset("visible", table)


def visible_alias(table: TableRef) -> AssetAlias:
    return AssetAlias(name=_name("visible", table))


def arrived_asset(table: TableRef, watcher: AssetWatcher) -> Asset:
    """A watcher saw that the mirror bucket has a version which the mirror does not show.

    It is apart from `ready`: Airflow takes an asset's watchers from whichever DAG file was parsed last.
    """
    return _asset("arrived", table, watcher)


def changed_asset(table: TableRef, watcher: AssetWatcher) -> Asset:
    """A watcher saw that the source's catalog has a head which is not mirrored."""
    return _asset("changed", table, watcher)


def emit(context: Context, alias: AssetAlias, asset: Asset, extra: Mapping[str, Any]) -> None:
    """Record the event; Airflow sends it if the task succeeds."""
    context["outlet_events"][alias].add(asset, extra=dict(extra))


def _name(what: str, table: TableRef) -> str:
    return table.dag_id(what)


def _asset(what: str, table: TableRef, *watchers: AssetWatcher) -> Asset:
    # an x- scheme, so that Airflow takes the URI as it is and loads no provider to normalise it at parse
    uri = f"x-lakemirror://{what}/{table.dag_id('table')}"
    return Asset(name=_name(what, table), uri=uri, watchers=list(watchers))
