"""Schemas, partition specs and sort orders of a table, brought to those of another by updates, ids and all. Pure.

A server gives out the next free number itself, whatever the update says. So entries are added in the order of their
ids, and where an id is missing a filler takes its number and is removed in the same commit. Sort orders cannot be
removed: a gap among them cannot be expressed, nor can an id that means something else by now.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any, Final

Json = dict[str, Any]
LAST_ADDED: Final = -1
_FILLER: Final = "lakemirror-filler"
MAX_FILLERS: Final = 1000
_IGNORED: Final = ("doc", "initial-default", "write-default", "field-id", "source-ids")  # others may spell these anew


class Inexpressible(Exception):
    """No updates lead from what the catalog has to what it shall show; the text says why."""


def structure_updates(old: Json, new: Json, *, moves_last_column: bool = False) -> Iterator[Json]:
    """With `moves_last_column` the highest column id rises, to that of `new` or by one; nothing else is seen of it."""
    yield from _schemas(old, new)
    yield from _specs(old, new)
    yield from _sort_orders(old, new)
    extra = []
    if moves_last_column:
        extra = [max({*schemas_of(old), *schemas_of(new)}) + 1]
        column = max(old.get("last-column-id", 0) + 1, new["last-column-id"])
        yield {"action": "add-schema", "schema": _filler_schema(extra[0], column), "last-column-id": column}
    # what specs and orders were bound to, or what the old ones needed, may go only now
    gone = _gone(old, new, "partition-specs", "spec-id")
    if gone:
        yield {"action": "remove-partition-specs", "spec-ids": gone}
    gone = [*_gone(old, new, "schemas", "schema-id"), *extra]
    if gone:
        yield {"action": "remove-schemas", "schema-ids": gone}


def _by_id(metadata: Json, section: str, key: str) -> dict[int, Json]:
    return {one[key]: one for one in metadata.get(section) or ()}


def schemas_of(metadata: Json) -> dict[int, Json]:
    """By id; a v1 table may have nothing but one schema without an id."""
    found = _by_id(metadata, "schemas", "schema-id")
    if not found and metadata.get("schema"):
        found = {0: {"schema-id": 0, **metadata["schema"]}}
    return found


def specs_of(metadata: Json) -> dict[int, Json]:
    found = _by_id(metadata, "partition-specs", "spec-id")
    if not found and metadata.get("partition-spec") is not None:
        found = {0: {"spec-id": 0, "fields": metadata["partition-spec"]}}
    return found


def orders_of(metadata: Json) -> dict[int, Json]:
    return _by_id(metadata, "sort-orders", "order-id")


def _sections(metadata: Json, section: str) -> dict[int, Json]:
    return schemas_of(metadata) if section == "schemas" else specs_of(metadata)


def _gone(old: Json, new: Json, section: str, key: str) -> list[int]:
    """Ids that are not wanted: of the old table, and of the fillers among what was added."""
    before, after = _sections(old, section), _sections(new, section)
    fillers = _fillers(before, after)
    return sorted({*(one for one in before if one not in after), *fillers})


def _fillers(before: dict[int, Json], after: dict[int, Json]) -> list[int]:
    missing = sorted(after.keys() - before.keys())
    start = max(before, default=-1) + 1
    if missing and missing[0] < start:
        raise Inexpressible(f"id {missing[0]} cannot be given any more: the catalog is at {start - 1}")
    fillers = [one for one in range(start, missing[-1]) if one not in after] if missing else []
    if len(fillers) > MAX_FILLERS:
        raise Inexpressible(f"ids have {len(fillers)} gaps, and at most {MAX_FILLERS} can be filled")
    return fillers


def _refuse_changed(what: str, before: dict[int, Json], after: dict[int, Json]) -> None:
    for one in before.keys() & after.keys():
        if _meaning(before[one]) != _meaning(after[one]):
            raise Inexpressible(f"{what} {one} means something else than the catalog's {what} {one}")


def _refuse_doubles(what: str, after: dict[int, Json]) -> None:
    seen: dict[str, int] = {}
    for number, one in after.items():
        other = seen.setdefault(_meaning(one, ignored=("field-id",)), number)
        if other != number:
            raise Inexpressible(f"{what} {number} is the same as {what} {other}, and the catalog would keep one")


def _meaning(entry: Json, ignored: Collection[str] = _IGNORED) -> str:
    """What an entry says, whoever wrote it down: without its id, nulls, and how a type is spelled."""
    own = {key: value for key, value in entry.items() if not key.endswith("-id")}
    return json.dumps(_normal(own, ignored), sort_keys=True)


def _normal(value: Any, ignored: Collection[str]) -> Any:
    if isinstance(value, dict):
        kept = {key: _normal(one, ignored) for key, one in value.items() if one is not None and key not in ignored}
        return {key: one for key, one in kept.items() if one != []}
    if isinstance(value, list):
        return [_normal(one, ignored) for one in value]
    return value.replace(" ", "") if isinstance(value, str) and "(" in value else value


def _schemas(old: Json, new: Json) -> Iterator[Json]:
    before, after = schemas_of(old), schemas_of(new)
    _refuse_changed("schema", before, after)
    fillers = set(_fillers(before, after))
    missing = sorted({*(after.keys() - before.keys()), *fillers})
    if missing:
        _refuse_doubles("schema", {**before, **after})
    for number in missing:
        schema = _filler_schema(number) if number in fillers else after[number]
        yield {"action": "add-schema", "schema": schema, "last-column-id": new["last-column-id"]}
    if missing or old.get("current-schema-id") != new.get("current-schema-id"):
        yield _current_schema(new["current-schema-id"] if "current-schema-id" in new else max(after))


def _current_schema(number: int) -> Json:
    return {"action": "set-current-schema", "schema-id": number}


def _filler_schema(number: int, column: int = 1) -> Json:
    field = {"id": column, "name": f"{_FILLER}-{number}", "required": False, "type": "int"}
    return {"type": "struct", "schema-id": number, "fields": [field]}


def _specs(old: Json, new: Json) -> Iterator[Json]:
    before, after = specs_of(old), specs_of(new)
    _refuse_changed("partition spec", before, after)
    fillers = set(_fillers(before, after))
    missing = sorted({*(after.keys() - before.keys()), *fillers})
    if missing:
        _refuse_doubles("partition spec", {**before, **after})
    bound = new.get("current-schema-id")
    for number in missing:
        spec = _filler_spec(number, new) if number in fillers else after[number]
        bound, switch = _bind(spec, bound, new)
        yield from switch
        yield {"action": "add-spec", "spec": spec}
    if bound != new.get("current-schema-id"):
        yield _current_schema(new["current-schema-id"])
    if old.get("default-spec-id") != new.get("default-spec-id"):
        yield {"action": "set-default-spec", "spec-id": new["default-spec-id"]}


def _filler_spec(number: int, new: Json) -> Json:
    source = next(iter(schemas_of(new)[new["current-schema-id"]]["fields"]), None)
    last = new.get("last-partition-id") or 0
    if source is None or last < 1000:
        raise Inexpressible(f"partition spec ids have a gap at {number} that cannot be filled")
    name = f"{_FILLER}-{number}"
    return {
        "spec-id": number,
        "fields": [{"name": name, "transform": "void", "source-id": source["id"], "field-id": last}],
    }


def _bind(entry: Json, bound: int | None, new: Json) -> tuple[int | None, list[Json]]:
    """An entry is checked against the current schema: one of the past needs a schema that still had its columns."""
    fields = [field for field in entry["fields"] if field.get("transform") != "void"]  # its column may be gone
    wanted = {field["source-id"] for field in fields if "source-id" in field}
    wanted |= {one for field in fields for one in field.get("source-ids") or ()}
    schemas = schemas_of(new)
    if bound is None or wanted <= _field_ids(schemas[bound]):
        return bound, []
    fitting = [number for number in sorted(schemas, reverse=True) if wanted <= _field_ids(schemas[number])]
    if not fitting:
        told = f"of column ids {sorted(wanted)} that no schema of the table has any more"
        raise Inexpressible(f"a partition spec or sort order {told} cannot be added")
    return fitting[0], [_current_schema(fitting[0])]


def _field_ids(part: Any) -> set[int]:
    found: set[int] = set()
    if isinstance(part, dict):
        found |= {value for key, value in part.items() if key in ("id", "element-id", "key-id", "value-id")}
        for value in part.values():
            found |= _field_ids(value)
    elif isinstance(part, list):
        for value in part:
            found |= _field_ids(value)
    return found


def _sort_orders(old: Json, new: Json) -> Iterator[Json]:
    before, after = orders_of(old), orders_of(new)
    _refuse_changed("sort order", before, after)
    missing = sorted(after.keys() - before.keys())
    expected = max(before, default=0) + 1
    bound = new.get("current-schema-id")
    for number in missing:
        if number != 0 and number != expected:
            raise Inexpressible(f"sort order {number} would become {expected}, and orders cannot be removed")
        expected += number != 0
        bound, switch = _bind(after[number], bound, new)
        yield from switch
        yield {"action": "add-sort-order", "sort-order": after[number]}
    if bound != new.get("current-schema-id"):
        yield _current_schema(new["current-schema-id"])
    if old.get("default-sort-order-id") != new.get("default-sort-order-id"):
        yield {"action": "set-default-sort-order", "sort-order-id": new.get("default-sort-order-id", 0)}
