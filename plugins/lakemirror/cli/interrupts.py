"""Ctrl-C ends the command, soon and with an answer, whoever catches the signal and whatever the main thread is at.

Two things stand between a Ctrl-C and a KeyboardInterrupt in our code. Native calls (a large upload) do not notice it
before they return. And PySpark puts a handler of its own in place of Python's, which cancels jobs through the very
connection that the main thread is waiting on: what then fails hides the interrupt, or nothing ever returns.
The interpreter writes each signal to a descriptor of our choice before any handler runs, so that is where a thread
looks; if the main thread has not come to its end within a bound, the thread has the last word.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

GRACE_S = 5.0


class CtrlC:
    """Whether it was pressed; and what to say, by `last_word`, if the command cannot end by itself."""

    def __init__(self) -> None:
        self.last_word: Callable[[], None] = lambda: None
        self._pressed = threading.Event()

    def was_pressed(self) -> bool:
        return self._pressed.is_set()


class _NoticedCtrlC(CtrlC):
    """Looks itself when asked: the main thread may come to know before the watching thread does."""

    def __init__(self, signals: int) -> None:
        super().__init__()
        self._signals = signals

    def was_pressed(self) -> bool:
        with suppress(BlockingIOError):
            if signal.SIGINT in os.read(self._signals, 4096):
                self._pressed.set()
        return self._pressed.is_set()


@contextmanager
def noticing_ctrl_c(leave: Callable[[], None], grace_s: float = GRACE_S) -> Iterator[CtrlC]:
    """Main thread only. `leave` ends the process; it is called after the last word, if it comes to that."""
    signals, wakeup = os.pipe()
    for end in (signals, wakeup):
        os.set_blocking(end, False)
    ctrl_c, has_ended = _NoticedCtrlC(signals), threading.Event()

    def watch() -> None:
        while not has_ended.is_set():
            select.select([signals], [], [])
            if ctrl_c.was_pressed() and not has_ended.wait(grace_s):
                ctrl_c.last_word()
                leave()
                return

    watcher = threading.Thread(target=watch, name="lakemirror-ctrl-c", daemon=True)
    before = signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    watcher.start()
    try:
        yield ctrl_c
    finally:
        signal.set_wakeup_fd(before)
        has_ended.set()
        os.write(wakeup, b"\0")
        watcher.join()
        os.close(signals)
        os.close(wakeup)
