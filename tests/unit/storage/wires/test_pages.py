"""Large buffers ask for large pages: a hint, which never touches a byte that is not theirs, nor fails."""

from __future__ import annotations

import io
import mmap

import pytest

from lakemirror.storage.wires import pages
from lakemirror.storage.wires.connection import _Body

LARGE = pages.LEAST_BYTES


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(pages, "_madvise", lambda: lambda start, length, advice: found.append((start, length)))
    return found


def test_whole_pages_of_the_buffer_and_no_others(advised: list[tuple[int, int]]) -> None:
    view = io.BytesIO(bytes(LARGE + 5)).getbuffer()
    pages.ask_for_large_pages(view)
    ((start, length),) = advised
    address = pages.address_of(view)
    assert start % mmap.PAGESIZE == length % mmap.PAGESIZE == 0
    assert address <= start < address + mmap.PAGESIZE
    assert address + len(view) - mmap.PAGESIZE < start + length <= address + len(view)
    view.release()  # nobody holds it


def test_a_small_buffer_may_share_its_mapping_with_others(advised: list[tuple[int, int]]) -> None:
    pages.ask_for_large_pages(io.BytesIO(bytes(LARGE - 1)).getbuffer())
    assert advised == []


def test_a_system_without_them_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_madvise", lambda: None)
    pages.ask_for_large_pages(io.BytesIO(bytes(LARGE)).getbuffer())


def test_a_large_body_asks_and_comes_as_it_was(advised: list[tuple[int, int]]) -> None:
    body = _Body(LARGE, [b"begin"])
    assert len(advised) == 1
    body.room()[:3] = b"end"
    assert body.whole()[:9] == b"beginend\0"


def test_the_system_takes_the_hint() -> None:
    """Whatever it makes of it."""
    body = _Body(LARGE, [b"x" * 10])
    assert len(body.whole()) == LARGE
