"""Position deletes: the same rows under the mirror's paths, as deterministic Parquet that readers recognise."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.errors import PermanentError
from lakemirror.formats.iceberg.manifest import DeleteFileFacts
from lakemirror.formats.iceberg.position_deletes import rewrite, same_rows
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


def test_a_file_without_the_column_or_without_rows_is_refused() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"file_path": ["s3://src/wh/t/x"], "pos": [1]}), out)
    with pytest.raises(PermanentError, match="no column with field id 2147483546"):
        rewrite(out.getvalue(), URI, PATHS)
    with pytest.raises(PermanentError, match="deletes nothing"):
        rewrite(position_deletes([]), URI, PATHS)


def test_same_rows_however_they_are_encoded() -> None:
    one = position_deletes(ROWS)
    out = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(one)), out, compression="zstd", use_dictionary=False)
    assert out.getvalue() != one
    assert same_rows(one, out.getvalue())
    assert not same_rows(one, position_deletes(ROWS[:2]))
    assert not same_rows(one, position_deletes([*ROWS[1:], ROWS[0]]))
    assert not same_rows(b"garbage", one)
