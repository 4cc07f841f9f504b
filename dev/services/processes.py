"""Server processes that outlive the command that started them, and are told from strangers when they are stopped.

A pid alone proves nothing: numbers come round again. A process is ours if it started at the very moment that was
recorded, on this boot. Children of a server, and a server whose record was never written, are found by a mark in their
environment. Stopping is a polite signal, then SIGKILL after a bound.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dev.services.folder import write_private
from dev.services.trouble import ServicesError

MARK = "LAKEMIRROR_SERVICES"
KILL_TIMEOUT_S = 5.0  # for the kernel, not for the process: it has no say in it
POLL_S = 0.05

# The shell puts the server into the background and ends: the server belongs to nobody and leaves no zombie with us.
_LAUNCH = '"$@" </dev/null >&2 & echo $!'


@dataclass(frozen=True, slots=True)
class Process:
    """A server that runs or ran. `born` tells it from a later process with the same pid."""

    pid: int
    born: str
    fingerprint: str
    stop_signal: int = int(signal.SIGTERM)
    stop_timeout_s: float = 10.0
    leaves: tuple[str, ...] = ()  # files outside its folder that it does not remove itself

    @property
    def is_alive(self) -> bool:
        return birth(self.pid) == self.born

    @classmethod
    def read(cls, record: Path) -> Process | None:
        """None where there is no record, or none that can be understood: then the mark has to do."""
        try:
            found = json.loads(record.read_text(encoding="utf-8"))
            return cls(**{**found, "leaves": tuple(found.get("leaves", ()))})
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def write(self, record: Path) -> None:
        write_private(record, json.dumps(asdict(self)))


def launch(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: Path,
    folder: Path,
    user: tuple[int, int] | None = None,
) -> int:
    """Starts a command as a session of its own, in `folder`, and returns its pid."""
    log.parent.mkdir(parents=True, exist_ok=True)
    uid, gid = user or (None, None)
    with log.open("ab") as said:
        answer = subprocess.run(
            ["/bin/sh", "-c", _LAUNCH, "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            env=dict(environment),
            cwd=folder,
            user=uid,
            group=gid,
            extra_groups=None if user is None else [],
            start_new_session=True,
            check=True,
            timeout=10,
        )
    return int(answer.stdout)


def birth(pid: int) -> str | None:
    """When a process started, in words of the kernel; None if there is none, or only its zombie.

    A zombie whose threads are not all gone yet still holds its ports: it counts as alive.
    """
    try:
        # The name is in parentheses and may hold anything: what follows the last one is plain.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        is_gone = fields[0] in "ZX" and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if is_gone else f"{boot} {fields[19]}"


def marked(mark: str) -> Iterator[int]:
    """Every living process that was started with this mark, or is a descendant of one."""
    wanted = f"{MARK}={mark}".encode()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = Path(entry.path, "environ").read_bytes().split(b"\0")
        except OSError:  # gone, or another user's: not ours
            continue
        if wanted in words and birth(int(entry.name)) is not None:
            yield int(entry.name)


def stop(process: Process) -> None:
    """Returns when the process is gone and what it leaves is removed; does nothing to a stranger with its pid."""
    _end(process)
    for path in process.leaves:
        Path(path).unlink(missing_ok=True)


def _end(process: Process) -> None:
    for blow, bound_s in ((process.stop_signal, process.stop_timeout_s), (signal.SIGKILL, KILL_TIMEOUT_S)):
        if not process.is_alive:
            return
        try:
            os.kill(process.pid, blow)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + bound_s
        while process.is_alive and time.monotonic() < deadline:
            time.sleep(POLL_S)
    if process.is_alive:
        raise ServicesError(f"process {process.pid} does not end, not even by SIGKILL: look at it with `ps`")


def kill_marked(mark: str) -> list[int]:
    """SIGKILL to all that carry the mark; returns their pids when they are gone."""
    killed: dict[int, str | None] = {}
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while True:
        found = list(marked(mark))
        for pid in found:
            killed.setdefault(pid, birth(pid))
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        left = [pid for pid, born in killed.items() if born is not None and birth(pid) == born]
        if not found and not left:
            return sorted(killed)
        if time.monotonic() > deadline:
            raise ServicesError(f"processes {left} do not end, not even by SIGKILL: look at them with `ps`")
        time.sleep(POLL_S)
