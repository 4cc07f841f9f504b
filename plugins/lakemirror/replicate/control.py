"""Documents that stages leave for each other in the mirror bucket: read in bounded memory, each field of its type.

Whoever can write to the bucket can alter them. What they name must lie in the table's own folder, and what is not as a
stage writes it is refused: never a guess, never another place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lakemirror.errors import PermanentError
from lakemirror.model import bounded_json
from lakemirror.model.paths import is_below
from lakemirror.storage.port import ObjectStore

MAX_BYTES = 1 << 28
Check = Callable[[Any], bool]
_SHOWN = 100


def read(store: ObjectStore, uri: str, fields: Mapping[str, Check]) -> dict[str, Any]:
    """The document at `uri`; ObjectNotFound passes through."""
    return parse(store.get(uri, max_bytes=MAX_BYTES).data, uri, fields)


def parse(
    data: bytes, uri: str, fields: Mapping[str, Check], later: Mapping[str, Check] | None = None
) -> dict[str, Any]:
    """A document that has these fields and no others, but those that came `later`: of old documents they may miss."""
    try:
        document = bounded_json.object_of(data)
    except ValueError as err:
        raise altered(uri, f"not readable ({err})") from err
    check(document, uri, {**fields, **{name: test for name, test in (later or {}).items() if name in document}})
    return document


def check(document: Mapping[str, Any], uri: str, fields: Mapping[str, Check]) -> None:
    if document.keys() != fields.keys():
        other = sorted(document.keys() ^ fields.keys())[0]
        raise altered(uri, f"it lacks the field {other[:_SHOWN]!r}, or has it though it should not")
    for name, is_right in fields.items():
        if not is_right(document[name]):
            raise altered(uri, f"{name} is {repr(document[name])[:_SHOWN]}")


def altered(uri: str, what: str) -> PermanentError:
    return PermanentError(
        "read plan", uri, f"not as it was written: {what}", "see who altered it; delete the plan folder and run again"
    )


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def is_id(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e12


def or_none(is_right: Check) -> Check:
    return lambda value: value is None or is_right(value)


def all_of(is_right: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(is_right, value))


def tuple_of(*are_right: Check) -> Check:
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(are_right)
        and all(is_right(one) for is_right, one in zip(are_right, value, strict=True))
    )


def map_of(is_right: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(is_right, value.values()))


def inside(root: str, *, or_itself: bool = False) -> Check:
    """The URI of something below `root`."""
    return lambda value: (
        isinstance(value, str) and bool(root) and (is_below(value, root) or (or_itself and value == root))
    )
