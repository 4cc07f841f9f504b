"""HTTP for the wires: one pool of connections per wire, answers and failures in the words of the port.

aiohttp rather than obstore: less work of the processor per object (docs/stores.md: 2.3 s where obstore took 2.7), and
headers that obstore cannot send. Nothing is retried, redirected or decompressed: bytes arrive as they were stored.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.port import EXPIRED, ConditionFailed, ObjectNotFound, ThrottledError, cut_short, has_expired

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024  # of listings and such; objects are read by their length
_MAX_ERROR_BYTES: Final = 64 * 1024
_READ_BUFFER_BYTES: Final = 1 << 20
_SLICE_BYTES: Final = 512 * 1024
_CODE: Final = re.compile(rb"<Code>\s*(\w{1,100})\s*</Code>")
_DAMAGED: Final = frozenset({"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"})
_PASSING: Final = frozenset({"RequestTimeout", "IncompleteBody", "OperationAborted", "InternalError"})
_THROTTLED: Final = frozenset({"SlowDown", "RequestLimitExceeded", "Throttling", "TooManyRequests"})
_NOT_AUTOMATIC: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


@dataclass(frozen=True, slots=True)
class Place:
    """Where requests go: `scheme://host`, the host as the signature names it, and the time they may take."""

    origin: str
    host: str
    proxy: str | None
    connect_timeout_s: float
    read_timeout_s: float


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
    """A successful answer, whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def encoded(text: str, safe: str = "/") -> str:
    """Percent-encoded as signatures want it: everything but letters, digits, `-._~` and what is safe here."""
    return quote(text, safe=safe)


def encoded_query(pairs: Mapping[str, str]) -> str:
    """Sorted and percent-encoded, as signatures want it."""
    return "&".join(sorted(f"{encoded(name, '')}={encoded(value, '')}" for name, value in pairs.items()))


def environment_proxy(scheme: str, host: str) -> str | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY and NO_PROXY name; asked once: aiohttp would ask in a thread each time."""
    from urllib.request import getproxies, proxy_bypass

    return None if proxy_bypass(host) else getproxies().get(scheme)


class Http:
    """Connections of one event loop, made as needed and kept until `close`."""

    def __init__(self) -> None:
        self._session: ClientSession | None = None
        self._was_let_in = False

    async def ask(self, request: Request) -> Answer:
        """The answer; an error of the port unless it is a success. S3 may tell a failure in a body that began well."""
        async with self.answered(request) as response:
            body = await _bounded(response, MAX_ANSWER_BYTES)
            if request.method == "POST" and b"<Error>" in body[:1024]:
                raise failure(request, response.status, _code(body), None)
            return Answer(response.status, response.headers, body)

    @asynccontextmanager
    async def answered(self, request: Request) -> AsyncIterator[ClientResponse]:
        """A successful answer whose body is still to be read; what goes wrong meanwhile is the port's error too."""
        import aiohttp
        from yarl import URL

        place = request.place
        target = f"{place.origin}{request.path}{'?' if request.query else ''}{request.query}"
        headers = dict(request.headers)
        if _has_body(request):
            headers["content-length"] = str(len(request.body))
        timeout = aiohttp.ClientTimeout(
            total=None, connect=None, sock_connect=place.connect_timeout_s, sock_read=place.read_timeout_s
        )
        try:
            async with self._opened().request(
                request.method,
                URL(target, encoded=True),
                headers=headers,
                data=_sent(request),
                allow_redirects=False,
                skip_auto_headers=_NOT_AUTOMATIC,
                timeout=timeout,
                proxy=place.proxy,
            ) as response:
                if not 200 <= response.status < 300:
                    said = await _bounded(response, _MAX_ERROR_BYTES)
                    code = _code(said)
                    if self._was_let_in and (response.status == 401 or code == "InvalidToken"):
                        code = "ExpiredToken"
                    raise failure(request, response.status, code, _retry_after_s(response.headers))
                self._was_let_in = True
                yield response
        except aiohttp.InvalidURL as err:
            raise PermanentError(request.op, request.uri, "no address to ask", "check the endpoint") from err
        except (aiohttp.ClientError, OSError, TimeoutError, asyncio.IncompleteReadError) as err:
            raise TransientError(request.op, request.uri, _reason(err), "run again") from err

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _opened(self) -> ClientSession:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=30),  # the caller decides how many at once
                auto_decompress=False,
                read_bufsize=_READ_BUFFER_BYTES,
            )
        return self._session


def check_answer(
    request: Request, response: ClientResponse, start: int, length: int, size_bytes: int | None = None
) -> None:
    """The range that comes must be the one that was asked for, of an object of this size, before its bytes are read."""
    got = response.headers.get("Content-Range", "")
    if response.status != 206 or not got.startswith(f"bytes {start}-{start + length - 1}/"):
        want = f"want bytes {start}-{start + length - 1}, got {got or 'the whole'}"
        raise PermanentError(
            request.op, request.uri, f"the range is not within the object ({want})", "the object is not what it was"
        )
    if size_bytes is not None and got.rpartition("/")[2] != str(size_bytes):
        want = f"want {size_bytes}, got {got.rpartition('/')[2]}"
        raise PermanentError(
            request.op, request.uri, f"its size is not what it should be ({want})", "find out who wrote it"
        )


def is_whole(request: Request, response: ClientResponse, size_bytes: int) -> bool:
    """Whether an answer without a range says that it is as long as the object; PermanentError if it says nothing."""
    said = response.headers.get("Content-Length", "")
    if response.status != 200 or not (said.isascii() and said.isdecimal()):
        why = f"the answer does not say its size (status {response.status})"
        raise PermanentError(request.op, request.uri, why, "check the endpoint")
    return int(said) == size_bytes


async def body_of(request: Request, response: ClientResponse, length: int) -> bytes:
    """The body, which must be of this length."""
    data = await response.read()
    if len(data) != length:
        raise cut_short(request.op, request.uri, length, len(data))
    return data


async def pieces_of(request: Request, response: ClientResponse, length: int, chunk_bytes: int) -> AsyncIterator[bytes]:
    """The same in pieces of exactly `chunk_bytes`, but for the last."""
    done, waiting, size_bytes = 0, [], 0
    async for piece in response.content.iter_any():
        while size_bytes + len(piece) >= chunk_bytes:
            cut = chunk_bytes - size_bytes
            waiting.append(piece[:cut])
            yield b"".join(waiting)
            done, piece, waiting, size_bytes = done + chunk_bytes, piece[cut:], [], 0
        if piece:
            waiting.append(piece)
            size_bytes += len(piece)
    if done + size_bytes != length:
        raise cut_short(request.op, request.uri, length, done + size_bytes)
    if waiting:
        yield b"".join(waiting)


def failure(request: Request, status: int, code: str, retry_after_s: float | None) -> Exception:
    """What an unsuccessful answer means."""
    op, uri, reason = request.op, request.uri, f"{status} {code}".strip()
    if status in (429, 503) or code in _THROTTLED:
        return ThrottledError(op, uri, f"the store asks for fewer requests ({reason})", "run again", retry_after_s)
    if code in _DAMAGED:
        return TransientError(op, uri, f"damaged on the way ({reason})", "send it again")
    if code in EXPIRED:
        return has_expired(op, uri, reason)
    if code in _PASSING or status in (408, 409) or (status >= 500 and status != 501):
        return TransientError(op, uri, f"the store answered {reason}", "run again")
    if status == 404:
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


def _has_body(request: Request) -> bool:
    return request.method in ("PUT", "POST")


def _sent(request: Request) -> bytes | AsyncIterator[memoryview] | None:
    """Small bodies at one stroke; large ones in slices, so that others get their turn between them."""
    if not _has_body(request):
        return None
    return request.body if len(request.body) <= _SLICE_BYTES else _slices(request.body)


async def _slices(body: bytes) -> AsyncIterator[memoryview]:
    whole = memoryview(body)
    for start in range(0, len(whole), _SLICE_BYTES):
        yield whole[start : start + _SLICE_BYTES]


async def _bounded(response: ClientResponse, max_bytes: int) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > max_bytes:
            break
    return bytes(body[:max_bytes])


def _code(body: bytes) -> str:
    found = _CODE.search(body)
    return found[1].decode() if found else ""


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    said = headers.get("Retry-After", "")
    return float(said) if said.isdecimal() and len(said) < 6 else None


def _reason(err: BaseException) -> str:
    return f"{type(err).__name__}: {next(iter(str(err).splitlines()), '')[:300]}".removesuffix(": ")
