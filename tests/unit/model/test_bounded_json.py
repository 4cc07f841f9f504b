"""JSON that others wrote: whatever is accepted can be written again, and all else is a ValueError in bounded memory."""

from __future__ import annotations

import json

import pytest

from lakemirror.model import bounded_json


@pytest.mark.parametrize(
    "text",
    ['{"a": [1, -2.5, "ü\\u00e9\\ud83d\\ude00", null, true, 1e308, {}]}', "[]", '"text"', "7", '{"a": 1, "a": 2}'],
)
def test_what_is_json_is_read_as_others_read_it(text: str) -> None:
    assert bounded_json.loads(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": NaN}', "NaN is not a number"),
        ("[Infinity]", "Infinity"),
        ("[-Infinity]", "-Infinity"),
        ("[1e999]", "too large"),
        ("[-1e999]", "too large"),
        ('{"a": ["\\ud800"]}', "not valid Unicode"),
        ('{"\\uDFFF": 1}', "not valid Unicode"),
        ("9" * 5000, "digits"),
        ("[" * 101 + "]" * 101, "nested deeper than 100"),
        ("[" * 100_000, "nested deeper than 100"),
        ('{"a":' * 100_000, "nested deeper than 100"),
        ("", "Expecting value"),
        ("{", "Expecting"),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_not(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        bounded_json.loads(text.encode())


@pytest.mark.parametrize("data", [b'"\xff"', b'"\xed\xa0\x80"', '"x"'.encode("utf-16"), '{"a":1}'.encode("utf-32")])
def test_bytes_that_are_no_text(data: bytes) -> None:
    """Python's own reader takes half surrogate pairs, and UTF-16 and UTF-32 by guessing."""
    with pytest.raises(ValueError, match=r"decode|Expecting"):
        bounded_json.loads(data)


def test_a_byte_order_mark_is_passed_over() -> None:
    assert bounded_json.loads(b"\xef\xbb\xbf[1]") == [1]


def test_the_deepest_that_is_read_can_be_written_again() -> None:
    text = "[" * 100 + "]" * 100
    assert json.dumps(bounded_json.loads(text.encode())) == text


@pytest.mark.parametrize(("text", "values"), [("[[],[],[]]", 6), ('{"a":1,"b":2}', 2), ("[0,0,0,0]", 4)])
def test_values_are_counted_before_they_are_made(text: str, values: int) -> None:
    assert bounded_json.loads(text.encode(), max_values=values) is not None
    with pytest.raises(ValueError, match=f"more than {values - 1} values"):
        bounded_json.loads(text.encode(), max_values=values - 1)


@pytest.mark.parametrize("text", ["[]", "null", '"x"', "7"])
def test_only_an_object_is_an_object(text: str) -> None:
    with pytest.raises(ValueError, match="not a JSON object"):
        bounded_json.object_of(text.encode())
