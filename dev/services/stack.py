"""The services profile as a whole: `up` makes everything run that is wanted, `down` ends exactly what `up` started.

Whatever was asked for once stays wanted until `down`. Servers start side by side, each after those it needs. One that
does not start does not keep the others from starting; the error names all that failed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from dev.services import gcsemu, hms, ports, processes, spark_cluster
from dev.services.builds import Cache
from dev.services.endpoints import Services
from dev.services.folder import ServicesFolder, write_private
from dev.services.layout import PORTS_OF, Parts, describe
from dev.services.secrets import keep
from dev.services.servers import Servers
from dev.services.starting import Starting


def _say_nothing(line: str) -> None:
    """For those who do not want to hear how it goes."""


def up(
    parts: Parts | None = None,
    *,
    folder: ServicesFolder | None = None,
    cache: Cache | None = None,
    tell: Callable[[str], None] = _say_nothing,
) -> Services:
    """Starts what is missing and says how to get in. ToolMissing: nothing was started."""
    folder, cache = folder or ServicesFolder(), cache or Cache()
    cancelled = threading.Event()
    servers = Servers(folder, tell, cancelled)
    with folder.locked():
        parts = (parts or Parts()) | _recorded(servers)
        for build in parts.builds:
            if not build.is_made(cache):
                build.check()
        at = _settle_ports(folder, servers)
        services = describe(parts, at, keep(folder.secrets))
        starting = Starting(folder, cache, servers, tell, services, at)
        try:
            services = replace(services, started=starting.run(parts))
        finally:
            cancelled.set()
        write_private(folder.env, services.shell())
    return services


def down(*, folder: ServicesFolder | None = None, tell: Callable[[str], None] = _say_nothing) -> list[str]:
    """Ends what `up` started here and waits until it is gone; data stays. Returns the names of what ran."""
    folder = folder or ServicesFolder()
    if not folder.path.exists():
        return []
    servers = Servers(folder, tell, threading.Event())
    with folder.locked():
        folder.env.unlink(missing_ok=True)
        # A record may be missing where a start was killed, so every name is looked for.
        names = sorted(set(PORTS_OF) | set(servers.recorded()))
        with ThreadPoolExecutor(len(names)) as pool:
            ran = list(pool.map(servers.stop, names))
    return [name for name, was_up in zip(names, ran, strict=True) if was_up]


def stop(name: str, *, folder: ServicesFolder | None = None) -> bool:
    """Ends one server politely and forgets it: `up` starts it again, an optional one only if it is asked for."""
    folder = folder or ServicesFolder()
    with folder.locked():
        return Servers(folder, _say_nothing, threading.Event()).stop(name)


def kill(name: str, *, folder: ServicesFolder | None = None) -> bool:
    """SIGKILL for one server and its children, for tests of what happens then; `up` starts it again."""
    folder = folder or ServicesFolder()
    with folder.locked():
        return Servers(folder, _say_nothing, threading.Event()).kill(name)


def running(*, folder: ServicesFolder | None = None) -> dict[str, int]:
    """The pids of all servers that run, by name."""
    folder = folder or ServicesFolder()
    found = {record.stem: processes.Process.read(record) for record in sorted(folder.pids.glob("*.json"))}
    return {name: process.pid for name, process in found.items() if process is not None and process.is_alive}


def _recorded(servers: Servers) -> Parts:
    names = set(servers.recorded())
    has_spark = not names.isdisjoint((spark_cluster.MASTER, *spark_cluster.WORKERS))
    return Parts(gcs=gcsemu.NAME in names, hms=hms.NAME in names, spark=has_spark)


def _settle_ports(folder: ServicesFolder, servers: Servers) -> dict[str, int]:
    """All of them at the first time, so that a part that is added later changes nothing for the others."""
    names = [f"{server}/{port}" for server, of_server in PORTS_OF.items() for port in of_server]
    held = [name for name in names if servers.is_running(name.split("/")[0])]
    kept = ports.read(folder.ports)
    fresh = ports.candidates(random.SystemRandom())
    with folder.choosing_ports() as files:
        others = [port for file in files for port in ports.read(file).values()]
        chosen = ports.choose(names, kept, held=held, others=others, is_free=ports.is_free, fresh=fresh)
        if chosen != kept:
            ports.write(folder.ports, chosen)
    return chosen
