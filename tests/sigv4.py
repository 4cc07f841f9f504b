"""Checks Amazon's signature version 4, written after its specification: the other side of what a client signs."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlsplit

_HEADER = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<scope>[^,]+), ?SignedHeaders=(?P<names>[^,]+), ?"
    r"Signature=(?P<signature>[0-9a-f]{64})"
)


def is_signed(
    verb: str,
    target: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    keys: Mapping[str, str],
    region: str,
    service: str,
) -> bool:
    """`keys` are secrets by access key id; `target` is path and query as they came."""
    found = _HEADER.fullmatch(headers.get("Authorization") or "")
    if found is None:
        return False
    access_key, day, *scope = found["scope"].split("/")
    names = found["names"].split(";")
    if scope != [region, service, "aws4_request"] or access_key not in keys or not {"host", "x-amz-date"} <= {*names}:
        return False
    parts = urlsplit(target)
    # any service but S3 wants the path as it was sent, quoted once more
    path = quote(parts.path, safe="/-_.~")
    pairs = sorted((_quoted(key), _quoted(value)) for key, value in parse_qsl(parts.query, keep_blank_values=True))
    query = "&".join(f"{key}={value}" for key, value in pairs)
    lines = [f"{name}:{' '.join((headers.get(name) or '').split())}" for name in names]
    digest = hashlib.sha256(body).hexdigest()
    canonical = "\n".join([verb, path, query, *lines, "", ";".join(names), digest])
    moment = headers.get("x-amz-date") or ""
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", moment, "/".join([day, *scope]), hashed])
    key = f"AWS4{keys[access_key]}".encode()
    for part in (day, *scope):
        key = hmac.digest(key, part.encode(), "sha256")
    want = hmac.new(key, text.encode(), "sha256").hexdigest()
    return moment.startswith(day) and hmac.compare_digest(want, found["signature"])


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")
