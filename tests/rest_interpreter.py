"""A small reference of how a REST catalog takes a commit: one update after the other, ids given out by the server.

Written after the specification and what Iceberg's own server was seen to do; it knows nothing of lakemirror.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

Json = dict[str, Any]
NOW_MS = 1_790_000_010_000  # a little later than all that is in these tables


class Refused(Exception):
    """What a server answers with 400 or 409."""


def take(old: Json | None, requirements: list[Json], updates: list[Json], place: str | None = None) -> Json:
    """The table after the commit; `place` is the file of `old`, for the server's log of files."""
    for requirement in requirements:
        _check(old, requirement)
    table = copy.deepcopy(old) if old is not None else _new()
    last: dict[str, int | None] = {"schema": None, "spec": None, "order": None}
    for update in updates:
        if update["action"] == "set-snapshot-ref" and update["ref-name"] == "main":
            added = [one["snapshot"] for one in updates if one["action"] == "add-snapshot"]
            own = [one["timestamp-ms"] for one in added if one["snapshot-id"] == update["snapshot-id"]]
            # a head that the table had before is noted as of now
            table["snapshot-log"].append({"snapshot-id": update["snapshot-id"], "timestamp-ms": (own or [NOW_MS])[0]})
        _apply(table, copy.deepcopy(update), last)
    if any(update["action"] == "remove-snapshots" for update in updates):
        there = {one["snapshot-id"] for one in table["snapshots"]}
        gone = [at for at, one in enumerate(table["snapshot-log"]) if one["snapshot-id"] not in there]
        table["snapshot-log"] = table["snapshot-log"][gone[-1] + 1 if gone else 0 :]
    if place is not None:
        most = max(1, int(table["properties"].get("write.metadata.previous-versions-max", 100)))
        entry = {"timestamp-ms": NOW_MS, "metadata-file": place}
        table["metadata-log"] = [*table.get("metadata-log", ()), entry][-most:]
    times = [one["timestamp-ms"] for one in table["snapshot-log"]]
    if any(after < before - 60_000 for before, after in itertools.pairwise(times)):
        raise Refused("Expected sorted snapshot log entries")
    numbers = [one.get("sequence-number") or 0 for one in table["snapshots"]]
    if table["format-version"] > 1 and max(numbers, default=0) > table["last-sequence-number"]:
        raise Refused("a snapshot is ahead of the last sequence number")
    return table


def _new() -> Json:
    lists = ("schemas", "partition-specs", "sort-orders", "snapshots", "statistics", "partition-statistics")
    numbers = {"last-column-id": 0, "last-partition-id": 999, "last-sequence-number": 0, "next-row-id": 0}
    return {
        "format-version": 1,
        **{name: [] for name in (*lists, "snapshot-log")},
        **numbers,
        "refs": {},
        "properties": {},
    }


def _check(table: Json | None, requirement: Json) -> None:
    kind = requirement["type"]
    if kind == "assert-create":
        if table is not None:
            raise Refused("the table is there")
        return
    if table is None:
        raise Refused("there is no such table")
    names = {
        "assert-table-uuid": ("uuid", "table-uuid"),
        "assert-last-assigned-field-id": ("last-assigned-field-id", "last-column-id"),
        "assert-current-schema-id": ("current-schema-id", "current-schema-id"),
        "assert-last-assigned-partition-id": ("last-assigned-partition-id", "last-partition-id"),
        "assert-default-spec-id": ("default-spec-id", "default-spec-id"),
        "assert-default-sort-order-id": ("default-sort-order-id", "default-sort-order-id"),
    }
    if kind == "assert-ref-snapshot-id":
        got = table["refs"].get(requirement["ref"], {}).get("snapshot-id")
        want = requirement["snapshot-id"]
    else:
        want, got = requirement[names[kind][0]], table.get(names[kind][1])
    if want != got:
        raise Refused(f"{kind}: want {want}, got {got}")


def _apply(table: Json, update: Json, last: dict[str, int | None]) -> None:
    action = update.pop("action")
    if action in ("assign-uuid", "set-location"):
        key = "uuid" if action == "assign-uuid" else "location"
        table["table-uuid" if key == "uuid" else key] = update[key]
    elif action == "upgrade-format-version":
        if update["format-version"] < table["format-version"]:
            raise Refused("downgrade")
        table["format-version"] = update["format-version"]
    elif action in _ADDERS:
        _ADDERS[action](table, update, last)
    elif action in _SETTERS:
        section, key, field, name, kind = _SETTERS[action]
        number = last[kind] if update[field] == -1 else update[field]
        if number not in [one[key] for one in table[section]]:
            raise Refused(f"unknown {kind}: {number}")
        table[name] = number
    elif action in ("remove-schemas", "remove-partition-specs"):
        section, key, ids, current = (
            ("schemas", "schema-id", "schema-ids", "current-schema-id")
            if action == "remove-schemas"
            else ("partition-specs", "spec-id", "spec-ids", "default-spec-id")
        )
        if table[current] in update[ids]:
            raise Refused("cannot remove the current one")
        table[section] = [one for one in table[section] if one[key] not in update[ids]]
    elif action == "set-properties":
        table["properties"].update(update["updates"])
    elif action == "remove-properties":
        for key in update["removals"]:
            table["properties"].pop(key, None)
    else:
        _apply_snapshots(table, action, update)


def _apply_snapshots(table: Json, action: str, update: Json) -> None:
    if action == "add-snapshot":
        _add_snapshot(table, update["snapshot"])
    elif action == "set-snapshot-ref":
        name = update.pop("ref-name")
        if update["snapshot-id"] not in [one["snapshot-id"] for one in table["snapshots"]]:
            raise Refused("unknown snapshot")
        table["refs"][name] = update
        if name == "main":
            table["current-snapshot-id"] = update["snapshot-id"]
    elif action == "remove-snapshot-ref":
        if table["refs"].pop(update["ref-name"], None) and update["ref-name"] == "main":
            table["current-snapshot-id"] = -1
            table["snapshot-log"] = []
    elif action == "remove-snapshots":
        gone = set(update["snapshot-ids"])
        for section in ("snapshots", "statistics", "partition-statistics"):
            table[section] = [one for one in table.get(section, ()) if one["snapshot-id"] not in gone]
        for name in [name for name, ref in table["refs"].items() if ref["snapshot-id"] in gone]:
            _apply_snapshots(table, "remove-snapshot-ref", {"ref-name": name})
    elif action in ("set-statistics", "set-partition-statistics"):
        section = action.removeprefix("set-")
        entry = update[section]
        others = [one for one in table.get(section, ()) if one["snapshot-id"] != entry["snapshot-id"]]
        table[section] = [*others, entry]
    elif action in ("remove-statistics", "remove-partition-statistics"):
        section = action.removeprefix("remove-")
        table[section] = [one for one in table.get(section, ()) if one["snapshot-id"] != update["snapshot-id"]]
    else:
        raise AssertionError(action)


def _add_snapshot(table: Json, snapshot: Json) -> None:
    number = snapshot.get("sequence-number") or 0
    if snapshot["snapshot-id"] in [one["snapshot-id"] for one in table["snapshots"]]:
        raise Refused("snapshot is there")
    behind = number <= table.get("last-sequence-number", 0) and snapshot.get("parent-snapshot-id") is not None
    if table["format-version"] > 1 and behind:
        raise Refused("sequence number is behind")
    table["last-sequence-number"] = number
    if table["format-version"] > 2:
        if snapshot.get("first-row-id") is None or snapshot["first-row-id"] < table.get("next-row-id", 0):
            raise Refused("first-row-id is behind")
        table["next-row-id"] = table.get("next-row-id", 0) + snapshot["added-rows"]
    table["snapshots"].append(snapshot)


def _add_schema(table: Json, update: Json, last: dict[str, int | None]) -> None:
    schema = update["schema"]
    same = [one for one in table["schemas"] if one["fields"] == schema["fields"]]
    number = same[0]["schema-id"] if same else max((one["schema-id"] for one in table["schemas"]), default=-1) + 1
    if not same:
        table["schemas"].append({**schema, "schema-id": number})
    table["last-column-id"] = max(table["last-column-id"], *(field["id"] for field in schema["fields"]))
    last["schema"] = number


def _add_spec(table: Json, update: Json, last: dict[str, int | None]) -> None:
    spec = update["spec"]
    _need_columns(table, spec["fields"])
    same = [one for one in table["partition-specs"] if one["fields"] == spec["fields"]]
    number = same[0]["spec-id"] if same else max((one["spec-id"] for one in table["partition-specs"]), default=-1) + 1
    if not same:
        table["partition-specs"].append({**spec, "spec-id": number})
    table["last-partition-id"] = max([table["last-partition-id"], *(field["field-id"] for field in spec["fields"])])
    last["spec"] = number


def _add_order(table: Json, update: Json, last: dict[str, int | None]) -> None:
    order = update["sort-order"]
    _need_columns(table, order["fields"])
    same = [one for one in table["sort-orders"] if one["fields"] == order["fields"]]
    highest = max((one["order-id"] for one in table["sort-orders"]), default=0)
    number = same[0]["order-id"] if same else highest + 1 if order["fields"] else 0
    if not same:
        table["sort-orders"].append({**order, "order-id": number})
    last["order"] = number


def _need_columns(table: Json, fields: list[Json]) -> None:
    schema = next(one for one in table["schemas"] if one["schema-id"] == table["current-schema-id"])
    ids = {field["id"] for field in schema["fields"]}
    if not {field["source-id"] for field in fields if field["transform"] != "void"} <= ids:
        raise Refused("cannot find source column")


_ADDERS = {"add-schema": _add_schema, "add-spec": _add_spec, "add-sort-order": _add_order}
_SETTERS = {
    "set-current-schema": ("schemas", "schema-id", "schema-id", "current-schema-id", "schema"),
    "set-default-spec": ("partition-specs", "spec-id", "spec-id", "default-spec-id", "spec"),
    "set-default-sort-order": ("sort-orders", "order-id", "sort-order-id", "default-sort-order-id", "order"),
}
