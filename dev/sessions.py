"""Programs in sessions of their own: who of one lives, and how to end all of it.

A session is known by the pid of the program that leads it, and outlives it. What a program starts stays in its session,
also in a process group of its own, as Airflow's tasks and Spark's Python workers are.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

KILL_TIMEOUT_S = 20.0  # for the kernel, not for the processes: they have no say in it


def living(session: int) -> list[int]:
    """Those that are not dead yet, the leader first."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of_session, *_ = stat.read_text(errors="replace").rpartition(")")[2].split()
        except (OSError, ValueError):  # it ended while we looked
            continue
        if int(of_session) == session and state not in "ZX":
            found.append(int(stat.parent.name))
    return sorted(found, key=lambda pid: (pid != session, pid))


def kill(session: int, *, but: Collection[int] = (), reap: Callable[[], object] = lambda: None) -> None:
    """kill -9 of all but these, and of what they have just started; the leader first: it shall not see the others die.

    `reap` is called while it waits: a parent has to take notice of its child's end.
    """
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while found := [pid for pid in living(session) if pid not in but]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"session {session}: {found} do not die")
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
        time.sleep(0.02)


def stop(session: int, *, timeout_s: float = 15, reap: Callable[[], object] = lambda: None) -> None:
    """One SIGTERM to the leader's group, kill -9 of the session after `timeout_s`; returns when all are gone."""
    deadline = time.monotonic() + timeout_s
    try:
        with suppress(ProcessLookupError):
            os.killpg(session, signal.SIGTERM)
        while living(session) and time.monotonic() < deadline:
            reap()
            time.sleep(0.1)
    finally:  # also if somebody does not want to wait for a clean end: orphans would be worse
        kill(session, reap=reap)
        reap()
