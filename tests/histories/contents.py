"""The files of a table made by hand, and a plain look inside them: rows, position deletes, deletion vectors."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tests import orc_files, puffin_bytes
from tests.avro_bytes import container, records
from tests.iceberg_files import PATH_ID, POS_ID, position_deletes

Row = tuple[int, str]
Position = tuple[str, int]

_ROWS = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"}),
        pa.field("city", pa.string(), metadata={b"PARQUET:field_id": b"2"}),
    ]
)
_AVRO_DELETES = {
    "type": "record",
    "name": "position_delete",
    "fields": [
        {"name": "file_path", "type": "string", "field-id": PATH_ID},
        {"name": "pos", "type": "long", "field-id": POS_ID},
    ],
}


@lru_cache(maxsize=4096)
def data_file(rows: tuple[Row, ...]) -> bytes:
    out = io.BytesIO()
    columns = [pa.array([one for one, _ in rows], pa.int64()), pa.array([city for _, city in rows], pa.string())]
    pq.write_table(pa.table(columns, schema=_ROWS), out)
    return out.getvalue()


@lru_cache(maxsize=4096)
def equality_deletes(ids: tuple[int, ...]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table([pa.array(ids, pa.int64())], schema=pa.schema([_ROWS.field("id")])), out)
    return out.getvalue()


def delete_file(file_format: str, positions: Sequence[Position]) -> bytes:
    ordered = sorted(positions)
    match file_format:
        case "PARQUET":
            return position_deletes(ordered)
        case "ORC":
            return orc_files.orc_deletes(ordered)
        case "AVRO":
            found = [{"file_path": path, "pos": position} for path, position in ordered]
            return container(_AVRO_DELETES, [found], meta={"delete-type": "position"})
        case _:
            raise AssertionError(file_format)


def deletion_vectors(positions: Mapping[str, Iterable[int]]) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """A Puffin file with a vector for each data file, and where each of them lies in it."""
    data = puffin_bytes.deletion_vectors(positions)
    blobs = {blob["properties"]["referenced-data-file"]: blob for blob in puffin_footer(data)["blobs"]}
    return data, {path: (blob["offset"], blob["length"]) for path, blob in blobs.items()}


def puffin_footer(data: bytes) -> dict[str, Any]:
    size = struct.unpack("<i", data[-12:-8])[0]
    found: dict[str, Any] = json.loads(data[-12 - size : -12])
    return found


@lru_cache(maxsize=4096)
def rows_in(data: bytes) -> tuple[Row, ...]:
    table = pq.read_table(io.BytesIO(data), use_threads=False)
    return tuple(zip(table["id"].to_pylist(), table["city"].to_pylist(), strict=True))


def ids_in(data: bytes) -> set[int]:
    return {*pq.read_table(io.BytesIO(data), use_threads=False)["id"].to_pylist()}


def positions_in(data: bytes, file_format: str) -> list[Position]:
    """In the order of the file; of a Puffin file those of all its vectors."""
    match file_format:
        case "PARQUET":
            table = pq.read_table(io.BytesIO(data), use_threads=False)
            return list(zip(table["file_path"].to_pylist(), table["pos"].to_pylist(), strict=True))
        case "ORC":
            return orc_files.rows_of(data)
        case "AVRO":
            return [(one["file_path"], one["pos"]) for one in records(data)]
        case "PUFFIN":
            return [one for blob in puffin_footer(data)["blobs"] for one in _vector_in(data, blob)]
        case _:
            raise AssertionError(file_format)


def _vector_in(data: bytes, blob: Mapping[str, Any]) -> list[Position]:
    body = data[blob["offset"] : blob["offset"] + blob["length"]]
    assert struct.unpack(">I", body[:4])[0] == len(body) - 8
    return [(blob["properties"]["referenced-data-file"], one) for one in BitMap64.deserialize(body[8:-4])]
