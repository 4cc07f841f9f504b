"""One HTTP exchange with a catalog: bounded in time and size, told in our own words, without any secret in them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from lakemirror.catalogs.answer_body import read_body
from lakemirror.errors import PermanentError, TransientError, UsageError
from lakemirror.model import bounded_json

if TYPE_CHECKING:
    from requests import PreparedRequest, Response, Session

Json = dict[str, Any]
Auth = Callable[["PreparedRequest"], "PreparedRequest"]
TIMEOUT_S: Final = 60.0
CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMES: Final = 4  # as long as a server may be silent may it take to send an answer
LOGIN: Final = ("token", "credential")
_KEPT_TOKENS: Final = 16
_GOOGLES_MISSING: Final = "NOT_FOUND"
_SECRET_WORDS: Final = ("secret", "credentials-json", "session-token")


class BusyError(TransientError):
    """The server wants to be left alone, for `pause_s` at least if it said so. It did nothing."""

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
    retry_after_s: float = 0.0
    tries: int = 1
    follows_silence: bool = False  # an earlier sending of the same got no answer, and may still arrive

    @property
    def is_ok(self) -> bool:
        return self.status < 300

    @property
    def is_trouble(self) -> bool:
        """The server's own, or of the way there (408: what was sent may have been taken); 501 is a plain no."""
        return self.status == 408 or (self.status >= 500 and self.status != 501)

    @property
    def says_missing(self) -> bool:
        """There is no such table or namespace; a 404 for any other reason is none."""
        return self.status == 404 and (self.error_type.startswith("NoSuch") or self.error_type == _GOOGLES_MISSING)


def number_of(properties: Mapping[str, str], key: str, default: float) -> float:
    """A property that is a number, not below zero."""
    try:
        found = float(properties.get(key, default))
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise UsageError("open catalog", key, "it is not a number", "write a number, 0 or more")
    return found


def as_it_is(request: PreparedRequest) -> PreparedRequest:
    """No login; given to requests all the same, because otherwise a .netrc would bring one."""
    return request


class Transport:
    """Threads may share it. A session is opened when it is first needed."""

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self.name = name
        self.timeout_s = number_of(properties, "rest.timeout-s", TIMEOUT_S)
        self._headers = {
            "Content-Type": "application/json",
            "X-Client-Version": "1.11.0",
            "User-Agent": "lakemirror",
            **{key.removeprefix("header."): value for key, value in properties.items() if key.startswith("header.")},
        }
        self._secrets = _secrets_of(properties)
        self._tokens: deque[str] = deque(maxlen=_KEPT_TOKENS)
        self._session: Session | None = None
        self._lock = threading.Lock()

    def hide(self, token: str) -> None:
        """Another text that must not be shown."""
        if token not in self._tokens:
            self._tokens.append(token)

    def exchange(
        self,
        verb: str,
        url: str,
        op: str,
        subject: str,
        *,
        data: bytes | Mapping[str, str] | None = None,
        headers: Mapping[str, str] = {},
        query: Mapping[str, str] = {},
        auth: Auth = as_it_is,
    ) -> Answer:
        """TransientError if it surely did nothing, UnknownOutcomeError if nobody knows; any answer is returned."""
        import requests

        try:
            with self._opened().request(
                verb,
                url,
                data=data,
                headers=dict(headers),
                params=dict(query),
                timeout=(min(CONNECT_TIMEOUT_S, self.timeout_s), self.timeout_s),
                stream=True,
                allow_redirects=False,
                auth=auth,
            ) as response:
                return self._understood(verb, response, op, subject)
        except requests.exceptions.ConnectTimeout as err:
            raise TransientError(op, subject, self._silence(err), "run again") from None
        except (requests.RequestException, OSError, ValueError) as err:
            kind = TransientError if verb == "GET" else UnknownOutcomeError
            raise kind(op, subject, self._silence(err), "run again") from None

    def words(self, answer: Answer) -> str:
        told = f"{answer.error_type}: {answer.message}" if answer.error_type else answer.message
        return self.clean(f"catalog {self.name} answered {answer.status} ({told or 'nothing more'})")

    def clean(self, text: str) -> str:
        """Without any secret that the server, or a library, might have repeated."""
        for secret in sorted({*self._secrets, *self._tokens}, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _opened(self) -> Session:
        import requests

        with self._lock:
            if self._session is None:
                self._session = requests.Session()
                self._session.headers.update(self._headers)
            return self._session

    def _silence(self, err: Exception) -> str:
        return self.clean(f"catalog {self.name} did not answer ({type(err).__name__}: {err})")

    def _understood(self, verb: str, response: Response, op: str, subject: str) -> Answer:
        try:
            return self._read(response, op, subject)
        except PermanentError as err:
            if verb == "GET":
                raise
            raise UnknownOutcomeError(op, subject, err.message, err.hint) from err  # it was sent, and may be done

    def _read(self, response: Response, op: str, subject: str) -> Answer:
        data = read_body(response, op, subject, time_s=ANSWER_TIMES * self.timeout_s, clock=time.monotonic)
        status, e_tag = response.status_code, response.headers.get("ETag")
        try:
            body = bounded_json.loads(data) if data else {}
        except ValueError:
            if status < 300:
                raise
            body = {}
        if not isinstance(body, dict):
            if status < 300:
                raise PermanentError(op, subject, "the answer is not of an Iceberg catalog", "check catalog.uri")
            body = {}  # of something on the way there: its status counts
        error = body.get("error")
        told: Json = error if isinstance(error, dict) else {"message": str(error or "")}
        after = _seconds(response.headers.get("Retry-After", ""), response.headers.get("Date", ""))
        kind = str(told.get("type") or told.get("status") or "")  # Iceberg's way to say it, and Google's
        return Answer(status, body, e_tag, kind, str(told.get("message") or ""), after)


def _seconds(after: str, sent: str) -> float:
    """What Retry-After asks for, in either of its forms; a moment counts from when the server says that it answered."""
    if after.isdecimal():
        return float(after)
    if (until := _moment(after)) is None:
        return 0.0
    return max(0.0, (until - (_moment(sent) or datetime.now(UTC))).total_seconds())


def _moment(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _secrets_of(properties: Mapping[str, str]) -> frozenset[str]:
    found = [properties.get(key, "") for key in LOGIN]
    found += [properties.get("credential", "").partition(":")[2]]
    found += [
        value
        for key, value in properties.items()
        if key.startswith("header.") or any(word in key for word in _SECRET_WORDS)
    ]
    return frozenset(one for one in found if one)
