"""Position delete files (Parquet): the same rows with the path column mapped, as deterministic bytes.

Paths are mapped once per distinct value. Sizes of row groups, column order, field ids and the key-value metadata are
kept. Rows keep their order, unless mapping would leave them unsorted by path, which the specification forbids. One row
group is in memory at a time, unless rows must be sorted. Larger row groups than the bounds below are refused.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, zip_longest

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg.delete_facts import DELETE_POSITION, MappedPaths, RewrittenDeletes, damaged
from lakemirror.formats.iceberg.manifest import DELETE_FILE_PATH
from lakemirror.formats.iceberg.path_free import header_essence
from lakemirror.model.paths import PrefixMap

MAX_ROWS = 1 << 26  # in memory together: a row group, or the whole file if it must be sorted
MAX_PLAIN_BYTES = 1 << 30  # of a row group, unpacked, as the file says
MAX_UNPACKED_BYTES = 1 << 28  # of paths that may repeat each other, in memory together
MAX_PATH_BYTES = 1 << 28  # of all paths, each once
MAX_BATCHES = 1 << 21  # of such paths in a row group
_FIELD_ID = b"PARQUET:field_id"
_DAMAGED = (pa.ArrowException, OSError, ValueError, AttributeError, TypeError, LookupError)


def rewrite(data: bytes, uri: str, paths: PrefixMap) -> RewrittenDeletes:
    """The delete file for the mirror with the facts its manifest entry needs."""
    try:
        return _rewrite(data, uri, MappedPaths(paths))
    except _DAMAGED as err:
        raise damaged(uri, f"not a readable Parquet file ({err})") from err


def same_rows(left: bytes, right: bytes, paths: PrefixMap | None = None) -> bool:
    """True if two delete files hold the same rows in the same order, however they were encoded."""
    try:
        one, other = (_whole(_open(data, "")) for data in (left, right))
        noted = [header_essence(_named(table.schema.metadata or {}), paths) for table in (one, other)]
    except (*_DAMAGED, PermanentError):  # what is not whole is not the same
        return False
    one, other = (table.replace_schema_metadata(None) for table in (one, other))
    if noted[0] != noted[1] or not one.schema.equals(other.schema, check_metadata=True):
        return False
    if one.num_rows != other.num_rows:
        return False
    both = pa.concat_tables([one, other]).unify_dictionaries()
    return bool(both.slice(0, one.num_rows).equals(both.slice(one.num_rows)))


@dataclass(frozen=True, slots=True)
class _Deletes:
    """A file whose path column is read dictionary-encoded: a path takes its room once, not once for every row.

    The library does not do so with every encoding that a column may have (DELTA_BYTE_ARRAY, DELTA_LENGTH_BYTE_ARRAY).
    Of a row group that it cannot read so, the paths are unpacked a few rows at a time: one may be as long as the row
    group is large, and each row may repeat it.
    """

    file: pq.ParquetFile
    plain: pq.ParquetFile
    column: int
    uri: str
    unpacked: dict[int, pa.Array] = field(default_factory=dict)  # of the row group that was unpacked last

    @property
    def schema(self) -> pa.Schema:
        return self.file.schema_arrow

    def row_group(self, number: int) -> pa.Table:
        try:
            return self.file.read_row_group(number, use_threads=False)
        except _DAMAGED:
            others = [name for place, name in enumerate(self.schema.names) if place != self.column]
            found = self.plain.read_row_group(number, columns=others, use_threads=False)
            return found.add_column(self.column, self.schema.field(self.column), self._unpacked(number))

    def paths(self, number: int) -> pa.ChunkedArray:
        """Of a row group."""
        name = self.schema.names[self.column]
        try:
            return self.file.read_row_group(number, columns=[name], use_threads=False).column(0)
        except _DAMAGED:
            return self._unpacked(number)

    def _unpacked(self, number: int) -> pa.ChunkedArray:
        if number not in self.unpacked:
            self.unpacked.clear()
            self.unpacked[number] = self._unpack(number)
        return pa.chunked_array([self.unpacked[number]])

    def _unpack(self, number: int) -> pa.DictionaryArray:
        rows = rows_at_once(self.file.metadata.row_group(number).num_rows, self._path_bytes(number), self.uri)
        name = self.schema.names[self.column]
        texts = _Texts(self.uri)
        indices = [pa.array([], pa.int32())]
        for batch in self.plain.iter_batches(rows, row_groups=[number], columns=[name], use_threads=False):
            part = batch.column(0).cast(pa.string()).dictionary_encode()
            places = pa.array([texts.place(path) for path in part.dictionary.to_pylist()], pa.int32())
            indices.append(places.take(part.indices))
        dictionary = pa.array([*texts.places], self.schema.field(self.column).type.value_type)
        return pa.DictionaryArray.from_arrays(pa.concat_arrays(indices), dictionary)

    def _path_bytes(self, number: int) -> int:
        """Of the path column as it is encoded."""
        name = self.schema.names[self.column]
        # some of it is read first: pyarrow ends the whole process if damaged column metadata is asked for before that
        next(self.plain.iter_batches(1, row_groups=[number], columns=[name], use_threads=False), None)
        leaves = self.file.schema
        (leaf,) = (place for place in range(len(leaves)) if leaves.column(place).path == name)
        return int(self.file.metadata.row_group(number).column(leaf).total_uncompressed_size)


def rows_at_once(rows: int, path_bytes: int, uri: str) -> int:
    """How many of a row group's rows to unpack together, if each may repeat a path as long as all paths are encoded."""
    found = max(1, min(1 << 14, MAX_UNPACKED_BYTES // max(1, path_bytes)))
    if rows // found > MAX_BATCHES:
        raise UnsupportedError(
            "read position deletes",
            uri,
            f"a row group of {rows} rows, its paths in {path_bytes} bytes without a dictionary",
            "write it in smaller row groups, or with a dictionary",
        )
    return found


@dataclass(slots=True)
class _Texts:
    """Paths, each once; their bytes are bounded: a file in which each is nearly the next can tell of very many."""

    uri: str
    places: dict[str, int] = field(default_factory=dict)
    size_bytes: int = 0

    def place(self, path: str) -> int:
        if path not in self.places:
            self.size_bytes += len(path)
            _check_path_bytes(self.size_bytes, self.uri)
        return self.places.setdefault(path, len(self.places))


def _check_path_bytes(size: int, uri: str) -> None:
    if size > MAX_PATH_BYTES:
        raise UnsupportedError(
            "read position deletes", uri, f"paths of more than {MAX_PATH_BYTES} bytes", "rewrite it on the source"
        )


def _open(data: bytes, uri: str) -> _Deletes:
    schema = pq.read_schema(io.BytesIO(data))
    column = _path_column(schema, uri)
    file = pq.ParquetFile(io.BytesIO(data), read_dictionary=[schema.names[column]])
    return _Deletes(file, pq.ParquetFile(io.BytesIO(data)), column, uri)


def _whole(deletes: _Deletes) -> pa.Table:
    groups = [deletes.row_group(number) for number in range(deletes.file.metadata.num_row_groups)]
    return pa.concat_tables([deletes.schema.empty_table(), *groups])


def _rewrite(data: bytes, uri: str, mapped: MappedPaths) -> RewrittenDeletes:
    deletes = _open(data, uri)
    source, schema, column = deletes.file, deletes.schema, deletes.column
    metadata = source.metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    _check_size(max((group.num_rows for group in groups), default=0), uri)
    plain = max((group.total_byte_size for group in groups), default=0)
    if plain > MAX_PLAIN_BYTES:
        raise UnsupportedError(
            "read position deletes", uri, f"a row group of {plain} bytes", f"want {MAX_PLAIN_BYTES} or less"
        )
    path_bytes = 0
    for number in range(len(groups)):
        for path in _dictionary(deletes.paths(number), uri):
            path_bytes += 0 if path in mapped.seen else len(path or "")
            _check_path_bytes(path_bytes, uri)
            mapped.map(path, uri)
    tables: Iterable[pa.Table] = (
        _mapped(deletes.row_group(number), column, mapped, uri) for number in range(len(groups))
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
    return {**header_essence(_named(entries), paths)}


def _named(entries: Mapping[bytes, bytes]) -> dict[str, bytes]:
    return {key.decode(): value for key, value in entries.items() if key != b"ARROW:schema"}


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
