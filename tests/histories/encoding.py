"""Manifests, manifest lists and metadata.json of a table made by hand, of every format version.

What is written here is by the specification and owes nothing to lakemirror or pyiceberg.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.avro_bytes import container
from tests.iceberg_files import ADDED, DATA, DELETED, EXISTING, entry, manifest_schema

Json = dict[str, Any]
COLUMNS: list[Json] = [
    {"id": 1, "name": "id", "type": "long", "required": False},
    {"id": 2, "name": "city", "type": "string", "required": False},
]
PARTITIONED: Json = {"name": "city", "transform": "identity", "source-id": 2, "field-id": 1000}


@dataclass(frozen=True)
class File:
    """A data or delete file as an entry tells of it; `more` are fields of the entry."""

    path: str
    size: int
    content: int = DATA
    file_format: str = "PARQUET"
    record_count: int = 1
    spec_id: int = 0
    partition: str | None = None  # the city, under spec 1
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int | None]:
        """One Puffin file holds several deletion vectors, each with an entry of its own."""
        return self.path, self.more.get("content_offset")


@dataclass(frozen=True)
class Entry:
    file: File
    status: int
    snapshot_id: int
    sequence: int

    @property
    def is_live(self) -> bool:
        return self.status != DELETED

    def again(self, status: int, snapshot_id: int | None = None) -> Entry:
        """The same file in a manifest that is written later; only a deletion names the snapshot that makes it."""
        return Entry(self.file, status, self.snapshot_id if snapshot_id is None else snapshot_id, self.sequence)

    def as_record(self, version: int) -> Json:
        file = self.file
        fields = {
            "file_format": file.file_format,
            "record_count": file.record_count,
            "partition": {"city": file.partition} if file.spec_id else {},
            **file.more,
        }
        made = entry(
            file.path, status=self.status, content=file.content, size=file.size, snapshot_id=self.snapshot_id, **fields
        )
        numbers = dict.fromkeys(
            ("sequence_number", "file_sequence_number"), None if self.status == ADDED and version > 1 else self.sequence
        )
        return {**made, **numbers}


@dataclass(frozen=True)
class Manifest:
    path: str
    length: int
    deletes: bool
    spec_id: int
    sequence: int
    snapshot_id: int
    entries: tuple[Entry, ...]
    first_row_id: int | None = None

    def count(self, status: int) -> int:
        return sum(one.status == status for one in self.entries)

    def rows(self, status: int) -> int:
        return sum(one.file.record_count for one in self.entries if one.status == status)

    def as_record(self) -> Json:
        live = [one.sequence for one in self.entries if one.is_live]
        return {
            "manifest_path": self.path,
            "manifest_length": self.length,
            "partition_spec_id": self.spec_id,
            "content": int(self.deletes),
            "sequence_number": self.sequence,
            "min_sequence_number": min(live, default=self.sequence),
            "added_snapshot_id": self.snapshot_id,
            "added_files_count": self.count(ADDED),
            "existing_files_count": self.count(EXISTING),
            "deleted_files_count": self.count(DELETED),
            "added_rows_count": self.rows(ADDED),
            "existing_rows_count": self.rows(EXISTING),
            "deleted_rows_count": self.rows(DELETED),
            "partitions": None,
            "key_metadata": None,
            "first_row_id": self.first_row_id,
        }


@dataclass(frozen=True)
class Snapshot:
    id: int
    parent: int | None
    sequence: int
    timestamp_ms: int
    list_path: str
    schema_id: int
    manifests: tuple[Manifest, ...]
    is_append: bool
    row_ids: tuple[int, int] | None = None  # the first one and how many, from v3 on

    @property
    def live(self) -> list[Entry]:
        return [one for manifest in self.manifests for one in manifest.entries if one.is_live]

    def as_json(self, version: int) -> Json:
        data = [one.file for one in self.live if one.file.content == DATA]
        summary = {
            "operation": "append" if self.is_append else "overwrite",
            "total-data-files": str(len(data)),
            "total-records": str(sum(one.record_count for one in data)),
        }
        made: Json = {
            "snapshot-id": self.id,
            "timestamp-ms": self.timestamp_ms,
            "manifest-list": self.list_path,
            "schema-id": self.schema_id,
            "summary": summary,
        }
        if self.parent is not None:
            made["parent-snapshot-id"] = self.parent
        if version > 1:
            made["sequence-number"] = self.sequence
        if version == 3:
            made["first-row-id"], made["added-rows"] = self.row_ids or (None, None)
        return made


def manifest_bytes(entries: Sequence[Entry], *, version: int, deletes: bool, spec_id: int, codec: str) -> bytes:
    partition = [{"name": "city", "type": ["null", "string"], "field-id": 1000}] if spec_id else []
    meta = {
        "schema": json.dumps({"type": "struct", "schema-id": 0, "fields": COLUMNS}),
        "partition-spec": json.dumps([PARTITIONED] if spec_id else []),
        "partition-spec-id": str(spec_id),
        "format-version": str(version),
        "content": "deletes" if deletes else "data",
    }
    blocks = [[one.as_record(version) for one in entries[start : start + 2]] for start in range(0, len(entries), 2)]
    return container(manifest_schema(partition, version=version), blocks, meta=meta, codec=codec)


def list_bytes(manifests: Sequence[Manifest], *, version: int, codec: str) -> bytes:
    return container(_list_schema(version), [[one.as_record() for one in manifests]], codec=codec)


def _list_schema(version: int) -> Json:
    names: dict[str, tuple[int, Any]] = {
        "manifest_path": (500, "string"),
        "manifest_length": (501, "long"),
        "partition_spec_id": (502, "int"),
    }
    if version > 1:
        names |= {"content": (517, "int"), "sequence_number": (515, "long"), "min_sequence_number": (516, "long")}
    names |= {"added_snapshot_id": (503, "long"), "added_files_count": (504, "int")}
    names |= {"existing_files_count": (505, "int"), "deleted_files_count": (506, "int")}
    names |= {
        "added_rows_count": (512, "long"),
        "existing_rows_count": (513, "long"),
        "deleted_rows_count": (514, "long"),
    }
    bounds = [
        {"name": f"{end}_bound", "type": ["null", "bytes"], "field-id": 510 + at}
        for at, end in enumerate(("lower", "upper"))
    ]
    null = {"name": "contains_null", "type": "boolean", "field-id": 509}
    summaries = {
        "type": "array",
        "element-id": 508,
        "items": {"type": "record", "name": "r508", "fields": [null, *bounds]},
    }
    optional: dict[str, tuple[int, Any]] = {"partitions": (507, summaries)}
    optional |= {"key_metadata": (519, "bytes")} | ({"first_row_id": (520, "long")} if version == 3 else {})
    fields = [{"name": name, "type": kind, "field-id": number} for name, (number, kind) in names.items()]
    fields += [{"name": name, "type": ["null", kind], "field-id": number} for name, (number, kind) in optional.items()]
    return {"type": "record", "name": "manifest_file", "fields": fields}
