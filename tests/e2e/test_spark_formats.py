"""Tables of every format version and file format that Spark writes, mirrored after every step in both lanes."""

from __future__ import annotations

import pytest
from pyspark.errors import UnsupportedOperationException

from tests.avro_bytes import header_of
from tests.duckdb_judge import At, Limit
from tests.e2e.history import COLUMNS, MERGE_ON_READ, History, numbers
from tests.spark_writer import append_records, delete_by_equality, records_of

MERGE = (
    "MERGE INTO {t} t USING (SELECT CAST(id AS INT) id FROM range(115, 125)) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET t.name = 'merged' WHEN NOT MATCHED THEN INSERT (id, name, dt) "
    "VALUES (s.id, 'merged', DATE'2026-01-01')"
)


def test_deletion_vectors(history: History) -> None:
    """Several vectors share one Puffin file; some of them are replaced, some stay, some go with a compaction."""
    t = history.t
    history.create(COLUMNS, partitioned_by="dt", **MERGE_ON_READ, **{"format-version": "3"})
    history.insert(numbers(0, 60), numbers(60, 120))
    history.sql(f"DELETE FROM {t} WHERE id % 10 = 3")
    history.check("deletion vectors in the first version")
    history.sql(f"UPDATE {t} SET name = 'updated' WHERE id IN (4, 5, 70)")
    history.check("an update")
    history.sql(MERGE.format(t=t), f"ALTER TABLE {t} CREATE TAG merged")
    history.check("a merge, and a tag on it")
    history.call("rewrite_manifests")
    history.check("manifests rewritten")
    history.call("rewrite_data_files", "where => 'dt = DATE\"2026-01-01\"', options => map('rewrite-all', 'true')")
    history.sql(f"DELETE FROM {t} WHERE id = 30")
    history.check_deeply("compaction and one more delete")


def test_a_table_that_grows_up(history: History) -> None:
    """v1, then v2 with position deletes, then v3 with deletion vectors beside them."""
    t = history.t
    history.limits = frozenset({Limit.V1_SNAPSHOTS, Limit.V1_MANIFESTS})
    history.create(COLUMNS, partitioned_by="dt", **MERGE_ON_READ, **{"format-version": "1"})
    history.insert(numbers(0, 60), numbers(60, 90))
    history.check("v1")
    history.sql(f"DELETE FROM {t} WHERE dt = DATE'2026-01-03'")
    history.check("a delete of whole files in v1")
    history.sql(f"ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '2')")
    history.sql(f"DELETE FROM {t} WHERE id % 10 = 3")
    history.check("v2 and position deletes")
    history.sql(f"ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    history.check("v3, nothing else")
    history.insert(numbers(200, 220))
    history.sql(f"DELETE FROM {t} WHERE id IN (4, 201)")
    history.check_deeply("deletion vectors beside position deletes, and row lineage")


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_position_deletes_in_other_formats(history: History, file_format: str) -> None:
    t = history.t
    history.limits = frozenset({Limit.DATA_FORMATS, Limit.DELETE_FORMATS})
    kinds = {"write.format.default": file_format, "write.delete.format.default": file_format}
    history.create(COLUMNS, partitioned_by="dt", **MERGE_ON_READ, **kinds, **{"write.delete.granularity": "partition"})
    history.insert(numbers(0, 60), numbers(60, 120))
    history.sql(f"DELETE FROM {t} WHERE id % 10 = 3")
    history.check("position deletes of partitions")
    history.sql(f"ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.granularity' = 'file')", MERGE.format(t=t))
    history.check("position deletes of files")
    history.call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
    history.check_deeply("position deletes compacted")


@pytest.mark.parametrize(("codec", "limits"), [("zstd", {Limit.CODECS}), ("snappy", set())])
def test_codecs_of_manifests(history: History, codec: str, limits: set[Limit]) -> None:
    """Lists stay deflated; the codec changes in the midst, and manifests of both are live."""
    history.limits = frozenset(limits)
    history.create(COLUMNS, partitioned_by="dt", **MERGE_ON_READ)
    history.insert(numbers(0, 60))
    history.sql(f"ALTER TABLE {history.t} SET TBLPROPERTIES ('write.manifest.compression-codec' = '{codec}')")
    history.insert(numbers(60, 120))
    history.check("another codec")
    history.sql(f"DELETE FROM {history.t} WHERE id % 10 = 3", f"ALTER TABLE {history.t} CREATE TAG deleted")
    delete_by_equality(history.judge, history.table, "id", [6, 66], partition={0: 20_454})
    history.call("rewrite_manifests")
    history.check_deeply("deletes, and manifests rewritten")
    wanted = {"zstd": "zstandard"}.get(codec, codec)
    for folder in (lane.folder(history.name) for lane in history.lanes.values()):
        packed = {header_of(path.read_bytes())["avro.codec"] for path in folder.glob("metadata/*-m*.avro")}
        assert wanted in packed


def test_variants(history: History) -> None:
    """Types of v3 are in the schema and in the data files, which travel as they are."""
    t = history.t
    columns = "id INT, v VARIANT, at TIMESTAMP_NTZ"
    history.create(columns, **MERGE_ON_READ, **{"format-version": "3"})
    variant = "parse_json(concat('{\"a\": ', id, '}'))"
    history.insert(f"SELECT CAST(id AS INT), {variant}, TIMESTAMP_NTZ'2026-01-01 00:00:00' FROM range(9)")
    history.check("a variant")
    history.sql(f"DELETE FROM {t} WHERE id = 3")
    history.check_deeply("a delete")


def test_default_values(history: History) -> None:
    """Columns that older files lack read as what they were added with; a later default for writers changes no row.

    Spark SQL cannot say them, so the schema is changed through Iceberg's Java API.
    """
    history.create("id INT", **MERGE_ON_READ, **{"format-version": "3"})
    history.insert("VALUES (1), (2), (3)")
    types, lit = history.java.types.Types, history.java.expressions.Expressions.lit
    change = history.judge.java_table(history.table).updateSchema()
    change.addColumn("n", types.IntegerType.get(), "a number", lit(7))
    change.addColumn("s", types.StringType.get(), None, lit("x")).commit()
    history.check("columns with defaults, no new snapshot")
    history.insert("VALUES (4, NULL, 'y')")
    change = history.judge.java_table(history.table).updateSchema().updateColumnDefault("n", lit(8))
    change.addRequiredColumn("r", types.BooleanType.get(), None, lit(True)).commit()
    history.insert("VALUES (5, 9, 'z', false)")
    history.sql(f"DELETE FROM {history.t} WHERE id = 1")
    history.check_deeply("rows with and without them, another default for writers")
    want = [(2, 7, "x", True), (3, 7, "x", True), (4, None, "y", True), (5, 9, "z", False)]
    for lane in history.lanes.values():
        rows = history.judge.spark.sql(f"SELECT * FROM {lane.theirs(history.name).sql} ORDER BY id").collect()
        assert [tuple(row) for row in rows] == want
        (schema,) = [
            one for one in history.judge.metadata(lane.theirs(history.name))["schemas"] if one["schema-id"] == 2
        ]
        number = next(field for field in schema["fields"] if field["name"] == "n")
        assert (number["initial-default"], number["write-default"]) == (7, 8)


@pytest.mark.parametrize(("has_zone", "unread"), [(False, 0), (True, 1)], ids=["timestamp_ns", "timestamptz_ns"])
def test_nanoseconds(history: History, has_zone: bool, unread: int) -> None:
    """Spark reads no table with such a column, so Iceberg's own reader of records judges; DuckDB knows one of them."""
    history.create("id INT", **{"format-version": "3"})
    nanoseconds, time = history.java.types.Types.TimestampNanoType, history.jvm.java.time
    kind = nanoseconds.withZone() if has_zone else nanoseconds.withoutZone()
    history.judge.java_table(history.table).updateSchema().addColumn("at", kind).commit()
    times = [time.LocalDateTime.of(2026, 1, 1, 10, 0, n, 123_456_789) for n in range(1, 4)]
    rows = [(n, at.atOffset(time.ZoneOffset.UTC) if has_zone else at) for n, at in enumerate(times, 1)]
    append_records(history.judge, history.table, rows)
    with pytest.raises(UnsupportedOperationException, match=kind.toString()):
        history.judge.rows(history.table)
    want = [f"Record({n}, 2026-01-01T10:00:0{n}.123456789{'Z' if has_zone else ''})" for n in range(1, 4)]
    assert records_of(history.judge, history.table) == want
    before = history.judge.duckdb.unread[Limit.TYPES]
    for lane in history.lanes.values():
        lane.sync(history.name)
        assert records_of(history.judge, lane.theirs(history.name)) == want
        wanted: dict[str, dict[At, int]] = {str(lane.theirs(history.name).metadata_uri): {None: 3}}
        assert history.judge.duckdb.differences(history.table.metadata_uri, wanted, {Limit.TYPES}) == []
    assert history.judge.duckdb.unread[Limit.TYPES] - before == unread * len(history.lanes)


def test_a_column_of_unknown_type(history: History) -> None:
    """It has no values, and data files do not hold it; DuckDB does not know it."""
    history.limits = frozenset({Limit.TYPES})
    history.create("id INT", **{"format-version": "3"})
    unknown = history.java.types.Types.UnknownType.get()
    history.judge.java_table(history.table).updateSchema().addColumn("nothing", unknown).commit()
    append_records(history.judge, history.table, [(n, None) for n in range(3)])
    before = history.judge.duckdb.unread[Limit.TYPES]
    history.check_deeply("rows of a table with a column of unknown type")
    assert history.judge.duckdb.unread[Limit.TYPES] - before == 3 * len(history.lanes)  # head, snapshot, time
