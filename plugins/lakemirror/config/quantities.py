"""Durations and byte counts as people write them: `900`, `"15m"`, `"7d"`; `268435456`, `"256 MB"`, `"1 GiB"`.

A bare number is seconds or bytes. Decimal and binary units of bytes are told apart (MB is 10⁶, MiB is 2²⁰); a unit that
could mean either (`256M`) is refused. Nothing is rounded: what is no whole number of seconds or bytes is refused.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

_DURATION_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BYTE_UNITS = {
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgtp", start=1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgtp", start=1)},
}
_NUMBER_AND_UNIT = re.compile(r"\s*(\d{1,19}(?:\.\d{1,9})?)\s*([A-Za-z]*)\s*", re.ASCII)
_LONGEST = timedelta(days=36500)
_MOST_BYTES = 2**60

_DURATION_WANTED = 'a duration: seconds, or like "15m", "24h", "7d"'
_BYTES_WANTED = 'a number of bytes: a whole number, or like "256 MB", "1 GiB"'


def refuse(wanted: str, hint: str = "") -> PydanticCustomError:
    """What a validator raises: the translator writes `want {wanted}, got …`, with the value only if it may be shown."""
    return PydanticCustomError("lakemirror", "want {wanted}", {"wanted": wanted, "hint": hint})


def refuse_null(value: object) -> object:
    """Of a map that may be left out, not left empty."""
    if value is None:
        raise refuse("a map", "fill it in, or remove the key")
    return value


def parse_duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    seconds = _parse(value, _DURATION_UNITS, _DURATION_WANTED, "s")
    if seconds > _LONGEST.total_seconds():
        raise refuse(f"at most {_LONGEST.days} days")
    return timedelta(seconds=seconds)


def parse_seconds(value: object) -> int:
    return int(parse_duration(value).total_seconds())


def parse_bytes(value: object) -> int:
    count = _parse(value, _BYTE_UNITS, _BYTES_WANTED, "B")
    if count > _MOST_BYTES:
        raise refuse("at most 1 EiB")
    return count


def format_duration(value: timedelta) -> str:
    """The shortest text that reads back as the same duration: `7d`, `90m`, `45s`."""
    seconds = int(value.total_seconds())
    for unit in ("d", "h", "m"):
        if seconds and seconds % _DURATION_UNITS[unit] == 0:
            return f"{seconds // _DURATION_UNITS[unit]}{unit}"
    return f"{seconds}s"


def format_bytes(count: int) -> str:
    """The shortest exact text with a unit, decimal before binary: `256 MB`, `1 GiB`, `1001 B`."""
    for base, suffix in ((1000, "B"), (1024, "iB")):
        for power in (5, 4, 3, 2, 1):
            if count and count % base**power == 0:
                return f"{count // base**power} {'kMGTP'[power - 1] if base == 1000 else 'KMGTP'[power - 1]}{suffix}"
    return f"{count} B"


def _parse(value: object, units: dict[str, int], wanted: str, bare_unit: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise refuse(wanted)
    match = _NUMBER_AND_UNIT.fullmatch(str(value))
    if match is None:
        raise refuse(wanted)
    number, unit = match.groups()
    factor = units.get((unit or bare_unit).lower())
    if factor is None:
        hint = f"{unit}B is decimal, {unit}iB is binary" if unit.lower() in "kmgtp" and units is _BYTE_UNITS else ""
        raise refuse(wanted, hint)
    exact = Decimal(number) * factor
    if exact != exact.to_integral_value():
        raise refuse(f"{wanted}; in whole {'seconds' if bare_unit == 's' else 'bytes'}")
    return int(exact)


def _refuse_bool(value: object) -> object:
    if isinstance(value, bool):
        raise refuse("a number")
    return value


DURATION_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*[smhdwSMHDW]?\s*$", "examples": ["15m", "24h", "7d"]},
    ]
}
BYTES_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {
            "type": "string",
            "pattern": r"^\s*\d+(\.\d+)?\s*([kKmMgGtTpP]?[iI]?[bB])?\s*$",
            "examples": ["256 MB", "1 GiB"],
        },
    ]
}

Duration = Annotated[timedelta, BeforeValidator(parse_duration), WithJsonSchema(DURATION_SCHEMA)]
Seconds = Annotated[int, BeforeValidator(parse_seconds), WithJsonSchema(DURATION_SCHEMA)]
Bytes = Annotated[int, BeforeValidator(parse_bytes), WithJsonSchema(BYTES_SCHEMA)]
Count = Annotated[int, BeforeValidator(_refuse_bool)]
Fraction = Annotated[float, BeforeValidator(_refuse_bool), Field(allow_inf_nan=False)]
