"""A marker binds what it says: any change of its content shows, who wrote it and when does not."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.model.marker import Envelope, Marker

URI = "file:///m/ns/t/_ready/v7.ready.json"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MARKER = Marker(
    table="ns.t",
    version=7,
    epoch="u-1",
    kind="head",
    parent=6,
    parent_checksum="sha256:00",
    metadata_uri="file:///m/ns/t/metadata/ü.json",
    metadata_sha256="11",
    manifest_list_uri="file:///m/ns/t/metadata/snap.avro",
    manifest_count=3,
    index_uri="file:///m/ns/t/_ledger/index/22.parquet",
    index_sha256="22",
    closure_digest="33",
    source_metadata_location="s3://src/meta.json",
    source_fingerprint="44",
    snapshot_id=1234567890123456789,
    sequence_number=5,
    source_committed_at=AT,
    files=10,
    size_bytes=1000,
)


def written(marker: Marker = MARKER, **more: Any) -> bytes:
    data = marker.to_bytes(created_at=AT, producer="host:1")
    return json.dumps({**json.loads(data), **more}).encode()


# What a format to come may look like: other fields, and other types under the names of today.
NEWER: list[dict[str, Any]] = [
    {"format": 2},
    {"format": 2, "content": {"tables": ["ns.t"]}, "signatures": [{"key": 7, "value": "ab"}]},
    {
        "format": 3,
        "version": 7,
        "parent": {"version": 6},
        "snapshot_id": [1, 2],
        "source_committed_at": None,
        "bytes": "many",
        "demoted": {"from": 2, "to": 4},
        "dropped": False,
        "checksum": ["sha512", "00"],
        "created_at": 1767323045,
        "producer": {"host": "h"},
        "fence_token": "seven",
    },
    {"format": "2.0"},
    {"format": {"major": 2, "minor": 0}},
]


def test_reads_back_as_it_was() -> None:
    assert Marker.from_bytes(MARKER.to_bytes(created_at=AT, producer="host:1"), URI) == MARKER
    first = dataclasses.replace(
        MARKER, parent=None, parent_checksum=None, snapshot_id=None, manifest_list_uri=None, version=1
    )
    assert Marker.from_bytes(first.to_bytes(created_at=AT, producer="x"), URI) == first


def test_the_document() -> None:
    document = json.loads(written())
    assert (document["version"], document["parent"], document["snapshot_id"], document["bytes"]) == (
        "v7",
        "v6",
        "1234567890123456789",
        1000,
    )
    assert (document["created_at"], document["producer"]) == ("2026-01-02T03:04:05+00:00", "host:1")
    assert document["checksum"] == MARKER.checksum


def test_time_and_producer_are_outside_the_hash() -> None:
    other = MARKER.to_bytes(created_at=AT + timedelta(days=1), producer="elsewhere:2")
    assert other != MARKER.to_bytes(created_at=AT, producer="host:1")
    assert Marker.from_bytes(other, URI).checksum == MARKER.checksum


def test_the_fence_token_is_outside_the_hash() -> None:
    data = MARKER.to_bytes(created_at=AT, producer="host:1", fence_token=5)
    assert Marker.read(data, URI) == (MARKER, Envelope(AT, "host:1", 5))
    assert json.loads(data)["checksum"] == MARKER.checksum


def test_markers_of_before_the_fence_are_read() -> None:
    document = json.loads(written())
    del document["fence_token"]
    assert Marker.read(json.dumps(document).encode(), URI) == (MARKER, Envelope(AT, "host:1", None))


def test_fields_of_a_later_version_are_kept_and_inside_the_hash() -> None:
    """A newer minor format: the reader takes it, and names it by the hash that its writer gave it."""
    later = dataclasses.replace(MARKER, further='{"weather":"snow"}')
    data = later.to_bytes(created_at=AT, producer="host:1")
    assert json.loads(data)["weather"] == "snow"
    read = Marker.from_bytes(data, URI)
    assert (read, read.checksum) == (later, later.checksum)
    assert read.checksum != MARKER.checksum
    with pytest.raises(PermanentError, match="its hash does not fit"):
        Marker.from_bytes(data.replace(b"snow", b"rain"), URI)


def test_the_same_moment_in_another_zone_is_the_same() -> None:
    elsewhere = dataclasses.replace(MARKER, source_committed_at=AT.astimezone(timezone(timedelta(hours=5))))
    assert elsewhere.checksum == MARKER.checksum


@pytest.mark.parametrize("key", sorted(set(MARKER.content()) - {"format"}))
def test_every_field_is_inside_the_hash(key: str) -> None:
    value = MARKER.content()[key]
    match value:
        case int():
            other: Any = value + 1
        case "v7" | "v6":
            other = "v9"
        case "1234567890123456789":
            other = "5"
        case _ if key == "source_committed_at":
            other = "2027-01-01T00:00:00+00:00"
        case _:
            other = f"{value}x"
    with pytest.raises(PermanentError, match="its hash does not fit") as caught:
        Marker.from_bytes(written(**{key: other}), URI)
    assert caught.value.subject == URI


def test_newer_format_is_refused_by_number() -> None:
    with pytest.raises(PermanentError, match=r"it is of format 2, and this version reads format 1"):
        Marker.from_bytes(written(format=2), URI)


@pytest.mark.parametrize("document", NEWER, ids=str)
def test_a_newer_format_is_refused_whatever_it_looks_like(document: dict[str, Any]) -> None:
    """Nothing but `format` need be there, or be what it is here."""
    with pytest.raises(UnsupportedError, match=r"it is of format .*, and this version reads format 1") as caught:
        Marker.from_bytes(json.dumps(document).encode(), URI)
    assert (type(caught.value), caught.value.op, caught.value.subject) == (UnsupportedError, "read marker", URI)
    assert caught.value.hint.startswith("upgrade Lakemirror on this side")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"7",
        b"\xff",
        b"[" * 100_000,
        written(version=7),
        written(version="7"),
        written(version="v"),
        written(parent=6),
        written(snapshot_id="x"),
        written(snapshot_id=[]),
        written(source_committed_at="yesterday"),
        written(source_committed_at=5),
        written(created_at=5),
        written(created_at="2026-01-01T00:00:00"),
        written(producer=None),
        written(fence_token="1"),
        written(fence_token=0),
        written(fence_token=True),
        json.dumps({"format": 1}).encode(),
    ],
    ids=lambda data: repr(data[-30:]),
)
def test_what_is_not_a_marker_is_refused(data: bytes) -> None:
    with pytest.raises(PermanentError, match="not a marker") as caught:
        Marker.from_bytes(data, URI)
    assert (caught.value.op, caught.value.subject) == ("read marker", URI)


@pytest.mark.parametrize("key", ["table", "epoch", "metadata_uri", "index_uri", "metadata_sha256", "manifest_list_uri"])
@pytest.mark.parametrize("value", [5, [], {}, None], ids=str)
def test_types_are_checked_even_if_the_hash_fits(key: str, value: Any) -> None:
    """The hash is no secret: who forges a marker can make it fit."""
    if (key, value) == ("manifest_list_uri", None):
        return
    forged = dataclasses.replace(MARKER, **{key: value})
    with pytest.raises(PermanentError, match="not a marker"):
        Marker.from_bytes(forged.to_bytes(created_at=AT, producer="eve"), URI)
