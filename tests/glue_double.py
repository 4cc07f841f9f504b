"""A Glue in this process that compares VersionIds, as Amazon documents it, and can be told to misbehave."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from tests.serving import QuietHandler, serving

Json = dict[str, Any]
# Status and body, which need not be of Glue: proxies answer as well.
Told = tuple[int, bytes]


class Refused(NamedTuple):
    """Told, and nothing is done."""

    status: int
    body: bytes


# Given the operation: None lets it through, `cut` does not and breaks the line. `cut after` breaks it when all is done;
# then is also when anything else is told.
Fault = Callable[[str], Told | str | None]


class GlueDouble:
    def __init__(self, port: int) -> None:
        self.uri = f"http://127.0.0.1:{port}"
        self.tables: dict[tuple[str, str], Json] = {}
        self.databases: set[str] = set()
        self.makes_databases = True  # whether those who ask have the right to it
        self.asked: list[str] = []
        self.fault: Fault = lambda operation: None
        self._lock = threading.Lock()

    @property
    def properties(self) -> dict[str, str]:
        return {
            "glue.endpoint": self.uri,
            "glue.region": "eu-west-1",
            "glue.access-key-id": "test",
            "glue.secret-access-key": "test",  # pragma: allowlist secret
        }

    def answer(self, operation: str, body: Json) -> tuple[int, Json]:
        given = body.get("TableInput", {})
        key = body.get("DatabaseName", ""), body.get("Name") or given.get("Name", "")
        if operation == "CreateDatabase":
            return self._create_database(body["DatabaseInput"]["Name"])
        if operation == "GetDatabase":
            has_it = body["Name"] in self.databases
            return (200, {"Database": {"Name": body["Name"]}}) if has_it else _no("EntityNotFoundException")
        if operation == "CreateTable":
            if key[0] not in self.databases:
                return _no("EntityNotFoundException")
            if key in self.tables:
                return _no("AlreadyExistsException")
            self.tables[key] = {**given, "VersionId": "0"}
            return 200, {}
        if operation == "GetDatabases":
            return 200, {"DatabaseList": [{"Name": name} for name in sorted(self.databases)]}
        if operation == "GetTables":
            return 200, {"TableList": [table for place, table in self.tables.items() if place[0] == key[0]]}
        if key not in self.tables:
            return _no("EntityNotFoundException")
        table = self.tables[key]
        if operation == "GetTable":
            return 200, {"Table": table}
        if operation == "DeleteTable":
            del self.tables[key]
            return 200, {}
        assert operation == "UpdateTable"
        if body.get("VersionId") not in (None, table["VersionId"]):
            return _no("ConcurrentModificationException")
        self.tables[key] = {**given, "VersionId": str(int(table["VersionId"]) + 1)}
        return 200, {}

    def _create_database(self, name: str) -> tuple[int, Json]:
        if not self.makes_databases:
            return _no("AccessDeniedException")
        if name in self.databases:
            return _no("AlreadyExistsException")
        self.databases.add(name)
        return 200, {}

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        operation = handler.headers["X-Amz-Target"].partition(".")[2]
        with self._lock:
            self.asked.append(operation)
            fault = self.fault(operation)
            status, said = (0, {}) if fault == "cut" or isinstance(fault, Refused) else self.answer(operation, body)
        if isinstance(fault, str):
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        out = json.dumps(said).encode()
        if fault is not None:
            status, out = fault
        handler.send_response(status)
        handler.send_header("Content-Type", "application/x-amz-json-1.1")
        handler.send_header("Content-Length", str(len(out)))
        handler.end_headers()
        handler.wfile.write(out)


def as_glue(kind: str) -> bytes:
    """The body of an error, as Glue itself writes it."""
    return json.dumps({"__type": kind, "message": "as told"}).encode()


def _no(kind: str) -> tuple[int, Json]:
    return 400, {"__type": kind, "message": kind}


@contextmanager
def glue_double() -> Iterator[GlueDouble]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            double.handle(self)

    with serving(Handler) as port:
        double = GlueDouble(port)
        yield double
