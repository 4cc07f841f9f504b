"""How the heads of a REST catalog move: the first commit, later ones, and what to make of each answer.

The first commit registers our metadata file. Later ones are our own JSON (no library's model stands between: those drop
fields that they do not know). A 200 proves nothing, so callers read back; after a 409 or an answer that never came this
module reads back too, and says whether it was done, was not done, or was overtaken.

What no updates can say is a whole swap (register with `overwrite`) under the lease, where the server has it; otherwise
it is left out if nothing but late tags need it; otherwise it is refused. Each is told. What a server takes but cannot
compare goes under the lease, too, drops among it, and so does the first commit after a drop; and if nobody told what
became of it, that lease ends by itself and not before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol
from urllib.parse import quote

from lakemirror.catalogs.comparison import differing
from lakemirror.catalogs.dialect import Dialect, objection
from lakemirror.catalogs.left_out import reduced
from lakemirror.catalogs.ports import MirrorHead, Published
from lakemirror.catalogs.rest_client import RestClient
from lakemirror.catalogs.rest_transport import Answer, UnknownOutcomeError
from lakemirror.catalogs.updates import Commit, Inexpressible, commit_of
from lakemirror.errors import LakemirrorError, LostRaceError, PermanentError, TransientError, UnsettledError
from lakemirror.model.table import TableRef

Json = dict[str, Any]
UNSUPPORTED: Final = "unsupported_by_catalog"
REGISTER: Final = "namespaces/{namespace}/register"
_VIEW: Final = "namespaces/{namespace}/views/{view}"
_NO_SUCH_ENDPOINT: Final = (404, 405, 406, 501)
_BAD_REQUEST: Final = 400
_NOT_UNDERSTOOD: Final = (400, 406, 422, 501)  # an update that the server does not know
_CONFLICT: Final = 409
_WAIT: Final = "run again: followers wait until the lease of swaps has ended by itself; the request may still arrive"
_WAIT_FOR_DROP: Final = "run again when the lease of swaps has ended by itself: until then the request may still arrive"


class Turn(Protocol):
    """The lease of swaps, held."""

    def renew(self) -> None:
        """Another lease time from now; LostRaceError if somebody else has it."""

    def is_over(self) -> bool:
        """Whether its time has passed by our clock. Nobody is asked."""


# Holds the table's lease for swaps while it lasts; an UnsettledError leaves it to expire. None: this table has none.
Lease = AbstractContextManager[Turn]
WithLease = Callable[[TableRef], Lease | None]


class SendAlone(Protocol):
    def __call__(self, *, may_repeat: Callable[[], None]) -> Answer: ...


class RestCommits:
    """`load` reads a head. Without `with_lease` nothing is ever sent that the server does not compare."""

    def __init__(
        self,
        client: RestClient,
        dialect: Dialect,
        load: Callable[[TableRef], MirrorHead | None],
        with_lease: WithLease | None,
    ) -> None:
        self._client = client
        self._dialect = dialect
        self._load = load
        self._with_lease = with_lease

    def __getstate__(self) -> dict[str, object]:
        """Other processes only read: a lease does not travel."""
        return {**self.__dict__, "_with_lease": None}

    @property
    def has_whole_swap(self) -> bool | None:
        """None: no server tells whether its register can overwrite, unless its kind is known."""
        can_register = self._client.has_endpoint("POST", REGISTER)
        return self._dialect.has_whole_swap if can_register and self._with_lease is not None else False

    def commit(self, table: TableRef, expected: MirrorHead | None, new: Published) -> None:
        lease = self._lease_of(table) if new.follows_drop else None
        if lease is None:
            self._commit(table, expected, new)
            return
        with lease as turn:  # no drop is on its way under another lease
            self._look("commit", table, expected, turn)
            held = RestCommits(self._client, self._dialect, self._load, lambda table: nullcontext(turn))
            held._commit(table, expected, new)

    def _commit(self, table: TableRef, expected: MirrorHead | None, new: Published) -> None:
        shown = None if expected is None else expected.metadata
        found = objection(self._dialect, table, new.metadata_uri, shown, new.metadata)
        if found is not None:
            raise PermanentError("commit", str(table), f"{UNSUPPORTED}: {found.message}", found.hint)
        try:
            if expected is None:
                self._ensure_namespaces(table, new)
                self._settled(table, expected, new, lambda: self._registered(table, new))
            elif expected.metadata is None:
                raise Inexpressible(f"what it shows cannot be read ({expected.problem})")
            else:
                self._update(table, expected, expected.metadata, new)
        except Inexpressible as err:
            if expected is not None and self._otherwise(table, expected, new):
                return
            drop = f"drop-mirror {table} --yes"
            hint = f"`{drop}`, or `{drop} --overwrite-foreign` if somebody else wrote to it, and then sync: files stay"
            raise PermanentError("commit", str(table), f"{UNSUPPORTED}: {err}", hint) from err

    def _registered(self, table: TableRef, new: Published) -> Answer:
        if self._client.has_endpoint("POST", REGISTER):
            answer = self._register(table, new)
            if answer.says_missing or answer.status not in _NO_SUCH_ENDPOINT:
                return answer
        try:
            answer = self._post(table, commit_of(None, new.metadata).as_json())
            if answer.status not in _NOT_UNDERSTOOD:
                return answer
        except UnknownOutcomeError:
            if self._load(table) is not None:
                raise
        # a server that cannot remove schemas; of the two one is taken at most: the other finds a table there
        return self._post(table, commit_of(None, new.metadata, may_guard=False).as_json())

    def _register(self, table: TableRef, new: Published) -> Answer:
        return self._client.post(*self._registration(table, new), "register", str(table))

    def _registration(self, table: TableRef, new: Published) -> tuple[str, Json]:
        path = REGISTER.format(namespace=self._client.namespace_path(table.namespace))
        return path, {"name": table.name, "metadata-location": new.metadata_uri}

    def _update(self, table: TableRef, expected: MirrorHead, old: Json, new: Published) -> None:
        commit = commit_of(old, new.metadata)

        def send() -> Answer:
            answer = self._post(table, commit.as_json())
            if answer.status in _NOT_UNDERSTOOD and commit.is_guarded:  # a server that cannot remove schemas
                less = commit_of(old, new.metadata, may_guard=False)
                answer = self._send_alone(table, expected, new, less, answer)
            return answer

        self._settled(table, expected, new, send)

    def _send_alone(
        self, table: TableRef, expected: MirrorHead, new: Published, commit: Commit, refused: Answer
    ) -> Answer:
        """A commit that no requirement of another would notice: one follower at a time, from the head that is there."""
        lease = self._lease_of(table)
        if lease is None:
            told = self._client.explained(refused, "commit", str(table)).message
            message = f"{UNSUPPORTED}: it changes nothing that the catalog compares, and {told}"
            raise PermanentError("commit", str(table), message, "set fence: true: then followers come one at a time")
        return self._alone(lease, table, expected, new, partial(self._post, table, commit.as_json()))

    def _lease_of(self, table: TableRef) -> Lease | None:
        return None if self._with_lease is None else self._with_lease(table)

    def _alone(self, lease: Lease, table: TableRef, expected: MirrorHead, new: Published, send: SendAlone) -> Answer:
        """For what compares nothing: the lease and a last look stand in, before each time that it is sent.

        Without an answer the request may still be on its way, and would put this version over any newer one. So unless
        it is seen to be done it is an UnsettledError, whatever the head is now, and nobody else comes in yet.
        """
        with lease as turn:
            self._look("commit", table, expected, turn)
            try:
                answer = send(may_repeat=partial(self._look_again, "commit", table, expected, turn))
                if answer.follows_silence and not answer.is_ok:  # what it was told is no answer to the one before
                    told = self._client.explained(answer, "commit", str(table)).message
                    raise UnknownOutcomeError("commit", str(table), told, "run again")
                return answer
            except UnknownOutcomeError as err:
                try:
                    self._settle(table, expected, new, err)
                except LakemirrorError as told:
                    raise UnsettledError("commit", str(table), told.message, _WAIT) from err
                return Answer(200, {})

    def _look(self, op: str, table: TableRef, expected: MirrorHead | None, turn: Turn | None) -> None:
        """Right before it is sent: LostRaceError unless the head is as expected, and it is our turn still."""
        _refuse(op, table, expected, self._load(table), turn)

    def _look_again(self, op: str, table: TableRef, expected: MirrorHead | None, turn: Turn | None) -> None:
        """Time has passed since it was sent and not taken: whoever came meanwhile goes first."""
        if turn is not None:
            turn.renew()
        self._look(op, table, expected, turn)

    def drop(self, table: TableRef, expected: MirrorHead) -> None:
        """The protocol has no conditional drop, so it goes under the lease: a swap on its way would undo it, and it
        would take away what is committed after it.

        It is told not to delete the files. A table that is gone already is no error.
        """
        lease = self._lease_of(table)
        with nullcontext() if lease is None else lease as turn:
            now = self._load(table)
            if now is None:
                return
            _refuse("drop", table, expected, now, turn)
            look = partial(self._look_again, "drop", table, expected, turn)
            self._delete(table, look, "run again" if lease is None else _WAIT_FOR_DROP)

    def _delete(self, table: TableRef, look: Callable[[], None], hint: str) -> None:
        path = self._client.table_path(table)
        query = {"purgeRequested": "false"}
        try:
            answer = self._client.delete(path, "drop", str(table), query=query, may_repeat=look)
        except UnknownOutcomeError as err:
            try:
                is_gone = self._load(table) is None
            except LakemirrorError as silence:
                message = f"{err.message}; whether it was made cannot be read back now ({silence.message})"
                first = "" if isinstance(silence, TransientError) else f"{silence.hint}; then "
                raise UnsettledError("drop", str(table), message, f"{first}{hint}") from err
            if is_gone:
                return
            raise UnsettledError("drop", str(table), f"{err.message}; the table is still there", hint) from err
        if not answer.is_ok and not answer.says_missing:
            raise self._client.explained(answer, "drop", str(table))

    def _post(self, table: TableRef, commit: Json, **more: Callable[[], None]) -> Answer:
        body = {"identifier": {"namespace": list(table.namespace), "name": table.name}, **commit}
        return self._client.post(self._client.table_path(table), body, "commit", str(table), **more)

    def _otherwise(self, table: TableRef, expected: MirrorHead, new: Published) -> bool:
        """No updates lead there. Whether it was swapped as a whole, or went without its late tags."""
        old = expected.metadata
        if self._swap(table, expected, new):
            return True
        less = None if old is None else reduced(old, new.metadata)
        if old is None or less is None:
            return False
        try:
            self._update(table, expected, old, replace(new, metadata=less))
        except Inexpressible:
            return False  # the first reason is the one to tell
        return True

    def _swap(self, table: TableRef, expected: MirrorHead, new: Published) -> bool:
        """Whether the server took our file for the head."""
        lease = None if self.has_whole_swap is False else self._lease_of(table)
        if lease is None:
            return False
        path, body = self._registration(table, new)
        send = partial(self._client.post, path, {**body, "overwrite": True}, "register", str(table))
        answer = self._alone(lease, table, expected, new, send)
        if answer.is_ok:
            return True
        if answer.status in (*_NO_SUCH_ENDPOINT, _BAD_REQUEST, _CONFLICT):
            return False
        raise self._client.explained(answer, "commit", str(table))

    def _ensure_namespaces(self, table: TableRef, new: Published) -> None:
        """All levels, outermost first; one that is there already is fine, if its tables belong where ours lies.

        Whoever may make tables only uses what others have made: what counts is that the innermost is there.
        """
        place = str(new.metadata["location"]).rstrip("/").rpartition("/")[0]
        properties = {"location": place} if self._dialect.has_fixed_place else {}
        refused: list[PermanentError] = []
        for depth in range(1, len(table.namespace) + 1):
            name = ".".join(table.namespace[:depth])
            body = {"namespace": list(table.namespace[:depth]), "properties": properties}
            try:
                answer = self._client.post("namespaces", body, "make namespace", name)
            except PermanentError as err:
                refused.append(err)
                continue
            if not answer.is_ok and answer.status != _CONFLICT:
                refused.append(self._client.explained(answer, "make namespace", name))
        if refused and not self._has_namespace(table.namespace):
            raise refused[0]
        if self._dialect.has_fixed_place:
            self._check_place(table, place)

    def _has_namespace(self, namespace: tuple[str, ...]) -> bool:
        path = f"namespaces/{self._client.namespace_path(namespace)}"
        try:
            return self._client.get(path, "read namespace", ".".join(namespace)).is_ok
        except PermanentError:
            return False  # what was refused first is what counts

    def _check_place(self, table: TableRef, want: str) -> None:
        path = f"namespaces/{self._client.namespace_path(table.namespace)}"
        answer = self._client.get(path, "read namespace", ".".join(table.namespace))
        if not answer.is_ok:
            raise self._client.explained(answer, "read namespace", ".".join(table.namespace))
        got = str((answer.body.get("properties") or {}).get("location") or want).rstrip("/")
        if got != want:
            told = f"{UNSUPPORTED}: tables of its namespace lie in {got} (want {want})"
            raise PermanentError("commit", str(table), told, "make mirror.location the place above the namespace's")

    # ------------------------------------------------------------------------------------------------------- answers

    def _settled(
        self, table: TableRef, expected: MirrorHead | None, new: Published, send: Callable[[], Answer]
    ) -> None:
        try:
            answer = send()
        except UnknownOutcomeError as err:
            self._settle(table, expected, new, err)
            return
        if answer.is_ok:
            return
        if answer.status == _CONFLICT or answer.says_missing:
            now = self._load(table)
            if answer.tries > 1 and _shows(now, new):  # an earlier sending was taken after all
                return
            raise self._refused(table, expected, now, answer)
        raise self._client.explained(answer, "commit", str(table))

    def _refused(
        self, table: TableRef, expected: MirrorHead | None, now: MirrorHead | None, answer: Answer
    ) -> LostRaceError | PermanentError:
        """409: if the head has moved somebody was first; if it has not, the catalog will say the same for ever.

        Unless a table was in the way that is gone: then it was dropped between the answer and our look.
        """
        if has_moved(expected, now):
            return lost_race("commit", table, expected, now)
        told = self._client.explained(answer, "commit", str(table))
        if expected is None and answer.status == _CONFLICT and not self._is_view(table):
            message = f"somebody registered it, and it was dropped since ({told.message})"
            return LostRaceError("commit", str(table), message, "run again")
        message = f"{UNSUPPORTED}: the head has not moved, and {told.message}"
        return PermanentError("commit", str(table), message, "see what the catalog says; nothing was changed")

    def _is_view(self, table: TableRef) -> bool:
        """Whether a view has the name: no table will ever have it as long as that is so."""
        if not self._client.has_endpoint("GET", _VIEW):
            return False
        path = f"namespaces/{self._client.namespace_path(table.namespace)}/views/{quote(table.name, safe='')}"
        return self._client.get(path, "commit", str(table)).is_ok

    def _settle(self, table: TableRef, expected: MirrorHead | None, new: Published, err: UnknownOutcomeError) -> None:
        """Nobody told what became of the commit: what the catalog shows now decides.

        If it comes to pass later, after we looked, it is taken at most once: requirements see to that.
        """
        try:
            now = self._load(table)
        except LakemirrorError as silence:
            message = f"{err.message}; whether it was made cannot be read back now ({silence.message})"
            if isinstance(silence, TransientError):
                raise TransientError("commit", str(table), message, "run again: it finds out") from err
            raise PermanentError("commit", str(table), message, f"{silence.hint}; then run again") from err
        if _shows(now, new):
            return
        if now is not None and now.problem is not None:
            message = f"{err.message}; whether it was made cannot be read back now ({now.problem})"
            raise PermanentError("commit", str(table), message, "check the catalog; then run again") from err
        if has_moved(expected, now):
            lost = lost_race("commit", table, expected, now)
            raise LostRaceError("commit", str(table), f"{err.message}; {lost.message}", lost.hint) from err
        raise TransientError("commit", str(table), f"{err.message}; the head is as before", "run again") from err


def _shows(now: MirrorHead | None, new: Published) -> bool:
    """All that was to be committed: uuid, every ref, snapshots, schemas, properties."""
    return now is not None and now.metadata is not None and not differing(new.metadata, now.metadata)


def has_moved(expected: MirrorHead | None, now: MirrorHead | None) -> bool:
    if expected is None or now is None:
        return (expected is None) != (now is None)
    return expected.metadata_uri != now.metadata_uri


def _refuse(op: str, table: TableRef, expected: MirrorHead | None, now: MirrorHead | None, turn: Turn | None) -> None:
    if has_moved(expected, now):
        raise lost_race(op, table, expected, now)
    if turn is not None and turn.is_over():
        message = "the lease of swaps has ended before this could be sent"
        raise LostRaceError(op, str(table), message, "run again; if it comes again, raise lease_seconds")


def lost_race(op: str, table: TableRef, expected: MirrorHead | None, now: MirrorHead | None) -> LostRaceError:
    want, got = (None if one is None else one.metadata_uri for one in (expected, now))
    return LostRaceError(op, str(table), f"head moved (want {want}, got {got})", "run again: it re-plans")
