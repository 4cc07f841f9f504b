"""Plans and ledgers as small Parquet objects, read and written with pyarrow over the object store.

A segment is named by its content, so that the same work done twice writes the same object once. It is read by one
thread into bounded memory, and has the columns that its reader asks for, or is refused.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import PermanentError
from lakemirror.storage.port import ConditionFailed, Create, ObjectStore

MAX_BYTES = 1 << 28  # of an object
MAX_PLAIN_BYTES = 1 << 30  # of its columns, unpacked, as it says
MAX_ROWS = 1 << 24
_DAMAGED = (pa.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError)


def encode(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd")
    return out.getvalue()


def decode(data: bytes, uri: str, schema: pa.Schema, required: Collection[str] = ()) -> pa.Table:
    """The columns of `schema`, with the metadata of the object; those that are `required` have no nulls."""
    try:
        return _decode(data, schema, required)
    except _DAMAGED as err:
        raise PermanentError(
            "read segment", uri, f"not readable ({err})", "delete the plan folder and run again"
        ) from err


def _decode(data: bytes, schema: pa.Schema, required: Collection[str]) -> pa.Table:
    file = pq.ParquetFile(io.BytesIO(data))
    metadata = file.metadata
    plain = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    if metadata.num_rows > MAX_ROWS or plain > MAX_PLAIN_BYTES:
        raise ValueError(f"{metadata.num_rows} rows of {plain} bytes are too many")
    table = file.read(use_threads=False)
    table.validate(full=True)
    found = table.select(schema.names).cast(schema.with_metadata(table.schema.metadata))
    for field in schema:
        if (field.name in required or not field.nullable) and found.column(field.name).null_count:
            raise ValueError(f"a row has no {field.name}")
    return found


def read(store: ObjectStore, uri: str, schema: pa.Schema, required: Collection[str] = ()) -> pa.Table:
    return decode(store.get(uri, max_bytes=MAX_BYTES).data, uri, schema, required)


def write(store: ObjectStore, folder: str, prefix: str, table: pa.Table) -> str:
    """Write a segment under a name that follows from its content; one that is there already is the same one."""
    data = encode(table)
    uri = f"{folder}/{prefix}-{hashlib.sha256(data).hexdigest()[:20]}.parquet"
    with suppress(ConditionFailed):
        store.put(uri, data, Create())
    return uri
