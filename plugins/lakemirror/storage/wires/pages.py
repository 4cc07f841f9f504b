"""What the system does for large buffers: a mapping for each, and pages of 2 MiB instead of 4 KiB.

A buffer that has a mapping of its own goes back to the system when it is freed. glibc stops giving them after the first
large buffer was freed: the next ones lie in one heap, and between files of many sizes that heap keeps holes which
nothing fits, up to half as much again as is held (`keep_large_buffers_apart`).

A file of 64 MiB that is received into fresh memory meets 16,384 pages one by one, and half of the processor time that
its copy takes the client goes to the kernel's giving them. Large pages are a hint: where the system does not know or
heed it, nothing changes, and no more memory is taken than the buffer has (`ask_for_large_pages`).
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from functools import lru_cache
from typing import Final

APART_BYTES: Final = 1024**2
"""From this size on buffers are kept apart."""
LEAST_BYTES: Final = 4 * 1024**2
"""From this size on large pages are asked for, of a buffer that is kept apart: the hint is about nothing else."""
MAPPED_BYTES: Final = 32 * 1024**2
"""From this size on glibc gives each buffer a mapping of its own in any case."""
_M_MMAP_THRESHOLD: Final = -3  # of malloc.h
_HUGEPAGE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)
Advise = Callable[[int, int, int], object]


@lru_cache(maxsize=1)
def keep_large_buffers_apart() -> bool:
    """For this process, from now on; False where the system's malloc cannot be told so: then nothing happens."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
    return bool(mallopt(_M_MMAP_THRESHOLD, APART_BYTES))


def ask_for_large_pages(view: memoryview) -> None:
    """Before anything is written there; smaller buffers are left as they are."""
    if len(view) < LEAST_BYTES or (len(view) < MAPPED_BYTES and not keep_large_buffers_apart()):
        return
    advise = _madvise()
    if advise is None or _HUGEPAGE is None:
        return
    address = address_of(view)
    start, end = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE, (address + len(view)) // mmap.PAGESIZE * mmap.PAGESIZE
    advise(start, end - start, _HUGEPAGE)


def address_of(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


@lru_cache(maxsize=1)
def _madvise() -> Advise | None:
    """The system's own; None where there is none."""
    if _HUGEPAGE is None:
        return None
    try:
        madvise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return madvise
