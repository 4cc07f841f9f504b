"""What counts as the table state that was published."""

from __future__ import annotations

from typing import Any

import pytest

from lakemirror.catalogs.comparison import _COMPARED, described, differing

Json = dict[str, Any]


def metadata(*lists: str | None) -> Json:
    """Snapshots 1, 2, …, each with its manifest list, if one is told."""
    made = [{"snapshot-id": number, "timestamp-ms": number} for number, _ in enumerate(lists, 1)]
    for snapshot, place in zip(made, lists, strict=True):
        snapshot.update({} if place is None else {"manifest-list": place})  # type: ignore[dict-item]
    return {"table-uuid": "u-1", "format-version": 2, "location": "gs://m/t", "snapshots": made}


def test_the_same_ids_with_other_manifest_lists_are_another_table_state() -> None:
    """As a table has that somebody registered again, from files of his own."""
    want, got = metadata("gs://m/t/a.avro", "gs://m/t/b.avro"), metadata("gs://m/t/a.avro", "gs://m/t/other.avro")
    assert differing(want, got) == ("manifest lists",)
    assert described(want, got, "manifest lists") == "manifest lists (2: want gs://m/t/b.avro, got gs://m/t/other.avro)"


@pytest.mark.parametrize("got", [("gs://m/t/a.avro", None), (None, None)])
def test_what_the_catalog_does_not_tell_is_not_compared(got: tuple[str | None, ...]) -> None:
    assert differing(metadata("gs://m/t/a.avro", "gs://m/t/b.avro"), metadata(*got)) == ()


def test_snapshots_that_one_side_lacks_are_told_once() -> None:
    assert differing(metadata("gs://m/t/a.avro"), metadata("gs://m/t/a.avro", "gs://m/t/b.avro")) == ("snapshots",)


def field(number: int, name: str) -> Json:
    return {"id": number, "name": name, "required": False, "type": "long"}


def order(number: int) -> Json:
    return {"order-id": number, "fields": []}


def statistics(snapshot_id: int, place: str) -> Json:
    return {"snapshot-id": snapshot_id, "statistics-path": place}


WHOLE: Json = {
    **metadata("gs://m/t/a.avro", "gs://m/t/b.avro"),
    "current-snapshot-id": 2,
    "refs": {"main": {"snapshot-id": 2, "type": "branch"}, "then": {"snapshot-id": 1, "type": "tag"}},
    "schemas": [{"schema-id": 0, "fields": [field(1, "a")]}, {"schema-id": 1, "fields": [field(1, "b")]}],
    "current-schema-id": 1,
    "partition-specs": [{"spec-id": 0, "fields": []}, {"spec-id": 1, "fields": []}],
    "default-spec-id": 1,
    "sort-orders": [order(0), order(1)],
    "default-sort-order-id": 1,
    "statistics": [statistics(2, "gs://m/t/a.puffin")],
    "partition-statistics": [statistics(2, "gs://m/t/a.parquet")],
    "properties": {"color": "red"},
}
# By what is told: what a catalog may show instead, with nothing else changed.
OTHERS: dict[str, list[Json]] = {
    "table uuid": [{"table-uuid": "u-2"}],
    "format version": [{"format-version": 3}],
    "location": [{"location": "gs://m/other"}],
    "current snapshot": [{"current-snapshot-id": 1}],
    "refs": [
        {"refs": {"main": WHOLE["refs"]["main"]}},
        {"refs": {**WHOLE["refs"], "then": {"snapshot-id": 2, "type": "tag"}}},
        {"refs": {**WHOLE["refs"], "then": {"snapshot-id": 1, "type": "branch"}}},
        {"refs": {**WHOLE["refs"], "then": {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": 1}}},
    ],
    "snapshots": [{"snapshots": WHOLE["snapshots"][1:]}, {"snapshots": [*WHOLE["snapshots"], {"snapshot-id": 3}]}],
    "schemas": [
        {"schemas": WHOLE["schemas"][1:]},
        {"schemas": [*WHOLE["schemas"], {"schema-id": 2, "fields": [field(1, "a")]}]},
        {"schemas": [WHOLE["schemas"][0], {"schema-id": 1, "fields": [field(1, "other")]}]},
        {"schemas": [WHOLE["schemas"][0], {"schema-id": 1, "fields": [field(2, "b")]}]},
        {"schemas": [WHOLE["schemas"][0], {"schema-id": 1, "fields": [field(1, "b"), field(2, "more")]}]},
    ],
    "current schema": [{"current-schema-id": 0}],
    "partition specs": [
        {"partition-specs": WHOLE["partition-specs"][1:]},
        {"partition-specs": [*WHOLE["partition-specs"], {"spec-id": 2, "fields": []}]},
    ],
    "default partition spec": [{"default-spec-id": 0}],
    "default sort order": [{"default-sort-order-id": 0}],
    "statistics": [{"statistics": []}, {"statistics": [statistics(2, "gs://m/t/other.puffin")]}],
    "partition statistics": [
        {"partition-statistics": []},
        {"partition-statistics": [statistics(2, "gs://m/t/other.parquet")]},
    ],
    "properties": [
        {"properties": {}},
        {"properties": {"color": "blue"}},
        {"properties": {"color": "red", "size": "1"}},
    ],
    "sort orders": [{"sort-orders": [order(0)]}],
    "manifest lists": [metadata("gs://m/t/a.avro", "gs://m/t/other.avro")],
}


def test_there_is_a_case_for_everything_that_is_compared() -> None:
    assert _COMPARED.keys() <= OTHERS.keys()


@pytest.mark.parametrize(("name", "shown"), [(name, one) for name, many in OTHERS.items() for one in many])
def test_each_difference_is_told_by_its_name_alone(name: str, shown: Json) -> None:
    got = {**WHOLE, **shown}
    assert differing(WHOLE, {**WHOLE}) == ()
    assert differing(WHOLE, got) == (name,)
    assert described(WHOLE, got, name).startswith(name)


def test_what_is_the_servers_own_is_not_compared() -> None:
    """A slash at the end, numbers for future writers, times, a sort order that nobody published."""
    own = {"location": "gs://m/t/", "last-column-id": 9, "last-updated-ms": 9, "last-sequence-number": 9}
    assert differing(WHOLE, {**WHOLE, **own, "sort-orders": [*WHOLE["sort-orders"], order(2)]}) == ()
