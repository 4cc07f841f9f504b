"""Iceberg files made to order: manifests with any entry, position deletes, and commits that no API offers.

Manifests are encoded by `tests.avro_bytes` from schemas that stand here as the specification has them.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import ManifestContent, ManifestFile, write_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate

from tests.avro_bytes import container
from tests.lake import path_of

EXISTING, ADDED, DELETED = 0, 1, 2
DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2
PATH_ID, POS_ID = 2147483546, 2147483545
Json = dict[str, Any]

DELETES_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={b"PARQUET:field_id": str(PATH_ID).encode()}),
        pa.field("pos", pa.int64(), nullable=False, metadata={b"PARQUET:field_id": str(POS_ID).encode()}),
    ],
    metadata={b"delete-type": b"position"},
)


def _field(name: str, field_id: int, kind: Any, *, optional: bool = True) -> Json:
    return {"name": name, "type": ["null", kind] if optional else kind, "field-id": field_id}


def _int_map(key_id: int, value_id: int, value: str) -> Json:
    pair = [_field("key", key_id, "int", optional=False), _field("value", value_id, value, optional=False)]
    return {
        "type": "array",
        "logicalType": "map",
        "items": {"type": "record", "name": f"k{key_id}_v{value_id}", "fields": pair},
    }


_V3_FIELDS = {"content_offset": 144, "content_size_in_bytes": 145}


def manifest_schema(partition: Sequence[Json] = (), *, version: int = 2) -> Json:
    """A manifest entry of v1, v2 or v3; from v2 on it has `referenced_data_file`."""
    v2 = version >= 2
    file = [
        *([_field("content", 134, "int", optional=False)] if v2 else []),
        _field("file_path", 100, "string", optional=False),
        _field("file_format", 101, "string", optional=False),
        _field("partition", 102, {"type": "record", "name": "r102", "fields": list(partition)}, optional=False),
        _field("record_count", 103, "long", optional=False),
        _field("file_size_in_bytes", 104, "long", optional=False),
        *([] if v2 else [_field("block_size_in_bytes", 105, "long", optional=False)]),
        _field("column_sizes", 108, _int_map(117, 118, "long")),
        _field("value_counts", 109, _int_map(119, 120, "long")),
        _field("null_value_counts", 110, _int_map(121, 122, "long")),
        _field("nan_value_counts", 137, _int_map(138, 139, "long")),
        _field("lower_bounds", 125, _int_map(126, 127, "bytes")),
        _field("upper_bounds", 128, _int_map(129, 130, "bytes")),
        _field("key_metadata", 131, "bytes"),
        _field("split_offsets", 132, {"type": "array", "items": "long", "element-id": 133}),
        *([_field("equality_ids", 135, {"type": "array", "items": "int", "element-id": 136})] if v2 else []),
        _field("sort_order_id", 140, "int"),
        *([_field("first_row_id", 142, "long")] if version == 3 else []),
        *([_field("referenced_data_file", 143, "string")] if v2 else []),
        *([_field(name, number, "long") for name, number in _V3_FIELDS.items()] if version == 3 else []),
    ]
    top = [
        _field("status", 0, "int", optional=False),
        _field("snapshot_id", 1, "long"),
        *([_field("sequence_number", 3, "long"), _field("file_sequence_number", 4, "long")] if v2 else []),
        _field("data_file", 2, {"type": "record", "name": "r2", "fields": file}, optional=False),
    ]
    return {"type": "record", "name": "manifest_entry", "fields": top}


def list_schema() -> Json:
    """A manifest list of v2, without partition summaries."""
    names = {"manifest_path": (500, "string"), "manifest_length": (501, "long"), "partition_spec_id": (502, "int")}
    names |= {"content": (517, "int"), "sequence_number": (515, "long"), "min_sequence_number": (516, "long")}
    names |= {"added_snapshot_id": (503, "long"), "added_files_count": (504, "int")}
    names |= {"existing_files_count": (505, "int"), "deleted_files_count": (506, "int")}
    fields = [_field(name, field_id, kind, optional=False) for name, (field_id, kind) in names.items()]
    return {"type": "record", "name": "manifest_file", "fields": [*fields, _field("key_metadata", 519, "bytes")]}


def list_entry(path: str, length: int, **more: Any) -> Json:
    numbers = dict.fromkeys(("partition_spec_id", "content", "existing_files_count", "deleted_files_count"), 0)
    numbers |= dict.fromkeys(("sequence_number", "min_sequence_number", "added_snapshot_id", "added_files_count"), 1)
    return {"manifest_path": path, "manifest_length": length, **numbers, "key_metadata": None, **more}


def bounds(values: Mapping[int, bytes]) -> list[Json]:
    return [{"key": key, "value": value} for key, value in values.items()]


def entry(
    path: str, *, status: int = ADDED, content: int = DATA, size: int = 10, snapshot_id: int = 1, **more: Any
) -> Json:
    """A manifest entry; `more` are fields of its data file."""
    file = {
        "content": content,
        "file_path": path,
        "file_format": "PARQUET",
        "partition": {},
        "record_count": 1,
        "file_size_in_bytes": size,
        "block_size_in_bytes": 67108864,
        **dict.fromkeys(("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds")),
        **dict.fromkeys(("upper_bounds", "key_metadata", "split_offsets", "equality_ids", "sort_order_id")),
        **dict.fromkeys(("referenced_data_file", "first_row_id", *_V3_FIELDS)),
        **more,
    }
    numbers = {
        "sequence_number": None if status == ADDED else 1,
        "file_sequence_number": None if status == ADDED else 1,
    }
    return {"status": status, "snapshot_id": snapshot_id, **numbers, "data_file": file}


def manifest(entries: Sequence[Json], *, version: int = 2, blocks: int = 1, **options: Any) -> bytes:
    """A manifest of these entries, spread over so many blocks; `options` as for `avro_bytes.container`."""
    per_block = max(1, -(-len(entries) // blocks))
    parts = [entries[start : start + per_block] for start in range(0, len(entries), per_block)]
    options.setdefault("meta", {"schema": "{}", "partition-spec": "[]", "format-version": str(version)})
    return container(manifest_schema(version=version), parts, **options)


def position_deletes(rows: Sequence[tuple[str, int]], *, row_group_rows: int = 1 << 20) -> bytes:
    out = io.BytesIO()
    columns = [[path for path, _ in rows], [position for _, position in rows]]
    table = pa.table([pa.array(columns[0], pa.string()), pa.array(columns[1], pa.int64())], schema=DELETES_SCHEMA)
    pq.write_table(table, out, row_group_size=row_group_rows)
    return out.getvalue()


def write(location: str, data: bytes) -> str:
    path = path_of(location)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return location


def data_files(table: Table) -> list[str]:
    """The live data files of the table's head."""
    return sorted(task.file.file_path for task in table.scan().plan_files())


def manifest_file(
    table: Table, entries: Sequence[Json], snapshot_id: int, *, deletes: bool = False, version: int = 2, **options: Any
) -> ManifestFile:
    """Write a manifest of the table and give what a manifest list says of it."""
    spec, schema = table.spec(), table.schema()
    meta = {
        "schema": schema.model_dump_json(),
        "schema-id": str(schema.schema_id),
        "partition-spec": "[]",
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(version),
        "content": "deletes" if deletes else "data",
    }
    data = manifest(entries, version=version, meta=meta, **options)
    location = write(f"{table.location()}/metadata/{uuid.uuid4()}-m0.avro", data)
    by_status = [[one for one in entries if one["status"] == status] for status in (ADDED, EXISTING, DELETED)]
    counts = [len(part) for part in by_status]
    return ManifestFile.from_args(
        manifest_path=location,
        manifest_length=len(data),
        partition_spec_id=spec.spec_id,
        content=ManifestContent.DELETES if deletes else ManifestContent.DATA,
        sequence_number=table.last_sequence_number + 1,
        min_sequence_number=1,
        added_snapshot_id=snapshot_id,
        added_files_count=counts[0],
        existing_files_count=counts[1],
        deleted_files_count=counts[2],
        added_rows_count=counts[0],
        existing_rows_count=counts[1],
        deleted_rows_count=counts[2],
        partitions=[],
        key_metadata=None,
    )


def manifests_of(table: Table) -> list[ManifestFile]:
    snapshot = table.current_snapshot()
    return [] if snapshot is None else snapshot.manifests(table.io)


def commit(
    table: Table,
    snapshot_id: int,
    manifests: Sequence[ManifestFile],
    *,
    parent: int | None = -1,
    summary: Mapping[str, str] | None = None,
    operation: Operation = Operation.OVERWRITE,
) -> Table:
    """Commit a snapshot of exactly these manifests; `parent` None makes it a root of the history."""
    head = table.current_snapshot()
    head_id = None if head is None else head.snapshot_id
    parent_id = head_id if parent == -1 else parent
    sequence = table.last_sequence_number + 1
    location = f"{table.location()}/metadata/snap-{snapshot_id}-0-{uuid.uuid4()}.avro"
    with write_manifest_list(2, table.io.new_output(location), snapshot_id, parent_id, sequence, "deflate") as writer:
        writer.add_manifests(list(manifests))
    snapshot = Snapshot.model_validate(
        {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": parent_id,
            "sequence-number": sequence,
            "timestamp-ms": table.metadata.last_updated_ms + 1,
            "manifest-list": location,
            "summary": Summary(operation, **{"added-files-size": "0", "total-files-size": "0", **(summary or {})}),
            "schema-id": table.schema().schema_id,
        }
    )
    moved = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
    main = SetSnapshotRefUpdate.model_validate(moved)
    wanted = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": head_id}
    requirements = (AssertRefSnapshotId.model_validate(wanted),)
    table.catalog.commit_table(table, requirements, (AddSnapshotUpdate(snapshot=snapshot), main))
    return table.refresh()


def delete_positions(
    table: Table, rows: Sequence[tuple[str, int]], *, row_group_rows: int = 1 << 20, **more: Any
) -> str:
    """Commit a position delete file with these rows; gives its path. `more` are fields of its manifest entry."""
    snapshot_id = table.last_sequence_number + 5_000_000
    path = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    data = position_deletes(sorted(rows), row_group_rows=row_group_rows)
    write(path, data)
    paths = sorted(path for path, _ in rows)
    fields = {
        "record_count": len(rows),
        "lower_bounds": bounds({PATH_ID: paths[0].encode(), POS_ID: (0).to_bytes(8, "little")}),
        "upper_bounds": bounds({PATH_ID: paths[-1].encode(), POS_ID: (99).to_bytes(8, "little")}),
        **more,
    }
    added = entry(path, content=POSITION_DELETES, size=len(data), snapshot_id=snapshot_id, **fields)
    deletes = manifest_file(table, [added], snapshot_id, deletes=True)
    commit(table, snapshot_id, [*manifests_of(table), deletes])
    return path
