"""Says what the demo is doing: one line per event, each with the seconds since the start."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO


class Teller:
    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._started_at = clock()

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._started_at

    def tell(self, text: str) -> None:
        self._out.write(f"{self.elapsed_s:6.1f} s  {text}\n")
        self._out.flush()

    def detail(self, text: str) -> None:
        self._out.writelines(f"          {line}\n" for line in text.splitlines())
        self._out.flush()
