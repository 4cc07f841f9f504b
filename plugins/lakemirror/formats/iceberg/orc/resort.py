"""ORC delete files whose rows need another order in the mirror: read, sorted by path and position, written anew.

This happens if paths of several roots change places, or two spellings of one file become one. Only files of the two
columns that a delete needs are sorted; types with their attributes and user metadata are those of the source.
"""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc

from lakemirror.errors import UnsupportedError
from lakemirror.formats.iceberg.avro_walk import Malformed
from lakemirror.formats.iceberg.delete_facts import DELETE_POSITION, MappedPaths
from lakemirror.formats.iceberg.orc import container
from lakemirror.formats.iceberg.orc.container import OrcFile

MAX_PLAIN_BYTES = 1 << 30  # of the paths of all rows
_COMPRESSION = {None: "uncompressed", "deflate": "zlib", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"}


def by_path(data: bytes, file: OrcFile, column: int, mapped: MappedPaths, uri: str) -> bytes:
    """The file with its paths mapped and its rows sorted; `column` is the path column's number among all types."""
    types = file.footer.messages(container.FOOTER_TYPES)
    rows = file.footer.number(container.FOOTER_ROWS)
    is_plain = len(types) == 3 and types[0].numbers(container.TYPE_SUBTYPES) == [1, 2]
    if not is_plain or file.columns_with_id(DELETE_POSITION) != [3 - column]:
        raise UnsupportedError(
            "rewrite deletes",
            uri,
            "its rows need another order in the mirror",
            "want columns for path and position only",
        )
    longest = max(len(path) for path in (*mapped.seen, *mapped.seen.values()))
    if rows * longest > MAX_PLAIN_BYTES:
        raise UnsupportedError(
            "rewrite deletes", uri, f"its {rows} rows need another order in the mirror", "too many to sort in memory"
        )
    try:
        table = pa.orc.ORCFile(io.BytesIO(data)).read()
        return _written(_sorted(table, column - 1, mapped, uri), file)
    except (pa.ArrowException, OSError) as err:
        raise Malformed(str(err)) from err


def _sorted(table: pa.Table, path_column: int, mapped: MappedPaths, uri: str) -> pa.Table:
    encoded = pc.dictionary_encode(table.column(path_column)).combine_chunks()
    chunk = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    targets = pa.array([mapped.map(path, uri) for path in chunk.dictionary.to_pylist()], pa.string())
    table = table.set_column(path_column, table.schema.field(path_column), targets.take(chunk.indices))
    names = [table.schema.names[path_column], table.schema.names[1 - path_column]]
    return table.sort_by([(name, "ascending") for name in names])


def _written(table: pa.Table, file: OrcFile) -> bytes:
    out = io.BytesIO()
    with pa.orc.ORCWriter(
        out, compression=_COMPRESSION[file.packing.codec], dictionary_key_size_threshold=0.8
    ) as writer:
        writer.write(table)
    new = container.parse_file(out.getvalue(), "")
    footer = new.footer
    for field in (container.FOOTER_TYPES, container.FOOTER_METADATA):
        footer = footer.with_parts(field, file.footer.parts(field))
    return container.assemble(new, new.stripes, footer, new.metadata)
