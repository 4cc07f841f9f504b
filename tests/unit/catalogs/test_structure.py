"""Schemas, specs and sort orders brought to those of another table: ids as a server gives them out."""

from typing import Any

import pytest

from lakemirror.catalogs.structure import (
    MAX_FILLERS,
    Inexpressible,
    orders_of,
    schemas_of,
    specs_of,
    structure_updates,
)

Json = dict[str, Any]


def schema(number: int, *names: str) -> Json:
    fields = [{"id": at, "name": name, "required": False, "type": "int"} for at, name in enumerate(names, 1)]
    return {"type": "struct", "schema-id": number, "fields": fields}


def spec(number: int, source: int | None = None) -> Json:
    fields = [{"name": f"p{number}", "transform": "identity", "source-id": source, "field-id": 1000}] if source else []
    return {"spec-id": number, "fields": fields}


def order(number: int, source: int | None = None) -> Json:
    field = {"transform": "identity", "source-id": source, "direction": "asc", "null-order": "nulls-first"}
    return {"order-id": number, "fields": [field] if source else []}


def table(**changes: Any) -> Json:
    plain = {
        "schemas": [schema(0, "a")],
        "current-schema-id": 0,
        "last-column-id": 9,
        "partition-specs": [spec(0)],
        "default-spec-id": 0,
        "last-partition-id": 1000,
        "sort-orders": [order(0)],
        "default-sort-order-id": 0,
    }
    return {**plain, **{name.replace("_", "-"): value for name, value in changes.items()}}


def actions(old: Json, new: Json) -> list[str]:
    return [update["action"] for update in structure_updates(old, new)]


def test_what_is_alike_needs_nothing() -> None:
    assert actions(table(), table()) == []


def test_how_a_type_is_spelled_and_what_is_null_makes_no_difference() -> None:
    fields = [{"id": 1, "name": "a", "required": False, "type": "decimal(9, 2)", "doc": None}]
    other = [{"id": 1, "name": "a", "required": False, "type": "decimal(9,2)"}]
    old, new = ({"schemas": [{"schema-id": 0, "fields": one}]} for one in (fields, other))

    assert actions({**table(), **old}, {**table(), **new}) == []


def test_entries_are_added_in_the_order_of_their_ids_and_then_chosen() -> None:
    new = table(schemas=[schema(2, "a", "b", "c"), schema(0, "a"), schema(1, "a", "b")], current_schema_id=2)

    updates = list(structure_updates(table(), new))

    assert [one["schema"]["schema-id"] for one in updates[:2]] == [1, 2]
    assert updates[2:] == [{"action": "set-current-schema", "schema-id": 2}]


def test_a_gap_is_filled_and_the_filler_removed() -> None:
    new = table(schemas=[schema(0, "a"), schema(2, "a", "b")], current_schema_id=2)

    updates = list(structure_updates(table(), new))

    assert [one["action"] for one in updates] == ["add-schema", "add-schema", "set-current-schema", "remove-schemas"]
    assert updates[-1]["schema-ids"] == [1]


def test_what_the_new_table_lacks_is_removed_after_all_that_needed_it() -> None:
    old = table(schemas=[schema(0, "a"), schema(1, "a", "b")], partition_specs=[spec(0), spec(1, 1)])
    new = table(schemas=[schema(1, "a", "b")], current_schema_id=1, partition_specs=[spec(0)])

    assert actions(old, new) == ["set-current-schema", "remove-partition-specs", "remove-schemas"]


def test_a_spec_of_a_column_that_is_gone_is_added_under_a_schema_that_had_it() -> None:
    schemas = [schema(0, "a", "b"), schema(1, "a")]
    old = table(schemas=schemas, current_schema_id=1)
    new = table(schemas=schemas, current_schema_id=1, partition_specs=[spec(0), spec(1, 2)])

    updates = list(structure_updates(old, new))

    assert [one.get("schema-id", one["action"]) for one in updates] == [0, "add-spec", 1]


def test_sort_orders_follow_one_another() -> None:
    new = table(sort_orders=[order(0), order(1, 1)], default_sort_order_id=1)

    assert actions(table(), new) == ["add-sort-order", "set-default-sort-order"]
    with pytest.raises(Inexpressible, match="sort order 2 would become 1"):
        actions(table(), table(sort_orders=[order(0), order(2, 1)]))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (table(), table(schemas=[schema(0, "other")]), "schema 0 means something else"),
        (table(partition_specs=[spec(1, 1)]), table(), "id 0 cannot be given any more"),
        (table(), table(schemas=[schema(0, "a"), schema(1, "a")]), "schema 1 is the same as schema 0"),
        (table(), table(schemas=[schema(0, "a"), schema(MAX_FILLERS + 2, "b")]), "at most 1000 can be filled"),
        (table(), table(partition_specs=[spec(0), spec(1, 77)]), r"column ids \[77\] that no schema"),
    ],
    ids=["changed", "passed", "double", "too many gaps", "no column"],
)
def test_what_no_updates_can_say(old: Json, new: Json, why: str) -> None:
    with pytest.raises(Inexpressible, match=why):
        actions(old, new)


def test_the_one_schema_and_spec_of_an_old_table_are_number_zero() -> None:
    old = {"schema": {"type": "struct", "fields": []}, "partition-spec": [{"name": "p"}]}

    assert schemas_of(old) == {0: {"schema-id": 0, "type": "struct", "fields": []}}
    assert specs_of(old) == {0: {"spec-id": 0, "fields": [{"name": "p"}]}}
    assert orders_of(old) == {}
