"""ORC delete files made to order with pyarrow, and a plain look inside them with pyarrow alone."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.orc

from tests.iceberg_files import PATH_ID, POS_ID

PATH = pa.field("file_path", pa.string(), metadata={"iceberg.id": str(PATH_ID), "iceberg.required": "true"})
POS = pa.field("pos", pa.int64(), metadata={"iceberg.id": str(POS_ID), "iceberg.long-type": "LONG"})
DIRECT, DICTIONARY = 0.0, 1.0  # shares of distinct values up to which a dictionary is used


def orc_deletes(rows: Sequence[tuple[str | None, int]], *columns: tuple[pa.Field, pa.Array], **options: Any) -> bytes:
    """A delete file of these rows and further columns; `options` are those of the writer."""
    arrays = [pa.array([path for path, _ in rows], pa.string()), pa.array([pos for _, pos in rows], pa.int64())]
    table = pa.table([*arrays, *(array for _, array in columns)], pa.schema([PATH, POS, *(one for one, _ in columns)]))
    return orc_file(table, **options)


def orc_file(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    options = {"compression": "zlib", "dictionary_key_size_threshold": DICTIONARY, **options}
    with pa.orc.ORCWriter(out, **options) as writer:
        step = options.get("batch_size") or max(1, table.num_rows)
        for start in range(0, max(1, table.num_rows), step):
            writer.write(table.slice(start, step))
    return out.getvalue()


def table_of(data: bytes) -> pa.Table:
    return pa.orc.ORCFile(io.BytesIO(data)).read()


def rows_of(data: bytes) -> list[tuple[str, int]]:
    table = table_of(data)
    return list(zip(table["file_path"].to_pylist(), table["pos"].to_pylist(), strict=True))
