"""Position delete files (Parquet): the same rows with the path column mapped, as deterministic bytes.

Paths are mapped once per distinct value. Row groups, column order, field ids and the key-value metadata are kept.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.errors import PermanentError
from lakemirror.formats.iceberg.manifest import DELETE_FILE_PATH, DeleteFileFacts
from lakemirror.model.paths import PrefixMap

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class RewrittenDeletes:
    data: bytes
    facts: DeleteFileFacts


def rewrite(data: bytes, uri: str, paths: PrefixMap) -> RewrittenDeletes:
    """The delete file for the mirror with the facts its manifest entry needs."""
    try:
        source = pq.ParquetFile(io.BytesIO(data))
    except (pa.ArrowInvalid, OSError) as err:
        raise PermanentError(
            "read position deletes", uri, f"not a readable Parquet file ({err})", "it is damaged"
        ) from err
    column = _path_column(source.schema_arrow, uri)
    out = io.BytesIO()
    lower: str | None = None
    upper: str | None = None
    codec = source.metadata.row_group(0).column(0).compression if source.metadata.num_row_groups else "ZSTD"
    with pq.ParquetWriter(out, source.schema_arrow, compression=_codec_name(codec), store_schema=False) as writer:
        for group in range(source.metadata.num_row_groups):
            table = _mapped(source.read_row_group(group), column, paths)
            bounds = pc.min_max(table.column(column)).as_py()
            if bounds["min"] is not None:
                lower = bounds["min"] if lower is None else min(lower, bounds["min"])
                upper = bounds["max"] if upper is None else max(upper, bounds["max"])
            writer.write_table(table, row_group_size=max(1, table.num_rows))
    if lower is None or upper is None:
        raise PermanentError("read position deletes", uri, "the file deletes nothing", "the source's file is damaged")
    body = out.getvalue()
    return RewrittenDeletes(body, DeleteFileFacts(len(body), lower.encode(), upper.encode()))


def same_rows(left: bytes, right: bytes) -> bool:
    """True if two delete files hold the same rows in the same order, however they were encoded."""
    one, other = (pq.read_table(io.BytesIO(data)) for data in (left, right))
    return bool(one.schema.equals(other.schema) and one.equals(other))


def _path_column(schema: pa.Schema, uri: str) -> int:
    for position, field in enumerate(schema):
        if (field.metadata or {}).get(_FIELD_ID) == str(DELETE_FILE_PATH).encode():
            return position
    raise PermanentError(
        "read position deletes", uri, f"no column with field id {DELETE_FILE_PATH}", "not a position delete file"
    )


def _mapped(table: pa.Table, column: int, paths: PrefixMap) -> pa.Table:
    field = table.schema.field(column)
    encoded = pc.dictionary_encode(table.column(column)).combine_chunks()
    chunk = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    mapped = pa.array([None if path is None else paths.map(path) for path in chunk.dictionary.to_pylist()], pa.string())
    return table.set_column(column, field, mapped.take(chunk.indices).cast(field.type))


def _codec_name(codec: str) -> str:
    return "NONE" if codec == "UNCOMPRESSED" else codec
