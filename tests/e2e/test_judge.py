"""The judge can find fault: a mirror that was tampered with does not pass."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.e2e.installation import Installation
from tests.judge import Judge, TableOf


def test_a_row_that_differs_is_found(judge: Judge, tmp_path: Path) -> None:
    source = judge.open_lake("onprem_fault", tmp_path / "onprem")
    mirror = judge.open_lake("cloud_fault", tmp_path / "cloud")
    installation = Installation(tmp_path / "lakemirror.yaml", source, mirror).write()
    table = TableOf(source, "db.t")
    judge.spark.sql(f"CREATE NAMESPACE {source.name}.db")
    judge.spark.sql(f"CREATE TABLE {table.sql} (id BIGINT) USING iceberg")
    judge.spark.sql(f"INSERT INTO {table.sql} VALUES (1), (2), (2)")
    judge.spark.sql(f"ALTER TABLE {table.sql} CREATE TAG first")
    installation.sync("db.t")
    assert judge.differences(table, installation.theirs("db.t")) == []

    for copied in installation.folder("db.t").glob("data/*.parquet"):
        content = pq.read_table(copied)
        ones = pa.array([1] * content.num_rows, pa.int64())
        pq.write_table(content.set_column(0, content.schema.field(0), ones), copied)
    judge.spark.sql(f"ALTER TABLE {table.sql} CREATE TAG second")
    found = judge.differences(table, installation.theirs("db.t"))

    for said in (
        'rows of main: only in the source: {"id":2}',
        'rows of main: only in the mirror: {"id":1}',
        "rows of first: only in the source",
        "refs: want {",
        "files: the metadata says that",
        "DuckDB (rows, only in source, in mirror): want (3, 0, 0), got (3, 2, 2)",
    ):
        assert any(said in one for one in found), (said, found)
    assert judge.traces(installation.folder("db.t"), str(source.folder / "nowhere")) == []
    assert judge.traces(source.folder / "warehouse", str(source.folder)) != []
