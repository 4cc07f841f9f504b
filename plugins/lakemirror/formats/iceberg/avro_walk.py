"""Walk Avro records without building them: find wanted fields by Iceberg field id, skip the rest, bounds-checked.

A walker is compiled once from a schema. For each record it gives the wanted fields with their byte range, so that
a rewriter can splice new bytes in and copy everything else raw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Skip = Callable[[bytes, int], int]
Decode = Callable[[bytes, int], tuple[Any, int]]


class Malformed(ValueError):
    """The bytes are not what the schema says; callers turn it into an error that names the file."""


@dataclass(frozen=True, slots=True)
class Field:
    """A wanted field of one record: its value and the bytes that hold it (after a union's branch index)."""

    value: Any
    start: int
    end: int


Record = dict[int, Field]


def read_long(data: bytes, pos: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if pos >= len(data) or shift > 63:
            raise Malformed("a number is cut or too long")
        byte = data[pos]
        pos += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            if result >> 64:
                raise Malformed("a number is too long")
            return (result >> 1) ^ -(result & 1), pos
        shift += 7


def write_long(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def write_bytes(value: bytes) -> bytes:
    return write_long(len(value)) + value


class Walker:
    """Compiled once for a file; walks each of its blocks."""

    def __init__(self, schema: Any, wanted: Iterable[int]) -> None:
        self._visit = _compile_record(schema, frozenset(wanted), _names(schema, {}))

    def walk(self, data: bytes, count: int) -> Iterator[Record]:
        """The wanted fields of each of `count` records; fails unless the records end where the data ends."""
        if count > len(data):
            raise Malformed(f"a block claims {count} records in {len(data)} bytes")
        pos = 0
        for _ in range(count):
            found: Record = {}
            pos = self._visit(data, pos, found)
            if pos > len(data):
                raise Malformed("a record runs past the end of its block")
            yield found
        if pos != len(data):
            raise Malformed(f"{len(data) - pos} bytes follow the last record of a block")


def splice(data: bytes, edits: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Replace byte ranges, given in rising order; all else is copied as it is."""
    parts, done = [], 0
    for start, end, new in edits:
        parts += [data[done:start], new]
        done = end
    parts.append(data[done:])
    return b"".join(parts)


Names = dict[str, Any]
Visit = Callable[[bytes, int, Record], int]


def _names(schema: Any, names: Names) -> Names:
    if isinstance(schema, list):
        for branch in schema:
            _names(branch, names)
    elif isinstance(schema, dict):
        if "name" in schema and schema.get("type") in ("record", "fixed", "enum"):
            names[schema["name"]] = schema
        for field in schema.get("fields", ()):
            _names(field["type"], names)
        for inner in ("items", "values"):
            if inner in schema:
                _names(schema[inner], names)
        if isinstance(schema.get("type"), dict | list):
            _names(schema["type"], names)
    return names


def _compile_record(schema: Any, wanted: frozenset[int], names: Names) -> Visit:
    steps = [_compile_field(field, wanted, names) for field in schema["fields"]]

    def visit(data: bytes, pos: int, found: Record) -> int:
        for step in steps:
            pos = step(data, pos, found)
        return pos

    return visit


def _compile_field(field: Any, wanted: frozenset[int], names: Names) -> Visit:
    kind, field_id = field["type"], field.get("field-id")
    if field_id in wanted:
        return _capture(field_id, kind, names)
    inner = kind[1] if isinstance(kind, list) and len(kind) == 2 and kind[0] == "null" else kind
    if isinstance(inner, dict) and inner.get("type") == "record" and _ids(inner) & wanted:
        if inner is not kind:
            raise Malformed("a record that holds wanted fields may not be optional")
        return _compile_record(inner, wanted, names)
    skip = _skip(kind, names)
    return lambda data, pos, found: skip(data, pos)


def _ids(record: Any) -> frozenset[int]:
    ids = {field.get("field-id") for field in record["fields"]}
    return frozenset(one for one in ids if one is not None)


def _capture(field_id: int, kind: Any, names: Names) -> Visit:
    if isinstance(kind, list):
        branches = [_decode(branch, names) for branch in kind]

        def visit_union(data: bytes, pos: int, found: Record) -> int:
            branch, pos = read_long(data, pos)
            if not 0 <= branch < len(branches):
                raise Malformed(f"a union has no branch {branch}")
            value, end = branches[branch](data, pos)
            found[field_id] = Field(value, pos, end)
            return end

        return visit_union
    decode = _decode(kind, names)

    def visit(data: bytes, pos: int, found: Record) -> int:
        value, end = decode(data, pos)
        found[field_id] = Field(value, pos, end)
        return end

    return visit


def _resolve(kind: Any, names: Names) -> Any:
    while True:
        if isinstance(kind, str) and kind in names:
            kind = names[kind]
        elif isinstance(kind, dict) and not isinstance(kind.get("type"), str):
            kind = kind["type"]
        elif isinstance(kind, dict) and kind["type"] in names and kind["type"] not in _COMPLEX:
            kind = names[kind["type"]]
        else:
            return kind


_COMPLEX = ("record", "array", "map", "fixed", "enum")
_FIXED_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def _decode(kind: Any, names: Names) -> Decode:
    """A decoder for the few shapes that wanted fields have; anything else comes back as its raw bytes."""
    kind = _resolve(kind, names)
    name = kind if isinstance(kind, str) else kind["type"]
    if name in ("int", "long"):
        return read_long
    if name == "null":
        return lambda data, pos: (None, pos)
    if name in ("string", "bytes"):
        return _decode_text if name == "string" else _decode_bytes
    if name == "array":
        item = _decode(kind["items"], names)
        return lambda data, pos: _decode_blocks(data, pos, item)
    if name == "record":
        fields = [(field["name"], _decode(field["type"], names)) for field in kind["fields"]]
        return lambda data, pos: _decode_record(data, pos, fields)
    skip = _skip(kind, names)

    def raw(data: bytes, pos: int) -> tuple[bytes, int]:
        end = skip(data, pos)
        return data[pos:end], end

    return raw


def _decode_bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    size, pos = read_long(data, pos)
    if size < 0 or pos + size > len(data):
        raise Malformed("a text or byte field does not fit")
    return data[pos : pos + size], pos + size


def _decode_text(data: bytes, pos: int) -> tuple[str, int]:
    raw, end = _decode_bytes(data, pos)
    try:
        return raw.decode(), end
    except UnicodeDecodeError as err:
        raise Malformed("a text field is not UTF-8") from err


def _decode_record(data: bytes, pos: int, fields: list[tuple[str, Decode]]) -> tuple[dict[str, Any], int]:
    record = {}
    for name, decode in fields:
        record[name], pos = decode(data, pos)
    return record, pos


def _decode_blocks(data: bytes, pos: int, item: Decode) -> tuple[list[Any], int]:
    items: list[Any] = []
    while True:
        count, pos = _block_header(data, pos)
        if count == 0:
            return items, pos
        for _ in range(count):
            value, pos = item(data, pos)
            items.append(value)


def _block_header(data: bytes, pos: int) -> tuple[int, int]:
    count, pos = read_long(data, pos)
    if count < 0:
        count = -count
        _, pos = read_long(data, pos)
    if count > len(data):
        raise Malformed(f"an array claims {count} items in {len(data)} bytes")
    return count, pos


def _skip(kind: Any, names: Names) -> Skip:
    if isinstance(kind, list):
        branches = [_skip(branch, names) for branch in kind]

        def skip_union(data: bytes, pos: int) -> int:
            branch, pos = read_long(data, pos)
            if not 0 <= branch < len(branches):
                raise Malformed(f"a union has no branch {branch}")
            return branches[branch](data, pos)

        return skip_union
    kind = _resolve(kind, names)
    if isinstance(kind, list):
        return _skip(kind, names)
    name = kind if isinstance(kind, str) else kind["type"]
    if name in ("int", "long", "enum"):
        return _skip_long
    if name in ("string", "bytes"):
        return _skip_bytes
    if name in _FIXED_SIZES or name == "fixed":
        return _skip_fixed(kind["size"] if name == "fixed" else _FIXED_SIZES[name])
    if name == "record":
        steps = [_skip(field["type"], names) for field in kind["fields"]]
        return lambda data, pos: _skip_record(data, pos, steps)
    if name in ("array", "map"):
        value = _skip(kind["items" if name == "array" else "values"], names)
        steps = [value] if name == "array" else [_skip_bytes, value]
        return lambda data, pos: _skip_blocks(data, pos, steps)
    raise Malformed(f"unknown Avro type {name!r}")


def _skip_long(data: bytes, pos: int) -> int:
    end = len(data)
    while pos < end and data[pos] & 0x80:
        pos += 1
    if pos >= end:
        raise Malformed("a number is cut")
    return pos + 1


def _skip_bytes(data: bytes, pos: int) -> int:
    size, pos = read_long(data, pos)
    if size < 0 or pos + size > len(data):
        raise Malformed("a text or byte field does not fit")
    return pos + size


def _skip_fixed(size: int) -> Skip:
    if size < 0:
        raise Malformed(f"a fixed field of {size} bytes")

    def skip(data: bytes, pos: int) -> int:
        if pos + size > len(data):
            raise Malformed("a fixed field does not fit")
        return pos + size

    return skip


def _skip_record(data: bytes, pos: int, steps: list[Skip]) -> int:
    for step in steps:
        pos = step(data, pos)
    return pos


def _skip_blocks(data: bytes, pos: int, steps: list[Skip]) -> int:
    while True:
        count, pos = _block_header(data, pos)
        if count == 0:
            return pos
        for _ in range(count):
            pos = _skip_record(data, pos, steps)
