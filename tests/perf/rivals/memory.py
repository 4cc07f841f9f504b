"""The memory of this process and of all it started, looked at while it works: what is resident, by kind of process."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType

_EVERY_S = 0.2
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Between enter and exit: the most that each kind had at one moment, in MB.

    `driver` is this Python process, `jvm` the JVM that it started, `workers` all other Python processes together.
    """

    def __init__(self) -> None:
        self.peak_mb = dict.fromkeys(("driver", "jvm", "workers"), 0)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            for kind, size_mb in resident_mb(os.getpid()).items():
                self.peak_mb[kind] = max(self.peak_mb[kind], size_mb)
            if self._done.wait(_EVERY_S):
                return


def resident_mb(pid: int) -> dict[str, int]:
    parents: dict[int, list[int]] = {}
    kinds: dict[int, str] = {}
    sizes: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            name, _, rest = (folder / "stat").read_text().rpartition(")")
            pages = int((folder / "statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
            continue
        number = int(folder.name)
        parents.setdefault(int(rest.split()[1]), []).append(number)
        kinds[number] = "jvm" if name.endswith("(java") else "workers"
        sizes[number] = pages * _PAGE // (1 << 20)
    kinds[pid] = "driver"
    found = dict.fromkeys(("driver", "jvm", "workers"), 0)
    waiting = [pid]
    while waiting:
        number = waiting.pop()
        found[kinds.get(number, "workers")] += sizes.get(number, 0)
        waiting += parents.get(number, [])
    return found
