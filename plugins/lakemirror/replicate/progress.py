"""How many files and bytes of a plan are copied: told one by one, or worked out from the tasks that are done."""

from __future__ import annotations

import threading

from lakemirror.replicate.stage import Progress


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
            self._progress("copy", files, self._all_files, size_bytes)
