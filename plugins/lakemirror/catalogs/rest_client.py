"""Speaks HTTP with an Iceberg REST catalog: configuration, login, bounded requests, errors in our own words.

Properties have pyiceberg's names: `uri`, `warehouse`, `token` or `credential` with `oauth2-server-uri`, `scope`,
`audience`, `resource`, `prefix`, `header.<name>`; and our own `rest.timeout-s`. What is not there is refused by name.
Every request has a time limit and every answer a size limit. What may be asked twice (all but commits) is asked again
when it fails for a passing reason, a few times, as late as the server wants it. No secret is ever part of an error or
of a repr.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, unquote

from lakemirror.errors import PermanentError, TransientError, UnsupportedError
from lakemirror.model import bounded_json
from lakemirror.model.table import TableRef

if TYPE_CHECKING:
    from requests import Response, Session

Json = dict[str, Any]
TIMEOUT_S: Final = 60.0
CONNECT_TIMEOUT_S: Final = 10.0
MAX_ANSWER_BYTES: Final = 1 << 28
ATTEMPTS: Final = 4
_FIRST_PAUSE_S: Final = 0.3
_LONGEST_PAUSE_S: Final = 20.0
_LOGIN: Final = ("token", "credential")
_REFUSED: Final = {
    "rest.sigv4-enabled": "SigV4 is not in this version",
    "auth": "pyiceberg's auth managers are not in this version",
    "signer": "signers are not supported",
}
_THROTTLED: Final = 429
_EXPIRED: Final = (401, 419)
_FORBIDDEN: Final = 403


T = TypeVar("T")


class BusyError(TransientError):
    """The server wants to be left alone, for `pause_s` at least if it said so."""

    pause_s: float = 0.0


class UnknownOutcomeError(TransientError):
    """A request was sent and nobody told what became of it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said: `error_type` is its own name of an error, if it spoke as a catalog."""

    status: int
    body: Json
    e_tag: str | None = None
    error_type: str = ""
    message: str = ""
    retry_after: str = ""

    @property
    def is_ok(self) -> bool:
        return self.status < 300

    @property
    def says_missing(self) -> bool:
        """There is no such table or namespace; a 404 for any other reason is none."""
        return self.status == 404 and self.error_type.startswith("NoSuch")


@dataclass(slots=True)
class _Server:
    """What GET /v1/config told, merged: its defaults, then ours, then its overrides."""

    properties: dict[str, str]
    endpoints: frozenset[str] | None
    session: Session
    separator: str = "\x1f"
    token: str | None = field(default=None, repr=False)


class RestClient:
    """One catalog. Threads may share it; it connects when it is first asked, once per process."""

    def __init__(
        self, name: str, properties: Mapping[str, str], *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._name = name
        self._given = dict(properties)
        self._sleep = sleep
        self._server: _Server | None = None
        self._lock = threading.RLock()
        for key, why in _REFUSED.items():
            if any(own == key or own.startswith(f"{key}.") for own in properties if properties[own] != "false"):
                raise UnsupportedError("open catalog", name, f"{key}: {why}", "use token, or credential")

    def __repr__(self) -> str:
        return f"RestClient({self._name!r})"

    @property
    def name(self) -> str:
        return self._name

    def properties(self) -> dict[str, str]:
        """All properties in force, with what the server hands out; those of the login are left out."""
        found = self._connected("open catalog").properties
        return {key: value for key, value in found.items() if key not in _LOGIN}

    def has_endpoint(self, verb: str, path: str) -> bool:
        """Whether the server says that it has it; one that says nothing of endpoints is taken to have it."""
        endpoints = self._connected("open catalog").endpoints
        return endpoints is None or f"{verb} /v1/{{prefix}}/{path}" in endpoints

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
        return self._patiently(ask)

    def post(self, path: str, body: Json, op: str, subject: str) -> Answer:
        """UnknownOutcomeError if it was sent and no clear answer came; TransientError if it was not taken at all."""
        answer = self._authorized("POST", path, op, subject, body, {}, {})
        if answer.status >= 500 and answer.status != 501:
            raise UnknownOutcomeError(op, subject, self._words(answer), "run again")
        return self._judged(answer, op, subject)

    def explained(self, answer: Answer, op: str, subject: str) -> PermanentError:
        """An answer that the caller has no use for."""
        hint = "check catalog.uri, warehouse and what the catalog says"
        return PermanentError(op, subject, self._words(answer), hint)

    # ------------------------------------------------------------------------------------------------------ inside

    def _judged(self, answer: Answer, op: str, subject: str) -> Answer:
        if answer.status == _THROTTLED or (answer.status >= 500 and answer.status != 501):
            after = f" in {answer.retry_after} s" if answer.retry_after else ""
            busy = BusyError(op, subject, self._words(answer), f"run again{after}")
            busy.pause_s = float(answer.retry_after) if answer.retry_after.isdecimal() else 0.0
            raise busy
        if answer.status in (*_EXPIRED, _FORBIDDEN):
            hint = "check token, or credential and oauth2-server-uri, and what they may do"
            raise PermanentError(op, subject, self._words(answer), hint)
        return answer

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Of what may be asked twice without harm; not beyond twice the time of one request."""
        timeout_s = float(self._given.get("rest.timeout-s", TIMEOUT_S))
        deadline = time.monotonic() + 2 * timeout_s
        for attempt in range(1, ATTEMPTS):
            try:
                return ask()
            except TransientError as err:
                wanted = err.pause_s if isinstance(err, BusyError) else 0.0
                pause_s = min(_LONGEST_PAUSE_S, wanted + random.uniform(0.5, 1) * _FIRST_PAUSE_S * 2**attempt)
                if time.monotonic() + pause_s > deadline:
                    raise
            self._sleep(pause_s)
        return ask()

    def _words(self, answer: Answer) -> str:
        told = f"{answer.error_type}: {answer.message}" if answer.error_type else answer.message
        return self._clean(f"catalog {self._name} answered {answer.status} ({told or 'nothing more'})")

    def _clean(self, text: str) -> str:
        """Without any secret that the server, or a library, might have repeated."""
        secrets = [self._given.get(key, "") for key in _LOGIN]
        secrets += [self._given.get("credential", "").partition(":")[2]]
        secrets += [value for key, value in self._given.items() if key.startswith("header.") or "secret" in key]
        if self._server is not None and self._server.token:
            secrets.append(self._server.token)
        for secret in sorted({one for one in secrets if one}, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _authorized(
        self,
        verb: str,
        path: str,
        op: str,
        subject: str,
        body: Json | None,
        headers: Mapping[str, str],
        query: Mapping[str, str],
    ) -> Answer:
        """With a new token if the one we have is no longer taken, once."""
        server = self._connected(op)
        token = server.token
        prefix = server.properties.get("prefix", "").strip("/")
        url = self._url(server.properties["uri"], f"{prefix}/{path}" if prefix else path)
        answer = self._send(server, verb, url, op, subject, body, headers, query)
        if answer.status in _EXPIRED and "credential" in self._given:
            with self._lock:
                if server.token == token:
                    server.token = self._new_token(server, op)
            answer = self._send(server, verb, url, op, subject, body, headers, query)
        return answer

    def _send(
        self,
        server: _Server,
        verb: str,
        url: str,
        op: str,
        subject: str,
        body: Json | None,
        headers: Mapping[str, str],
        query: Mapping[str, str],
    ) -> Answer:
        sent = {**headers, **({"Authorization": f"Bearer {server.token}"} if server.token else {})}
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        return self._exchange(server.session, verb, url, op, subject, data, sent, query)

    def _exchange(
        self,
        session: Session,
        verb: str,
        url: str,
        op: str,
        subject: str,
        data: bytes | Mapping[str, str] | None,
        headers: Mapping[str, str],
        query: Mapping[str, str],
    ) -> Answer:
        import requests

        timeout = (CONNECT_TIMEOUT_S, float(self._given.get("rest.timeout-s", TIMEOUT_S)))
        try:
            with session.request(
                verb,
                url,
                data=data,
                headers=dict(headers),
                params=dict(query),
                timeout=timeout,
                stream=True,
                allow_redirects=False,
                auth=lambda request: request,  # otherwise a .netrc would overwrite the token
            ) as response:
                return self._read(response, op, subject)
        except requests.exceptions.ConnectTimeout as err:
            raise TransientError(op, subject, self._silence(err), "run again") from None
        except (requests.RequestException, OSError, ValueError) as err:
            kind = TransientError if verb == "GET" else UnknownOutcomeError
            raise kind(op, subject, self._silence(err), "run again") from None

    def _silence(self, err: Exception) -> str:
        return self._clean(f"catalog {self._name} did not answer ({type(err).__name__}: {err})")

    def _read(self, response: Response, op: str, subject: str) -> Answer:
        data = bytearray()
        for chunk in response.iter_content(1 << 16):
            data += chunk
            if len(data) > MAX_ANSWER_BYTES:
                raise PermanentError(op, subject, f"the answer has more than {MAX_ANSWER_BYTES} bytes", "ask for less")
        status, e_tag = response.status_code, response.headers.get("ETag")
        try:
            body = bounded_json.loads(bytes(data)) if data else {}
        except ValueError:
            if status < 300:
                raise
            body = {}
        if not isinstance(body, dict):
            raise PermanentError(op, subject, "the answer is not of an Iceberg catalog", "check catalog.uri")
        error = body.get("error")
        told: Json = error if isinstance(error, dict) else {"message": str(error or "")}
        after = response.headers.get("Retry-After", "")
        return Answer(status, body, e_tag, str(told.get("type") or ""), str(told.get("message") or ""), after)

    # ----------------------------------------------------------------------------------------------------- connect

    def _connected(self, op: str) -> _Server:
        with self._lock:
            if self._server is None:
                self._server = self._patiently(lambda: self._connect(op))
            return self._server

    def _connect(self, op: str) -> _Server:
        import requests

        session = requests.Session()
        session.headers.update(
            {"Content-Type": "application/json", "X-Client-Version": "1.11.0", "User-Agent": "lakemirror"}
        )
        session.headers.update(
            {key.removeprefix("header."): value for key, value in self._given.items() if key.startswith("header.")}
        )
        server = _Server(dict(self._given), None, session, token=self._given.get("token"))
        if "credential" in self._given:
            server.token = self._new_token(server, op)
        warehouse = self._given.get("warehouse")
        query = {"warehouse": warehouse} if warehouse else {}
        url = self._url(self._given["uri"], "config")
        answer = self._send(server, "GET", url, op, self._name, None, {}, query)
        answer = self._judged(answer, op, self._name)
        if not answer.is_ok:
            raise self.explained(answer, op, self._name)
        server.properties = {
            **_texts(answer.body.get("defaults")),
            **self._given,
            **_texts(answer.body.get("overrides")),
        }
        endpoints = answer.body.get("endpoints")
        server.endpoints = frozenset(map(str, endpoints)) if isinstance(endpoints, list) else None
        server.separator = unquote(server.properties.get("namespace-separator") or "\x1f")
        return server

    def _new_token(self, server: _Server, op: str) -> str:
        """OAuth2 client credentials (RFC 6749, 4.4)."""
        login, colon, secret = self._given["credential"].partition(":")
        form = {"grant_type": "client_credentials", "scope": self._given.get("scope", "catalog")}
        form |= {"client_id": login, "client_secret": secret} if colon else {"client_secret": login}
        form |= {key: self._given[key] for key in ("audience", "resource") if key in self._given}
        url = self._given.get("oauth2-server-uri") or self._url(self._given["uri"], "oauth/tokens")
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        try:
            answer = self._exchange(server.session, "POST", url, "log in", self._name, form, headers, {})
        except UnknownOutcomeError as err:
            raise TransientError(err.op, err.subject, err.message, err.hint) from None
        if answer.status >= 500 or answer.status == _THROTTLED:
            raise TransientError("log in", self._name, self._words(answer), "run again")
        token = answer.body.get("access_token")
        if not answer.is_ok or not isinstance(token, str):
            raise PermanentError("log in", self._name, self._words(answer), "check credential and oauth2-server-uri")
        return token

    def _url(self, uri: str, path: str) -> str:
        return f"{uri.rstrip('/')}/v1/{path}"

    def __getstate__(self) -> dict[str, object]:
        return {"_name": self._name, "_given": self._given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_name"], state["_given"])  # type: ignore[misc]


def _texts(found: object) -> dict[str, str]:
    return (
        {str(key): str(value) for key, value in found.items() if value is not None} if isinstance(found, dict) else {}
    )
