"""One connection that speaks HTTP/1.1: a request goes out, its answer comes in, one after the other.

Written for what copies consist of, many requests with bodies of known length: no task, no queue and no copy of a body.
The head of an answer is parsed by httptools (llhttp); a body whose length it tells is received right where it stays,
so that it is in memory once. What an HTTP client might do besides is left out: nothing is redirected, unpacked or sent
again.

- An answer may come before its request was taken whole; such a connection is not used again.
- Silence of either side is bounded: of the server before and within its answer, and while it takes nothing of a body.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import httptools

from lakemirror.storage.wires.pages import ask_for_large_pages

_SLICE_BYTES: Final = 512 * 1024  # of a body at once: others get their turn in between
_HEAD_BYTES: Final = 64 * 1024  # at once, of what is parsed
_MAX_HEAD_BYTES: Final = 256 * 1024
_BODILESS: Final = (204, 304)


class NoHttpError(ConnectionError):
    """What came is no answer."""


@dataclass(slots=True)
class RawAnswer:
    """Status, headers by their names in lower case, and the body, cut at the number of bytes that the caller wants."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Connection(asyncio.BufferedProtocol):
    """A transport's protocol; `exchange` is for one caller at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.idle_since = 0.0
        self._exchange: _Exchange | None = None
        self._unsent: memoryview | None = None
        self._is_paused = False
        self._is_spent = False
        self._left_bytes = 0
        self._moved_at = 0.0
        self._head = memoryview(bytearray(_HEAD_BYTES))
        self._filling: _Body | None = None  # what the transport was last told to receive into; None: the head

    @property
    def is_usable(self) -> bool:
        """Whether another request may go out on it."""
        return not self._is_spent and self.transport is not None and not self.transport.is_closing()

    async def exchange(
        self, method: str, head: bytes, body: bytes, most_bytes: int, patience_s: float, *, is_tunnel: bool = False
    ) -> RawAnswer:
        """The answer to a request; of its body at most so many bytes. OSError if there is none."""
        transport = self.transport
        if transport is None or not self.is_usable or self._exchange is not None:
            raise ConnectionResetError("the connection is closed")
        expected = self._exchange = _Exchange(self._loop.create_future(), is_tunnel or method == "HEAD", most_bytes)
        self._moved_at, self._left_bytes = self._loop.time(), len(head) + len(body)
        timer = self._loop.call_later(patience_s, self._look, expected, patience_s)
        try:
            if len(body) <= _SLICE_BYTES:
                transport.writelines((head, body) if body else (head,))
            else:
                transport.write(head)
                self._unsent = memoryview(body)
                self._send()
            answer = await expected.future
            expected.put_body()
        except BaseException:
            self.abort()
            raise
        finally:
            (expected.timer or timer).cancel()
            self._exchange = None
            expected.release()
        if self._untaken_bytes() or not expected.keeps_alive:
            self.abort()
        self.idle_since = self._loop.time()
        return answer

    def abort(self) -> None:
        self._is_spent, self._unsent = True, None
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_SLICE_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        self._filling = None if self._exchange is None else self._exchange.body
        return self._head if self._filling is None else self._filling.room()

    def buffer_updated(self, nbytes: int) -> None:
        filling, self._filling = self._filling, None
        if self._exchange is None:  # nobody asked
            self.abort()
            return
        self._moved_at = self._loop.time()
        if filling is None:
            self._exchange.feed(bytes(self._head[:nbytes]))
        elif filling is self._exchange.body:
            self._exchange.received(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_spent, self._unsent = True, None
        if self._exchange is not None:
            self._exchange.end(exc)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._send()

    def _send(self) -> None:
        while self._unsent is not None and not self._is_paused and self.transport is not None:
            piece, rest = self._unsent[:_SLICE_BYTES], self._unsent[_SLICE_BYTES:]
            self._unsent = rest if rest.nbytes else None
            self.transport.write(piece)

    def _untaken_bytes(self) -> int:
        """What the server has still to take of the request."""
        handed = 0 if self.transport is None else self.transport.get_write_buffer_size()
        return handed + (0 if self._unsent is None else self._unsent.nbytes)

    def _look(self, expected: _Exchange, patience_s: float) -> None:
        """Whether anything has moved; a server that stops taking a body is found out within twice the patience."""
        now, left_bytes = self._loop.time(), self._untaken_bytes()
        if left_bytes != self._left_bytes:
            self._left_bytes, self._moved_at = left_bytes, now
        silent_s = now - self._moved_at
        if silent_s < patience_s:
            expected.timer = self._loop.call_later(patience_s - silent_s, self._look, expected, patience_s)
            return
        what = "nothing more of the body was taken" if left_bytes else "nothing was answered"
        expected.fail(TimeoutError(f"{what} for {patience_s:g} s"))


class _Exchange:
    """An answer on its way in: what httptools calls while it parses."""

    def __init__(self, future: asyncio.Future[RawAnswer], is_bodiless: bool, most_bytes: int) -> None:
        self.future = future
        self.keeps_alive = False
        self.timer: asyncio.TimerHandle | None = None
        self.body: _Body | None = None
        self._filled: _Body | None = None
        self._is_bodiless, self._most_bytes = is_bodiless, most_bytes
        self._answer = RawAnswer()
        self._pieces: list[bytes] = []
        self._got_bytes = self._head_bytes = self._length = 0
        self._has_head = False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        if self.future.done():
            self.keeps_alive = False  # more came than the answer
            return
        if not self._has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as err:
            self.keeps_alive = False
            self.fail(NoHttpError(f"what came is no answer of HTTP ({err})"))
        if not self._has_head and self._head_bytes > _MAX_HEAD_BYTES:
            self.fail(NoHttpError(f"the head of the answer is longer than {_MAX_HEAD_BYTES} bytes"))
        length = self._answer.headers.get("content-length")
        if self._has_head and length is not None and not self.future.done():
            self._length = int(length)  # llhttp has refused what is no number
            self.body = _Body(min(self._length, self._most_bytes), self._pieces)
            self._pieces.clear()
            self.received(0)

    def received(self, size_bytes: int) -> None:
        """So much more of the body lies in its place."""
        if self.body is None or not self.body.is_full(size_bytes):
            return
        self._filled, self.body = self.body, None  # what comes from now on is no part of it
        if not self.future.done():
            self.keeps_alive = self._length <= self._most_bytes and not self._says_close()
            self.future.set_result(self._answer)

    def put_body(self) -> None:
        """Into the answer; the transport has let go of its view by now, without which the bytes would be copied."""
        if self._filled is not None:
            self._answer.body = self._filled.whole()

    def end(self, exc: Exception | None) -> None:
        """The connection is gone: the end of an answer that does not tell its length, a fault for any other."""
        named = self._answer.headers
        if exc is None and self._has_head and not {"content-length", "transfer-encoding"} & named.keys():
            self._finish(is_last=True)
            return
        self.fail(exc or ConnectionResetError("the connection was closed before the answer was whole"))

    def release(self) -> None:
        """The parser holds its listener, too: the two would keep the body until the next collection of cycles."""
        del self._parser
        self.body = self._filled = None

    def fail(self, err: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(err)

    def on_message_begin(self) -> None:
        if self.future.done():
            self.keeps_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        headers, key, text = self._answer.headers, name.decode("latin-1").lower(), value.decode("latin-1").strip()
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        self._answer.status = status = self._parser.get_status_code()
        if 100 <= status < 200:  # more will come
            self._answer.headers.clear()
            return
        self._has_head = True
        if self._is_bodiless or status in _BODILESS:
            self._finish(is_last=self._says_close())  # the parser would wait for a body

    def on_body(self, body: bytes) -> None:
        if self.future.done():
            return
        self._got_bytes += len(body)
        self._pieces.append(body)
        if self._got_bytes > self._most_bytes:
            self._finish(is_last=True)

    def on_message_complete(self) -> None:
        if self._has_head and not self.future.done():
            self._finish(is_last=not self._parser.should_keep_alive())

    def _says_close(self) -> bool:
        return self._parser.get_http_version() != "1.1" or "close" in self._answer.headers.get("connection", "").lower()

    def _finish(self, *, is_last: bool) -> None:
        if self.future.done():
            return
        self.keeps_alive = not is_last
        self._answer.body = _joined(self._pieces)[: self._most_bytes]
        self._pieces.clear()
        self.future.set_result(self._answer)


class _Body:
    """A body of known length, received in place.

    `BytesIO` gives a view into its bytes to write to, and gives away those bytes themselves once the view is released.
    """

    def __init__(self, size_bytes: int, pieces: Sequence[bytes]) -> None:
        self._bytes = io.BytesIO(bytes(size_bytes))
        self._view = self._bytes.getbuffer()
        ask_for_large_pages(self._view)
        self._got_bytes = 0
        for piece in pieces:
            taken = piece[: size_bytes - self._got_bytes]
            self._view[self._got_bytes : self._got_bytes + len(taken)] = taken
            self._got_bytes += len(taken)

    def room(self) -> memoryview:
        """What is still to come, or as much of it as may come at once."""
        return self._view[self._got_bytes : self._got_bytes + _SLICE_BYTES]

    def is_full(self, more_bytes: int) -> bool:
        self._got_bytes += more_bytes
        return self._got_bytes == len(self._view)

    def whole(self) -> bytes:
        self._view.release()
        return self._bytes.getvalue()


def _joined(pieces: Sequence[bytes]) -> bytes:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
