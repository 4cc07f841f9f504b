"""Ports on 127.0.0.1: chosen once for each server, kept over runs for as long as nobody else has taken them.

They are taken from below the range that the kernel gives to outgoing connections, so that a port that is free now is
most likely free tomorrow.
"""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from dev.services.folder import write_private
from dev.services.trouble import ServicesError

FIRST, LAST = 20_000, 32_000
MOST_TRIES = 500


def is_free(port: int) -> bool:
    """Whether a server could listen there now; what closed connections leave behind is no hindrance."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def candidates(generator: random.Random) -> Iterator[int]:
    """Random ports, a bounded number of them."""
    return (generator.randint(FIRST, LAST) for _ in range(MOST_TRIES))


def choose(
    names: Iterable[str],
    kept: Mapping[str, int],
    *,
    held: Iterable[str] = (),
    others: Iterable[int] = (),
    is_free: Callable[[int], bool],
    fresh: Iterator[int],
) -> dict[str, int]:
    """A port for each name: the kept one if it is `held` by our own running server or still free, else a fresh one.

    `others` are those that somebody else has chosen, whether or not a server listens there now.
    """
    held, others = set(held), set(others)
    chosen: dict[str, int] = {}
    taken = set(kept.values()) | others
    for name in names:
        port = kept.get(name)
        if (
            port is not None
            and port not in chosen.values()
            and (name in held or (port not in others and is_free(port)))
        ):
            chosen[name] = port
            continue
        found = next((one for one in fresh if one not in taken and is_free(one)), None)
        if found is None:
            raise ServicesError(f"no free port between {FIRST} and {LAST} on 127.0.0.1 for {name}: end what holds them")
        taken.add(found)
        chosen[name] = found
    return chosen


def read(file: Path) -> dict[str, int]:
    """What was chosen before; nothing if the file is not there or was damaged."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {str(name): int(port) for name, port in found.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return {}


def write(file: Path, ports: Mapping[str, int]) -> None:
    write_private(file, json.dumps(ports, indent=1, sort_keys=True))
