"""Who asks: the Python processes of Spark's tasks by the ports that their requests come from."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import psutil


def tasks_below(pid: int) -> list[psutil.Process]:
    """The Python processes of tasks below a process: each was made by a daemon of its executor."""
    python: dict[int, int] = {}
    below = psutil.Process(pid).children(recursive=True)
    for one in below:
        with suppress(psutil.NoSuchProcess):  # it ended while we looked, also as a zombie
            if "pyspark.daemon" in one.cmdline():
                python[one.pid] = one.ppid()
    return [one for one in below if python.get(one.pid) in python]


def tasks_asking(pid: int, ports: Collection[int]) -> list[int]:
    """Of these, the ones that hold a connection from one of the ports: they wait for its answer."""
    found = []
    for task in tasks_below(pid):
        with suppress(psutil.NoSuchProcess):
            if any(one.laddr.port in ports for one in task.net_connections()):
                found.append(task.pid)
    return found
