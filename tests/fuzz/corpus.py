"""The blocks that the fuzzer starts from: manifests and lists of every kind, and schemas that hold all of Avro.

`write` makes one file of them for `fuzz_walk.c`, which says how it reads them. Made, not found: the same on every run.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lakemirror.formats.iceberg import manifest_fields as fields
from lakemirror.formats.iceberg.avro_program import Program, compile_program
from tests.avro_bytes import encode
from tests.iceberg_files import (
    DELETED,
    EQUALITY_DELETES,
    PATH_ID,
    POSITION_DELETES,
    bounds,
    entry,
    list_entry,
    list_schema,
    manifest_schema,
)

HOME = "s3://lake/wh/t"
STATS = [{"key": column, "value": column * 7919 << column} for column in range(1, 21)]
BOUNDS = bounds({column: (column * 7919).to_bytes(8, "little") for column in range(1, 21)})
ENTRIES = [
    entry(f"{HOME}/data/a.parquet", column_sizes=STATS, value_counts=STATS, lower_bounds=BOUNDS, upper_bounds=BOUNDS),
    entry(f"{HOME}/cold/p=ü/b.parquet", size=1 << 40, split_offsets=[4, 1 << 33], sort_order_id=0),
    entry("/lake/c.parquet", status=DELETED, equality_ids=[1, 2]),
    entry(f"{HOME}/data/../d.parquet", key_metadata=b"k" * 20),
]
DELETES = [
    entry(
        f"{HOME}/d", content=POSITION_DELETES, lower_bounds=bounds({PATH_ID: HOME.encode()}), referenced_data_file=HOME
    ),
    entry(f"{HOME}/data/e", content=EQUALITY_DELETES, referenced_data_file=f"{HOME}/data/a.parquet"),
]
INNER = {
    "type": "record",
    "name": "inner",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "nothing", "type": "null"},
        {"name": "both", "type": ["null", "float", {"type": "map", "values": ["null", "double"]}]},
    ],
}
RICH = {
    "type": "record",
    "name": "rich",
    "fields": [
        {"name": "status", "type": "long", "field-id": fields.STATUS},
        {"name": "path", "type": ["null", "string"], "field-id": fields.FILE_PATH},
        {"name": "id", "type": {"type": "fixed", "name": "f16", "size": 16}},
        {"name": "size", "type": "long", "field-id": fields.FILE_SIZE},
        {"name": "inners", "type": {"type": "array", "items": INNER}},
        {"name": "nulls", "type": {"type": "array", "items": "null"}},
        {
            "name": "deep",
            "type": {"type": "array", "items": {"type": "array", "items": {"type": "map", "values": "bytes"}}},
        },
        {"name": "referenced", "type": "string", "field-id": fields.REFERENCED_DATA_FILE},
        {"name": "last", "type": "bytes", "field-id": fields.LOWER_BOUNDS},
    ],
}
RICH_RECORD = {
    "status": 1,
    "path": f"{HOME}/data/r",
    "id": b"\x80" * 16,
    "size": 1 << 62,
    "inners": [{"flag": True, "nothing": None, "both": None}, {"flag": False, "nothing": None, "both": 0.5}],
    "nulls": [None] * 5,
    "deep": [[{"k": b"v" * 200}, {}], [], [{"": b""}]],
    "referenced": f"{HOME}/data/s",
    "last": b"\xff" * 12,
}


def cases() -> Iterator[tuple[Program, int, bytes]]:
    """Programs with a block of records each."""
    for wanted in (fields.TO_READ_DELETES, fields.TO_REWRITE_DATA, ()):
        for negative in (False, True):
            for schema, records in (
                (manifest_schema(), ENTRIES[:1]),
                (manifest_schema(), ENTRIES),
                (manifest_schema(version=1), ENTRIES),
                (manifest_schema(), DELETES),
                (RICH, [RICH_RECORD]),
                (RICH, [RICH_RECORD] * 5),
            ):
                yield _case(schema, wanted, records, negative)
    yield _case(list_schema(), (500, 501, 517, 504, 505, 519), [list_entry(f"{HOME}/m{n}", n) for n in range(9)], False)


def _case(schema: Any, wanted: tuple[int, ...], records: list[Any], negative: bool) -> tuple[Program, int, bytes]:
    data = b"".join(encode(schema, record, negative_counts=negative) for record in records)
    return compile_program(schema, wanted), len(records), data


def write(path: Path) -> None:
    """All cases in one file, numbers as int64 of this machine."""
    with path.open("wb") as out:
        for program, count, data in cases():
            numbers = [len(program.slots), count, len(program.code), len(data), *places(program)]
            out.write(struct.pack(f"={len(numbers)}q", *numbers) + program.code + data)


def places(program: Program) -> list[int]:
    """The slots of an entry as the core wants them; any slot will do where a schema lacks a field."""

    def at(field_id: int, missing: int) -> int:
        found = program.slot(field_id)
        return missing if found is None else found

    def path(field_id: int, missing: int) -> list[int]:
        number = at(field_id, missing)
        is_union = number >= 0 and number < len(program.slots) and program.slots[number].is_union
        return [number, 1, 0] if is_union else [number, -1, -2]

    return [
        at(fields.STATUS, 0),
        at(fields.CONTENT, -1),
        at(fields.FILE_SIZE, 0),
        *path(fields.KEY_METADATA, -1),
        *path(fields.FILE_PATH, 0),
        *path(fields.REFERENCED_DATA_FILE, -1),
    ]
