"""How far a copy is: counted from whoever tells, and put into lines for a log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from lakemirror.model.results import describe_volume
from lakemirror.replicate.stage import Progress

LOG_EVERY_S: Final = 15.0


class FilesTold:
    """Hands on what is heard from whichever side; never goes back. Silent where nobody listens or nothing is to do."""

    def __init__(self, progress: Progress | None, files: int, size_bytes: int) -> None:
        self._progress = progress if files else None
        self._all_files, self._all_bytes = files, size_bytes
        self._files = self._bytes = 0
        self._lock = threading.Lock()
        self._tell(0, 0)

    def add(self, files: int, size_bytes: int) -> None:
        """So many more, heard in this process."""
        with self._lock:
            self._files += files
            self._bytes += size_bytes
            self._tell(self._files, self._bytes)

    def reach(self, files: int, size_bytes: int) -> None:
        """So many in all, as workers say; one that began anew may say some of it twice."""
        with self._lock:
            self._files = max(self._files, min(files, self._all_files))
            self._bytes = max(self._bytes, min(size_bytes, self._all_bytes))
            self._tell(self._files, self._bytes)

    def rows(self, done: int, total: int) -> None:
        """So many rows of work are done; tells of workers that do not speak for themselves."""
        self.reach(self._all_files * done // total, self._all_bytes * done // total)

    def _tell(self, files: int, size_bytes: int) -> None:
        if self._progress is not None:
            self._progress("copy", files, self._all_files, size_bytes, self._all_bytes)


class LogLines:
    """Says how far a run is: once when a stage begins, then every few seconds, and at its end."""

    def __init__(self, subject: str, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._subject, self._say, self._clock = subject, say, clock
        self._stage = ""
        self._began_at = self._said_at = 0.0

    def __call__(self, stage: str, done: int, total: int, bytes_done: int, bytes_total: int) -> None:
        now = self._clock()
        is_new = stage != self._stage
        if is_new:
            self._stage, self._began_at = stage, now
        elif now - self._said_at < LOG_EVERY_S and done < total:
            return
        self._said_at = now
        volume = describe_volume(bytes_done, now - self._began_at, bytes_total)
        self._say(f"{self._subject}: {stage} {done} of {total}{f', {volume}' if volume else ''}")
