"""The register of a mirror: which tables were ever announced in its bucket, so that a follower can find them."""

from __future__ import annotations

import json
from contextlib import suppress

from lakemirror.model.table import TableRef
from lakemirror.storage.port import ConditionFailed, Create, ObjectStore


def announce(store: ObjectStore, location: str, table: TableRef) -> None:
    """Note that the mirror has this table, so that a follower can find it; noting it again changes nothing."""
    with suppress(ConditionFailed):
        store.put(f"{_register_of(location)}/{table}.json", json.dumps({"table": str(table)}).encode(), Create())


def announced(store: ObjectStore, location: str) -> tuple[str, ...]:
    """The names of all tables that were ever announced, by name. A hint: what is true stands in their folders."""
    found = (info.uri.rsplit("/", 1)[-1] for info in store.list(_register_of(location)))
    return tuple(sorted(name.removesuffix(".json") for name in found if name.endswith(".json")))


def _register_of(location: str) -> str:
    return f"{location.rstrip('/')}/_tables"
