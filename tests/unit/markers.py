"""Markers to order, for tests of what reads and writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import Marker
from lakemirror.storage.port import ObjectStore

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def marker(layout: TableLayout, version: int = 1, **more: Any) -> Marker:
    fields = {
        "table": "shop.orders",
        "version": version,
        "epoch": "u-1",
        "kind": "head",
        "parent": None,
        "parent_checksum": None,
        "metadata_uri": layout.metadata(f"{version:05d}.metadata.json"),
        "metadata_sha256": "11",
        "manifest_list_uri": None,
        "manifest_count": 0,
        "index_uri": layout.index("22"),
        "index_sha256": "22",
        "closure_digest": "33",
        "source_metadata_location": "s3://src/meta.json",
        "source_fingerprint": "44",
        "snapshot_id": 5,
        "sequence_number": 1,
        "source_committed_at": AT,
        "files": 1,
        "size_bytes": 10,
    }
    return Marker(**{**fields, **more})


def written(made: Marker, producer: str = "host:1") -> bytes:
    return made.to_bytes(created_at=AT, producer=producer)


def put_ready(store: ObjectStore, layout: TableLayout, *versions: int) -> None:
    for version in versions:
        store.put(layout.ready(version), written(marker(layout, version)))


def put_chain(store: ObjectStore, layout: TableLayout, *links: tuple[int, int | None], **more: Any) -> None:
    """Ready markers, each with its parent."""
    for version, parent in links:
        store.put(layout.ready(version), written(marker(layout, version, parent=parent, **more)))
