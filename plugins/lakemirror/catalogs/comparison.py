"""Whether a catalog shows what we published: everything that a server must keep, and nothing that is its own. Pure.

The server's own are its log of heads, the time of the last update, how it spells JSON, and fields it does not know.
So are the numbers that count on for future writers (sequence numbers, row ids, column ids): those of a source whose
last snapshots are not mirrored are further on, those of one that was recreated begin anew. What the catalog cannot
take, and says so in the property of left_out.py, is not missed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lakemirror.catalogs import left_out
from lakemirror.catalogs.structure import orders_of, schemas_of, specs_of
from lakemirror.catalogs.updates import refs_of
from lakemirror.formats.iceberg.metadata_json import current_snapshot_id, moved_lists, snapshots

Json = dict[str, Any]
MAX_SHOWN: Final = 5
_LISTS: Final = "manifest lists"


def _statistics(section: str) -> Callable[[Json], object]:
    return lambda metadata: {one["snapshot-id"]: one["statistics-path"] for one in metadata.get(section) or ()}


def _columns(metadata: Json) -> object:
    return {
        number: sorted((field["id"], field["name"]) for field in schema["fields"])
        for number, schema in schemas_of(metadata).items()
    }


def _properties(metadata: Json) -> dict[str, str]:
    return {key: value for key, value in (metadata.get("properties") or {}).items() if key != left_out.PROPERTY}


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
    "properties": _properties,
}


def differing(want: Json, got: Json) -> tuple[str, ...]:
    """What the catalog shows otherwise than it was published; empty if it is the same table state."""
    want = _as_told(want, got)
    found = [name for name, view in _COMPARED.items() if view(want) != view(got)]
    if moved_lists(want, got):
        found.append(_LISTS)
    if not set(orders_of(want)) <= {0, *orders_of(got)}:
        found.append("sort orders")
    return tuple(found)


def described(want: Json, got: Json, name: str) -> str:
    """One difference in words that say what was wanted and what was got."""
    ours: object
    theirs: object
    if name == _LISTS:
        moved = moved_lists(want, got)
        ours, theirs = ({number: places[side] for number, places in moved.items()} for side in (0, 1))
    elif name in _COMPARED:
        ours, theirs = _COMPARED[name](_as_told(want, got)), _COMPARED[name](got)
    else:
        return name
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return f"{name} (want {ours}, got {theirs})"
    other = sorted((key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)), key=str)
    shown = [f"{key}: want {ours.get(key)}, got {theirs.get(key)}" for key in other[:MAX_SHOWN]]
    more = f"; and {len(other) - MAX_SHOWN} more" if len(other) > MAX_SHOWN else ""
    return f"{name} ({'; '.join(shown)}{more})"


def _as_told(want: Json, got: Json) -> Json:
    """Without what the catalog says that it could not take; the head itself is never among it."""
    ids = left_out.left_out_of(got)
    return left_out.without(want, ids) if ids and current_snapshot_id(want) not in ids else want
