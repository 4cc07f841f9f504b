"""The walker in C and the one in Python: the same places, the same refusals, whatever the schema and the bytes."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakemirror.errors import PermanentError, UsageError
from lakemirror.formats.iceberg import avro_walk
from lakemirror.formats.iceberg.avro_program import MAX_DEPTH, MAX_NODES, compile_program, program_of
from lakemirror.formats.iceberg.avro_walk import Engine, Malformed, Walker, native_module
from tests.avro_bytes import Decoder, encode, long, sized
from tests.walkers import needs_c

SIMPLE = ["null", "boolean", "int", "long", "float", "double", "string", "bytes"]
WANTED = tuple(range(6))


def record(*kinds: Any, name: str = "r", first_id: int = 100) -> dict[str, Any]:
    fields = [{"name": f"f{at}", "type": kind, "field-id": first_id + at} for at, kind in enumerate(kinds)]
    return {"type": "record", "name": name, "fields": fields}


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda kind: {"type": "array", "items": kind}),
        inner.map(lambda kind: {"type": "map", "values": kind}),
        inner.filter(lambda kind: kind != "null" and not isinstance(kind, list)).map(lambda kind: ["null", kind]),
        inner.map(lambda kind: {"type": kind}),
        st.lists(inner, max_size=4).map(lambda kinds: record(*kinds)),
    )


TYPES = st.recursive(
    st.sampled_from(SIMPLE)
    | st.integers(0, 5).map(lambda size: {"type": "fixed", "name": "f", "size": size})
    | st.sampled_from([{"type": "string", "logicalType": "x"}]),
    _compound,
    max_leaves=8,
)
SCHEMAS = st.lists(TYPES, min_size=1, max_size=6).map(
    lambda kinds: {
        "type": "record",
        "name": "root",
        "fields": [
            {"name": f"f{at}", "type": kind, "field-id": at if at % 2 else at + 50} for at, kind in enumerate(kinds)
        ],
    }
)
INTS, LONGS = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": INTS,
    "long": LONGS,
    "float": st.just(0.5),
    "double": st.floats(),
    "string": st.text(max_size=90),
    "bytes": st.binary(max_size=90),
}


def value_of(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, list):
        return st.none() | value_of(schema[1])
    name = schema if isinstance(schema, str) else schema["type"]
    if not isinstance(name, str):
        return value_of(name)
    match name:
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
        case "record":
            return st.fixed_dictionaries({field["name"]: value_of(field["type"]) for field in schema["fields"]})
        case "array":
            return st.lists(value_of(schema["items"]), max_size=5)
        case "map":
            return st.dictionaries(st.text(max_size=5), value_of(schema["values"]), max_size=5)
        case _:
            return VALUES[name]


def spelled_out(schema: Any) -> Any:
    """`{"type": {"type": …}}` without the wrapping, for the encoder of the tests."""
    if isinstance(schema, list):
        return [spelled_out(one) for one in schema]
    if isinstance(schema, dict) and not isinstance(schema["type"], str):
        return spelled_out(schema["type"])
    if isinstance(schema, dict):
        parts = {key: spelled_out(schema[key]) for key in ("items", "values") if key in schema}
        fields = [{**field, "type": spelled_out(field["type"])} for field in schema.get("fields", ())]
        return {**schema, **parts, **({"fields": fields} if "fields" in schema else {})}
    return schema


def most_items(value: Any) -> int:
    """The length of the longest list in a value."""
    if isinstance(value, dict):
        return max(map(most_items, value.values()), default=0)
    return max(len(value), *map(most_items, value)) if isinstance(value, list) and value else 0


def answer(engine: Engine, schema: Any, data: bytes, count: int) -> list[tuple[int, bytes, list[int]]] | None:
    """What a walker says, None if it refuses."""
    try:
        parts = list(Walker(schema, WANTED, engine).ranges(data, count))
    except Malformed:
        return None
    return [(part.count, part.data, memoryview(part.raw).cast("B").tolist()) for part in parts]


@needs_c
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(choices=st.data())
def test_same_places_for_any_schema_and_records(choices: st.DataObject) -> None:
    schema = choices.draw(SCHEMAS)
    plain = spelled_out(schema)
    records = choices.draw(st.lists(value_of(schema), max_size=4))
    negative = choices.draw(st.booleans())
    data = b"".join(encode(plain, one, negative_counts=negative) for one in records)
    found = answer("c", schema, data, len(records))
    assert found == answer("python", schema, data, len(records))
    if most_items(records) > len(data):  # of no bytes each: refused, since only bytes bound what counts may claim
        assert found is None
        return
    assert found is not None
    for engine in ("c", "python"):
        walked = list(Walker(schema, WANTED, engine).walk(data, len(records)))
        for read, one in zip(walked, records, strict=True):
            for field in plain["fields"]:
                if field["field-id"] in WANTED:
                    place = read[field["field-id"]]
                    is_null = isinstance(field["type"], list) and one[field["name"]] is None
                    part = "null" if is_null else field["type"][1] if isinstance(field["type"], list) else field["type"]
                    assert data[place.start : place.end] == encode(part, one[field["name"]], negative_counts=negative)


@needs_c
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(choices=st.data())
def test_same_verdict_on_damaged_records(choices: st.DataObject) -> None:
    schema = choices.draw(SCHEMAS)
    plain = spelled_out(schema)
    records = choices.draw(st.lists(value_of(schema), min_size=1, max_size=3))
    data = bytearray(b"".join(encode(plain, one) for one in records))
    for _ in range(choices.draw(st.integers(1, 3))):
        at = choices.draw(st.integers(0, len(data)))
        new = choices.draw(
            st.binary(max_size=3) | st.sampled_from([b"\xff" * 9 + b"\x01", b"\x80" * 10, long(1 << 40)])
        )
        data[at : at + choices.draw(st.integers(0, 4))] = new
    count = choices.draw(st.integers(0, 4))
    assert answer("c", schema, bytes(data), count) == answer("python", schema, bytes(data), count)


NUMBERS = {"type": "array", "items": "long"}
PAIRS = {"type": "array", "items": record("int", "long")}


@needs_c
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(numbers=st.lists(LONGS, max_size=1300), cut=st.integers(0, 40))
def test_same_verdict_on_long_runs_of_numbers(numbers: list[int], cut: int) -> None:
    """Runs go by one expression in Python and by words in C: their ends are where mistakes would be."""
    data = long(len(numbers)) + b"".join(map(long, numbers)) + (long(0) if numbers else b"")
    for kind in (NUMBERS, PAIRS):
        whole = data if kind is NUMBERS else long(len(numbers) // 2) + data[len(long(len(numbers))) :]
        for one in (whole, whole[: len(whole) - cut], whole + b"\x00"):
            assert answer("c", record(kind), one, 1) == answer("python", record(kind), one, 1)


@needs_c
@pytest.mark.parametrize("size", range(1, 13))
@pytest.mark.parametrize("last", [0x00, 0x01, 0x02, 0x7F])
@pytest.mark.parametrize("after", [0, 1, 20])
def test_numbers_of_every_length(size: int, last: int, after: int) -> None:
    """Ten bytes at most, the tenth at most 1; the same in a run and alone."""
    number = b"\x80" * (size - 1) + bytes([last])
    is_fine = size < 10 or (size == 10 and last <= 1)
    for schema, data in (
        (record("long", first_id=0), number),
        (record(NUMBERS, first_id=0), long(1) + number + long(0)),
    ):
        padded, count = (data + b"\x00" * after, 1 + after)
        for engine in ("c", "python"):
            assert (answer(engine, schema, padded, count) is not None) is is_fine


HOSTILE: dict[str, tuple[Any, bytes, int]] = {
    "items of no bytes": (record({"type": "array", "items": "null"}), long(1 << 40) + long(0), 1),
    "items of no bytes, as many as bytes, again and again": (
        record({"type": "array", "items": record("null", "null")}),
        long(60_000) * 50_000 + long(0),
        1,
    ),
    "the smallest count": (record(NUMBERS), long(-(1 << 63)) + long(1) + long(0), 1),
    "a length below zero": (record("bytes"), long(-1), 1),
    "the smallest length": (record("bytes"), long(-(1 << 63)), 1),
    "the largest length": (record("string"), long((1 << 63) - 1), 1),
    "a branch below zero": (record(["null", "int"]), long(-1), 1),
    "a branch too far": (record(["null", "int"]), long(2), 1),
    "a branch of an empty union": (record([]), long(0), 1),
    "a fixed past the end": (record({"type": "fixed", "name": "f", "size": (1 << 31) - 1}), b"x", 1),
    "more records than bytes": (record("int"), b"\x00", 2),
    "records of no bytes": (record("null"), b"\x00", 1),
    "records below zero": (record("int"), b"\x00", -1),
    "no record but bytes": (record("int"), b"\x00", 0),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("engine", ["c", "python"])
def test_hostile_records_are_refused_in_time(engine: Engine, name: str) -> None:
    if engine == "c" and native_module(None, {}) is None:
        pytest.skip("the walker in C is not built")
    schema, data, count = HOSTILE[name]
    start = time.monotonic()
    if name.startswith("items of no bytes, as many"):  # 3 * 10^9 of them are nothing to walk through
        assert answer(engine, schema, data, count) is not None
    else:
        assert answer(engine, schema, data, count) is None
    assert time.monotonic() - start < 20  # a walk through each item would take minutes


def nested(depth: int) -> Any:
    kind: Any = "int"
    for _ in range(depth):
        kind = {"type": "array", "items": ["null", kind]}
    return record(kind)


def doubling(levels: int, leaf: str) -> Any:
    """Each level holds the next one twice: as records that would be 2^levels fields."""
    kind: Any = record(leaf, name="n0")
    for level in range(1, levels + 1):
        kind = record(kind, f"n{level - 1}", name=f"n{level}")
    return record(kind, name="root", first_id=0)


ABSURD = {
    "too deep": nested(MAX_DEPTH),
    "much too deep": nested(5_000),
    "holds itself": record(["null", "r"]),
    "an item that holds itself": record({"type": "array", "items": record("inner", name="inner")}),
    "too many fields": record(*["int"] * (MAX_NODES + 1)),
    "a name that is not there": record("int", {"type": "fixed", "name": "f", "size": 1}, "g"),
    "a fixed that is too long": record({"type": "fixed", "name": "f", "size": 1 << 31}),
    "a type that is a number": record({"type": 5}),
    "a type that is null": record({"type": ["null", {"type": None}]}),
    "a field id twice": {**record(), "fields": [{"name": n, "type": "int", "field-id": 3} for n in "ab"]},
}


@pytest.mark.parametrize("schema", ABSURD.values(), ids=ABSURD)
def test_absurd_schemas_are_refused(schema: Any) -> None:
    with pytest.raises((Malformed, KeyError, TypeError, RecursionError)):
        compile_program(schema, WANTED)


@needs_c
@pytest.mark.parametrize("leaf", ["null", "int"])
def test_schemas_that_double_are_small_programs(leaf: str) -> None:
    """2^25 fields of no bytes are nothing; 2^25 numbers take the bytes that are there, and no more time than these."""
    schema = doubling(25, leaf)
    start = time.monotonic()
    for engine in ("c", "python"):
        assert answer(engine, schema, b"\x00" * 5000, 1) is None
    assert time.monotonic() - start < 20


@needs_c
def test_deep_schemas_that_are_taken_are_walked_by_both() -> None:
    schema = nested(MAX_DEPTH // 2 - 1)
    data = (long(1) + long(1)) * (MAX_DEPTH // 2 - 1) + long(7) + long(0) * (MAX_DEPTH // 2 - 1)
    found = answer("c", schema, data, 1)
    assert found is not None
    assert found == answer("python", schema, data, 1)


@needs_c
@pytest.mark.parametrize(
    "numbers",
    [
        [],
        [4],
        [0, 0],  # no record at the end
        [4, -1],
        [4, 1, 0],  # its own child
        [4, 1, 7],
        [4, 1, -1],  # a field that is nothing
        [4, 0, 4, 1, 0],  # a field that is an empty record
        [4, 1 << 30],
        [9, 0, 4, 1, 0],
        [2, 0, 4, 1, 0],  # a fixed of no bytes
        [6, 9, -1, 4, 1, 0],  # a slot that is not there
        [0, 0, 4, 1, 1],  # into the middle of a node
    ],
    ids=str,
)
def test_broken_programs_are_refused_by_the_extension(numbers: list[int]) -> None:
    import array

    module = native_module("c")
    assert module is not None
    with pytest.raises(ValueError, match="the program"):
        module.Program(array.array("i", numbers).tobytes(), 1)


def test_records_come_in_parts_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_walk, "RECORDS_AT_ONCE", 2)
    data = sized(b"a") + sized(b"bcd") + sized(b"") + sized(b"e") + sized(b"f")
    for engine in ("c", "python") if native_module(None, {}) else ("python",):
        parts = list(Walker(record("bytes", first_id=0), WANTED, engine).ranges(data, 5))
        assert [(part.count, part.data) for part in parts] == [(2, data[:6]), (2, data[6:9]), (1, data[9:])]
        values = [one[0].value for part in parts for one in part.records()]
        assert values == [b"a", b"bcd", b"", b"e", b"f"]
        with pytest.raises(Malformed):
            list(Walker(record("bytes", first_id=0), WANTED, engine).ranges(data + b"\x00\x00", 5))


def test_programs_are_remembered_by_schema_and_fields() -> None:
    text = b'{"type": "record", "name": "r", "fields": []}'
    assert program_of(text, (1,)) is program_of(text, (1,))
    assert program_of(text, (1,)) is not program_of(text, (2,))


def test_the_walker_is_chosen_by_argument_then_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native_module("python", {"LAKEMIRROR_WALKER": "c"}) is None
    assert native_module(None, {"LAKEMIRROR_WALKER": "python"}) is None
    with pytest.raises(UsageError, match="no walker is called 'rust'"):
        native_module(None, {"LAKEMIRROR_WALKER": "rust"})


def test_without_the_extension_python_serves_unless_c_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from lakemirror.formats import iceberg

    monkeypatch.setitem(sys.modules, "lakemirror.formats.iceberg._walk", None)
    monkeypatch.delattr(iceberg, "_walk", raising=False)
    assert native_module(None, {}) is None
    with pytest.raises(PermanentError, match="the walker in C does not load"):
        native_module("c")


@needs_c
def test_an_extension_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_module("c"), "VERSION", 0)
    assert native_module(None, {}) is None
    with pytest.raises(PermanentError, match="it is of version 0"):
        native_module("c")


@needs_c
def test_decoded_values_are_those_of_the_specification() -> None:
    kinds = ["int", "long", "string", "bytes", ["null", "string"], ["null", "long"]]
    schema = record(*kinds, first_id=0)
    one = {"f0": -5, "f1": 1 << 60, "f2": "ü", "f3": b"\xff", "f4": None, "f5": 9}
    data = encode(schema, one)
    for engine in ("c", "python"):
        (found,) = Walker(schema, WANTED, engine).walk(data, 1)
        assert {f"f{key}": field.value for key, field in found.items()} == one == Decoder(data).read(schema)
