"""The thread that renews a lease, and the lock that it shares with the run, as greenlets have them.

The keeper is an actor of its own that belongs to the process of its run: it dies with it, and its death ends the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from greenlet import getcurrent, greenlet

from tests.simulation.world import Actor

_WAIT_S = 0.01


class Lock:
    """A lock that its owner may take again; others wait their turn."""

    def __init__(self) -> None:
        self._owner: greenlet | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me = getcurrent()
        while self._owner is not None and self._owner is not me:
            me.actor.sleep(_WAIT_S)
        self._owner, self._depth = me, self._depth + 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None


class Done:
    """An event that one keeper waits for."""

    def __init__(self) -> None:
        self.is_set = False
        self.keeper: Actor | None = None

    def wait(self, timeout_s: float) -> bool:
        if not self.is_set and self.keeper is not None:
            self.keeper.sleep(timeout_s)
        return self.is_set

    def set(self) -> None:
        self.is_set = True
        if self.keeper is not None:
            self.keeper.wakes_at = 0.0
            self.keeper = None  # which knows this event: neither holds the other any longer


@contextmanager
def kept(hold: Any) -> Iterator[None]:
    """In place of `_Hold.kept`, which starts a thread."""
    actor: Actor = getcurrent().actor
    done = Done()
    keeper = Actor(f"{actor.name}'s keeper", actor.world, lambda me: hold._keep(done), actor.skew_s, process=actor)
    done.keeper, keeper.wakes_at = keeper, actor.world.time
    actor.world.actors.append(keeper)
    try:
        yield
    finally:
        done.set()
        while not keeper.is_done:
            actor.sleep(_WAIT_S)
        actor.world.actors.remove(keeper)
