"""Durations and byte counts: everything people write, and nothing that could be misread."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from lakemirror.config.quantities import (
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (0, 0),
        (900, 900),
        (900.0, 900),
        ("900", 900),
        ("45s", 45),
        ("15m", 900),
        ("24h", 86400),
        ("7d", 604800),
        ("2w", 1209600),
        (" 7 d ", 604800),
        ("7D", 604800),
        ("1.5h", 5400),
        ("0.5m", 30),
        ("36500d", 36500 * 86400),
    ],
)
def test_durations_are_read(text: object, seconds: int) -> None:
    assert parse_seconds(text) == seconds
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (0, 0),
        (268435456, 268435456),
        ("1024", 1024),
        ("10 B", 10),
        ("256 MB", 256_000_000),
        ("256MB", 256_000_000),
        ("256 mb", 256_000_000),
        ("1 kB", 1000),
        ("1 KiB", 1024),
        ("1 GiB", 1024**3),
        ("1.5 GiB", 3 * 2**29),
        ("2 TB", 2 * 10**12),
        ("1 PiB", 2**50),
    ],
)
def test_byte_counts_are_read(text: object, count: int) -> None:
    assert parse_bytes(text) == count


_DURATION = 'a duration: seconds, or like "15m", "24h", "7d"'
_BYTES = 'a number of bytes: a whole number, or like "256 MB", "1 GiB"'


_NO_DURATIONS: tuple[object, ...] = ("", "d", "7 days", "-5", -5, True, None, [], "1h30m")
_NO_BYTES: tuple[object, ...] = ("", "MB", "-1", False, None, {}, "1 MiX", "1,000")


@pytest.mark.parametrize(
    ("parse", "value", "wanted", "hint"),
    [
        *((parse_duration, value, _DURATION, "") for value in _NO_DURATIONS),
        (parse_duration, "0.5", f"{_DURATION}; in whole seconds", ""),
        (parse_duration, 0.5, f"{_DURATION}; in whole seconds", ""),
        (parse_duration, "36501d", "at most 36500 days", ""),
        (parse_duration, "1e3", _DURATION, ""),
        (parse_duration, float("nan"), _DURATION, ""),
        (parse_duration, "٧d", _DURATION, ""),
        *((parse_bytes, value, _BYTES, "") for value in _NO_BYTES),
        (parse_bytes, "256M", _BYTES, "MB is decimal, MiB is binary"),
        (parse_bytes, "1k", _BYTES, "kB is decimal, kiB is binary"),
        (parse_bytes, "1.0001 kB", f"{_BYTES}; in whole bytes", ""),
        (parse_bytes, "1025 PiB", "at most 1 EiB", ""),
    ],
)
def test_everything_else_is_refused(parse: object, value: object, wanted: str, hint: str) -> None:
    assert callable(parse)
    with pytest.raises(PydanticCustomError) as caught:
        parse(value)
    assert caught.value.context == {"wanted": wanted, "hint": hint}


@given(st.integers(min_value=0, max_value=36500 * 86400))
def test_a_formatted_duration_reads_back(seconds: int) -> None:
    assert parse_seconds(format_duration(timedelta(seconds=seconds))) == seconds


@given(st.integers(min_value=0, max_value=2**60))
def test_a_formatted_byte_count_reads_back(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == count


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (45, "45s"), (900, "15m"), (5400, "90m"), (86400, "1d"), (90000, "25h"), (604800, "7d")],
)
def test_durations_are_written_short(seconds: int, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1001, "1001 B"), (1000, "1 kB"), (1024, "1 KiB"), (256 * 10**6, "256 MB"), (2**30, "1 GiB")],
)
def test_byte_counts_are_written_short(count: int, text: str) -> None:
    assert format_bytes(count) == text
