"""A REST catalog in this process that takes commits by the reference interpreter, and can be told to misbehave."""

from __future__ import annotations

import json
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs

from tests.google_account import TokenServer
from tests.rest_interpreter import Refused, take
from tests.serving import QuietHandler, serving

Json = dict[str, Any]
# Given verb and path: None lets it through, a number is answered as that status, `cut` and `cut after` break the line,
# `late` breaks it too, and the request is on its way until `land` is called.
Verifier = Callable[[str, str, bytes, Any], bool]
Fault = Callable[[str, str], int | str | None]
NOT_TAKEN = {401: "NotAuthorized", 419: "NotAuthorized", 429: "Throttled"}  # what else is answered may have been done


class RestDouble:
    """Tables by path; `files` are the metadata files that can be registered. All requests are noted in `asked`."""

    def __init__(self, port: int) -> None:
        self.uri = f"http://127.0.0.1:{port}"
        self.tables: dict[str, tuple[str, Json]] = {}
        self.files: dict[str, Json] = {}
        self.namespaces: dict[str, Json] = {}
        self.config: Json = {"defaults": {}, "overrides": {}}
        self.asked: list[str] = []
        self.statuses: list[int] = []  # of the answers that were sent, none for lines that were cut
        self.bodies: list[Json] = []
        self.tokens = ["token-1"]
        self.fault: Fault = lambda verb, path: None
        self.headers: dict[str, str] = {}
        self.body: bytes | None = None  # of answers that are a fault; None: as a catalog speaks
        self.unknown_updates: set[str] = set()
        self.unknown_status = 400  # what is answered to these
        self.overwrite = 406  # what register answers to it; 200: it does
        self.lost: set[str] = set()  # tables whose file is gone
        self.keeps_head = False  # register says yes and does nothing
        self.keys: list[uuid.UUID] = []  # of idempotency, as they came
        self.google: TokenServer | None = None  # at /token
        self.signer: Verifier | None = None  # if there is one it is asked instead of for a token
        self._late: list[Callable[[], object]] = []
        self._told: dict[str, tuple[int, Json, dict[str, str]]] = {}
        self._lock = threading.Lock()

    def land(self) -> None:
        """What was on its way arrives now."""
        with self._lock:
            for arrive in self._late:
                arrive()
            self._late.clear()

    def answer(self, verb: str, target: str, data: bytes, headers: Any) -> tuple[int, Json, dict[str, str]]:
        """By its key, if it has one, a request is answered as it was before."""
        key = headers.get("Idempotency-Key")
        if key is None:
            return self._answer(verb, target, data, headers)
        self.keys.append(uuid.UUID(key))
        if key not in self._told:
            self._told[key] = self._answer(verb, target, data, headers)
        return self._told[key]

    def _answer(self, verb: str, target: str, data: bytes, headers: Any) -> tuple[int, Json, dict[str, str]]:
        path, _, _ = target.removeprefix("/v1/").partition("?")
        body = json.loads(data) if data.startswith(b"{") else {}
        if target == "/token" and self.google is not None:
            return *self.google.give(parse_qs(data.decode())), {}
        if path == "oauth/tokens":
            return 200, {"access_token": self.tokens[-1], "token_type": "bearer"}, {}
        is_known = headers.get("Authorization") == f"Bearer {self.tokens[-1]}"
        if not (is_known if self.signer is None else self.signer(verb, target, data, headers)):
            return 401, _error("NotAuthorizedException", "no"), {}
        if path == "config":
            return 200, self.config, {}
        if path == "namespaces" and verb == "POST":
            self.namespaces.setdefault("\x1f".join(body["namespace"]), body.get("properties", {}))
            return 200, body, {}
        if path == "namespaces":
            return 200, {"namespaces": []}, {}
        if path.count("/") == 1 and verb == "GET":
            name = path.partition("/")[2]
            return 200, {"namespace": [name], "properties": self.namespaces.get(name, {})}, {}
        if path.endswith("/register"):
            return self._register(f"{path.removesuffix('/register')}/tables/{body['name']}", body)
        if verb == "POST":
            return self._commit(path, body)
        if verb == "DELETE":
            self.lost.discard(path)
            return (204, {}, {}) if self.tables.pop(path, None) else (404, _error("NoSuchTableException", "gone"), {})
        if path in self.lost:
            return 404, _error("NotFoundException", "no such file"), {}
        if path not in self.tables:
            return 404, _error("NoSuchTableException", "not there"), {}
        place, metadata = self.tables[path]
        if headers.get("If-None-Match") == place:
            return 304, {}, {}
        return 200, {"metadata-location": place, "metadata": metadata}, {"ETag": place}

    def _register(self, path: str, body: Json) -> tuple[int, Json, dict[str, str]]:
        if body.get("overwrite") and self.overwrite != 200:
            return self.overwrite, _error("Unsupported", "overwrite"), {}
        if path in self.tables and not body.get("overwrite"):
            return 409, _error("AlreadyExistsException", "there"), {}
        if self.keeps_head:
            return 200, {}, {}
        self.lost.discard(path)
        self.tables[path] = body["metadata-location"], self.files[body["metadata-location"]]
        return 200, {}, {}

    def _commit(self, path: str, body: Json) -> tuple[int, Json, dict[str, str]]:
        old = self.tables.get(path)
        if any(one["action"] in self.unknown_updates for one in body["updates"]):
            return self.unknown_status, _error("IllegalArgumentException", "Cannot parse update"), {}
        try:
            place, shown = old or (None, None)
            new = take(shown, body["requirements"], body["updates"], place)
        except Refused as err:
            return 409, _error("CommitFailedException", str(err)), {}
        number = len(self.asked)
        self.tables[path] = f"mem://server/{number}.metadata.json", new
        return 200, {}, {}

    def _note_key(self, handler: BaseHTTPRequestHandler) -> None:
        key = handler.headers.get("Idempotency-Key")
        self.keys += [] if key is None else [uuid.UUID(key)]

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        data = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        with self._lock:
            self.asked.append(f"{handler.command} {handler.path}")
            self.bodies.append(json.loads(data) if data.startswith(b"{") else {})
            fault = self.fault(handler.command, handler.path)
            if fault == "late":
                self._late.append(partial(self.answer, handler.command, handler.path, data, handler.headers))
            if fault in ("cut", "late"):
                _cut(handler)
                return
            if isinstance(fault, int) and fault in NOT_TAKEN:
                status, said, headers = fault, _error(NOT_TAKEN[fault], "not taken"), self.headers
                self._note_key(handler)
            else:
                status, said, headers = self.answer(handler.command, handler.path, data, handler.headers)
            if fault == "cut after":
                _cut(handler)
                return
            if isinstance(fault, int) and fault not in NOT_TAKEN:
                status, said, headers = fault, _error("Fault", "as told"), self.headers
        out = b"" if status in (204, 304) else json.dumps(said).encode()
        if isinstance(fault, int) and self.body is not None:
            out = self.body
        self.statuses.append(status)
        send = handler.send_response_only if "Date" in headers else handler.send_response
        send(status)
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
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            double.handle(self)

        do_POST = do_DELETE = do_GET

    with serving(Handler) as port:
        double = RestDouble(port)
        yield double
