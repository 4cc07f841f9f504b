"""Position deletes: the same rows under the mirror's paths, as deterministic Parquet that readers recognise."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg import position_deletes as module
from lakemirror.formats.iceberg.manifest import DeleteFileFacts
from lakemirror.formats.iceberg.position_deletes import rewrite, rows_at_once, same_rows
from lakemirror.model.paths import PrefixMap
from tests.iceberg_files import DELETES_SCHEMA, position_deletes

URI = "s3://src/wh/t/data/d.parquet"
PATHS = PrefixMap.of({"s3://src/wh/t": "gs://cloud/t", "s3://cold": "gs://cloud/t/_roots/cold"})
ROWS = [("s3://src/wh/t/data/a ü.parquet", 0), ("s3://src/wh/t/data/a ü.parquet", 7), ("s3://src/wh/t/data/b", 3)]
MIRRORED = [("gs://cloud/t/data/a ü.parquet", 0), ("gs://cloud/t/data/a ü.parquet", 7), ("gs://cloud/t/data/b", 3)]


def rows_of(data: bytes) -> list[tuple[str, int]]:
    table = pq.read_table(io.BytesIO(data))
    return list(zip(table["file_path"].to_pylist(), table["pos"].to_pylist(), strict=True))


def test_rows_are_the_same_but_for_their_paths() -> None:
    new = rewrite(position_deletes(ROWS), URI, PATHS)
    assert rows_of(new.data) == MIRRORED
    assert new.facts == DeleteFileFacts(len(new.data), MIRRORED[0][0].encode(), MIRRORED[2][0].encode())


def test_row_groups_field_ids_and_key_values_are_kept() -> None:
    new = pq.ParquetFile(io.BytesIO(rewrite(position_deletes(ROWS, row_group_rows=2), URI, PATHS).data))
    assert [new.metadata.row_group(n).num_rows for n in range(new.num_row_groups)] == [2, 1]
    assert new.schema_arrow.equals(DELETES_SCHEMA, check_metadata=False)
    ids = [field.metadata[b"PARQUET:field_id"] for field in new.schema_arrow]
    assert ids == [field.metadata[b"PARQUET:field_id"] for field in DELETES_SCHEMA]
    assert new.metadata.metadata[b"delete-type"] == b"position"


def test_statistics_do_not_show_the_source() -> None:
    data = rewrite(position_deletes(ROWS, row_group_rows=1), URI, PATHS).data
    assert b"s3://src" not in data
    column = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(0)
    assert column.statistics.max == MIRRORED[0][0]


def test_same_input_same_bytes() -> None:
    data = position_deletes(ROWS * 1000, row_group_rows=100)
    assert rewrite(data, URI, PATHS) == rewrite(data, URI, PATHS)


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip", "none"])
def test_codec_is_kept(compression: str) -> None:
    out = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(position_deletes(ROWS))), out, compression=compression)
    new = rewrite(out.getvalue(), URI, PATHS)
    codec = pq.ParquetFile(io.BytesIO(new.data)).metadata.row_group(0).column(0).compression
    assert codec == ("UNCOMPRESSED" if compression == "none" else compression.upper())


def test_a_row_column_is_kept() -> None:
    """Old writers put the deleted row next to its place."""
    old = pq.read_table(io.BytesIO(position_deletes(ROWS)))
    field = pa.field("row", pa.struct([pa.field("id", pa.int64())]), metadata={b"PARQUET:field_id": b"2147483544"})
    out = io.BytesIO()
    pq.write_table(old.append_column(field, pa.array([{"id": n} for n in range(3)], field.type)), out)
    new = pq.read_table(io.BytesIO(rewrite(out.getvalue(), URI, PATHS).data))
    assert new["row"].to_pylist() == [{"id": 0}, {"id": 1}, {"id": 2}]
    assert new["file_path"].to_pylist() == [path for path, _ in MIRRORED]


def test_the_path_column_is_found_by_id_not_by_name() -> None:
    out = io.BytesIO()
    old = pq.read_table(io.BytesIO(position_deletes(ROWS)))
    pq.write_table(old.select(["pos", "file_path"]).rename_columns(["p", "f"]), out)
    new = pq.read_table(io.BytesIO(rewrite(out.getvalue(), URI, PATHS).data))
    assert new["f"].to_pylist() == [path for path, _ in MIRRORED]


def test_rows_stay_sorted_by_path_and_position() -> None:
    """The specification wants it; with a further root the order of the mapped paths may be another one."""
    paths = PrefixMap.of({"s3://src/wh/t": "gs://cloud/t", "s3://zcold": "gs://cloud/t/_roots/cold"})
    rows = [("s3://src/wh/t/data/a", 0), ("s3://src/wh/t/data/a", 2), ("s3://zcold/b", 1), ("s3://zcold/b", 5)]
    new = rewrite(position_deletes(rows, row_group_rows=3), URI, paths)
    assert rows_of(new.data) == [
        ("gs://cloud/t/_roots/cold/b", 1),
        ("gs://cloud/t/_roots/cold/b", 5),
        ("gs://cloud/t/data/a", 0),
        ("gs://cloud/t/data/a", 2),
    ]
    assert pq.ParquetFile(io.BytesIO(new.data)).metadata.row_group(0).num_rows == 3
    assert new.facts.lower == b"gs://cloud/t/_roots/cold/b"
    assert new.facts.upper == b"gs://cloud/t/data/a"


def test_order_that_the_source_chose_is_kept() -> None:
    new = rewrite(position_deletes(list(reversed(ROWS))), URI, PATHS)
    assert rows_of(new.data) == list(reversed(MIRRORED))


def test_unknown_root_is_refused() -> None:
    with pytest.raises(PermanentError, match="lies under no known root") as caught:
        rewrite(position_deletes([("s3://other/x", 1)]), URI, PATHS)
    assert caught.value.subject == "s3://other/x"


def test_a_file_without_the_column_is_refused() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"file_path": ["s3://src/wh/t/x"], "pos": [1]}), out)
    with pytest.raises(PermanentError, match="no column of text with field id 2147483546"):
        rewrite(out.getvalue(), URI, PATHS)


@pytest.mark.parametrize("has_row_group", [False, True])
def test_a_file_without_rows_stays_one(has_row_group: bool) -> None:
    out = io.BytesIO()
    with pq.ParquetWriter(out, DELETES_SCHEMA) as writer:
        if has_row_group:
            writer.write_table(DELETES_SCHEMA.empty_table())
    new = rewrite(out.getvalue(), URI, PATHS)
    assert rows_of(new.data) == []
    assert new.facts == DeleteFileFacts(len(new.data), None, None)
    assert same_rows(new.data, rewrite(out.getvalue(), URI, PATHS).data)
    assert not same_rows(new.data, position_deletes(ROWS))


def encoded(
    encoding: str,
    rows: Sequence[tuple[str | None, int]] = ROWS,
    kind: pa.DataType | None = None,
    *,
    row_group_rows: int = 2,
) -> bytes:
    """Position deletes whose paths are written without a dictionary, in this encoding of Parquet."""
    out = io.BytesIO()
    fields = [DELETES_SCHEMA.field(0).with_type(kind or pa.string()).with_nullable(True), DELETES_SCHEMA.field(1)]
    columns = [pa.array([path for path, _ in rows], fields[0].type), pa.array([position for _, position in rows])]
    table = pa.table(columns, schema=pa.schema(fields, DELETES_SCHEMA.metadata))
    options = {"use_dictionary": False, "column_encoding": {"file_path": encoding}}
    pq.write_table(table, out, **options, row_group_size=row_group_rows)
    return out.getvalue()


ENCODINGS = ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_paths_of_every_encoding(encoding: str, kind: pa.DataType) -> None:
    data = encoded(encoding, kind=kind)
    new = rewrite(data, URI, PATHS)
    assert rows_of(new.data) == MIRRORED
    assert new.facts == DeleteFileFacts(len(new.data), MIRRORED[0][0].encode(), MIRRORED[2][0].encode())
    assert new == rewrite(data, URI, PATHS)
    groups = pq.ParquetFile(io.BytesIO(new.data)).metadata
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [2, 1]
    assert same_rows(data, encoded("PLAIN", kind=kind))
    assert not same_rows(data, encoded(encoding, [*ROWS[1:], ROWS[0]], kind))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_encoding_hides_a_row_without_a_path(encoding: str) -> None:
    with pytest.raises(PermanentError, match="a row has no path"):
        rewrite(encoded(encoding, [(None, 1), ROWS[0]]), URI, PATHS)


@pytest.mark.parametrize("count", [1, 1000])
def test_paths_that_repeat_each_other_take_little_memory(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Little that would be 50 MB of text. Distinct paths that are nearly the same are bounded by their bytes."""
    monkeypatch.setattr(module, "MAX_UNPACKED_BYTES", 1 << 22)
    monkeypatch.setattr(module, "MAX_PATH_BYTES", 1 << 22)
    long = "s3://src/wh/t/" + "x" * 50_000
    data = encoded("DELTA_BYTE_ARRAY", [(f"{long}{n % count:05d}", n) for n in range(1000)], row_group_rows=1000)
    assert len(data) < 300_000
    pool, default = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        if count == 1:
            assert len(rewrite(data, URI, PATHS).data) < 300_000
        else:
            with pytest.raises(UnsupportedError, match="paths of more than"):
                rewrite(data, URI, PATHS)
    finally:
        pa.set_memory_pool(default)
    assert 0 < (pool.max_memory() or 0) < 25 << 20


def test_positions_do_not_count_as_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are most of a row group, but no path is as long as they are."""
    monkeypatch.setattr(module, "MAX_UNPACKED_BYTES", 1 << 20)
    monkeypatch.setattr(module, "MAX_BATCHES", 100)
    rows = [(f"s3://src/wh/t/{n // 1000:02d}", n) for n in range(20_000)]
    new = rewrite(encoded("DELTA_BYTE_ARRAY", rows, row_group_rows=len(rows)), URI, PATHS)
    assert rows_of(new.data) == [(f"gs://cloud/t/{n // 1000:02d}", n) for n in range(20_000)]


def test_a_row_group_is_unpacked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[int] = []
    iter_batches = pq.ParquetFile.iter_batches

    def seen(file: pq.ParquetFile, *rows: int, row_groups: list[int], **options: object) -> Iterator[pa.RecordBatch]:
        unpacked.extend(() if rows == (1,) else row_groups)  # the first row is looked at before
        return iter_batches(file, *rows, row_groups=row_groups, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", seen)
    assert rows_of(rewrite(encoded("DELTA_BYTE_ARRAY", row_group_rows=3), URI, PATHS).data) == MIRRORED
    assert unpacked == [0]


def test_as_many_rows_as_a_row_group_may_have_are_unpacked() -> None:
    """So many bytes have the paths of 1,000 data files with DELTA_BYTE_ARRAY."""
    assert rows_at_once(module.MAX_ROWS, 6_900_000, URI) == 38
    assert rows_at_once(1, 0, URI) == 1 << 14
    assert rows_at_once(1, module.MAX_PLAIN_BYTES, URI) == 1
    with pytest.raises(UnsupportedError, match="without a dictionary"):
        rows_at_once(module.MAX_ROWS, 10_000_000, URI)


def test_paths_that_would_take_for_ever_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNPACKED_BYTES", 1)
    monkeypatch.setattr(module, "MAX_BATCHES", 1)
    with pytest.raises(UnsupportedError, match=r"2 rows, its paths in \d+ bytes without a dictionary"):
        rewrite(encoded("DELTA_BYTE_ARRAY"), URI, PATHS)


def test_same_rows_however_they_are_encoded() -> None:
    one = position_deletes(ROWS)
    out = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(one)), out, compression="zstd", use_dictionary=False)
    assert out.getvalue() != one
    assert same_rows(one, out.getvalue())
    assert not same_rows(one, position_deletes(ROWS[:2]))
    assert not same_rows(one, position_deletes([*ROWS[1:], ROWS[0]]))
    assert not same_rows(b"garbage", one)


def test_two_spellings_of_one_file_become_one_run_of_positions() -> None:
    rows = [("s3://src/wh/t/a", 2), ("s3://src/wh/t/a", 4), ("s3a://src/wh/t/a", 1), ("s3a://src/wh/t/a", 3)]
    new = rewrite(position_deletes(rows, row_group_rows=3), URI, PATHS)
    assert rows_of(new.data) == [("gs://cloud/t/a", position) for position in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    "kind", [pa.decimal128(9, 2), pa.decimal128(18, 2), pa.decimal128(38, 2), pa.uuid(), pa.time64("us"), pa.binary(3)]
)
def test_columns_of_the_row_are_written_as_they_were(kind: pa.DataType) -> None:
    old = pq.read_table(io.BytesIO(position_deletes(ROWS)))
    field = pa.field("row", pa.struct([pa.field("x", kind, metadata={b"PARQUET:field_id": b"7"})]))
    out = io.BytesIO()
    row = pa.StructArray.from_arrays([pa.nulls(3, kind)], fields=list(field.type))
    pq.write_table(old.append_column(field, row), out, store_schema=False, store_decimal_as_integer=True)
    new = rewrite(out.getvalue(), URI, PATHS)
    assert pq.ParquetFile(io.BytesIO(new.data)).schema.equals(pq.ParquetFile(out).schema)


def test_a_column_that_cannot_be_written_as_it_was_is_refused() -> None:
    """Iceberg writes small decimals as integers; a writer that did not is not imitated."""
    old = pq.read_table(io.BytesIO(position_deletes(ROWS)))
    out = io.BytesIO()
    pq.write_table(old.append_column("row", pa.nulls(3, pa.decimal128(9, 2))), out, store_schema=False)
    with pytest.raises(UnsupportedError, match=r"a column would change from .*fixed_len_byte_array.* to .*int32"):
        rewrite(out.getvalue(), URI, PATHS)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_a_file_that_remembers_another_type_of_text(kind: pa.DataType) -> None:
    old = pq.read_table(io.BytesIO(position_deletes(ROWS)))
    out = io.BytesIO()
    field = old.schema.field(0)
    pq.write_table(old.set_column(0, field.with_type(kind), old.column(0).cast(kind)), out)
    assert rows_of(rewrite(out.getvalue(), URI, PATHS).data) == MIRRORED


@pytest.mark.parametrize("path", [None, ""])
def test_a_row_without_a_path_is_refused(path: str | None) -> None:
    out = io.BytesIO()
    schema = pa.schema([field.with_nullable(True) for field in DELETES_SCHEMA])
    pq.write_table(pa.table([pa.array([path, "s3://src/wh/t/a"]), pa.array([1, 2])], schema=schema), out)
    with pytest.raises(PermanentError, match="a row has no path"):
        rewrite(out.getvalue(), URI, PATHS)


def test_a_path_column_that_is_no_text_is_refused() -> None:
    out = io.BytesIO()
    fields = [DELETES_SCHEMA.field(0).with_type(pa.int64()), DELETES_SCHEMA.field(1)]
    pq.write_table(pa.table([[1], [2]], schema=pa.schema(fields)), out)
    with pytest.raises(PermanentError, match="no column of text"):
        rewrite(out.getvalue(), URI, PATHS)


def test_many_rows_of_one_long_path_take_little_memory() -> None:
    """A few kilobytes that would be 20 GB of text: paths stay a dictionary."""
    path = "s3://src/wh/t/" + "x" * 20_000
    out = io.BytesIO()
    indices = pa.array([0], pa.int32()).take(pa.array([0] * 1_000_000, pa.int32()))
    paths = pa.DictionaryArray.from_arrays(indices, pa.array([path]))
    pq.write_table(
        pa.table(
            [paths.cast(pa.dictionary(pa.int32(), pa.string())), pa.nulls(1_000_000, pa.int64())],
            schema=pa.schema(
                [DELETES_SCHEMA.field(0).with_type(paths.type), DELETES_SCHEMA.field(1).with_nullable(True)]
            ),
        ),
        out,
    )
    assert len(out.getvalue()) < 100_000
    pool = pa.default_memory_pool()
    bound = max(pool.max_memory() or 0, pool.bytes_allocated() + (200 << 20))
    new = rewrite(out.getvalue(), URI, PATHS)
    assert module.same_rows(new.data, new.data)
    assert (pool.max_memory() or 0) <= bound
    assert len(new.data) < 100_000


@pytest.mark.parametrize(
    ("name", "bound", "words"), [("MAX_ROWS", 2, "3 rows together"), ("MAX_PLAIN_BYTES", 9, "a row group of")]
)
def test_row_groups_are_bounded(monkeypatch: pytest.MonkeyPatch, name: str, bound: int, words: str) -> None:
    monkeypatch.setattr(module, name, bound)
    with pytest.raises(UnsupportedError, match=words):
        rewrite(position_deletes(ROWS), URI, PATHS)


def test_a_file_to_sort_is_bounded_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 2)
    rows = [("s3://src/wh/t/a", 1), ("s3://src/wh/t/b", 2), ("s3a://src/wh/t/a", 1)]
    assert rewrite(position_deletes(ROWS, row_group_rows=1), URI, PATHS).facts.size_bytes
    with pytest.raises(UnsupportedError, match="3 rows together"):
        rewrite(position_deletes(rows, row_group_rows=1), URI, PATHS)
