"""HTTP for the wires: one pool of connections per wire, answers and failures in the words of the port.

Nothing is retried, redirected or decompressed: bytes arrive as they were stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.metering import mark
from lakemirror.storage.port import (
    EXPIRED,
    ConditionFailed,
    ConflictError,
    DamagedError,
    ObjectNotFound,
    ThrottledError,
    cut_short,
    has_expired,
)
from lakemirror.storage.wires.connection import RawAnswer
from lakemirror.storage.wires.pool import AddressError, Place, Pool

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024  # of listings and such; objects are read by their length
_MAX_ERROR_BYTES: Final = 64 * 1024
_CODE: Final = re.compile(rb"<Code>\s*(\w{1,100})\s*</Code>")
_DAMAGED: Final = frozenset({"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"})
_PASSING: Final = frozenset({"RequestTimeout", "IncompleteBody", "OperationAborted", "InternalError"})
_THROTTLED: Final = frozenset({"SlowDown", "RequestLimitExceeded", "Throttling", "TooManyRequests"})
_TOLD_LATE: Final = re.compile(rb"\s*(<\?xml[^>]{0,200}\?>\s*)?<Error[\s>]")
_STATUS_OF: Final = {
    "AccessDenied": 403,
    "ConditionalRequestConflict": 409,
    "InvalidPart": 404,
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NoSuchUpload": 404,
    "PreconditionFailed": 412,
    "ServiceUnavailable": 503,
}
"""The status of an error that is told in a body after 200."""
_REFUSED: Final = (400, 401, 403)


@dataclass(frozen=True, slots=True)
class Request:
    """One request about `uri`; path and query are percent-encoded already, and sent as they are."""

    op: str
    uri: str
    method: str
    place: Place
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer; its headers by their names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class UnexplainedError(PermanentError):
    """A refusal without a word: the answer to a HEAD has no body. The same question by a GET has one."""


def encoded(text: str, safe: str = "/") -> str:
    """Percent-encoded as signatures want it: everything but letters, digits, `-._~` and what is safe here."""
    return quote(text, safe=safe)


def encoded_query(pairs: Mapping[str, str]) -> str:
    """Sorted and percent-encoded, as signatures want it."""
    return "&".join(sorted(f"{encoded(name, '')}={encoded(value, '')}" for name, value in pairs.items()))


def environment_proxy(scheme: str, host: str) -> str | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY and NO_PROXY name; asked once for each wire."""
    from urllib.request import getproxies, proxy_bypass

    return None if proxy_bypass(host) else getproxies().get(scheme)


_LET_IN: set[tuple[Place, str]] = set()
"""Buckets that have let this process in, each by its server: a login that they refuse since has expired."""


class Http:
    """Requests of one event loop; connections are kept until `close`."""

    def __init__(self) -> None:
        self._pool: Pool | None = None

    async def ask(self, request: Request) -> Answer:
        """The answer; an error of the port unless it is a success. S3 may tell a failure in a body that began well."""
        answer = await self.read(request, MAX_ANSWER_BYTES)
        if _TOLD_LATE.match(answer.body):
            code = _code(answer.body)
            raise failure(request, _STATUS_OF.get(code, answer.status), code, None)
        return answer

    async def read(self, request: Request, most_bytes: int) -> Answer:
        """A successful answer with at most so many bytes of its body, which is taken as it is."""
        if self._pool is None:
            self._pool = Pool()
        target = f"{request.path}?{request.query}" if request.query else request.path
        body = request.body if request.method in ("PUT", "POST") else None
        mark(_verb(request))
        try:
            raw = await self._pool.ask(
                request.place, request.method, target, request.headers, body, max(most_bytes, _MAX_ERROR_BYTES)
            )
        except AddressError as err:
            raise PermanentError(request.op, request.uri, str(err), "check the endpoint") from err
        except OSError as err:
            raise TransientError(request.op, request.uri, _reason(err), "run again") from err
        if not 200 <= raw.status < 300:
            raise self._refused(request, raw)
        _LET_IN.add(_bucket_of(request))
        return Answer(raw.status, raw.headers, raw.body)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def _refused(self, request: Request, raw: RawAnswer) -> Exception:
        code = _code(raw.body[:_MAX_ERROR_BYTES])
        if (raw.status == 401 or code == "InvalidToken") and _bucket_of(request) in _LET_IN:
            code = "ExpiredToken"
        err = failure(request, raw.status, code, _retry_after_s(raw.headers))
        if request.method == "HEAD" and not code and raw.status in _REFUSED:
            return UnexplainedError(*err.args)
        return err


def _bucket_of(request: Request) -> tuple[Place, str]:
    return request.place, "/".join(request.uri.split("/", 3)[:3])


def check_answer(request: Request, answer: Answer, start: int, length: int, size_bytes: int | None = None) -> None:
    """The range that came must be the one that was asked for, of an object of this size."""
    got = answer.headers.get("content-range", "")
    if answer.status != 206 or not got.startswith(f"bytes {start}-{start + length - 1}/"):
        want = f"want bytes {start}-{start + length - 1}, got {got or 'the whole'}"
        raise PermanentError(
            request.op, request.uri, f"the range is not within the object ({want})", "the object is not what it was"
        )
    if size_bytes is not None and got.rpartition("/")[2] != str(size_bytes):
        want = f"want {size_bytes}, got {got.rpartition('/')[2]}"
        raise PermanentError(
            request.op, request.uri, f"its size is not what it should be ({want})", "find out who wrote it"
        )


def is_whole(request: Request, answer: Answer, size_bytes: int) -> bool:
    """Whether an answer without a range says that it is as long as the object; PermanentError if it says nothing."""
    said = answer.headers.get("content-length", "")
    if answer.status != 200 or not (said.isascii() and said.isdecimal()):
        why = f"the answer does not say its size (status {answer.status})"
        raise PermanentError(request.op, request.uri, why, "check the endpoint")
    return int(said) == size_bytes


def body_of(request: Request, answer: Answer, length: int) -> bytes:
    """The body, which must be of this length."""
    if len(answer.body) != length:
        raise cut_short(request.op, request.uri, length, len(answer.body))
    return answer.body


def failure(request: Request, status: int, code: str, retry_after_s: float | None) -> Exception:
    """What an unsuccessful answer means."""
    op, uri, reason = request.op, request.uri, f"{status} {code}".strip()
    if status in (429, 503) or code in _THROTTLED:
        return ThrottledError(op, uri, f"the store asks for fewer requests ({reason})", "run again", retry_after_s)
    if code in _DAMAGED:
        return DamagedError(op, uri, f"damaged on the way ({reason})", "send it again")
    if code in EXPIRED:
        return has_expired(op, uri, reason)
    if status == 409:
        return ConflictError(op, uri, f"another writer was there at the same time ({reason})", "run again")
    if code in _PASSING or status == 408 or (status >= 500 and status != 501):
        return TransientError(op, uri, f"the store answered {reason}", "run again")
    if status == 404 or code == "InvalidPart":  # of an upload whose parts are not, or no longer, these
        return ObjectNotFound(op, uri, f"there is no such object, upload or bucket ({reason})", "check the URI")
    if status in (304, 412):
        return ConditionFailed(op, uri, "the object exists already, or is not what it was", "read it, and decide")
    if status in (401, 403):
        return PermanentError(op, uri, f"access denied ({reason})", "check credentials and permissions")
    if status == 416:
        return PermanentError(op, uri, "the range is not within the object", "the object is not what it was")
    if 300 <= status < 400:
        return PermanentError(op, uri, f"the bucket is elsewhere ({reason})", "check endpoint and region")
    return PermanentError(op, uri, f"the store refuses this ({reason})", "check URI and storage properties")


def _verb(request: Request) -> str:
    """Under which results count it."""
    if request.op == "uploads":
        return "list"
    if "x-amz-copy-source" in request.headers or "/rewriteTo/" in request.path:
        return "copy"
    return {"PUT": "put", "POST": "put"}.get(request.method, request.method.lower())


def _code(body: bytes) -> str:
    found = _CODE.search(body)
    return found[1].decode() if found else ""


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    said = headers.get("retry-after", "")
    return float(said) if said.isdecimal() and len(said) < 6 else None


def _reason(err: BaseException) -> str:
    return f"{type(err).__name__}: {next(iter(str(err).splitlines()), '')[:300]}".removesuffix(": ")
