"""Tables of every format version and file format that Spark writes, mirrored after every step in both lanes."""

from __future__ import annotations

import pytest

from tests.e2e.history import COLUMNS, MERGE_ON_READ, History, numbers

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
    history.by_duckdb = False  # refuses v1 manifests with entries that carry no sequence number, on the source too
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
    history.by_duckdb = False  # reads Parquet only
    kinds = {"write.format.default": file_format, "write.delete.format.default": file_format}
    history.create(COLUMNS, partitioned_by="dt", **MERGE_ON_READ, **kinds, **{"write.delete.granularity": "partition"})
    history.insert(numbers(0, 60), numbers(60, 120))
    history.sql(f"DELETE FROM {t} WHERE id % 10 = 3")
    history.check("position deletes of partitions")
    history.sql(f"ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.granularity' = 'file')", MERGE.format(t=t))
    history.check("position deletes of files")
    history.call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
    history.check_deeply("position deletes compacted")


def test_new_types_and_defaults_of_v3(history: History) -> None:
    """They are in the schema and in the data files, which travel as they are."""
    t = history.t
    columns = "id INT, v VARIANT, at TIMESTAMP_NTZ"
    history.create(columns, **MERGE_ON_READ, **{"format-version": "3"})
    variant = "parse_json(concat('{\"a\": ', id, '}'))"
    history.insert(f"SELECT CAST(id AS INT), {variant}, TIMESTAMP_NTZ'2026-01-01 00:00:00' FROM range(9)")
    history.check("a variant")
    history.sql(f"DELETE FROM {t} WHERE id = 3")
    history.check_deeply("a delete")
