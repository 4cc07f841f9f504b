"""Wanted fields: their types by branch, and the values at the places where a walker found them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lakemirror.formats.iceberg.avro_values import Malformed, read_bytes, read_count, read_long, read_text


@dataclass(frozen=True, slots=True)
class Slot:
    """A wanted field and its type, for each branch if it is a union."""

    field_id: int
    kinds: tuple[str, ...]
    is_union: bool

    def decode(self, data: bytes, branch: int, start: int, end: int) -> Any:
        """The value at a place that was walked; a shape that no wanted field has comes back as its raw bytes."""
        decode = _DECODERS.get(self.kinds[branch if self.is_union else 0])
        return data[start:end] if decode is None else decode(data, start)[0]

    def branch_of(self, *kinds: str) -> int | None:
        """The branch that holds one of these types (-1 where there is no union), or None if none does."""
        found = [branch for branch, kind in enumerate(self.kinds) if kind in kinds]
        if not found:
            return None
        return found[0] if self.is_union else -1


def unwrapped(kind: Any) -> Any:
    """`{"type": {"type": …}}` is the inner type."""
    while isinstance(kind, dict) and not isinstance(kind["type"], str):
        kind = kind["type"]
    return kind


def type_name(kind: Any) -> str:
    name = kind if isinstance(kind, str) else kind["type"]
    if not isinstance(name, str):
        raise Malformed(f"no Avro type: {repr(name)[:100]}")
    return name


def shape_of(kind: Any) -> str:
    """The type's name; `pairs` for an array of keys and bytes, which is what bounds are."""
    kind = unwrapped(kind)
    if isinstance(kind, list):
        return "union"
    if isinstance(kind, dict) and kind["type"] == "array":
        item = unwrapped(kind["items"])
        if isinstance(item, dict) and item["type"] == "record":
            fields = [(field["name"], unwrapped(field["type"])) for field in item["fields"]]
            if fields in ([("key", "int"), ("value", "bytes")], [("key", "long"), ("value", "bytes")]):
                return "pairs"
    return type_name(kind)


def _read_pairs(data: bytes, pos: int) -> tuple[list[dict[str, Any]], int]:
    pairs: list[dict[str, Any]] = []
    while True:
        count, pos = read_count(data, pos)
        if count == 0:
            return pairs, pos
        for _ in range(count):
            key, pos = read_long(data, pos)
            value, pos = read_bytes(data, pos)
            pairs.append({"key": key, "value": value})


_DECODERS: dict[str, Callable[[bytes, int], tuple[Any, int]]] = {
    "null": lambda data, pos: (None, pos),
    "int": read_long,
    "long": read_long,
    "bytes": read_bytes,
    "string": read_text,
    "pairs": _read_pairs,
}
