"""A table with a long history, made in seconds: each commit has a manifest, a manifest list and a file of its own.

Data files and manifests are written by pyiceberg; the lists of older snapshots are prefixes of the newest one, which is
what appends leave behind.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from sqlalchemy import text

from lakemirror.formats.iceberg import avro

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("name", pa.string(), metadata={"PARQUET:field_id": "2"}),
    ]
)
FIRST_SNAPSHOT_ID = 10_000_000_000


def make(catalog: SqlCatalog, name: str, commits: int) -> Table:
    """Create `name` with `commits` snapshots of one file each; row n was written by commit n."""
    table = catalog.create_table(name, COLUMNS, properties={"format-version": "2"})
    manifests = [_manifest(table, number) for number in range(1, commits + 1)]
    lists = _lists(table, manifests)
    document = _with_history(json.loads(table.metadata.model_dump_json()), lists)
    location = f"{table.location()}/metadata/{commits:05d}-{uuid.uuid4()}.metadata.json"
    with table.io.new_output(location).create() as out:
        out.write(json.dumps(document).encode())
    with catalog.engine.begin() as connection:
        where = {"location": location, "old": table.metadata_location}
        connection.execute(
            text("UPDATE iceberg_tables SET metadata_location = :location WHERE metadata_location = :old"), where
        )
    return catalog.load_table(name)


def _manifest(table: Table, number: int) -> ManifestFile:
    path = f"{table.location()}/data/part-{number:06d}.parquet"
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [number], "name": [f"row {number}"]}, schema=COLUMNS), local)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=local.stat().st_size,
        column_sizes={},
        value_counts={1: 1, 2: 1},
        null_value_counts={1: 0, 2: 0},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        split_offsets=[4],
    )
    output = table.io.new_output(f"{table.location()}/metadata/{number:06d}-m0.avro")
    with write_manifest(2, table.spec(), table.schema(), output, FIRST_SNAPSHOT_ID + number, "deflate") as writer:
        entry = ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=FIRST_SNAPSHOT_ID + number,
            sequence_number=number,
            file_sequence_number=number,
            data_file=file,
        )
        writer.add_entry(entry)
    manifest = writer.to_manifest_file()
    manifest.sequence_number = number
    manifest.min_sequence_number = number
    return manifest


def _lists(table: Table, manifests: list[ManifestFile]) -> list[str]:
    """One list for each snapshot: the newest is written block by block; the older are its beginnings."""
    io, count = table.io, len(manifests)
    newest = _list_path(table, count)
    last = FIRST_SNAPSHOT_ID + count
    with write_manifest_list(2, io.new_output(newest), last, last - 1, count, "deflate") as writer:
        for manifest in manifests:
            writer.add_manifests([manifest])
    file = avro.parse(_read(io, newest), newest)
    if len(file.blocks) != count:
        raise RuntimeError(f"want one block for each of {count} manifests, got {len(file.blocks)}")
    paths = []
    for number in range(1, count):
        paths.append(_list_path(table, number))
        with io.new_output(paths[-1]).create() as out:
            out.write(avro.assemble(file, file.blocks[:number]))
    return [*paths, newest]


def _list_path(table: Table, number: int) -> str:
    return f"{table.location()}/metadata/snap-{FIRST_SNAPSHOT_ID + number}.avro"


def _read(io: FileIO, location: str) -> bytes:
    with io.new_input(location).open() as file:
        return file.read()


def _with_history(document: dict[str, Any], lists: list[str]) -> dict[str, Any]:
    begin = document["last-updated-ms"]
    snapshots = [
        {
            "snapshot-id": FIRST_SNAPSHOT_ID + number,
            "sequence-number": number,
            "timestamp-ms": begin + number,
            "manifest-list": path,
            "schema-id": 0,
            "summary": {"operation": "append", "added-files-size": "1000", "total-files-size": str(1000 * number)},
            **({"parent-snapshot-id": FIRST_SNAPSHOT_ID + number - 1} if number > 1 else {}),
        }
        for number, path in enumerate(lists, start=1)
    ]
    head = snapshots[-1]
    log = [{"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]} for one in snapshots]
    return {
        **document,
        "snapshots": snapshots,
        "snapshot-log": log,
        "current-snapshot-id": head["snapshot-id"],
        "last-sequence-number": head["sequence-number"],
        "last-updated-ms": head["timestamp-ms"],
        "refs": {"main": {"snapshot-id": head["snapshot-id"], "type": "branch"}},
    }
