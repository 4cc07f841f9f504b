"""A schema as a walking program: what to skip, and which values are wanted, by Iceberg field id.

One program serves both walkers: as nodes for the one in Python, as numbers (`code`) for the one in C, whose header file
describes them. Values without bytes (null, an empty record) have no node at all, so every node that is visited takes
at least a byte and no count, however absurd, buys more work than there are bytes. A schema that is recursive, nested
too deep or too large is Malformed.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lakemirror.formats.iceberg.avro_slots import Slot, shape_of, type_name, unwrapped
from lakemirror.formats.iceberg.avro_values import Malformed

MAX_NODES = 50_000
MAX_DEPTH = 30  # the walker in C counts up to two steps for one of these, and stops at 64
MAX_SLOTS = 64
MAX_BRANCHES = 100  # of a union, which may hold each type once
_CACHED_SCHEMA_BYTES = 64 * 1024
_FIXED_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


@dataclass(frozen=True, slots=True, eq=False)
class Long:
    """A number of one to ten bytes: int, long, enum."""


@dataclass(frozen=True, slots=True, eq=False)
class Bytes:
    """A length, then so many bytes: bytes, string."""


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """Blocks of items; a map is an array of records of a text and a value."""

    item: Node | None


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    fields: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    branches: tuple[Node | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Capture:
    """A wanted value; its place goes to a slot. Captures stand in records only, never in arrays or unions."""

    slot: int
    value: Node | None


Node = Long | Bytes | Fixed | Array | Struct | Union | Capture
LONG, BYTES = Long(), Bytes()


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    root: Struct
    code: bytes
    slots: tuple[Slot, ...]

    def slot(self, field_id: int) -> int | None:
        """The number of a field's slot, None if the schema has no such field."""
        return next((number for number, slot in enumerate(self.slots) if slot.field_id == field_id), None)


def program_of(schema_json: bytes, wanted: tuple[int, ...]) -> Program:
    """The program of a file's schema; the last few are remembered, since a table's manifests share theirs."""
    if len(schema_json) > _CACHED_SCHEMA_BYTES:
        return compile_program(json.loads(schema_json), wanted)
    return _remembered(schema_json, wanted)


@lru_cache(maxsize=64)
def _remembered(schema_json: bytes, wanted: tuple[int, ...]) -> Program:
    return compile_program(json.loads(schema_json), wanted)


def compile_program(schema: Any, wanted: Iterable[int]) -> Program:
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise Malformed("the schema is not a record")
    compiler = _Compiler(frozenset(wanted))
    root = Struct(compiler.fields(schema, 0))
    return Program(root, _encode(root), tuple(compiler.slots))


class _Compiler:
    """Goes through a schema once; types are known by name after they were defined, and not while they are."""

    def __init__(self, wanted: frozenset[int]) -> None:
        self.slots: list[Slot] = []
        self._wanted = wanted
        self._named: dict[str, tuple[Node | None] | None] = {}
        self._nodes = 0

    def fields(self, record: Any, depth: int) -> tuple[Node, ...]:
        """The nodes of a record that holds wanted fields."""
        names = _names(record)
        self._named.update(dict.fromkeys(names))
        nodes = [self._field(field, depth + 1) for field in record["fields"]]
        return tuple(node for node in nodes if node is not None)

    def _field(self, field: Any, depth: int) -> Node | None:
        kind, field_id = unwrapped(field["type"]), field.get("field-id")
        if field_id in self._wanted:
            return self._capture(field_id, kind, depth)
        if self._holds_wanted(kind):
            self._count(depth)
            return Struct(self.fields(kind, depth))
        if isinstance(kind, list) and any(self._holds_wanted(branch) for branch in kind):
            raise Malformed("a record that holds wanted fields may not be optional")
        return self._node(kind, depth)

    def _holds_wanted(self, kind: Any) -> bool:
        is_record = isinstance(kind, dict) and kind.get("type") == "record"
        return is_record and any(field.get("field-id") in self._wanted for field in kind["fields"])

    def _capture(self, field_id: int, kind: Any, depth: int) -> Node:
        number = len(self.slots)
        if number == MAX_SLOTS or any(slot.field_id == field_id for slot in self.slots):
            raise Malformed(f"field {field_id} is there twice")
        is_union = isinstance(kind, list)
        kinds = tuple(shape_of(branch) for branch in kind) if is_union else (shape_of(kind),)
        self.slots.append(Slot(field_id, kinds, is_union))
        return Capture(number, self._node(kind, depth))

    def _count(self, depth: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            raise Malformed(f"the schema has more than {MAX_NODES} types, or is nested deeper than {MAX_DEPTH}")

    def _node(self, kind: Any, depth: int) -> Node | None:
        self._count(depth)
        kind = unwrapped(kind)
        if isinstance(kind, list):
            if len(kind) > MAX_BRANCHES:
                raise Malformed(f"a union of {len(kind)} branches")
            return Union(tuple(self._node(branch, depth + 1) for branch in kind))
        name = type_name(kind)
        if name in ("record", "fixed", "enum"):
            return self._define(kind, name, depth)
        if name == "array":
            return Array(self._node(kind["items"], depth + 1))
        if name == "map":
            value = self._node(kind["values"], depth + 1)
            return Array(Struct((BYTES,) if value is None else (BYTES, value)))
        return self._simple(name)

    def _simple(self, name: str) -> Node | None:
        if name in ("int", "long"):
            return LONG
        if name in ("string", "bytes"):
            return BYTES
        if name in _FIXED_SIZES:
            return _fixed(_FIXED_SIZES[name])
        if name not in self._named:
            raise Malformed(f"unknown Avro type {name[:100]!r}")
        known = self._named[name]
        if known is None:
            raise Malformed(f"the type {name[:100]!r} holds itself")
        return known[0]

    def _define(self, kind: Any, name: str, depth: int) -> Node | None:
        names = _names(kind)
        self._named.update(dict.fromkeys(names))
        node: Node | None = LONG
        if name == "record":
            parts = [self._node(field["type"], depth + 1) for field in kind["fields"]]
            taking = tuple(part for part in parts if part is not None)
            node = Struct(taking) if taking else None
        elif name == "fixed":
            node = _fixed(kind["size"])
        self._named.update(dict.fromkeys(names, (node,)))
        return node


def _names(kind: Any) -> list[str]:
    """How other places of the schema may call a type."""
    if "name" not in kind:
        return []
    return [str(kind["name"]), *([f"{kind['namespace']}.{kind['name']}"] if "namespace" in kind else [])]


def _fixed(size: Any) -> Fixed | None:
    if not isinstance(size, int) or not 0 <= size < 1 << 31:
        raise Malformed(f"a fixed field of {repr(size)[:100]} bytes")
    return Fixed(size) if size else None


_OPS = {Long: 0, Bytes: 1, Fixed: 2, Array: 3, Struct: 4, Union: 5, Capture: 6}
_NOTHING = -1


def _encode(root: Struct) -> bytes:
    """Children before their parents, each node once; the root comes last."""
    code = array("i")
    offsets: dict[int, int] = {}

    def put(node: Node | None) -> int:
        if node is None:
            return _NOTHING
        if id(node) in offsets:
            return offsets[id(node)]
        children, argument = _parts(node)
        places = [put(child) for child in children]
        offsets[id(node)] = len(code)
        code.extend((_OPS[type(node)], argument, *places))
        return offsets[id(node)]

    put(root)
    return code.tobytes()


def _parts(node: Node) -> tuple[tuple[Node | None, ...], int]:
    match node:
        case Fixed(size):
            return (), size
        case Array(item):
            return (item,), 0
        case Struct(fields):
            return fields, len(fields)
        case Union(branches):
            return branches, len(branches)
        case Capture(slot, value):
            return (value,), slot
        case _:
            return (), 0
