"""Connections of the wires: what they send, what they take for an answer, when they are used again, TLS and proxies.

Every test runs on both event loops: copies use uvloop, everything else asyncio's own.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import ssl
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

import pytest
import uvloop

from lakemirror.storage.wires.connection import NoHttpError, RawAnswer
from lakemirror.storage.wires.pool import AddressError, Place, Pool

T = TypeVar("T")
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Run:
    """Runs a test's work on one kind of event loop, within bounds."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._new_loop = new_loop

    def __call__(self, work: Awaitable[T]) -> T:
        async def bounded() -> T:
            return await asyncio.wait_for(work, 30)

        with asyncio.Runner(loop_factory=self._new_loop) as runner:
            return runner.run(bounded())


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return Run(request.param)


class Server:
    """Serves each connection by a coroutine, and keeps what was asked on it."""

    def __init__(self, serve: Serve, context: ssl.SSLContext | None = None) -> None:
        self._serve, self._context = serve, context
        self._serving: set[asyncio.Task[None]] = set()
        self.connections = 0

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await asyncio.sleep(0.01)  # for the transports to end

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._serving.add(asyncio.get_running_loop().create_task(self._served(reader, writer)))

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
                await self._serve(reader, writer)
            writer.close()
        except asyncio.CancelledError:
            writer.transport.abort()
            raise

    def place(self, scheme: str = "http", *, proxy: str | None = None, read_timeout_s: float = 5) -> Place:
        host = f"127.0.0.1:{self.port}"
        return Place(f"{scheme}://{host}", host, proxy, 5, read_timeout_s)


async def head_of(reader: asyncio.StreamReader) -> str:
    return (await reader.readuntil(b"\r\n\r\n")).decode()


async def get(pool: Pool, place: Place, most_bytes: int = 1 << 20, method: str = "GET") -> RawAnswer:
    return await pool.ask(place, method, "/b/x", {"range": "bytes=0-1"}, None, most_bytes)


async def two_bodies(pool: Pool, server: Server) -> list[bytes]:
    """One after the other, with a moment in between for what the server does after its answer."""
    found = []
    for _ in range(2):
        found.append((await get(pool, server.place())).body)
        await asyncio.sleep(0.05)
    return found


def told(*answers: bytes, closes: bool = False) -> Serve:
    """Answers in turn, whatever is asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await head_of(reader)
            writer.write(answer)
        if not closes:
            await reader.read()

    return serve


def asked_of(serve: Serve, ask: Callable[[Pool, Server], Awaitable[T]]) -> Awaitable[tuple[T, int]]:
    """What `ask` makes of a server, and how many connections it took."""

    async def work() -> tuple[T, int]:
        async with Server(serve) as server:
            pool = Pool()
            try:
                return await ask(pool, server), server.connections
            finally:
                await pool.close()

    return work()


WHOLE = b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: "e"\r\nX-Two: a\r\nX-Two: b\r\n\r\nhello'


def test_a_request_goes_out_as_it_is(run: Run) -> None:
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await head_of(reader))
        heads.append((await reader.readexactly(3)).decode())
        writer.write(WHOLE)

    async def ask(pool: Pool, server: Server) -> RawAnswer:
        return await pool.ask(server.place(), "PUT", "/b/x%20y?a=b", {"x-sum": "1"}, b"abc", 100)

    answer, _ = run(asked_of(serve, ask))
    lines = heads[0].split("\r\n")
    assert lines[0] == "PUT /b/x%20y?a=b HTTP/1.1"
    assert lines[1].startswith("host: 127.0.0.1:")
    assert lines[2:] == ["x-sum: 1", "content-length: 3", "", ""]
    assert heads[1] == "abc"
    assert (answer.status, answer.body) == (200, b"hello")
    assert answer.headers == {"content-length": "5", "etag": '"e"', "x-two": "a, b"}


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n"
AFTER_CONTINUE = b"HTTP/1.1 100 Continue\r\nX-No: 1\r\n\r\n" + WHOLE


@pytest.mark.parametrize("answer", [WHOLE, CHUNKED, AFTER_CONTINUE])
def test_answers_of_known_length_leave_the_connection_for_the_next(run: Run, answer: bytes) -> None:
    async def ask(pool: Pool, server: Server) -> list[bytes]:
        return [(await get(pool, server.place())).body for _ in range(3)]

    assert run(asked_of(told(answer, answer, answer), ask)) == ([b"hello"] * 3, 1)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 404 No\r\n\r\n"),
        ("DELETE", b"HTTP/1.1 204 Gone\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Same\r\nContent-Length: 100\r\n\r\n"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ],
)
def test_answers_without_a_body(run: Run, method: str, answer: bytes) -> None:
    async def ask(pool: Pool, server: Server) -> set[bytes]:
        return {(await get(pool, server.place(), method=method)).body for _ in range(2)}

    assert run(asked_of(told(answer, answer), ask)) == ({b""}, 1)


def test_an_answer_that_ends_with_its_connection(run: Run) -> None:
    async def ask(pool: Pool, server: Server) -> list[bytes]:
        return [(await get(pool, server.place())).body for _ in range(2)]

    answer = b"HTTP/1.1 200 OK\r\n\r\nto the end"
    assert run(asked_of(told(answer, closes=True), ask)) == ([b"to the end"] * 2, 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        WHOLE + b"and more",
    ],
)
def test_connections_that_are_not_to_be_used_again(run: Run, answer: bytes) -> None:
    assert run(asked_of(told(answer, answer), two_bodies)) == ([b"hello"] * 2, 2)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (WHOLE[:-1], ConnectionError, "before the answer was whole"),
        (CHUNKED[:-8], ConnectionError, "before the answer was whole"),
        (b"", ConnectionError, "before the answer was whole"),
        (b"HTTP/1.1 200", ConnectionError, "before the answer was whole"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", NoHttpError, "no answer of HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", NoHttpError, "no answer of HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", NoHttpError, "no answer of HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 60_000, NoHttpError, "longer than"),
    ],
)
def test_what_is_no_whole_answer(run: Run, answer: bytes, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        run(asked_of(told(answer, closes=True), lambda pool, server: get(pool, server.place())))


def test_no_more_of_a_body_is_taken_than_wanted(run: Run) -> None:
    endless = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n" + b"x" * (1 << 20)

    async def ask(pool: Pool, server: Server) -> int:
        return len((await get(pool, server.place(), most_bytes=1000)).body)

    assert run(asked_of(told(endless), ask)) == (1000, 1)


LARGE = bytes(range(256)) * 20_000  # more than is parsed at once, and than is received at once


def large(*, connection: str = "keep-alive") -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nConnection: %b\r\nContent-Length: %d\r\n\r\n" % (connection.encode(), len(LARGE)) + LARGE
    )


def test_a_large_body_comes_whole_and_leaves_the_connection_for_the_next(run: Run) -> None:
    async def ask(pool: Pool, server: Server) -> list[bytes]:
        return [(await get(pool, server.place(), most_bytes=len(LARGE))).body for _ in range(3)]

    bodies, connections = run(asked_of(told(large(), large(), large()), ask))
    assert [type(body) for body in bodies] == [bytes] * 3
    assert (bodies, connections) == ([LARGE] * 3, 1)


@pytest.mark.parametrize("answer", [large() + b"HTTP/1.1 200 OK\r\n\r\n", large(connection="close")])
def test_what_comes_after_a_large_body_is_never_taken_for_it(run: Run, answer: bytes) -> None:
    async def ask(pool: Pool, server: Server) -> list[bytes]:
        found = []
        for _ in range(2):
            found.append((await get(pool, server.place(), most_bytes=len(LARGE))).body)
            await asyncio.sleep(0.05)
        return found

    assert run(asked_of(told(answer, closes=True), ask)) == ([LARGE] * 2, 2)


def test_a_large_body_that_breaks_off_is_no_answer(run: Run) -> None:
    with pytest.raises(ConnectionError, match="before the answer was whole"):
        run(asked_of(told(large()[:-1], closes=True), lambda pool, server: get(pool, server.place(), len(LARGE))))


def test_a_large_body_is_in_memory_once(run: Run) -> None:
    """What a caller sets aside for a body is enough for it."""
    size = 64 * 1024**2
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(head)
        for _ in range(64):
            writer.write(bytes(size // 64))
            await writer.drain()
        await reader.read()

    async def ask(pool: Pool, server: Server) -> tuple[int, int]:
        tracemalloc.start()
        try:
            return len((await get(pool, server.place(), most_bytes=size)).body), tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    (length, peak), _ = run(asked_of(serve, ask))
    assert length == size
    assert peak < 1.2 * size


def test_an_answer_is_held_by_nobody_but_who_asked(run: Run) -> None:
    """Otherwise bodies stay in memory until cycles are collected, beyond every bound."""

    def exchanges() -> list[object]:
        return [one for one in gc.get_objects() if type(one).__name__ == "_Exchange"]

    async def ask(pool: Pool, server: Server) -> int:
        for _ in range(3):
            await get(pool, server.place())
        return sum(not any(one is other for other in of_others) for one in exchanges())

    gc.collect()
    gc.disable()
    of_others = exchanges()  # an error that another test has kept holds the exchange that it ended
    try:
        assert run(asked_of(told(WHOLE, WHOLE, WHOLE), ask)) == (0, 1)
    finally:
        gc.enable()


def test_silence_within_an_answer_ends_it(run: Run) -> None:
    with pytest.raises(TimeoutError, match=r"nothing was answered for 0\.2 s"):
        run(asked_of(told(WHOLE[:-1]), lambda pool, server: get(pool, server.place(read_timeout_s=0.2))))


def test_an_answer_that_drips_is_waited_for(run: Run) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        for at in range(0, len(WHOLE), 12):
            writer.write(WHOLE[at : at + 12])
            await asyncio.sleep(0.1)

    async def ask(pool: Pool, server: Server) -> bytes:
        return (await get(pool, server.place(read_timeout_s=0.4))).body

    assert run(asked_of(serve, ask)) == (b"hello", 1)


def test_an_answer_that_comes_before_the_body_is_taken(run: Run) -> None:
    """The refusal counts, and what is left of the body is not taken for the next request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 412 Told\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(5)

    async def ask(pool: Pool, server: Server) -> list[int]:
        asked = [pool.ask(server.place(), "PUT", "/b/x", {}, bytes(64 << 20), 100) for _ in range(2)]
        return [(await one).status for one in asked]

    assert run(asked_of(serve, ask)) == ([412, 412], 2)


def test_a_request_that_is_given_up_takes_its_connection_with_it(run: Run) -> None:
    async def ask(pool: Pool, server: Server) -> bytes:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await get(pool, server.place())
        return (await get(pool, server.place())).body

    lines = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal lines
        lines += 1
        if lines > 1:
            await told(WHOLE)(reader, writer)
        await reader.read()

    assert run(asked_of(serve, ask)) == (b"hello", 2)


def test_a_connection_that_the_server_closed_meanwhile_is_not_used(run: Run) -> None:
    assert run(asked_of(told(WHOLE, closes=True), two_bodies)) == ([b"hello"] * 2, 2)


@pytest.mark.parametrize("origin", ["ftp://host", "http://", "http://host:port", f"http://{'x' * 70}.de"])
def test_what_is_no_address(run: Run, origin: str) -> None:
    with pytest.raises(AddressError):
        run(get(Pool(), Place(origin, "host", None, 1, 1)))


def test_a_header_cannot_smuggle_another_one(run: Run) -> None:
    place = Place("http://127.0.0.1:9", "127.0.0.1:9", None, 1, 1)
    with pytest.raises(AddressError, match="line break"):
        run(Pool().ask(place, "GET", "/x", {"a": "b\r\nevil: 1"}, None, 1))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 127.0.0.1, signed by itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    return path


def secured(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context


async def over_tls(certificate: Path, proxy: str | None = None) -> tuple[list[bytes], int]:
    large = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + bytes(3_000_000)
    async with Server(told(WHOLE, large), secured(certificate)) as server:
        pool = Pool()
        try:
            asked = [await get(pool, server.place("https", proxy=proxy), most_bytes=1 << 22) for _ in range(2)]
        finally:
            await pool.close()
        return [answer.body for answer in asked], server.connections


def test_tls(run: Run, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert run(over_tls(certificate)) == ([b"hello", bytes(3_000_000)], 1)


def test_a_certificate_that_nobody_trusts_is_refused(run: Run, certificate: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        run(over_tls(certificate))


class Proxy:
    """Hands requests on, and tunnels; keeps the heads that it was given."""

    def __init__(self) -> None:
        self.heads: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        self.heads.append(head)
        if not head.startswith("CONNECT"):
            writer.write(WHOLE)
            return
        host, _, port = head.split(" ")[1].partition(":")
        there, to = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        try:
            await asyncio.gather(_pumped(reader, to), _pumped(there, writer))
        finally:
            to.transport.abort()


async def _pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


PROXY_USER = base64.b64encode(b"us er:pass").decode()


def test_a_proxy_is_given_the_whole_address(run: Run) -> None:
    serve = Proxy()

    async def ask(pool: Pool, server: Server) -> bytes:
        proxy = f"http://us%20er:pass@127.0.0.1:{server.port}"  # pragma: allowlist secret
        return (await get(pool, Place("http://far.away:81/below", "far.away:81", proxy, 5, 5))).body

    assert run(asked_of(serve, ask))[0] == b"hello"
    lines = serve.heads[0].split("\r\n")
    assert lines[:3] == [
        "GET http://far.away:81/below/b/x HTTP/1.1",
        "host: far.away:81",
        f"proxy-authorization: Basic {PROXY_USER}",
    ]


def test_tls_through_a_proxy(run: Run, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    serve = Proxy()

    async def work() -> tuple[list[bytes], int]:
        async with Server(serve) as proxy:
            at = f"http://us%20er:pass@127.0.0.1:{proxy.port}"  # pragma: allowlist secret
            return await over_tls(certificate, at)

    assert run(work()) == ([b"hello", bytes(3_000_000)], 1)
    assert serve.heads[0].startswith("CONNECT 127.0.0.1:")
    assert f"proxy-authorization: Basic {PROXY_USER}\r\n" in serve.heads[0]


def test_a_proxy_that_refuses(run: Run, certificate: Path) -> None:
    async def work() -> None:
        async with Server(told(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")) as proxy:
            await over_tls(certificate, f"http://127.0.0.1:{proxy.port}")

    with pytest.raises(ConnectionError, match="the proxy answered 407"):
        run(work())
