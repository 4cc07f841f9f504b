"""Speaks with an Iceberg REST catalog: configuration, login, patience, errors in our own words.

Properties have pyiceberg's names: `uri`, `warehouse`, `prefix`, `header.<name>`, and those of the login; our own are
`rest.timeout-s`, `rest.retries` and `rest.retry-pause-s`. What may be asked twice (all but commits) is asked again when
it fails for a passing reason, a few times, as late as the server wants it. A commit is sent again only if the server
said that it did not take it (429), or if it can tell a second sending from a second commit (idempotency keys).
"""

from __future__ import annotations

import json
import logging
import random
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

from lakemirror.catalogs.rest_login import Login, MakeLogin, login_of
from lakemirror.catalogs.rest_transport import LOGIN, Answer, BusyError, Transport, UnknownOutcomeError, number_of
from lakemirror.errors import LakemirrorError, PermanentError, TransientError
from lakemirror.model.table import TableRef

Json = dict[str, Any]
RETRIES: Final = 3
FIRST_PAUSE_S: Final = 0.6
_LONGEST_PAUSE_S: Final = 20.0
_WAYS_IN: Final = ("s3.endpoint", "s3.access-key-id", "client.access-key-id", "gcs.service.host", "gcs.oauth2.token")
_THROTTLED: Final = 429
_EXPIRED: Final = (401, 419)
_FORBIDDEN: Final = 403
T = TypeVar("T")
Permit = Callable[[], None]
log = logging.getLogger(__name__)

__all__ = ["Answer", "BusyError", "RestClient", "UnknownOutcomeError"]


def _always() -> None:
    """It may be sent at any time."""


class _Repeats:
    """Asks `permit` before each sending but the first, which its caller has looked after; counts them."""

    def __init__(self, permit: Permit) -> None:
        self._permit = permit
        self.sent = 0

    def __call__(self) -> None:
        if self.sent:
            self._permit()
        self.sent += 1


@dataclass(frozen=True, slots=True)
class _Server:
    """What GET /v1/config told; properties are merged: its defaults, then ours, then its overrides."""

    properties: Mapping[str, str]
    endpoints: frozenset[str] | None
    separator: str
    key_lifetime: str


class RestClient:
    """One catalog. Threads may share it; it connects when it is first asked, once per process."""

    def __init__(
        self,
        name: str,
        properties: Mapping[str, str],
        *,
        make_login: MakeLogin = login_of,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._given = dict(properties)
        self._make_login = make_login
        self._sleep = sleep
        self._transport = Transport(name, properties)
        self._login: Login = make_login(self._transport, properties)
        self._retries = int(number_of(properties, "rest.retries", RETRIES))
        self._first_pause_s = number_of(properties, "rest.retry-pause-s", FIRST_PAUSE_S)
        self._server: _Server | None = None
        self._was_let_in = False
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"RestClient({self.name!r})"

    @property
    def name(self) -> str:
        return self._transport.name

    def properties(self) -> dict[str, str]:
        """All properties in force, with what the server hands out; those of the login are left out.

        Where it cannot be asked, or does not let us in, those of the configuration, if they tell the way into a store:
        who works on the store alone does not need the catalog.
        """
        try:
            found = self._connected("open catalog").properties
        except LakemirrorError as err:
            if not any(key in self._given for key in _WAYS_IN):
                raise  # what is missing may be the server's to tell
            log.warning("%s; going on with the properties of the configuration", err)
            found = self._given
        return {key: value for key, value in found.items() if key not in LOGIN and not key.startswith("gcp.auth.")}

    def has_endpoint(self, verb: str, path: str) -> bool:
        """Whether the server says that it has it; one that says nothing of endpoints is taken to have it."""
        endpoints = self._connected("open catalog").endpoints
        return endpoints is None or f"{verb} /v1/{{prefix}}/{path}" in endpoints

    @property
    def has_idempotency_keys(self) -> bool:
        return bool(self._connected("open catalog").key_lifetime)

    def table_path(self, table: TableRef) -> str:
        return f"namespaces/{self.namespace_path(table.namespace)}/tables/{quote(table.name, safe='')}"

    def namespace_path(self, namespace: Iterable[str]) -> str:
        separator = self._connected("open catalog").separator
        return quote(separator, safe="").join(quote(part, safe="") for part in namespace)

    def namespace_text(self, namespace: Iterable[str]) -> str:
        """As a query parameter wants it; it is quoted there."""
        return self._connected("open catalog").separator.join(namespace)

    def get(
        self, path: str, op: str, subject: str, *, headers: Mapping[str, str] = {}, query: Mapping[str, str] = {}
    ) -> Answer:
        """TransientError if it cannot be had now; 404, 304 and what a caller may understand come back as answers."""

        def ask() -> Answer:
            return self._judged(self._authorized("GET", path, op, subject, None, headers, query), op, subject)

        self._connected(op)
        return self._patiently(ask, TransientError)

    def post(self, path: str, body: Json, op: str, subject: str, *, may_repeat: Permit = _always) -> Answer:
        """UnknownOutcomeError if it was sent and no clear answer came; TransientError if it was not taken at all.

        `tries` of the answer says how often it was sent. What went wrong with a sending after one without an answer
        says nothing of that one. Before each sending but the first, whatever the reason, `may_repeat` is asked: it
        raises if it may not be sent any more.
        """
        has_keys = self.has_idempotency_keys
        repeats = _Repeats(may_repeat)

        def send() -> Answer:
            # a key stands for one plan: what was refused once is not asked for again under the same key
            headers = {"Idempotency-Key": str(_uuid7())} if has_keys else {}
            try:
                return once(headers)
            except UnknownOutcomeError:
                if not has_keys:
                    raise
            try:
                return replace(once(headers), follows_silence=True)
            except LakemirrorError as err:
                raise UnknownOutcomeError(op, subject, err.message, "run again") from err

        def once(headers: Mapping[str, str]) -> Answer:
            return self._changed(self._authorized("POST", path, op, subject, body, headers, {}, repeats), op, subject)

        answer = self._patiently(send, BusyError)
        return replace(answer, tries=repeats.sent)

    def delete(
        self, path: str, op: str, subject: str, *, query: Mapping[str, str], may_repeat: Permit = _always
    ) -> Answer:
        """Errors as of `post`."""
        repeats = _Repeats(may_repeat)

        def send() -> Answer:
            return self._changed(self._authorized("DELETE", path, op, subject, None, {}, query, repeats), op, subject)

        return self._patiently(send, BusyError)

    def words(self, answer: Answer) -> str:
        return self._transport.words(answer)

    def explained(self, answer: Answer, op: str, subject: str) -> PermanentError:
        """An answer that the caller has no use for."""
        hint = "check catalog.uri, warehouse and what the catalog says"
        return PermanentError(op, subject, self._transport.words(answer), hint)

    # ------------------------------------------------------------------------------------------------------ inside

    def _changed(self, answer: Answer, op: str, subject: str) -> Answer:
        if answer.is_trouble:
            raise UnknownOutcomeError(op, subject, self._transport.words(answer), "run again")
        return self._judged(answer, op, subject)

    def _judged(self, answer: Answer, op: str, subject: str) -> Answer:
        if answer.status == _THROTTLED or answer.is_trouble:
            after = f" in {answer.retry_after_s:.0f} s" if answer.retry_after_s else ""
            busy = BusyError(op, subject, self._transport.words(answer), f"run again{after}")
            busy.pause_s = answer.retry_after_s
            raise busy
        if answer.status in (*_EXPIRED, _FORBIDDEN):
            hint = "check the login (docs/catalogs.md) and what it may do"
            raise PermanentError(op, subject, self._transport.words(answer), hint)
        return answer

    def _patiently(self, ask: Callable[[], T], passing: type[TransientError]) -> T:
        """Again after a `passing` error; not beyond twice the time of one request."""
        deadline = time.monotonic() + 2 * self._transport.timeout_s
        for attempt in range(self._retries):
            try:
                return ask()
            except passing as err:
                wanted = err.pause_s if isinstance(err, BusyError) else 0.0
                pause_s = min(_LONGEST_PAUSE_S, wanted + random.uniform(0.5, 1) * self._first_pause_s * 2**attempt)
                if pause_s < wanted or time.monotonic() + pause_s > deadline:
                    raise
            self._sleep(pause_s)
        return ask()

    def _authorized(
        self,
        verb: str,
        path: str,
        op: str,
        subject: str,
        body: Json | None,
        headers: Mapping[str, str],
        query: Mapping[str, str],
        before: Permit = _always,
    ) -> Answer:
        server = self._connected(op)
        prefix = server.properties.get("prefix", "").strip("/")
        url = _url(server.properties["uri"], f"{prefix}/{path}" if prefix else path)
        answer = self._sent(verb, url, op, subject, body, headers, query, before)
        self._was_let_in |= answer.is_ok or answer.says_missing
        return answer

    def _sent(
        self,
        verb: str,
        url: str,
        op: str,
        subject: str,
        body: Json | None = None,
        headers: Mapping[str, str] = {},
        query: Mapping[str, str] = {},
        before: Permit = _always,
    ) -> Answer:
        """With a new login if the one we have is no longer taken, once; TransientError if it was good and has no other.

        One that was never good is the caller's answer: it is wrong, not expired. `before` comes before each sending.
        """
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()

        def send(auth: Any) -> Answer:
            before()
            return self._transport.exchange(verb, url, op, subject, data=data, headers=headers, query=query, auth=auth)

        auth = self._login.auth()
        answer = send(auth)
        if answer.status not in _EXPIRED:
            return answer
        if self._login.renew(auth):
            return send(self._login.auth())
        if self._was_let_in:
            hint = "the login was good a moment ago: renew it, then run again"
            raise TransientError(op, subject, self._transport.words(answer), hint)
        return answer

    # ----------------------------------------------------------------------------------------------------- connect

    def _connected(self, op: str) -> _Server:
        with self._lock:
            if self._server is None:
                self._server = self._patiently(lambda: self._connect(op), TransientError)
            return self._server

    def _connect(self, op: str) -> _Server:
        warehouse = self._given.get("warehouse")
        query = {"warehouse": warehouse} if warehouse else {}
        answer = self._judged(
            self._sent("GET", _url(self._given["uri"], "config"), op, self.name, query=query), op, self.name
        )
        if not answer.is_ok:
            raise self.explained(answer, op, self.name)
        defaults, overrides = (_texts(answer.body.get(key)) for key in ("defaults", "overrides"))
        properties = {**defaults, **self._given, **overrides}
        endpoints = answer.body.get("endpoints")
        return _Server(
            properties,
            frozenset(map(str, endpoints)) if isinstance(endpoints, list) else None,
            unquote(properties.get("namespace-separator") or "\x1f"),
            str(answer.body.get("idempotency-key-lifetime") or ""),
        )

    def __reduce__(self) -> tuple[Callable[..., RestClient], tuple[str, dict[str, str]]]:
        """A process that gets it connects for itself."""
        return partial(RestClient, make_login=self._make_login), (self.name, self._given)


def _url(uri: str, path: str) -> str:
    return f"{uri.rstrip('/')}/v1/{path}"


def _texts(found: object) -> dict[str, str]:
    return (
        {str(key): str(value) for key, value in found.items() if value is not None} if isinstance(found, dict) else {}
    )


def _uuid7() -> uuid.UUID:
    """RFC 9562: milliseconds first, then chance."""
    made = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80 | secrets.randbits(80)
    made = made & ~(0xF << 76) | 0x7 << 76
    return uuid.UUID(int=made & ~(0x3 << 62) | 0x2 << 62)
