"""Large buffers are kept apart, and ask for large pages: hints that touch no byte which is not theirs, nor fail."""

from __future__ import annotations

import ctypes
import io
import mmap
import subprocess
import sys
from unittest.mock import create_autospec

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


def test_buffers_that_are_not_kept_apart_ask_only_where_each_has_a_mapping_anyway(
    advised: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "keep_large_buffers_apart", lambda: False)
    pages.ask_for_large_pages(io.BytesIO(bytes(pages.MAPPED_BYTES - 1)).getbuffer())
    assert advised == []
    pages.ask_for_large_pages(io.BytesIO(bytes(pages.MAPPED_BYTES)).getbuffer())
    assert len(advised) == 1


def test_a_part_as_writers_of_tables_send_it_is_large() -> None:
    assert pages.LEAST_BYTES <= 5 * 1024**2


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


HOLES = f"""
import sys
from lakemirror.storage.wires.pages import keep_large_buffers_apart

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))

if sys.argv[1] == "apart":
    keep_large_buffers_apart()
one = b"x" * {pages.APART_BYTES}
del one  # from here on glibc would take buffers of this size from its heap
before = resident()
held = [b"y" * {pages.APART_BYTES} + bytes(1) for _ in range(64)]
del held[:-1]  # the last one is in the way of all that lies before it
print(resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counted by /proc; elsewhere nothing is done")
def test_what_is_freed_goes_back_to_the_system() -> None:
    left = {
        how: int(
            subprocess.run(
                [sys.executable, "-c", HOLES, how], capture_output=True, text=True, timeout=60, check=True
            ).stdout
        )
        for how in ("apart", "as ever")
    }
    assert left["apart"] <= 4 * pages.APART_BYTES < left["as ever"], left


def test_a_malloc_that_cannot_be_told_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", create_autospec(ctypes.CDLL, side_effect=OSError("no such library")))
    assert not pages.keep_large_buffers_apart.__wrapped__()
