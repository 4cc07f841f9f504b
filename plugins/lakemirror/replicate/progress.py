"""How far a copy is: counted from whoever tells, and put into lines for a log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from lakemirror.model.results import describe_volume, human_seconds
from lakemirror.replicate.stage import Progress, Report

LOG_EVERY_S: Final = 15.0
STILL_EVERY_S: Final = 600.0  # of a stage that has not moved for long


class FilesTold:
    """Hands on what is heard from whichever side; never goes back. Silent where nobody listens or nothing is to do."""

    def __init__(self, progress: Progress | None, files: int, size_bytes: int) -> None:
        self._progress = progress if files else None
        self._all_files, self._all_bytes = files, size_bytes
        self._files = self._bytes = 0
        self._portioned = (0, 0)
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

    def portion(self, files: int, size_bytes: int) -> Report:
        """By rows of work that hold so many, after the portions before; of workers that do not speak for themselves."""
        before_files, before_bytes = self._portioned
        self._portioned = before_files + files, before_bytes + size_bytes

        def report(done: int, total: int) -> None:
            self.reach(before_files + files * done // total, before_bytes + size_bytes * done // total)

        return report

    def _tell(self, files: int, size_bytes: int) -> None:
        if self._progress is not None:
            self._progress("copy", files, self._all_files, size_bytes, self._all_bytes)


class LogLines:
    """Says how far a run is: once when a stage begins, then every few seconds, and at its end.

    Used as a context, it also says when nothing moves, by a thread of its own: after `every_s`, then each time after
    twice as long, up to ten minutes.
    """

    def __init__(
        self,
        subject: str,
        say: Callable[[str], None],
        clock: Callable[[], float],
        every_s: float = LOG_EVERY_S,
    ) -> None:
        self._subject, self._say, self._clock, self._every_s = subject, say, clock, every_s
        self._at: tuple[str, int, int, int, int] = ("", 0, 0, 0, 0)
        self._began_at = self._said_at = self._moved_at = self._patience_s = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> LogLines:
        self._thread = threading.Thread(target=self._watch, name="lakemirror-progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def __call__(self, stage: str, done: int, total: int, bytes_done: int, bytes_total: int) -> None:
        with self._lock:
            now, told = self._clock(), (stage, done, total, bytes_done, bytes_total)
            is_new = stage != self._at[0]
            if told != self._at:
                self._at, self._moved_at, self._patience_s = told, now, self._every_s
            if is_new:
                self._began_at = now
            elif now - self._said_at < self._every_s and done < total:
                return
            self._said_at = now
            self._say(self._line(now))

    def look(self) -> None:
        """Say so if the stage stands still."""
        with self._lock:
            now, (stage, done, total, _, _) = self._clock(), self._at
            silent_s = now - self._moved_at
            if not stage or done >= total or silent_s < self._patience_s:
                return
            self._patience_s = silent_s + min(silent_s, STILL_EVERY_S)
            self._said_at = now
            self._say(f"{self._line(now)}; nothing has moved for {human_seconds(silent_s)}")

    def _watch(self) -> None:
        while not self._ended.wait(self._every_s):
            self.look()

    def _line(self, now: float) -> str:
        stage, done, total, bytes_done, bytes_total = self._at
        volume = describe_volume(bytes_done, now - self._began_at, bytes_total)
        return f"{self._subject}: {stage} {done} of {total}{f', {volume}' if volume else ''}"
