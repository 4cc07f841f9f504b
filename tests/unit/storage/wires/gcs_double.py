"""As much of GCS as unit tests need where the emulator cannot be made to misbehave: answers are given by the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Asked:
    """What came over the wire."""

    method: str
    target: str
    headers: Mapping[str, str]


@dataclass
class GcsDouble:
    """`answer` makes (status, headers, body) of a request; every request is noted."""

    answer: Callable[[Asked], tuple[int, dict[str, str], bytes]]
    asked: list[Asked] = field(default_factory=list)
    endpoint: str = ""


@contextmanager
def gcs_double(answer: Callable[[Asked], tuple[int, dict[str, str], bytes]]) -> Iterator[GcsDouble]:
    double = GcsDouble(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Tests read `asked` instead."""

        def handle_any(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            asked = Asked(self.command, self.path, {name.lower(): value for name, value in self.headers.items()})
            double.asked.append(asked)
            status, headers, body = double.answer(asked)
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    double.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        thread.join(timeout=10)
        server.server_close()
