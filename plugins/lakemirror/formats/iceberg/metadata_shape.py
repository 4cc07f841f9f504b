"""The types of all that this library looks at in table metadata, checked once, before anybody looks.

What is not looked at may be anything: it is carried along. What is missing is not wrong here, unless it is a part of
something that is there: a snapshot without its id, a branch that names none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lakemirror.formats.iceberg.avro_values import Malformed

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
MAX_NAME = 200
Check = Callable[[Any], bool]
Json = dict[str, Any]


def is_id(value: Any) -> bool:
    """A number of 64 bits; true is none."""
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _is_size(value: Any) -> bool:
    return is_id(value) and value >= 0


def is_time(value: Any) -> bool:
    return type(value) is int and FIRST_MS <= value <= LAST_MS


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def _or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


_FIELDS: dict[str, Check] = {
    "table-uuid": _is_name,
    "location": _is_text,
    "last-updated-ms": is_time,
    "last-column-id": _is_size,
    "current-snapshot-id": _or_null(is_id),
    "properties": _or_null(_is_texts),
    "encryption-keys": _or_null(lambda value: isinstance(value, list | dict)),
}
_SNAPSHOT: dict[str, Check] = {
    "snapshot-id": is_id,
    "timestamp-ms": is_time,
    "parent-snapshot-id": _or_null(is_id),
    "sequence-number": _is_size,
    "manifest-list": _is_text,
    "summary": _or_null(lambda value: isinstance(value, dict)),
}
_LOG_ENTRY: dict[str, Check] = {"snapshot-id": is_id, "timestamp-ms": is_time}
_METADATA_LOG: dict[str, Check] = {"metadata-file": _is_text}
_STATISTICS: dict[str, Check] = {"snapshot-id": is_id, "statistics-path": _is_text, "file-size-in-bytes": _is_size}
_LISTS: dict[str, tuple[dict[str, Check], tuple[str, ...]]] = {  # what entries hold, and what they must hold
    "snapshots": (_SNAPSHOT, ("snapshot-id", "timestamp-ms")),
    "snapshot-log": (_LOG_ENTRY, ("snapshot-id", "timestamp-ms")),
    "metadata-log": (_METADATA_LOG, (*_METADATA_LOG,)),
    "statistics": (_STATISTICS, (*_STATISTICS,)),
    "partition-statistics": (_STATISTICS, (*_STATISTICS,)),
}


def check(metadata: Json) -> None:
    """Malformed at the first thing of another type than it must have."""
    _check_entry("", metadata, _FIELDS, ())
    for name, (fields, required) in _LISTS.items():
        for number, entry in enumerate(_entries(metadata, name)):
            _check_entry(f"{name}[{number}].", entry, fields, required)
    ids = [snapshot["snapshot-id"] for snapshot in metadata.get("snapshots") or ()]
    if len({*ids}) < len(ids):
        raise Malformed("two snapshots have one id")
    refs = metadata.get("refs")
    if refs is not None and not isinstance(refs, dict):
        raise Malformed(_wrong("refs", refs))
    for name, ref in (refs or {}).items():
        if not isinstance(ref, dict) or not is_id(ref.get("snapshot-id")):
            raise Malformed(f"the ref {name[:MAX_NAME]!r} names no snapshot")


def _entries(metadata: Json, name: str) -> Iterator[Any]:
    found = metadata.get(name)
    if found is not None and not isinstance(found, list):
        raise Malformed(_wrong(name, found))
    yield from found or ()


def _check_entry(where: str, entry: Any, fields: dict[str, Check], required: tuple[str, ...]) -> None:
    if not isinstance(entry, dict):
        raise Malformed(_wrong(where.rstrip("."), entry))
    for name in required:
        if name not in entry:
            raise Malformed(f"{where}{name} is missing")
    for name, is_right in fields.items():
        if name in entry and not is_right(entry[name]):
            raise Malformed(_wrong(f"{where}{name}", entry[name]))


def _wrong(what: str, value: Any) -> str:
    text = (
        str(value)
        if isinstance(value, bool | int | float | None)
        else ascii(value)[:60]
        if isinstance(value, str)
        else ""
    )
    return f"{what} is {f'{text[:60]} ' if text else ''}of the wrong type or out of range ({type(value).__name__})"
