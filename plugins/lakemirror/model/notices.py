"""What a bucket's notifications say: which objects they name, and of which tables those may be the ready markers.

The record that a version was restored says as much as its ready marker: it counts from that moment on.

A notification is a hint from whoever can write to the queue. All that is taken from it is which table to look at: never
a version, a size, a hash or a place to read. What names no ready marker of this mirror is counted, told and dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote_plus

from lakemirror.errors import UsageError
from lakemirror.model import bounded_json
from lakemirror.model.paths import canonical
from lakemirror.model.table import TableRef

MAX_BYTES: Final = 1 << 20  # SQS carries 1 MiB at most; a notification of Pub/Sub has a few attributes
MAX_VALUES: Final = 100_000
MAX_OBJECTS: Final = 1000  # that one message may name; Amazon's name one
MAX_KEY: Final = 4500
_MARKER = re.compile(r"(?P<namespace>[^/]+)/(?P<name>[^/]+)/_ready/v[1-9][0-9]{0,17}\.(ready|restored)\.json")


@dataclass(frozen=True, slots=True)
class Named:
    """The tables to look at, by name; and how many objects were named that cannot be ready markers of this mirror."""

    tables: tuple[TableRef, ...]
    ignored: int


def objects_of_s3(body: str) -> tuple[str, ...]:
    """The objects that the body of an SQS message names: as S3 sends it, through SNS, or through EventBridge.

    Empty for anything else, such as the test message that S3 sends first. Keys of S3 come percent-encoded; those of
    EventBridge do not.
    """
    document = _object(body)
    if isinstance(document.get("Message"), str) and "Records" not in document:
        document = _object(document["Message"])
    records = document.get("Records")
    if isinstance(records, list):
        return tuple(found for one in records[:MAX_OBJECTS] if (found := _record(one)) is not None)
    detail = document.get("detail")
    if isinstance(detail, dict):
        found = _uri("s3", _text(detail, "bucket", "name"), _text(detail, "object", "key"))
        return () if found is None else (found,)
    return ()


def objects_of_gcs(attributes: Mapping[str, str]) -> tuple[str, ...]:
    """The object that the attributes of a Pub/Sub message name; empty if they are not a bucket's notification."""
    found = _uri("gs", attributes.get("bucketId"), attributes.get("objectId"))
    return () if found is None else (found,)


def tables_named(uris: Iterable[str], location: str) -> Named:
    """The tables of the mirror at this location whose ready markers these objects may be, whether there are such."""
    root = canonical(location).rstrip("/") + "/"
    found: set[TableRef] = set()
    ignored = 0
    for uri in uris:
        place = canonical(uri)
        marker = _MARKER.fullmatch(place[len(root) :]) if place.startswith(root) else None
        table = None if marker is None else _table(marker["namespace"], marker["name"])
        if table is None:
            ignored += 1
        else:
            found.add(table)
    return Named(tuple(sorted(found, key=str)), ignored)


def _table(namespace: str, name: str) -> TableRef | None:
    try:
        table = TableRef.parse(f"{namespace}.{name}")
    except UsageError:
        return None
    return table if table.folder == f"{namespace}/{name}" else None


def _record(record: Any) -> str | None:
    key = _text(record, "s3", "object", "key")
    return _uri("s3", _text(record, "s3", "bucket", "name"), None if key is None else unquote_plus(key))


def _uri(scheme: str, bucket: str | None, key: str | None) -> str | None:
    if not bucket or not key or len(bucket) + len(key) > MAX_KEY or "/" in bucket:
        return None
    return f"{scheme}://{bucket}/{key}"


def _text(document: Any, *keys: str) -> str | None:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, str) else None


def _object(text: str) -> dict[str, Any]:
    if len(text) > MAX_BYTES:
        return {}
    try:
        document = bounded_json.loads(text.encode(), max_values=MAX_VALUES)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
