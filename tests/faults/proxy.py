"""A small HTTP/1.1 proxy between a client and one server, on 127.0.0.1, that does harm on demand.

It passes bytes on as they are (signatures stay good) and counts requests. `rules` may be changed at any time; `cut_off`
drops every connection and refuses new ones until `heal`. Runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from tests.faults import rules as faults
from tests.faults.rules import Fault, Rule

_HEAD_BYTES: Final = 1 << 16
_PIECE_BYTES: Final = 1 << 16
_WAIT_S: Final = 120.0
_POLL_S: Final = 0.01
_QUEUE_IS_FULL: Final = 8  # with fewer on any Linux


@dataclass(frozen=True, slots=True)
class Head:
    """The first line and the headers of a message, as they came."""

    raw: bytes

    @property
    def words(self) -> list[str]:
        return self.raw.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)

    def value(self, name: str) -> str | None:
        wanted = name.lower().encode()
        for line in self.raw.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.strip().lower() == wanted:
                return value.strip().decode("latin-1")
        return None

    def with_value(self, name: str, value: str) -> Head:
        wanted = name.lower().encode()
        lines = self.raw.split(b"\r\n")
        new = [
            f"{name}: {value}".encode("latin-1") if line.partition(b":")[0].strip().lower() == wanted else line
            for line in lines
        ]
        return Head(b"\r\n".join(new))


@contextmanager
def deaf_url() -> Iterator[str]:
    """An address where connecting never ends: its queue is full, and nobody takes from it."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening, ExitStack() as waiting:
        for _ in range(_QUEUE_IS_FULL):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


class _Cut(Exception):
    """Both connections end here, by a reset."""


class FaultProxy:
    """`with FaultProxy(url) as proxy:` gives `proxy.url`, which leads to the server at `url`."""

    def __init__(self, server_url: str) -> None:
        parts = urlsplit(server_url)
        if parts.hostname is None or parts.port is None:
            raise ValueError(f"want http://host:port, got {server_url}")
        self._server = (parts.hostname, parts.port)
        self.rules: list[Rule] = []
        self.requests: list[tuple[str, str]] = []
        self.statuses: list[int] = []  # of all that the server answered
        self.answers: list[tuple[Fault, str]] = []  # what the server said to requests that met a fault, by status
        self._is_cut_off = False
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self.url = ""

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        listening = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(timeout=10)
        self.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        self._listening = listening
        return self

    def __exit__(self, *args: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Nobody gets through in here."""
        self._is_cut_off = True
        asyncio.run_coroutine_threadsafe(self._drop(), self._loop).result(timeout=10)
        try:
            yield
        finally:
            self._is_cut_off = False

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_HEAD_BYTES)

    async def _stop(self) -> None:
        self._listening.close()
        await self._drop()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _drop(self) -> None:
        for writer in [*self._open]:
            _reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut_off:
            _reset(writer)
            return
        self._open.add(writer)
        up: asyncio.StreamWriter | None = None
        try:
            server, up = await asyncio.open_connection(*self._server, limit=_HEAD_BYTES)
            self._open.add(up)
            while await self._exchange((reader, writer), (server, up)):
                pass
        except _Cut:
            _reset(writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, asyncio.CancelledError):
            _reset(writer)  # a cancelled task ends here by intention: the proxy stops
        finally:
            for one in (writer, up):
                if one is not None:
                    self._open.discard(one)
                    one.close()

    async def _exchange(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> bool:
        """One request and its answer; False when the connection is done."""
        request = await _head(client[0])
        if request is None:
            return False
        method, target, _ = request.words
        self.requests.append((method, target))
        fault = faults.first(self.rules, method, target)
        if isinstance(fault, faults.Kill) and not fault.is_after:
            fault.end()
            raise _Cut
        if isinstance(fault, faults.Reset):
            raise _Cut
        if isinstance(fault, faults.Hold):
            fault.ports.append(client[1].get_extra_info("peername")[1])
            while not fault.released.is_set():
                await asyncio.sleep(_POLL_S)
        if isinstance(fault, faults.Answer):
            await _swallow(client[0], request)
            client[1].write(_answer(fault))
            await client[1].drain()
            return False
        if (request.value("expect") or "").lower() == "100-continue":
            client[1].write(b"HTTP/1.1 100 Continue\r\n\r\n")
        server[1].write(request.raw + b"\r\n\r\n")
        await _pass_on(_body(client[0], request), server[1], fault, is_request=True)
        answer = await _final_head(server[0])
        self.statuses.append(int(answer.words[1]))
        if fault is not None:
            self.answers.append((fault, answer.words[1]))
        has_body = method != "HEAD" and answer.words[1] not in ("204", "304")
        if isinstance(fault, faults.LoseAnswer | faults.Kill):
            if has_body:
                await _swallow(server[0], answer)
            if isinstance(fault, faults.Kill):
                fault.end()
            raise _Cut
        if isinstance(fault, faults.Stall):
            await asyncio.sleep(fault.seconds)
        length = int(answer.value("content-length") or 0)
        if isinstance(fault, faults.ShortenAnswer) and has_body:
            answer = answer.with_value("Content-Length", str(min(fault.to_bytes, length)))
        client[1].write(answer.raw + b"\r\n\r\n")
        if has_body:
            await _pass_on(_body(server[0], answer), client[1], fault, is_request=False)
        await client[1].drain()
        return not isinstance(fault, faults.ShortenAnswer) and answer.value("connection") != "close"


async def _head(reader: asyncio.StreamReader) -> Head | None:
    try:
        raw = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _WAIT_S)
    except asyncio.IncompleteReadError as err:
        if err.partial:
            raise
        return None
    return Head(raw[:-4])


async def _final_head(reader: asyncio.StreamReader) -> Head:
    while True:
        head = await _head(reader)
        if head is None:
            raise _Cut
        if not head.words[1].startswith("1"):
            return head


async def _body(reader: asyncio.StreamReader, head: Head) -> AsyncIterator[bytes]:
    """The body as it comes, chunked framing included."""
    if "chunked" in (head.value("transfer-encoding") or ""):
        while True:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            yield line + await reader.readexactly(size + 2)
            if size == 0:
                return
    left = int(head.value("content-length") or 0)
    while left:
        piece = await asyncio.wait_for(reader.read(min(left, _PIECE_BYTES)), _WAIT_S)
        if not piece:
            raise _Cut
        left -= len(piece)
        yield piece


async def _swallow(reader: asyncio.StreamReader, head: Head) -> None:
    async for _ in _body(reader, head):
        pass


async def _pass_on(
    pieces: AsyncIterator[bytes], to: asyncio.StreamWriter, fault: Fault | None, *, is_request: bool
) -> None:
    done = 0
    cut = faults.CutRequest if is_request else faults.CutAnswer
    flip = faults.FlipRequest if is_request else faults.FlipAnswer
    async for piece in pieces:
        data = piece
        if isinstance(fault, cut) and done + len(data) >= fault.after_bytes:
            to.write(data[: fault.after_bytes - done])
            with suppress(OSError):
                await to.drain()
            await asyncio.sleep(0.05)
            raise _Cut
        if isinstance(fault, flip) and done <= fault.at < done + len(data):
            changed = bytearray(data)
            changed[fault.at - done] ^= 1
            data = bytes(changed)
        if isinstance(fault, faults.ShortenAnswer) and not is_request:
            data = data[: max(0, fault.to_bytes - done)]
        if isinstance(fault, faults.StallInAnswer) and not is_request and done <= fault.after_bytes < done + len(data):
            to.write(data[: fault.after_bytes - done])
            await to.drain()
            await asyncio.sleep(fault.seconds)
            data = data[fault.after_bytes - done :]
        if isinstance(fault, faults.Drip) and not is_request:
            await _drip(data, to, fault.bytes_per_s)
        else:
            to.write(data)
        done += len(piece)
        await to.drain()


async def _drip(data: bytes, to: asyncio.StreamWriter, bytes_per_s: float) -> None:
    step = max(1, int(bytes_per_s / 10))
    for start in range(0, len(data), step):
        to.write(data[start : start + step])
        await to.drain()
        await asyncio.sleep(step / bytes_per_s)


def _answer(fault: faults.Answer) -> bytes:
    lines = [f"HTTP/1.1 {fault.status} As Told", f"Content-Length: {len(fault.body)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in fault.headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + fault.body


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close by RST, not FIN: nobody may take what came for all there is."""
    connection = writer.get_extra_info("socket")
    with suppress(OSError):
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
