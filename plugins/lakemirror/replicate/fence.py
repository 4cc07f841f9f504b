"""The fence: one run at a time works on a table, by a lease in the mirror bucket that is renewed while it works.

It keeps two runs from doing the same work, and garbage collection away from plans in flight. It is taken over only
after it has expired by the taker's clock, `skew_s` later still; at once by a later task of the same run, whose earlier
task is then shut out; and at once if its owner is known to have ended, as a process of this machine can be. Every
taking raises the token. If the object was deleted it goes on above those that markers name, so that one under which
nothing was staged may come a second time: holders tell the two apart, and at worst a run is told that a later one
staged its marker, and runs again.

Safety does not rest on it. A clock that is wrong by more than the allowance, a store that cannot replace by e_tag (it
looks, then writes), or a process that slept past its lease can let two runs work at once: they waste work, and the
chain of ready markers still lets one of them publish.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from lakemirror import bridge
from lakemirror.errors import LakemirrorError, LostRaceError, TableBusyError, TransientError
from lakemirror.model.layout import TableLayout
from lakemirror.model.lease import MAX_BYTES, Lease
from lakemirror.storage.port import Condition, ConditionFailed, Create, IfMatch, ObjectNotFound, ObjectStore

Clock = Callable[[], datetime]
RENEWALS = 3  # within one lease time: one may fail before anybody could take over
_TRIES = 4
_AGAIN = "run again later; it is safe at any time"
log = logging.getLogger(__name__)


class Held(Protocol):
    """A lease that was taken; safe to share between threads. Only `check` and `confirm` are asked at stage borders."""

    @property
    def token(self) -> int | None:
        """What markers that are published under it name; None: there is no fence."""

    @property
    def is_first(self) -> bool:
        """Whether no earlier try at this plan is known; a first try that is none after all only works twice."""

    def renew(self, plan_id: str | None = None) -> None:
        """Another lease time from now, also for another plan; LostRaceError if somebody else has it."""

    def check(self) -> None:
        """LostRaceError if the object shows that somebody else has it, or that it is gone."""

    def confirm(self) -> None:
        """`check`, unless less than half of its time has passed since it was last seen to be ours."""

    def is_over(self) -> bool:
        """Whether its time has passed by our clock; others may have been let in since. Nobody is asked."""

    def release(self) -> None:
        """Let the next one in at once; the token stays. That it was lost before is no error here."""

    def kept(self) -> AbstractContextManager[None]:
        """Renewed by a thread of its own for as long as this lasts."""


class TakesLease(Protocol):
    """What takes the lease of a table before work on it begins."""

    def acquire(self, plan_id: str | None = None) -> Held: ...


class NoFence:
    """The fence switched off: everybody holds it, always, and nothing is written."""

    token: int | None = None
    is_first = False

    def acquire(self, plan_id: str | None = None) -> Held:
        return self

    def renew(self, plan_id: str | None = None) -> None:
        return

    def check(self) -> None:
        return

    def confirm(self) -> None:
        return

    def is_over(self) -> bool:
        return False

    def release(self) -> None:
        return

    @contextmanager
    def kept(self) -> Iterator[None]:
        yield


class Fence:
    """The lease of one table. `owner` names a run; `holder` one process of it, and is never used twice.

    `has_ended` tells of an owner that it will never come back; where that is not certain it says no. `uri` is another
    lease than that of the runs that publish.
    """

    def __init__(
        self,
        store: ObjectStore,
        layout: TableLayout,
        owner: str,
        clock: Clock,
        ttl_s: float,
        skew_s: float,
        holder: str = "",
        has_ended: Callable[[str], bool] = lambda owner: False,
        uri: str | None = None,
    ) -> None:
        self._uri = uri or layout.lease
        self._has_ended = has_ended
        self._store = store
        self._layout = layout
        self._owner = owner
        self._clock = clock
        self._ttl = timedelta(seconds=ttl_s)
        self._skew = timedelta(seconds=skew_s)
        self._holder = holder or owner

    def acquire(self, plan_id: str | None = None) -> Held:
        """The lease, under a new token; TableBusyError, naming owner and time, while another run has it."""
        for _ in range(_TRIES):
            found = _find(self._store, self._uri)
            self._refuse_live(found)
            token = (bridge.highest_token(self._store, self._layout) if found is None else found[0].token) + 1
            now = self._clock()
            lease = Lease(token, self._owner, now + self._ttl, plan_id, self._holder)
            condition = Create() if found is None else IfMatch(found[1])
            e_tag = _put(self._store, self._uri, lease, condition)
            if e_tag is not None:
                log.info("%s: lease %d taken for plan %s", self._layout.root, token, plan_id)
                is_first = found is None or found[0].plan_id != plan_id
                return _Hold(self._store, self._uri, lease, e_tag, self._clock, self._ttl, now, is_first=is_first)
        raise LostRaceError("take lease", self._uri, "others take it at the same time", _AGAIN)

    def _refuse_live(self, found: tuple[Lease, str] | None) -> None:
        if found is None:
            return
        lease = found[0]
        if lease.owner == self._owner or not lease.is_live(self._clock(), self._skew) or self._has_ended(lease.owner):
            return
        until = (lease.expires_at + self._skew).isoformat()
        raise TableBusyError(
            "take lease",
            self._uri,
            f"{lease.owner} works on this table, until {until} unless it renews",
            _AGAIN,
        )


class _Hold:
    """A lease under one token."""

    def __init__(
        self,
        store: ObjectStore,
        uri: str,
        lease: Lease,
        e_tag: str,
        clock: Clock,
        ttl: timedelta,
        seen_at: datetime,
        *,
        is_first: bool,
    ) -> None:
        self.is_first = is_first
        self._store = store
        self._uri = uri
        self._lease = lease
        self._e_tag = e_tag
        self._clock = clock
        self._ttl = ttl
        self._seen_at = seen_at
        self._lost: LostRaceError | None = None
        self._lock = threading.RLock()

    @property
    def token(self) -> int | None:
        return self._lease.token

    def renew(self, plan_id: str | None = None) -> None:
        with self._lock:
            self._raise_if_lost()
            now = self._clock()
            wanted = self._lease.renewed(now + self._ttl)
            self._replace(replace(wanted, plan_id=plan_id or wanted.plan_id), now)
            self.is_first = self.is_first and plan_id is None

    def check(self) -> None:
        with self._lock:
            self._raise_if_lost()
            now = self._clock()
            self._look()
            self._seen_at = now

    def confirm(self) -> None:
        with self._lock:
            self._raise_if_lost()
            if not timedelta(0) <= self._clock() - self._seen_at < self._ttl / 2:
                self.check()

    def is_over(self) -> bool:
        with self._lock:
            return self._clock() >= self._lease.expires_at

    def release(self) -> None:
        with self._lock:
            if self._lost is not None or self._lease.is_released:
                return
            now = self._clock()
            try:
                self._replace(self._lease.released(now), now)
            except LostRaceError as err:
                log.info("%s", err)
            except LakemirrorError as err:  # what was to be done is done, whatever this is; the lease ends by itself
                log.warning("%s: the lease could not be released and will expire (%s)", self._uri, err)

    @contextmanager
    def kept(self) -> Iterator[None]:
        done = threading.Event()
        keeper = threading.Thread(target=self._keep, args=(done,), name="lease", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            done.set()
            keeper.join()

    def _keep(self, done: threading.Event) -> None:
        """Ends with `done`, or when the lease is lost, which the next `check` tells."""
        while not done.wait(self._ttl.total_seconds() / RENEWALS):
            try:
                self.renew()
            except LostRaceError:
                return
            except TransientError as err:
                log.warning("%s: not renewed this time (%s)", self._uri, err)
            except LakemirrorError as err:
                with self._lock:
                    self._lost = LostRaceError("renew lease", self._uri, f"it cannot be renewed ({err})", err.hint)
                return

    def _replace(self, wanted: Lease, now: datetime) -> None:
        """Write `wanted` in the place of what we wrote last, whatever became of the answers to our earlier writes."""
        for _ in range(2):
            e_tag = _put(self._store, self._uri, wanted, IfMatch(self._e_tag))
            if e_tag is not None:
                self._lease, self._e_tag, self._seen_at = wanted, e_tag, now
                return
            self._look()
        raise self._lose("it changes without end")

    def _look(self) -> None:
        """Takes over the e_tag that the object has now, if it is still ours."""
        found = _find(self._store, self._uri)
        if found is None:
            raise self._lose("somebody deleted it")
        lease, e_tag = found
        if (lease.token, lease.holder) != (self._lease.token, self._lease.holder):
            raise self._lose(f"{lease.owner} took it over (want token {self._lease.token}, got {lease.token})")
        self._e_tag = e_tag

    def _lose(self, why: str) -> LostRaceError:
        self._lost = LostRaceError("keep lease", self._uri, why, "run again: it plans from what was published")
        return self._lost

    def _raise_if_lost(self) -> None:
        if self._lost is not None:
            raise self._lost


def _find(store: ObjectStore, uri: str) -> tuple[Lease, str] | None:
    try:
        blob = store.get(uri, max_bytes=MAX_BYTES)
    except ObjectNotFound:
        return None
    return Lease.from_bytes(blob.data, uri), blob.info.e_tag or ""


def _put(store: ObjectStore, uri: str, lease: Lease, condition: Condition) -> str | None:
    """The new e_tag; None if somebody else has written. A write of ours whose answer was lost is found by reading."""
    try:
        return store.put(uri, lease.to_bytes(), condition).e_tag or ""
    except ConditionFailed:
        found = _find(store, uri)
        return found[1] if found is not None and found[0] == lease else None
