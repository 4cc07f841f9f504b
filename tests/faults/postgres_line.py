"""A line to PostgreSQL that is cut at the next COMMIT: before the server hears of it, or after it has done it.

It passes bytes on as they are, without TLS, and knows one message: `Q`, its length, `COMMIT`. Each connection has two
threads; both ends of it are cut together.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Literal

_COMMIT: Final = b"Q\x00\x00\x00\x0bCOMMIT\x00"
_PIECE_BYTES: Final = 1 << 16
_WAIT_S: Final = 30.0
When = Literal["before", "after"]


class PostgresLine:
    """`port` leads to the server; `cut_next` says when, and `cuts` counts."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._when: When | None = None
        self._open: list[socket.socket] = []
        self.port: int = self._listening.getsockname()[1]
        self.cuts = 0

    def cut_next(self, when: When) -> None:
        self._when = when

    def serve(self) -> None:
        """Until `close`."""
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._server, timeout=_WAIT_S)
                for one in (client, server):
                    one.settimeout(_WAIT_S)
                    self._open.append(one)
                is_cut = threading.Event()
                for way in (self._ask, self._answer):
                    threading.Thread(target=way, args=(client, server, is_cut), daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in self._open:
            _end(one)

    def _ask(self, client: socket.socket, server: socket.socket, is_cut: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(_PIECE_BYTES):
                if self._when is not None and data.endswith(_COMMIT):
                    when, self._when = self._when, None
                    self.cuts += 1
                    if when == "before":
                        break
                    is_cut.set()
                server.sendall(data)
        if not is_cut.is_set():
            _end(client)
            _end(server)

    def _answer(self, client: socket.socket, server: socket.socket, is_cut: threading.Event) -> None:
        """The answer to what is to be cut `after` is waited for, and goes no further."""
        with suppress(OSError):
            while (data := server.recv(_PIECE_BYTES)) and not is_cut.is_set():
                client.sendall(data)
        _end(client)
        _end(server)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextmanager
def postgres_line(host: str, port: int) -> Iterator[PostgresLine]:
    line = PostgresLine((host, port))
    accepting = threading.Thread(target=line.serve, name="postgres-line", daemon=True)
    accepting.start()
    try:
        yield line
    finally:
        line.close()
        accepting.join(_WAIT_S)
