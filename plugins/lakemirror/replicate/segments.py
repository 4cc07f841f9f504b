"""Plans and ledgers as small Parquet objects, read and written with pyarrow over the object store.

A segment is named by its content, so that the same work done twice writes the same object once.
"""

from __future__ import annotations

import hashlib
import io
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import PermanentError
from lakemirror.storage.port import ConditionFailed, Create, ObjectStore


def encode(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd")
    return out.getvalue()


def decode(data: bytes, uri: str) -> pa.Table:
    try:
        return pq.read_table(io.BytesIO(data))
    except (pa.ArrowInvalid, OSError) as err:
        raise PermanentError(
            "read segment", uri, f"not readable ({err})", "delete the plan folder and run again"
        ) from err


def read(store: ObjectStore, uri: str) -> pa.Table:
    return decode(store.get(uri).data, uri)


def write(store: ObjectStore, folder: str, prefix: str, table: pa.Table) -> str:
    """Write a segment under a name that follows from its content; one that is there already is the same one."""
    data = encode(table)
    uri = f"{folder}/{prefix}-{hashlib.sha256(data).hexdigest()[:20]}.parquet"
    with suppress(ConditionFailed):
        store.put(uri, data, Create())
    return uri
