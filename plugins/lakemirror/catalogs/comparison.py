"""Whether a catalog shows what we published: everything that a server must keep, and nothing that is its own. Pure.

The server's own are its log of heads, the time of the last update, how it spells JSON, and fields it does not know.
So are the numbers that count on for future writers (sequence numbers, row ids, column ids): those of a source whose
last snapshots are not mirrored are further on, those of one that was recreated begin anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lakemirror.catalogs.structure import orders_of, schemas_of, specs_of
from lakemirror.catalogs.updates import refs_of
from lakemirror.formats.iceberg.metadata_json import current_snapshot_id, snapshots

Json = dict[str, Any]


def _statistics(section: str) -> Callable[[Json], object]:
    return lambda metadata: {one["snapshot-id"]: one["statistics-path"] for one in metadata.get(section) or ()}


def _columns(metadata: Json) -> object:
    return {
        number: sorted((field["id"], field["name"]) for field in schema["fields"])
        for number, schema in schemas_of(metadata).items()
    }


_COMPARED: Final[dict[str, Callable[[Json], object]]] = {
    "table uuid": lambda metadata: metadata.get("table-uuid"),
    "format version": lambda metadata: metadata.get("format-version"),
    "location": lambda metadata: str(metadata.get("location")).rstrip("/"),
    "current snapshot": current_snapshot_id,
    "refs": refs_of,
    "snapshots": lambda metadata: sorted(snapshots(metadata)),
    "schemas": _columns,
    "current schema": lambda metadata: metadata.get("current-schema-id", 0),
    "partition specs": lambda metadata: sorted(specs_of(metadata)),
    "default partition spec": lambda metadata: metadata.get("default-spec-id", 0),
    "default sort order": lambda metadata: metadata.get("default-sort-order-id", 0),
    "statistics": _statistics("statistics"),
    "partition statistics": _statistics("partition-statistics"),
    "properties": lambda metadata: metadata.get("properties") or {},
}


def differing(want: Json, got: Json) -> tuple[str, ...]:
    """What the catalog shows otherwise than it was published; empty if it is the same table state."""
    found = [name for name, view in _COMPARED.items() if view(want) != view(got)]
    if not set(orders_of(want)) <= {0, *orders_of(got)}:
        found.append("sort orders")
    return tuple(found)


def described(want: Json, got: Json, name: str) -> str:
    """One difference in words that say what was wanted and what was got."""
    view = _COMPARED.get(name)
    return name if view is None else f"{name} (want {view(want)}, got {view(got)})"
