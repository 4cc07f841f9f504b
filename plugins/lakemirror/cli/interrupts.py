"""Whether Ctrl-C was pressed, whoever caught it.

PySpark puts its own handler in place of Python's: it cancels jobs, and what then fails hides the KeyboardInterrupt or
takes its place. The interpreter writes every signal to a descriptor of our choice before any handler runs, so that is
where we look.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WasInterrupted = Callable[[], bool]


def never() -> bool:
    return False


@contextmanager
def noticing_ctrl_c() -> Iterator[WasInterrupted]:
    """Main thread only. The answer stays True once it was."""
    read_end, write_end = os.pipe()
    for end in (read_end, write_end):
        os.set_blocking(end, False)
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    seen = False

    def was_interrupted() -> bool:
        nonlocal seen
        try:
            seen = seen or signal.SIGINT in os.read(read_end, 4096)
        except BlockingIOError:
            pass
        return seen

    try:
        yield was_interrupted
    finally:
        signal.set_wakeup_fd(before)
        os.close(read_end)
        os.close(write_end)
