"""Position delete files (Parquet): the same rows with the path column mapped, as deterministic bytes.

Paths are mapped once per distinct value. Sizes of row groups, column order, field ids and the key-value metadata are
kept. Rows keep their order, unless mapping would leave them unsorted by path, which the specification forbids. One row
group is in memory at a time, unless rows must be sorted. Larger row groups than the bounds below are refused.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, zip_longest

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg.delete_facts import DELETE_POSITION, MappedPaths, RewrittenDeletes, damaged
from lakemirror.formats.iceberg.manifest import DELETE_FILE_PATH
from lakemirror.formats.iceberg.path_free import header_entries
from lakemirror.model.paths import PrefixMap

MAX_ROWS = 1 << 26  # in memory together: a row group, or the whole file if it must be sorted
MAX_PLAIN_BYTES = 1 << 30  # of a row group, unpacked, as the file says
_FIELD_ID = b"PARQUET:field_id"
_DAMAGED = (pa.ArrowException, OSError, ValueError, AttributeError, TypeError, LookupError)


def rewrite(data: bytes, uri: str, paths: PrefixMap) -> RewrittenDeletes:
    """The delete file for the mirror with the facts its manifest entry needs."""
    try:
        return _rewrite(data, uri, MappedPaths(paths))
    except _DAMAGED as err:
        raise damaged(uri, f"not a readable Parquet file ({err})") from err


def same_rows(left: bytes, right: bytes) -> bool:
    """True if two delete files hold the same rows in the same order, however they were encoded."""
    try:
        one, other = (_open(data, "").read(use_threads=False) for data in (left, right))
    except (*_DAMAGED, PermanentError):  # what is not whole is not the same
        return False
    if not one.schema.equals(other.schema, check_metadata=True) or one.num_rows != other.num_rows:
        return False
    both = pa.concat_tables([one, other]).unify_dictionaries()
    return bool(both.slice(0, one.num_rows).equals(both.slice(one.num_rows)))


def _open(data: bytes, uri: str) -> pq.ParquetFile:
    """The file with its path column dictionary-encoded: a path takes its room once, not once for every row."""
    schema = pq.read_schema(io.BytesIO(data))
    return pq.ParquetFile(io.BytesIO(data), read_dictionary=[schema.names[_path_column(schema, uri)]])


def _rewrite(data: bytes, uri: str, mapped: MappedPaths) -> RewrittenDeletes:
    source = _open(data, uri)
    schema, metadata = source.schema_arrow, source.metadata
    column = _path_column(schema, uri)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    _check_size(max((group.num_rows for group in groups), default=0), uri)
    plain = max((group.total_byte_size for group in groups), default=0)
    if plain > MAX_PLAIN_BYTES:
        raise UnsupportedError(
            "read position deletes", uri, f"a row group of {plain} bytes", f"want {MAX_PLAIN_BYTES} or less"
        )
    for number in range(len(groups)):
        for path in _dictionary(
            source.read_row_group(number, columns=[schema.names[column]], use_threads=False).column(0), uri
        ):
            mapped.map(path, uri)
    tables: Iterable[pa.Table] = (
        _mapped(source.read_row_group(number, use_threads=False), column, mapped, uri) for number in range(len(groups))
    )
    if mapped.must_sort:
        _check_size(metadata.num_rows, uri)
        tables = _sorted([*tables], column)
    # after the rows were read, and by this thread: pyarrow ends the whole process if it meets damaged column metadata
    # here first, or on a thread of its own
    codec = groups[0].column(0).compression if groups else "ZSTD"
    out = io.BytesIO()
    with pq.ParquetWriter(
        out,
        schema,
        compression="NONE" if codec == "UNCOMPRESSED" else codec,
        store_schema=False,
        store_decimal_as_integer=True,  # as Iceberg writes them
    ) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(1, table.num_rows))
        writer.add_key_value_metadata(_key_values(metadata.metadata or {}, mapped.paths))
    _check_columns(source, out, uri)
    return mapped.rewritten(out.getvalue(), uri)


def _key_values(entries: Mapping[bytes, bytes], paths: PrefixMap) -> dict[str, str | bytes]:
    """The file's own key-values, but for what names the source."""
    named = {key.decode(): value for key, value in entries.items() if key != b"ARROW:schema"}
    return {**(header_entries(named, paths) or named)}


def _check_columns(source: pq.ParquetFile, out: io.BytesIO, uri: str) -> None:
    """The columns of the deleted row may be of types that the library would write as others."""
    want, got = (str(schema).splitlines()[2:] for schema in (source.schema, pq.ParquetFile(out).schema))
    for one, other in zip_longest(want, got):
        if one != other:
            raise UnsupportedError(
                "rewrite deletes", uri, f"a column would change from {one} to {other}", "write it without row columns"
            )


def _check_size(rows: int, uri: str) -> None:
    if rows > MAX_ROWS:
        raise UnsupportedError("read position deletes", uri, f"{rows} rows together", f"want {MAX_ROWS} or fewer")


def _path_column(schema: pa.Schema, uri: str) -> int:
    found = [position for position, field in enumerate(schema) if _has_id(field, DELETE_FILE_PATH)]
    if len(found) != 1 or not _is_text(schema.field(found[0]).type):
        raise damaged(uri, f"no column of text with field id {DELETE_FILE_PATH}")
    return found[0]


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _has_id(field: pa.Field, field_id: int) -> bool:
    return bool((field.metadata or {}).get(_FIELD_ID) == str(field_id).encode())


def _dictionary(column: pa.ChunkedArray, uri: str) -> Iterator[str]:
    if column.null_count:
        raise damaged(uri, "a row has no path")
    for chunk in column.chunks:
        yield from chunk.dictionary.to_pylist()


def _mapped(table: pa.Table, column: int, mapped: MappedPaths, uri: str) -> pa.Table:
    chunks = [
        pa.DictionaryArray.from_arrays(
            chunk.indices, pa.array([mapped.map(path, uri) for path in chunk.dictionary.to_pylist()], pa.string())
        )
        for chunk in table.column(column).chunks
    ]
    field = table.schema.field(column)
    return table.set_column(column, field, pa.chunked_array(chunks, field.type))


def _sorted(groups: list[pa.Table], column: int) -> list[pa.Table]:
    """All rows by path and position, in groups as large as they were."""
    whole = pa.concat_tables(groups).combine_chunks().unify_dictionaries()
    ranks = pa.chunked_array([_ranks(chunk) for chunk in whole.column(column).chunks], pa.int64())
    positions = [whole.column(number) for number, field in enumerate(whole.schema) if _has_id(field, DELETE_POSITION)]
    keys = [ranks, *positions]
    names = [str(number) for number in range(len(keys))]
    order = pc.sort_indices(pa.table(keys, names), sort_keys=[(name, "ascending") for name in names])
    whole = whole.take(order)
    ends = accumulate(table.num_rows for table in groups)
    return [whole.slice(end - table.num_rows, table.num_rows) for table, end in zip(groups, ends, strict=True)]


def _ranks(paths: pa.DictionaryArray) -> pa.Array:
    """For each row the place of its path among all paths: the dictionary may hold one path more than once."""
    names = paths.dictionary.to_pylist()
    places = {name: place for place, name in enumerate(sorted({*names}))}
    return pa.array([places[name] for name in names], pa.int64()).take(paths.indices)
