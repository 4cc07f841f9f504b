"""Names of processes, and whether the one that a name belongs to has ended for certain.

A lease that was taken by a process of this machine, in this same space of process ids, need not be waited for once that
process is gone. Of processes elsewhere, and of those that /proc hides, nothing is known, and nothing is guessed.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from functools import lru_cache
from pathlib import Path

_NAME = re.compile(r"[^:]+:(?P<pid>[1-9][0-9]{0,9}):(?P<machine>[0-9a-f]{8})\.(?P<start>[0-9]{1,20})\.[0-9a-f]{8}")
_NOWHERE = "0" * 8


def name_of_this_process() -> str:
    """Host, process id, which machine and start of the process these are of, and chance: never the same twice."""
    pid = os.getpid()
    start = 0 if _machine() == _NOWHERE else _start_of(pid)
    return f"{socket.gethostname()}:{pid}:{_machine()}.{start}.{secrets.token_hex(4)}"


def has_ended(name: str) -> bool:
    """Whether this name is of a process of this machine that is no more; False if it cannot be told."""
    found = _NAME.fullmatch(name)
    if found is None or _machine() == _NOWHERE or found["machine"] != _machine():
        return False
    try:
        return _start_of(int(found["pid"])) != int(found["start"])
    except ProcessLookupError:
        return True
    except PermissionError:
        return False


@lru_cache(maxsize=1)
def _machine() -> str:
    """This boot of the kernel and this namespace of process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        return _NOWHERE
    return hashlib.blake2s(f"{boot} {space}".encode(), digest_size=4).hexdigest()


def _start_of(pid: int) -> int | None:
    """When a process was started, in ticks since the boot; None: it is dead, though not yet buried.

    ProcessLookupError if there is no such process; PermissionError if there may be one, hidden by how /proc is mounted
    (hidepid).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError) as err:
        if _has_number(pid):
            raise PermissionError(f"process {pid} is hidden") from err
        raise ProcessLookupError(pid) from err
    return None if fields[0] in "ZX" else int(fields[19])


def _has_number(pid: int) -> bool:
    """Whether any process has this number, seen or not: the empty signal does nothing but ask."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # of another user
    return True
