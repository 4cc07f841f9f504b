"""A REST catalog in this process that takes commits by the reference interpreter, and can be told to misbehave."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.rest_interpreter import Refused, take

Json = dict[str, Any]
# Given verb and path: None lets it through, a number is answered as that status, `cut` and `cut after` break the line.
Fault = Callable[[str, str], int | str | None]


class RestDouble:
    """Tables by path; `files` are the metadata files that can be registered. All requests are noted in `asked`."""

    def __init__(self, port: int) -> None:
        self.uri = f"http://127.0.0.1:{port}"
        self.tables: dict[str, tuple[str, Json]] = {}
        self.files: dict[str, Json] = {}
        self.config: Json = {"defaults": {}, "overrides": {}}
        self.asked: list[str] = []
        self.bodies: list[Json] = []
        self.tokens = ["token-1"]
        self.fault: Fault = lambda verb, path: None
        self.headers: dict[str, str] = {}
        self._lock = threading.Lock()

    def answer(self, verb: str, path: str, body: Json, headers: Any) -> tuple[int, Json, dict[str, str]]:
        path, _, _ = path.removeprefix("/v1/").partition("?")
        if path == "oauth/tokens":
            return 200, {"access_token": self.tokens[-1], "token_type": "bearer"}, {}
        if headers.get("Authorization") != f"Bearer {self.tokens[-1]}":
            return 401, _error("NotAuthorizedException", "no"), {}
        if path == "config":
            return 200, self.config, {}
        if path == "namespaces":
            return 200, {"namespaces": []}, {}
        if path.endswith("/register"):
            return self._register(f"{path.removesuffix('/register')}/tables/{body['name']}", body)
        if verb == "POST":
            return self._commit(path, body)
        if path not in self.tables:
            return 404, _error("NoSuchTableException", "not there"), {}
        place, metadata = self.tables[path]
        if headers.get("If-None-Match") == place:
            return 304, {}, {}
        return 200, {"metadata-location": place, "metadata": metadata}, {"ETag": place}

    def _register(self, path: str, body: Json) -> tuple[int, Json, dict[str, str]]:
        if path in self.tables:
            return 409, _error("AlreadyExistsException", "there"), {}
        self.tables[path] = body["metadata-location"], self.files[body["metadata-location"]]
        return 200, {}, {}

    def _commit(self, path: str, body: Json) -> tuple[int, Json, dict[str, str]]:
        old = self.tables.get(path)
        try:
            new = take(None if old is None else old[1], body["requirements"], body["updates"])
        except Refused as err:
            return 409, _error("CommitFailedException", str(err)), {}
        number = len(self.asked)
        self.tables[path] = f"mem://server/{number}.metadata.json", new
        return 200, {}, {}

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        data = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        is_json = data.startswith(b"{")
        with self._lock:
            self.asked.append(f"{handler.command} {handler.path}")
            body = json.loads(data) if is_json else {}
            self.bodies.append(body)
            fault = self.fault(handler.command, handler.path)
            if fault == "cut":
                _cut(handler)
                return
            status, said, headers = self.answer(handler.command, handler.path, body, handler.headers)
            if fault == "cut after":
                _cut(handler)
                return
            if isinstance(fault, int):
                status, said, headers = fault, _error("Fault", "as told"), self.headers
        out = b"" if status == 304 else json.dumps(said).encode()
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(out))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(out)


def _cut(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def _error(kind: str, message: str) -> Json:
    return {"error": {"type": kind, "message": message, "code": 0}}


@contextmanager
def rest_double() -> Iterator[RestDouble]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            double.handle(self)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    double = RestDouble(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
