"""The walker in Python, for where the one in C is not built: made to measure for each schema.

For a program it writes the source of one function and compiles it, because a loop over nodes would be ten times slower.
Nothing of the schema's text gets into that source, only numbers of the program. Runs of numbers (the maps of column
statistics) are skipped by one regular expression. It accepts and refuses exactly what the walker in C does.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable
from functools import lru_cache

from lakemirror.formats.iceberg.avro_program import Array, Bytes, Capture, Fixed, Long, Node, Program, Struct, Union
from lakemirror.formats.iceberg.avro_values import Malformed, read_long

Walk = Callable[[bytes, int, int], tuple["array[int]", int]]
_RUN = 512  # numbers skipped by one expression
_MAX_NESTING = 6  # Python nests twenty blocks at most; deeper nodes become functions


def walker(program: Program) -> Walk:
    """A function as the walker in C has it: (branch, start, end) for each record and slot, and where they end."""
    made = _made(program)

    def walk(data: bytes, start: int, count: int) -> tuple[array[int], int]:
        if not 0 <= count <= len(data) - start:
            raise Malformed(f"{count} records from byte {start} of {len(data)}")
        try:
            return made(data, start, count)
        except IndexError as err:
            raise Malformed("a record runs past the end of its block") from err

    return walk


@lru_cache(maxsize=64)
def _made(program: Program) -> Walk:
    scope: dict[str, object] = {
        "array": array,
        "Malformed": Malformed,
        "read_long": read_long,
        "skip_long": skip_long,
        "skip_longs": skip_longs,
        "too_many": _too_many,
    }
    exec(compile(_Writer(program).source(), "<avro walker>", "exec"), scope)
    made: Walk = scope["walk"]  # type: ignore[assignment]
    return made


_NUMBER = re.compile(rb"[\x80-\xff]{0,8}+[\x00-\x7f]|[\x80-\xff]{9}[\x00\x01]").match


def skip_long(data: bytes, pos: int) -> int:
    found = _NUMBER(data, pos)
    if found is None:
        raise Malformed("a number is cut or too long")
    return found.end()


@lru_cache(maxsize=_RUN)
def _longs(count: int) -> Callable[[bytes, int], re.Match[bytes] | None]:
    """Matches so many numbers of up to nine bytes; the few longer ones are read one by one."""
    return re.compile(rb"(?:[\x80-\xff]{0,8}+[\x00-\x7f]){%d}+" % count).match


def skip_longs(data: bytes, pos: int, count: int) -> int:
    while count > 0:
        part = min(count, _RUN)
        found = _longs(part)(data, pos)
        if found is None:
            for _ in range(part):
                pos = skip_long(data, pos)
        else:
            pos = found.end()
        count -= part
    return pos


def _too_many(count: int, size: int) -> Malformed:
    return Malformed(f"an array claims {count} items in {size} bytes")


class _Writer:
    """Writes the function for a program; `pos` is where it stands, and only grows, so the end is looked at last."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._uses: Counter[int] = Counter()
        self._functions: dict[int, str] = {}
        self._lines: list[str] = []
        self._count_uses(program.root, set())

    def _count_uses(self, node: Node | None, seen: set[int]) -> None:
        if node is None:
            return
        self._uses[id(node)] += 1
        if id(node) in seen:
            return
        seen.add(id(node))
        match node:
            case Struct(fields):
                children: tuple[Node | None, ...] = fields
            case Union(branches):
                children = branches
            case Array(item):
                children = (item,)
            case Capture(_, value):
                children = (value,)
            case _:
                children = ()
        for child in children:
            self._count_uses(child, seen)

    def source(self) -> str:
        slots = range(len(self._program.slots))
        values = "".join(f"b{slot}, s{slot} - start, e{slot} - start, " for slot in slots)
        body = [
            "def walk(data, start, count):",
            " pos = start; end = len(data); size = end - start; out = array('q')",
            *(f" b{slot} = -1" for slot in slots),
            " for _ in range(count):",
            *self._struct(self._program.root, 2),
            "  if pos > end: raise IndexError",
            f"  out.extend(({values}))",
            " return out, pos",
        ]
        return "\n".join([*self._lines, *body])

    def _node(self, node: Node, depth: int) -> list[str]:
        pad = " " * depth
        if isinstance(node, Struct | Array | Union) and (self._uses[id(node)] > 1 or depth > 2 * _MAX_NESTING):
            return [f"{pad}pos = {self._function(node)}(data, pos, end, size)"]
        match node:
            case Long():
                return [f"{pad}pos += 1", f"{pad}if data[pos - 1] > 127: pos = skip_long(data, pos - 1)"]
            case Bytes():
                return [
                    f"{pad}n = data[pos]; pos += 1",
                    f"{pad}if n & 129: n, pos = read_long(data, pos - 1); n *= 2",
                    f"{pad}if n < 0: raise Malformed('a text or byte field has a negative length')",
                    f"{pad}pos += n >> 1",
                ]
            case Fixed(size):
                return [f"{pad}pos += {size}"]
            case Struct():
                return self._struct(node, depth)
            case Array(item):
                return self._array(item, depth)
            case Union(branches):
                return self._union(branches, depth)
            case Capture(slot, value):
                return self._capture(slot, value, depth)

    def _struct(self, node: Struct, depth: int) -> list[str]:
        return [line for field in node.fields for line in self._node(field, depth)]

    def _function(self, node: Node) -> str:
        if id(node) not in self._functions:
            name = self._functions[id(node)] = f"skip{len(self._functions)}"
            self._uses[id(node)] = 0  # its own body is written out
            body = self._node(node, 1)
            self._uses[id(node)] = 2
            self._lines += [f"def {name}(data, pos, end, size):", *body, " return pos"]
        return self._functions[id(node)]

    def _array(self, item: Node | None, depth: int) -> list[str]:
        pad, count = " " * depth, f"c{depth}"
        lines = [
            f"{pad}while True:",
            f"{pad} {count} = data[pos]; pos += 1",
            f"{pad} if {count} & 129:",
            f"{pad}  {count}, pos = read_long(data, pos - 1)",
            f"{pad}  if {count} < 0: {count} = -{count}; pos = skip_long(data, pos)",
            f"{pad} else: {count} >>= 1",
            f"{pad} if {count} == 0: break",
            f"{pad} if {count} > size: raise too_many({count}, size)",
        ]
        longs = _longs_of(item)
        if longs:
            return [*lines, f"{pad} pos = skip_longs(data, pos, {count} * {longs})"]
        if item is None:
            return lines
        return [
            *lines,
            f"{pad} for _ in range({count}):",
            *self._node(item, depth + 2),
            f"{pad}  if pos > end: raise IndexError",
        ]

    def _union(self, branches: tuple[Node | None, ...], depth: int) -> list[str]:
        return self._branches(branches, depth, f"u{depth}", self._node)

    def _branches(
        self, branches: tuple[Node | None, ...], depth: int, name: str, write: Callable[[Node, int], list[str]]
    ) -> list[str]:
        pad = " " * depth
        lines = [
            f"{pad}{name} = data[pos]; pos += 1",
            f"{pad}if {name} & 129: {name}, pos = read_long(data, pos - 1)",
            f"{pad}else: {name} >>= 1",
            f"{pad}if not 0 <= {name} < {len(branches)}: raise Malformed(f'a union has no branch {{{name}}}')",
        ]
        for number, branch in enumerate(branches):
            if branch is not None:
                lines += [f"{pad}if {name} == {number}:", *write(branch, depth + 1)]
        return lines

    def _capture(self, slot: int, value: Node | None, depth: int) -> list[str]:
        pad = " " * depth
        lines: list[str] = []
        if isinstance(value, Union):
            lines = self._branches((None,) * len(value.branches), depth, f"b{slot}", self._node)
            lines.append(f"{pad}s{slot} = pos")
            for number, branch in enumerate(value.branches):
                if branch is not None:
                    lines += [f"{pad}if b{slot} == {number}:", *self._node(branch, depth + 1)]
        else:
            lines.append(f"{pad}s{slot} = pos")
            lines += [] if value is None else self._node(value, depth)
        return [*lines, f"{pad}e{slot} = pos"]


def _longs_of(item: Node | None) -> int:
    """How many numbers an item is made of, if it is made of nothing else."""
    if isinstance(item, Long):
        return 1
    if isinstance(item, Struct) and all(isinstance(field, Long) for field in item.fields):
        return len(item.fields)
    return 0
