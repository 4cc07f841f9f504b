"""The walker finds wanted fields by id, tells their bytes exactly, and never leaves the record's own bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemirror.formats.iceberg.avro_walk import (
    Field,
    Malformed,
    Record,
    Walker,
    read_long,
    splice,
    write_bytes,
    write_long,
)
from tests.avro_bytes import Decoder, encode, long, sized


def walk(schema: Any, data: bytes, count: int, wanted: tuple[int, ...]) -> list[Record]:
    return list(Walker(schema, wanted).walk(data, count))


def record(*fields: tuple[str, Any, int | None], name: str = "r") -> dict[str, Any]:
    made = [{"name": title, "type": kind} | ({} if no is None else {"field-id": no}) for title, kind, no in fields]
    return {"type": "record", "name": name, "fields": made}


PAIR = record(("key", "int", 11), ("value", "bytes", 12), name="pair")
RICH = record(
    ("flag", "boolean", 1),
    ("small", "float", 2),
    ("big", "double", 3),
    ("id", {"type": "fixed", "name": "f16", "size": 4}, 4),
    ("again", "f16", 5),
    ("tags", {"type": "map", "values": "long"}, 6),
    ("names", {"type": "array", "items": ["null", "string"]}, 7),
    ("inner", record(("path", "string", 100), ("size", ["null", "long"], 104), name="inner"), 8),
    ("bounds", ["null", {"type": "array", "items": PAIR}], 9),
    ("last", "int", 10),
)


def rich(**more: Any) -> dict[str, Any]:
    return {
        "flag": True,
        "small": 0.5,
        "big": 2.5,
        "id": b"abcd",
        "again": b"efgh",
        "tags": {"x": 1, "y": -2},
        "names": ["ü", None, "z"],
        "inner": {"path": "p/ü", "size": 7},
        "bounds": [{"key": 3, "value": b"\x00\xff"}],
        "last": -1,
        **more,
    }


def encoded(value: dict[str, Any], *, negative_counts: bool = False) -> bytes:
    fields = [{**f, "type": RICH["fields"][3]["type"]} if f["name"] == "again" else f for f in RICH["fields"]]
    schema = {**RICH, "fields": fields}  # names spelled out
    return encode(schema, value, negative_counts=negative_counts)


@pytest.mark.parametrize("negative_counts", [False, True])
def test_wanted_fields_come_with_their_value_and_place(negative_counts: bool) -> None:
    data = encoded(rich(), negative_counts=negative_counts)
    (found,) = walk(RICH, data, 1, (100, 104, 9, 10))
    assert {key: field.value for key, field in found.items()} == {
        100: "p/ü",
        104: 7,
        9: [{"key": 3, "value": b"\x00\xff"}],
        10: -1,
    }
    assert data[found[100].start : found[100].end] == sized("p/ü".encode())
    assert data[found[104].start : found[104].end] == long(7)
    assert data[found[10].start : found[10].end] == long(-1)


def test_null_of_a_union_has_no_bytes() -> None:
    data = encoded(rich(inner={"path": "p", "size": None}))
    (found,) = walk(RICH, data, 1, (104,))
    assert found == {104: Field(None, found[104].start, found[104].start)}


def test_absent_fields_are_absent() -> None:
    assert walk(RICH, encoded(rich()), 1, (999,)) == [{}]


def test_shapes_that_are_not_understood_come_back_raw() -> None:
    data = encoded(rich())
    (found,) = walk(RICH, data, 1, (2, 4, 6))
    assert found[4].value == b"abcd"
    assert found[2].value == data[found[2].start : found[2].end]


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_longs_as_the_specification_has_them(value: int) -> None:
    assert write_long(value) == long(value)
    assert read_long(b"\x7f" + long(value) + b"\x7f", 1) == (value, 1 + len(long(value)))
    assert Decoder(write_long(value)).long() == value


@given(st.binary(max_size=300))
def test_bytes_as_the_specification_has_them(value: bytes) -> None:
    assert write_bytes(value) == sized(value)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 12, b"\x80" * 9 + b"\x80\x01"])
def test_numbers_that_are_cut_or_too_long(data: bytes) -> None:
    with pytest.raises(Malformed):
        read_long(data, 0)


@pytest.mark.parametrize("negative_counts", [False, True])
def test_records_cut_anywhere_are_malformed(negative_counts: bool) -> None:
    data = encoded(rich(), negative_counts=negative_counts)
    for size in range(len(data)):
        with pytest.raises(Malformed):
            walk(RICH, data[:size], 1, (100, 9))


def test_what_follows_the_last_record_is_malformed() -> None:
    with pytest.raises(Malformed, match="1 bytes follow"):
        walk(RICH, encoded(rich()) + b"\x00", 1, (100,))


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (record(("a", {"type": "fixed", "name": "f", "size": -4}, 1)), b"\x00"),
        (record(("a", {"type": "fixed", "name": "f", "size": "x"}, 1)), b"\x00"),
        (record(("a", "decimal", 1)), b"\x00"),
        (record(("a", ["null", "int"], 1)), long(2)),
        (record(("a", ["null", "int"], None)), long(-1)),
        (record(("a", {"type": "array", "items": "null"}, None)), long(1 << 40) + long(0)),
        (record(("a", {"type": "array", "items": "null"}, 1)), long(-(1 << 40)) + long(0) + long(0)),
        (record(("a", ["null", record(("b", "int", 1), name="x")], None)), long(0)),
        ({"type": "record", "name": "r"}, b""),
        ([], b""),
        ("string", b""),
        ({"type": "record", "name": "r", "fields": [{"type": "int"}, 5]}, b""),
    ],
    ids=str,
)
def test_absurd_schemas_and_counts_end(schema: Any, data: bytes) -> None:
    """Malformed, or an error that readers of manifests turn into one; never a hang, never an answer."""
    with pytest.raises((Malformed, KeyError, TypeError)):
        walk(schema, data, 1, (1,))


def test_records_of_no_bytes_cannot_be_claimed_without_end() -> None:
    with pytest.raises(Malformed):
        walk(record(), b"", 1 << 60, (1,))


def test_recursive_schema_ends() -> None:
    schema = record(("next", ["null", "r"], None), ("a", "int", 1))
    with pytest.raises((Malformed, RecursionError)):
        walk(schema, long(1) + long(0), 1, (1,))


def test_splice_keeps_all_else() -> None:
    assert splice(b"0123456789", [(2, 4, b"ab!"), (4, 4, b"-"), (9, 10, b"")]) == b"01ab!-45678"
    assert splice(b"x", []) == b"x"
