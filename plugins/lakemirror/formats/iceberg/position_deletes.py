"""Position delete files (Parquet): the same rows with the path column mapped, as deterministic bytes.

Paths are mapped once per distinct value. Sizes of row groups, column order, field ids and the key-value metadata are
kept. Rows keep their order, unless mapping would leave them unsorted by path, which the specification forbids.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.errors import PermanentError
from lakemirror.formats.iceberg.manifest import DELETE_FILE_PATH, DeleteFileFacts
from lakemirror.model.paths import PrefixMap

DELETE_POSITION = 2147483545  # the reserved field id of a position delete's pos column
_FIELD_ID = b"PARQUET:field_id"
_DAMAGED = (pa.ArrowException, OSError, UnicodeDecodeError, AttributeError, TypeError, KeyError)


@dataclass(frozen=True, slots=True)
class RewrittenDeletes:
    data: bytes
    facts: DeleteFileFacts


def rewrite(data: bytes, uri: str, paths: PrefixMap) -> RewrittenDeletes:
    """The delete file for the mirror with the facts its manifest entry needs."""
    try:
        return _rewrite(pq.ParquetFile(io.BytesIO(data)), uri, paths)
    except _DAMAGED as err:
        raise PermanentError(
            "read position deletes", uri, f"not a readable Parquet file ({err})", "it is damaged"
        ) from err


def _rewrite(source: pq.ParquetFile, uri: str, paths: PrefixMap) -> RewrittenDeletes:
    column = _path_column(source.schema_arrow, uri)
    out = io.BytesIO()
    count = source.metadata.num_row_groups
    seen: dict[str, str] = {}
    groups = [_mapped(source.read_row_group(group, use_threads=False), column, paths, seen) for group in range(count)]
    # after the rows were read, and by this thread: pyarrow ends the whole process if it meets damaged column metadata
    # here first, or on a thread of its own
    codec = source.metadata.row_group(0).column(0).compression if count else "ZSTD"
    if not seen:
        raise PermanentError("read position deletes", uri, "the file deletes nothing", "the source's file is damaged")
    targets = [seen[path] for path in sorted(seen)]
    if targets != sorted(targets) or len({*targets}) < len(targets):  # other order, or two spellings of one file
        groups = _sorted(groups, column)
    with pq.ParquetWriter(out, source.schema_arrow, compression=_codec_name(codec), store_schema=False) as writer:
        for table in groups:
            writer.write_table(table, row_group_size=max(1, table.num_rows))
        writer.add_key_value_metadata(
            {key: value for key, value in (source.metadata.metadata or {}).items() if key != b"ARROW:schema"}
        )
    body = out.getvalue()
    return RewrittenDeletes(body, DeleteFileFacts(len(body), min(targets).encode(), max(targets).encode()))


def _sorted(groups: list[pa.Table], column: int) -> list[pa.Table]:
    """All rows by path and position, in groups as large as they were."""
    whole = pa.concat_tables(groups)
    by = [whole.schema.names[column], *(field.name for field in whole.schema if _has_id(field, DELETE_POSITION))]
    whole = whole.sort_by([(name, "ascending") for name in by])
    ends = list(accumulate(table.num_rows for table in groups))
    return [whole.slice(end - table.num_rows, table.num_rows) for table, end in zip(groups, ends, strict=True)]


def same_rows(left: bytes, right: bytes) -> bool:
    """True if two delete files hold the same rows in the same order, however they were encoded."""
    try:
        one, other = (pq.read_table(io.BytesIO(data), use_threads=False) for data in (left, right))
    except _DAMAGED:
        return False
    return bool(one.schema.equals(other.schema) and one.equals(other))


def _path_column(schema: pa.Schema, uri: str) -> int:
    for position, field in enumerate(schema):
        if _has_id(field, DELETE_FILE_PATH):
            return position
    raise PermanentError(
        "read position deletes", uri, f"no column with field id {DELETE_FILE_PATH}", "not a position delete file"
    )


def _has_id(field: pa.Field, field_id: int) -> bool:
    return bool((field.metadata or {}).get(_FIELD_ID) == str(field_id).encode())


def _mapped(table: pa.Table, column: int, paths: PrefixMap, seen: dict[str, str]) -> pa.Table:
    field = table.schema.field(column)
    encoded = pc.dictionary_encode(table.column(column)).combine_chunks()
    chunk = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    distinct = [path for path in chunk.dictionary.to_pylist() if path is not None]
    seen.update({path: paths.map(path) for path in distinct if path not in seen})
    mapped = pa.array([seen.get(path) for path in chunk.dictionary.to_pylist()], pa.string())
    return table.set_column(column, field, mapped.take(chunk.indices).cast(field.type))


def _codec_name(codec: str) -> str:
    return "NONE" if codec == "UNCOMPRESSED" else codec
