"""A double of BLMS: a proxy in front of Iceberg's own REST server that holds to the rules that Google documents.

| rule | what the double does |
|---|---|
| login | a token that its own token server gave for a signed assertion; else 401 |
| `x-goog-user-project` | must name the project; else 403 |
| `X-Iceberg-Access-Delegation` | `vended-credentials` on all table operations; else 400 |
| endpoints | those of the public API; all others are 404 |
| namespaces | one level; a table lies in `<place of the namespace>/<table>`, for good |
| formats | 1 is refused |
| size | no metadata file above `limit_bytes` |
| throttling | `throttled` commits are answered by 429 with Retry-After, and leave their metadata file behind |
| purge | taken, and not done |

Real catalogs do all that in one step; this one does it one request at a time.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import requests

from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import Create
from tests.google_account import TokenServer, key_file
from tests.rest_interpreter import Refused, take
from tests.serving import QuietHandler, serving

Json = dict[str, Any]
Reply = tuple[int, Json, dict[str, str]]
PROJECT = "shop-project"
PREFIX = "projects/shop-project/catalogs/mirror"
_N, _T = "namespaces/{namespace}", "namespaces/{namespace}/tables/{table}"
ENDPOINTS = [
    *(f"{verb} /v1/{{prefix}}/namespaces" for verb in ("GET", "POST")),
    *(f"{verb} /v1/{{prefix}}/{_N}" for verb in ("GET", "HEAD", "DELETE")),
    f"POST /v1/{{prefix}}/{_N}/properties",
    *(f"{verb} /v1/{{prefix}}/{_N}/tables" for verb in ("GET", "POST")),
    *(f"{verb} /v1/{{prefix}}/{_T}" for verb in ("GET", "HEAD", "POST", "DELETE")),
    f"POST /v1/{{prefix}}/{_N}/register",
    f"GET /v1/{{prefix}}/{_T}/credentials",
    f"POST /v1/{{prefix}}/{_T}/metrics",
]


class BlmsDouble:
    """`upstream` are properties of a REST catalog with client credentials, and of the store beside it."""

    def __init__(self, port: int, upstream: Mapping[str, str], warehouse: str) -> None:
        self.uri = f"http://127.0.0.1:{port}"
        self.tokens = TokenServer(f"{self.uri}/token")
        self.limit_bytes = 1_000_000
        self.can_overwrite = True
        self.throttled = 0
        self.retry_after = "0"
        self.says_it_as_google = False  # what Iceberg's server refuses, too
        self.orphans: list[str] = []
        self.asked: list[str] = []
        self.sent: list[Json] = []
        self._up, self._warehouse = dict(upstream), warehouse.rstrip("/")
        self._store = ObstoreStore(upstream)
        self._lock = threading.RLock()
        self._local = threading.local()
        self._token = ""

    @property
    def properties(self) -> dict[str, str]:
        """As a configuration of type blms says it."""
        store = {key: value for key, value in self._up.items() if key.startswith("s3.")}
        return {
            "type": "blms",
            "uri": self.uri,
            "warehouse": self._warehouse,
            "header.x-goog-user-project": PROJECT,
            "gcp.auth.credentials-json": json.dumps(key_file(self.tokens.uri)),
            **store,
        }

    # ------------------------------------------------------------------------------------------------------- answers

    def answer(self, verb: str, target: str, data: bytes, headers: Any) -> Reply:
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if parts.path == "/token":
            return *self.tokens.give(parse_qs(data.decode())), {}
        if not self.tokens.lets_in(headers.get("Authorization")):
            return _no(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        if headers.get("x-goog-user-project") != PROJECT:
            return _no(403, "PERMISSION_DENIED", "x-goog-user-project: caller lacks serviceusage.services.use")
        if parts.path == "/v1/config":
            if query.get("warehouse") != self._warehouse:
                return _no(400, "INVALID_ARGUMENT", "unknown warehouse")
            return 200, {"defaults": {}, "overrides": {"prefix": PREFIX}, "endpoints": ENDPOINTS}, {}
        head, _, path = parts.path.partition(f"/v1/{PREFIX}/")
        names = path.split("/")
        kind = f"{verb} /v1/{{prefix}}/{_kind(names)}"
        if head or kind not in ENDPOINTS:
            return _no(404, "NOT_FOUND", "Method not found.")
        if len(names) > 2 and headers.get("X-Iceberg-Access-Delegation") != "vended-credentials":
            return _no(400, "INVALID_ARGUMENT", "X-Iceberg-Access-Delegation is required by this catalog")
        body: Json = json.loads(data) if data else {}
        if path == "namespaces" and "parent" in query:  # it has one level; what others left below is not its own
            return 200, {"namespaces": []}, {}
        with self._lock:
            if verb == "POST" and path == "namespaces":
                return self._make_namespace(body)
            if verb == "POST" and names[-1] == "register":
                return self._register(names[1], body)
            if verb == "POST" and kind.endswith(_T):
                return self._commit(path, body)
        return self._ask(verb, path, body if data else None, parts.query)

    def _make_namespace(self, body: Json) -> Reply:
        levels = body["namespace"]
        if len(levels) != 1:
            return _no(400, "INVALID_ARGUMENT", "nested namespaces are not supported")
        place = body.setdefault("properties", {}).setdefault("location", f"{self._warehouse}/{levels[0]}")
        if not place.startswith(f"{self._warehouse}/"):
            return _no(400, "INVALID_ARGUMENT", f"{place} is outside of the catalog's bucket")
        return self._ask("POST", "namespaces", body)

    def _register(self, namespace: str, body: Json) -> Reply:
        place = body["metadata-location"]
        data = self._store.get(place, max_bytes=1 << 28).data
        refused = self._refused(namespace, body["name"], json.loads(data), len(data))
        if refused is not None:
            return refused
        path = f"namespaces/{namespace}/tables/{body['name']}"
        if body.pop("overwrite", False) and self.can_overwrite and self._ask("GET", path)[0] == 200:
            self._ask("DELETE", path, None, "purgeRequested=false")
        return self._ask("POST", f"namespaces/{namespace}/register", body)

    def _commit(self, path: str, body: Json) -> Reply:
        status, shown, _ = self._ask("GET", path)
        old = shown["metadata"] if status == 200 else None
        try:
            new = take(old, body["requirements"], body["updates"], shown.get("metadata-location"))
        except (Refused, AssertionError):
            return self._ask("POST", path, body)  # it will be refused there as well, in the server's words
        moved = [one["location"] for one in body["updates"] if one["action"] == "set-location"]
        if old is not None and any(place != old["location"] for place in moved):
            return _no(400, "INVALID_ARGUMENT", "the location of a table is immutable")
        _, namespace, _, table = path.split("/")
        data = json.dumps(new, separators=(",", ":")).encode()
        refused = self._refused(namespace, table, new, len(data))
        if refused is not None:
            return refused
        if self.throttled:
            self.throttled -= 1
            self.orphans.append(f"{new['location']}/metadata/{len(self.asked):05d}-{uuid.uuid4()}.metadata.json")
            self._store.put(self.orphans[-1], data, Create())
            return 429, _no(429, "RESOURCE_EXHAUSTED", "too many commits")[1], {"Retry-After": self.retry_after}
        return self._ask("POST", path, body)

    def _refused(self, namespace: str, table: str, new: Json, size_bytes: int) -> Reply | None:
        if new["format-version"] < 2:
            return _no(400, "INVALID_ARGUMENT", "format version 1 is not supported")
        if size_bytes > self.limit_bytes:
            return _no(400, "INVALID_ARGUMENT", f"table metadata is larger than {self.limit_bytes} bytes")
        properties = self._ask("GET", f"namespaces/{namespace}")[1].get("properties", {})
        expected = f"{properties.get('location', '')}/{unquote(table)}"
        if new["location"].rstrip("/") != expected:
            return _no(400, "INVALID_ARGUMENT", f"{new['location']} does not start with the expected prefix {expected}")
        return None

    # ------------------------------------------------------------------------------------------------------ upstream

    def _ask(self, verb: str, path: str, body: Json | None = None, query: str = "") -> Reply:
        session = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
        if not self._token:
            login, _, secret = self._up["credential"].partition(":")
            form = {"grant_type": "client_credentials", "client_id": login, "client_secret": secret}
            answer = session.post(f"{self._up['uri']}/v1/oauth/tokens", data=form, timeout=30)
            self._token = answer.json()["access_token"]
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body)
        answer = session.request(verb, f"{self._up['uri']}/v1/{path}?{query}", data=data, headers=headers, timeout=60)
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        said = answer.json() if answer.content and is_json else {}
        if answer.content and not is_json:
            return _no(answer.status_code, "INTERNAL", answer.text)
        if self.says_it_as_google and answer.status_code in (404, 409):
            kind = {404: "NOT_FOUND", 409: "ABORTED"}[answer.status_code]
            return _no(answer.status_code, kind, said["error"]["message"])
        return answer.status_code, said, {}

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        data = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.asked.append(f"{handler.command} {handler.path}")
        status, said, headers = self.answer(handler.command, handler.path, data, handler.headers)
        out = json.dumps(said).encode() if said else b""
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(out))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(out)


def _kind(names: list[str]) -> str:
    shapes = {1: ["namespaces"], 2: ["namespaces", "{namespace}"]}
    words = shapes.get(len(names), ["namespaces", "{namespace}", *names[2:]])
    if len(words) > 3 and words[2] == "tables":
        words = [*words[:3], "{table}", *words[4:]]
    return "/".join(words) if names[0] == "namespaces" else "/".join(names)


def _no(status: int, kind: str, message: str) -> Reply:
    """Google's way to say it."""
    return status, {"error": {"code": status, "message": message, "status": kind}}, {}


@contextmanager
def blms_double(upstream: Mapping[str, str], warehouse: str) -> Iterator[BlmsDouble]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            double.handle(self)

        do_POST = do_DELETE = do_HEAD = do_GET

    with serving(Handler) as port:
        double = BlmsDouble(port, upstream, warehouse)
        yield double
