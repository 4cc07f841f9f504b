"""JSON that others wrote, read into bounded memory: what is too large, too deep or no JSON at all is a ValueError.

Beyond what Python's reader refuses: numbers that no JSON can hold (NaN, Infinity, 1e999), texts that are not Unicode
(half a surrogate pair), documents of more values or deeper than the bounds. So whatever is read here can be written
again, and can be gone through by recursion. Of a key that stands twice the last one counts, as for other readers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

MAX_VALUES = 1 << 23  # some 100 bytes of memory each; a snapshot has 25 to 40
MAX_DEPTH = 100
_SEPARATORS = (b",", b"[", b"{")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
PairsHook = Callable[[Iterable[tuple[str, Any]]], Any]


def loads(data: bytes, *, max_values: int = MAX_VALUES, pairs: PairsHook | None = None) -> Any:
    """The document; `pairs` makes objects from their keys and values."""
    values = sum(data.count(sign) for sign in _SEPARATORS)  # never fewer than there are; signs in texts count as well
    if values > max_values:
        raise ValueError(f"more than {max_values} values")
    try:
        # decoded here, because the reader would take half surrogate pairs, and other encodings
        document = (_READER if pairs is None else _reader(pairs)).decode(data.decode("utf-8-sig"))
    except RecursionError as err:
        raise ValueError(f"nested deeper than {MAX_DEPTH}") from err
    _check_depth(document)
    if _SURROGATE.search(data):
        _check_text(document)
    return document


def _reader(pairs: PairsHook | None = None) -> json.JSONDecoder:
    return json.JSONDecoder(parse_constant=_no_number, parse_float=_finite, object_pairs_hook=pairs)


def object_of(data: bytes, *, max_values: int = MAX_VALUES) -> dict[str, Any]:
    """The same, if it is an object."""
    document = loads(data, max_values=max_values)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return document


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return number


_READER = _reader()


def _check_depth(document: Any) -> None:
    """Level by level: this one must not recurse itself."""
    level = [document] if isinstance(document, dict | list) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return
        level = [
            child
            for part in level
            for child in (part.values() if type(part) is dict else part)
            if type(child) is dict or type(child) is list
        ]
    if level:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")


def _check_text(document: Any) -> None:
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as err:
        raise ValueError("a text is not valid Unicode") from err
