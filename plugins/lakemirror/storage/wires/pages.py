"""Large pages for large buffers: of 2 MiB instead of 4 KiB, where the system has them.

A file of 64 MiB that is received into fresh memory meets 16,384 pages one by one, and half of the processor time that
its copy takes the client goes to the kernel's giving them. It is a hint: where the system does not know or heed it,
nothing changes, and no more memory is taken than the buffer has.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from functools import lru_cache
from typing import Final

LEAST_BYTES: Final = 32 * 1024**2
"""From this size on glibc gives each buffer a mapping of its own, so that the hint is about nothing else."""
_HUGEPAGE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)
Advise = Callable[[int, int, int], object]


def ask_for_large_pages(view: memoryview) -> None:
    """Before anything is written there; smaller buffers are left as they are."""
    advise = _madvise() if len(view) >= LEAST_BYTES else None
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
