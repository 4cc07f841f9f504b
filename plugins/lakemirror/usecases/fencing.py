"""The lease of one run: taken when there is something to do, renewed while a stage works, given back at the end.

In the task lane one process holds it from detect to publish. In the Spark lane each task takes it anew in the name of
the run, which shuts out whatever is left of its earlier tries, and leaves it with a full lease time for the next task.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lakemirror.config.knobs import Knobs
from lakemirror.errors import LakemirrorError, PermanentError, UnsettledError
from lakemirror.model.layout import TableLayout
from lakemirror.replicate.fence import Clock, Fence, Held, NoFence, TakesLease
from lakemirror.replicate.process import has_ended
from lakemirror.storage.port import ObjectStore

log = logging.getLogger(__name__)


def fence_of(
    store: ObjectStore, layout: TableLayout, knobs: Knobs, clock: Clock, owner: str, holder: str
) -> TakesLease:
    """The fence of a table as its knobs have it."""
    if not knobs.fence:
        return NoFence()
    times = float(knobs.lease_seconds), float(knobs.clock_skew_seconds)
    return Fence(store, layout, owner, clock, *times, holder, has_ended)


@contextmanager
def swapping(store: ObjectStore, layout: TableLayout, knobs: Knobs, clock: Clock, owner: str) -> Iterator[Held]:
    """Followers one at a time, for a commit that compares nothing.

    The lease is given back when the outcome is known. An UnsettledError, and whatever else may have come after the
    request was sent (a kill, an interruption), leaves it to expire: so nobody takes it over because its process has
    ended, either.
    """
    times = float(knobs.lease_seconds), float(knobs.clock_skew_seconds)
    held = Fence(store, layout, owner, clock, *times, owner, uri=layout.swap_lease).acquire()
    try:
        yield held
    except UnsettledError:
        _leave(held, layout)
        raise
    except LakemirrorError:
        held.release()
        raise
    else:
        held.release()


def _leave(held: Held, layout: TableLayout) -> None:
    """A whole lease time from now: waiting for the answer may have used up the one it was taken for."""
    try:
        held.renew()
    except LakemirrorError as err:
        log.warning("%s: the lease of swaps could not be renewed (%s)", layout.root, err)


@dataclass
class RunLease:
    """What a run holds; `held` is that of a fence that is off until something is taken."""

    fence: TakesLease
    held: Held = field(default_factory=NoFence)
    _is_taken: bool = False

    def take(self, plan_id: str) -> None:
        """TableBusyError while another run works on the table."""
        self.held = self.fence.acquire(plan_id)
        self._is_taken = True

    def go_on(self, plan_id: str) -> None:
        """The same run with another plan."""
        self.held.renew(plan_id)

    @contextmanager
    def whole_run(self, plan_id: str) -> Iterator[None]:
        """All that is left of the run, here."""
        self._take_once(plan_id)
        try:
            with self.held.kept():
                yield
        finally:
            self.held.release()
            self._is_taken = False

    @contextmanager
    def one_stage(self, plan_id: str) -> Iterator[None]:
        """One task of several. What may be tried again keeps the lease; what will not gives it back."""
        self._take_once(plan_id)
        try:
            with self.held.kept():
                yield
            self.held.renew()
        except PermanentError:
            self.held.release()
            raise

    def _take_once(self, plan_id: str) -> None:
        if not self._is_taken:
            self.take(plan_id)
