"""Walk Avro records without building them: find wanted fields by Iceberg field id, skip the rest, bounds-checked.

There are two walkers with the same answers: a small C extension that `make setup` builds, and one in Python for where
there is no compiler or the extension does not load. `LAKEMIRROR_WALKER=c` or `=python` insists on one of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from lakemirror.errors import PermanentError, UsageError
from lakemirror.formats.iceberg import avro_python
from lakemirror.formats.iceberg.avro_program import Program, compile_program, program_of
from lakemirror.formats.iceberg.avro_values import Malformed, read_long, write_bytes, write_long

__all__ = [
    "Engine",
    "Field",
    "Malformed",
    "Places",
    "Ranges",
    "Record",
    "Walker",
    "native_module",
    "read_long",
    "splice",
    "write_bytes",
    "write_long",
]

Engine = Literal["c", "python"]
VARIABLE = "LAKEMIRROR_WALKER"
RECORDS_AT_ONCE = 1 << 14  # their places are in memory together
_VERSION = 2  # of the extension that this code was written for


@dataclass(frozen=True, slots=True)
class Field:
    """A wanted field of one record: its value and the bytes that hold it (after a union's branch index)."""

    value: Any
    start: int
    end: int


Record = dict[int, Field]
Places = list[int]


def native_module(engine: Engine | None = None, environment: Mapping[str, str] = os.environ) -> ModuleType | None:
    """The extension, or None where Python walks: as asked, else as the environment says, else as it can be had."""
    asked = engine or environment.get(VARIABLE) or None
    if asked not in ("c", "python", None):
        raise UsageError("walk", VARIABLE, f"no walker is called {asked!r}", "set it to c or python, or leave it out")
    if asked == "python":
        return None
    try:
        from lakemirror.formats.iceberg import _walk

        if _walk.VERSION != _VERSION:
            raise ImportError(f"it is of version {_walk.VERSION}, not {_VERSION}")
    except ImportError as err:
        if asked is None:
            return None
        raise PermanentError(
            "walk", VARIABLE, f"the walker in C does not load ({err})", "run 'make setup' with a C compiler on PATH"
        ) from err
    return _walk


@dataclass(frozen=True, slots=True)
class Ranges:
    """Records that follow each other, and where their wanted fields lie in `data`, which holds them and nothing else.

    `raw` has three int64 for each record and slot: branch of the union (-1 where there is none), start, end.
    """

    program: Program
    data: bytes
    count: int
    raw: Any

    def records(self) -> Iterator[Record]:
        """Each record with its wanted fields decoded."""
        for places in self.places():
            yield self.record(places)

    def places(self) -> Iterator[Places]:
        """Of each record branch, start and end of its wanted fields, in the order of the program's slots."""
        numbers = memoryview(self.raw).cast("B").cast("q").tolist() if self.program.slots else []
        stride = 3 * len(self.program.slots)
        for number in range(self.count):
            yield numbers[stride * number : stride * (number + 1)]

    def record(self, places: Places) -> Record:
        """The record that has its wanted fields at these places."""
        record: Record = {}
        at = 0
        for slot in self.program.slots:
            branch, start, end = places[at : at + 3]
            record[slot.field_id] = Field(slot.decode(self.data, branch, start, end), start, end)
            at += 3
        return record

    def content(self, places: Places) -> tuple[int | bytes, ...]:
        """All that a record's wanted fields say, undecoded: equal for records of this schema that say the same."""
        data = self.data
        parts = [data[start:end] for start, end in zip(places[1::3], places[2::3], strict=True)]
        return (*places[::3], *parts)


class Walker:
    """Made once for a file; walks each of its blocks."""

    def __init__(self, schema: Any, wanted: Iterable[int], engine: Engine | None = None) -> None:
        """`schema` is a parsed schema, or its JSON, which is remembered."""
        fields = tuple(wanted)
        is_json = isinstance(schema, bytes)
        self.program = program_of(schema, fields) if is_json else compile_program(schema, fields)
        self.native = native_module(engine)
        if self.native is None:
            self._walk = avro_python.walker(self.program)
        else:
            self._walk = self.native.Program(self.program.code, len(self.program.slots)).walk

    def ranges(self, data: bytes, count: int) -> Iterator[Ranges]:
        """The places of the wanted fields, so many records at a time; Malformed unless the last ends with the data."""
        if count > len(data):
            raise Malformed(f"a block claims {count} records in {len(data)} bytes")
        start = 0
        while count > 0 or start < len(data):
            part = min(count, RECORDS_AT_ONCE)
            try:
                raw, end = self._walk(data, start, part)
            except Malformed:
                raise
            except ValueError as err:  # what the extension raises
                raise Malformed(str(err)) from err
            count -= part
            if count == 0 and end != len(data):
                raise Malformed(f"{len(data) - end} bytes follow the last record of a block")
            yield Ranges(self.program, data if (start, end) == (0, len(data)) else data[start:end], part, raw)
            start = end

    def walk(self, data: bytes, count: int) -> Iterator[Record]:
        """The wanted fields of each of `count` records."""
        for ranges in self.ranges(data, count):
            yield from ranges.records()


def splice(data: bytes, edits: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Replace byte ranges, given in rising order; all else is copied as it is."""
    parts, done = [], 0
    for start, end, new in edits:
        parts += [data[done:start], new]
        done = end
    parts.append(data[done:])
    return b"".join(parts)
