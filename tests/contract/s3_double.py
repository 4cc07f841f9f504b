"""An S3 server in this process: as much of the protocol as the adapter speaks, atomic conditions included.

It keeps keys as they come over the wire after percent-decoding, pages listings by three, and notes every request, so
that tests see what was sent. It checks no signatures. Statuses can be forced per key, and bodies of answers cut.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import count
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.serving import QuietHandler, serving

GENERATION = "77"  # of every object, for clients that speak to it as to GCS
_PAGE = 3
_THEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass(frozen=True)
class Request:
    """What came over the wire."""

    method: str
    target: str
    headers: Mapping[str, str]
    size_bytes: int


@dataclass
class S3Double:
    """The state of the server.

    `forced` answers a key with a status, `answers` with a body, both with the headers `said`, which reads get too;
    `ignores_conditions` is for one of those that answer 200 to what they do not know; `cut` sends only so many bytes of
    a body, `swap` is what a key holds after its body was cut; `bodies` are what the next reads of a key give instead;
    `part_bytes` is the size of the parts that a key was uploaded in.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    forced: dict[str, int] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=dict)
    ignores_conditions: bool = False
    cut: dict[str, int] = field(default_factory=dict)
    swap: dict[str, bytes] = field(default_factory=dict)
    bodies: dict[str, list[bytes]] = field(default_factory=dict)
    part_bytes: dict[str, int] = field(default_factory=dict)
    endpoint: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    ids: Iterator[int] = field(default_factory=count)

    @property
    def properties(self) -> dict[str, str]:
        """What a store needs to speak to it."""
        keys = {"s3.access-key-id": "testing", "s3.secret-access-key": "testing"}  # pragma: allowlist secret
        return {"s3.endpoint": self.endpoint, "s3.region": "eu-test-1", **keys}


@contextmanager
def s3_double() -> Iterator[S3Double]:
    double = S3Double()

    class Handler(_Handler):
        state = double

    with serving(Handler) as port:
        double.endpoint = f"http://127.0.0.1:{port}"
        yield double


def _e_tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class _Handler(QuietHandler):
    state: S3Double
    wbufsize = -1  # one packet per answer

    def handle_any(self) -> None:
        parts = urlsplit(self.path)
        bucket_and_key = unquote(parts.path).lstrip("/").split("/", 1)
        key = bucket_and_key[1] if len(bucket_and_key) > 1 else ""
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.state.lock:
            self.state.requests.append(Request(self.command, self.path, headers, len(body)))
            if key in self.state.forced or key in self.state.answers:
                body = self.state.answers.get(key, b"<Error><Code>Forced</Code></Error>")
                return self.answer(self.state.forced.get(key, 200), body, **self.state.said)
            if self.command in ("GET", "HEAD"):
                return self.read(key, query, headers) if key else self.list(query)
            if self.command == "PUT":
                return self.write(key, query, headers, body)
            if self.command == "POST" and not key:
                return self.delete_many(body)
            if self.command == "POST":
                return self.multipart(key, query, headers)
            if "uploadId" in query:
                self.state.uploads.pop(query["uploadId"], None)
            else:
                self.state.objects.pop(key, None)
            return self.answer(204)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("x-goog-generation", GENERATION)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "content_length" not in headers:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def read(self, key: str, query: Mapping[str, str], headers: Mapping[str, str]) -> None:
        data = self.state.objects.get(key)
        if data is None:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        said = {"etag": _e_tag(data), "last_modified": format_datetime(_THEN, usegmt=True), **self.state.said}
        bodies = self.state.bodies.get(key) if self.command == "GET" else None
        status, part = 200, bodies.pop(0) if bodies else data
        if (part_bytes := self.state.part_bytes.get(key)) and "partNumber" in query:
            said["x_amz_mp_parts_count"] = str(-(-len(data) // part_bytes))
            status, part = 206, data[:part_bytes]
        if wanted := headers.get("range"):
            first, last = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
            if first >= len(data):
                return self.answer(416)
            status, part = 206, data[first : last + 1]
            said["content_range"] = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
        if key in self.state.cut:
            self.close_connection = True
            self.state.objects[key] = self.state.swap.get(key, data)
            return self.answer(status, part[: self.state.cut[key]], content_length=str(len(part)), **said)
        return self.answer(status, part, content_length=str(len(part)), **said)

    def list(self, query: Mapping[str, str]) -> None:
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        keys = sorted((key for key in self.state.objects if key.startswith(prefix) and key > after), key=str.encode)
        rows = [
            f"<Contents><Key>{escape(key)}</Key><LastModified>{_THEN.isoformat()}</LastModified>"
            f"<ETag>{escape(_e_tag(data))}</ETag><Size>{len(data)}</Size></Contents>"
            for key in keys[:_PAGE]
            for data in (self.state.objects[key],)
        ]
        more = f"<NextContinuationToken>{escape(keys[_PAGE - 1])}</NextContinuationToken>" if len(keys) > _PAGE else ""
        truncated = str(len(keys) > _PAGE).lower()
        page = f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{more}{''.join(rows)}</ListBucketResult>"
        return self.answer(200, page.encode())

    def write(self, key: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes) -> None:
        if "x-amz-copy-source" in headers:
            source = unquote(headers["x-amz-copy-source"]).lstrip("/").split("/", 1)[1]
            if source not in self.state.objects:
                return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            body = self.state.objects[source]
        if "uploadId" in query:
            self.state.uploads[query["uploadId"]][int(query["partNumber"])] = body
        elif self.refuses(key, headers):
            return self.answer(412)
        else:
            self.state.objects[key] = body
        tag = escape(_e_tag(body))
        copied = f"<Copied><ETag>{tag}</ETag><LastModified>{_THEN.isoformat()}</LastModified></Copied>"
        return self.answer(200, copied.encode() if "x-amz-copy-source" in headers else b"", etag=_e_tag(body))

    def refuses(self, key: str, headers: Mapping[str, str]) -> bool:
        if self.state.ignores_conditions:
            return False
        there = self.state.objects.get(key)
        if headers.get("if-none-match") == "*":
            return there is not None
        wanted = headers.get("if-match")
        return wanted is not None and (there is None or _e_tag(there) != wanted)

    def multipart(self, key: str, query: Mapping[str, str], headers: Mapping[str, str]) -> None:
        if "uploads" in query:
            upload = f"upload-{next(self.state.ids)}"
            self.state.uploads[upload] = {}
            return self.answer(200, f"<Started><UploadId>{upload}</UploadId></Started>".encode())
        if self.refuses(key, headers):
            return self.answer(412)
        parts = self.state.uploads.pop(query["uploadId"])
        data = b"".join(parts[number] for number in sorted(parts))
        self.state.objects[key] = data
        return self.answer(200, f"<Completed><ETag>{escape(_e_tag(data))}</ETag></Completed>".encode())

    def delete_many(self, body: bytes) -> None:
        named = [found.text or "" for found in ElementTree.fromstring(body).iter() if found.tag.endswith("Key")]
        for key in named:
            self.state.objects.pop(key, None)
        rows = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in named)
        return self.answer(200, f"<DeleteResult>{rows}</DeleteResult>".encode())
