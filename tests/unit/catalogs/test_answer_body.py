"""Answers of a catalog that drip, break off or do not end."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from itertools import count

import pytest
from requests import Response
from urllib3 import HTTPResponse

from lakemirror.catalogs import answer_body
from lakemirror.catalogs.answer_body import read_body
from lakemirror.errors import PermanentError


class Dripping(io.RawIOBase):
    """One byte at a time."""

    def __init__(self, data: bytes) -> None:
        self._left = list(data)

    def readable(self) -> bool:
        return True

    def read1(self, size: int = -1) -> bytes:
        return bytes([self._left.pop(0)]) if self._left else b""

    read = read1  # type: ignore[assignment]


def answer(body: io.RawIOBase | io.BytesIO, **headers: str) -> Response:
    response = Response()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response.raw = HTTPResponse(body, headers=named, status=200, preload_content=False, request_method="GET")
    return response


def read(response: Response, ticks: Iterator[float]) -> bytes:
    return read_body(response, "load", "a.b", time_s=10, clock=lambda: next(ticks))


def every(seconds: float) -> Iterator[float]:
    return (number * seconds for number in count())


def test_an_answer_that_drips_ends_with_its_time() -> None:
    with pytest.raises(TimeoutError, match="not whole after 10 s"):
        read(answer(Dripping(b" " * 1000)), every(0.5))


def test_one_that_is_whole_in_time_is_taken() -> None:
    assert read(answer(Dripping(b"{}")), every(1)) == b"{}"
    packed = gzip.compress(b"x" * 1000)
    assert read(answer(io.BytesIO(packed), content_encoding="gzip"), every(1)) == b"x" * 1000


def test_one_that_breaks_off_is_none() -> None:
    with pytest.raises(OSError, match="IncompleteRead"):
        read(answer(io.BytesIO(b"{"), content_length="2"), every(1))


def test_one_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_body, "MAX_ANSWER_BYTES", 10)
    with pytest.raises(PermanentError, match="more than 10 bytes"):
        read(answer(io.BytesIO(b"x" * 11)), every(0))
