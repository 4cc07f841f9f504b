"""Which addresses of this machine processes listen on."""

from __future__ import annotations

from collections.abc import Iterable

import psutil

HERE = {"127.0.0.1"}


def addresses(pids: Iterable[int]) -> set[str]:
    """Those of servers; a process that ends meanwhile listens no more."""
    return {address for pid in pids for address in _addresses(pid)}


def _addresses(pid: int) -> list[str]:
    try:
        found = psutil.Process(pid).net_connections(kind="inet")
    except psutil.NoSuchProcess:
        return []
    return [one.laddr.ip.removeprefix("::ffff:") for one in found if one.status == psutil.CONN_LISTEN]
