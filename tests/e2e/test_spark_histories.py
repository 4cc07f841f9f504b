"""Tables that Spark writes, mirrored after every step in both lanes, judged row for row after every step."""

from __future__ import annotations

import pytest

from lakemirror.model.table import TableRef
from tests.e2e.history import COLUMNS, MERGE_ON_READ, History, numbers
from tests.spark_writer import delete_by_equality

DAY_ONE = 20454  # 2026-01-01 as Iceberg holds it


def test_copy_on_write(history: History) -> None:
    t = history.t
    history.create(COLUMNS, partitioned_by="dt")
    history.check("create, still empty")
    history.insert(numbers(0, 60))
    history.check("the first append")
    history.insert(numbers(60, 90), numbers(90, 120))
    history.check("two appends at once")
    history.sql(f"INSERT OVERWRITE {t} SELECT CAST(id AS INT), 'new', DATE'2026-01-02' FROM range(500, 510)")
    history.check("an overwrite of one partition")
    history.sql(f"DELETE FROM {t} WHERE dt = DATE'2026-01-03'")
    history.check("a delete of whole files")
    history.sql(
        f"MERGE INTO {t} t USING (SELECT CAST(id AS INT) id FROM range(110, 125)) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, name, dt) VALUES (s.id, 'merged', DATE'2026-01-01')"
    )
    history.check("a merge that rewrites files")
    history.sql(f"DELETE FROM {t}")
    history.check_deeply("a delete of everything")


def test_merge_on_read(history: History) -> None:
    """First with delete files for partitions, then with delete files for single files."""
    t = history.t
    history.create(COLUMNS, partitioned_by="dt", **MERGE_ON_READ, **{"write.delete.granularity": "partition"})
    history.insert(numbers(0, 60), numbers(60, 120))
    history.sql(f"DELETE FROM {t} WHERE id % 10 = 3")
    history.check("position deletes in the first version")
    history.sql(f"UPDATE {t} SET name = 'updated' WHERE id IN (4, 5, 70)")
    history.check("an update")
    history.sql(f"ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.granularity' = 'file')")
    history.sql(
        f"MERGE INTO {t} t USING (SELECT CAST(id AS INT) id FROM range(115, 125)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET t.name = 'merged' WHEN NOT MATCHED THEN INSERT (id, name, dt) "
        "VALUES (s.id, 'merged', DATE'2026-01-01')"
    )
    history.check("a merge")
    history.call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
    history.check("position deletes compacted")
    history.call("rewrite_data_files", "where => 'dt = DATE\"2026-01-01\"', options => map('rewrite-all', 'true')")
    history.sql(f"DELETE FROM {t} WHERE id = 30")
    history.check_deeply("compaction and one more delete")


@pytest.mark.parametrize("partitioned_by", ["dt", ""])
def test_equality_deletes(history: History, partitioned_by: str) -> None:
    t = history.t
    history.create(COLUMNS, partitioned_by=partitioned_by, **MERGE_ON_READ)
    history.insert("SELECT CAST(id AS INT), concat('n', id), DATE'2026-01-01' FROM range(100)")
    history.check("an append")
    delete_by_equality(history.judge, history.table, "id", [5, 6, 7], {0: DAY_ONE} if partitioned_by else None)
    history.check("equality deletes")
    history.insert("VALUES (5, 'again', DATE'2026-01-01')")
    history.sql(f"DELETE FROM {t} WHERE id = 50")
    history.check("a deleted key that came back, and a position delete")
    history.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    history.check_deeply("compaction")


def test_evolution(history: History) -> None:
    t = history.t
    columns = "id INT, name STRING, `odd, n` STRING, at TIMESTAMP, s STRUCT<a: INT, b: ARRAY<STRING>>"
    history.create(columns, **MERGE_ON_READ)
    history.insert(
        "SELECT CAST(id AS INT), concat('n', id), 'odd', TIMESTAMP'2026-01-01 10:00:00', "
        "named_struct('a', 1, 'b', array('x')) FROM range(10)"
    )
    history.check("no partitioning")
    history.sql(f"ALTER TABLE {t} ADD PARTITION FIELD name", f"ALTER TABLE {t} ADD PARTITION FIELD days(at)")
    history.insert(
        "VALUES (20, 'a b+c%d=e,f/ü', 'x', TIMESTAMP'2026-01-02 10:00:00', NULL), "
        "(21, NULL, 'y', TIMESTAMP'2026-01-03 10:00:00', NULL)"
    )
    history.check("partitioning, keys with odd characters")
    history.sql(
        f"ALTER TABLE {t} ADD COLUMN s.c DOUBLE AFTER a",
        f"ALTER TABLE {t} ADD COLUMN extra DECIMAL(10, 2) FIRST",
        f"ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
        f"ALTER TABLE {t} RENAME COLUMN `odd, n` TO `ödd`",
    )
    history.check("new columns alone, no new snapshot")
    history.insert(
        "VALUES (1.25, 9000000000, 'x', 'z', TIMESTAMP'2026-01-02 11:00:00', "
        "named_struct('a', 2, 'c', 2.5, 'b', CAST(NULL AS ARRAY<STRING>)))"
    )
    history.sql(f"DELETE FROM {t} WHERE id = 20")
    history.check("rows that use them")
    history.sql(
        f"ALTER TABLE {t} DROP PARTITION FIELD name",
        f"ALTER TABLE {t} REPLACE PARTITION FIELD days(at) WITH hours(at)",
        f"ALTER TABLE {t} DROP COLUMN extra",
        f"ALTER TABLE {t} WRITE ORDERED BY id",
        f"ALTER TABLE {t} SET TBLPROPERTIES ('a.note' = 'kept')",
    )
    history.insert("VALUES (30, 'y', 'z', TIMESTAMP'2026-01-05 11:00:00', NULL)")
    history.sql(f"UPDATE {t} SET name = 'z' WHERE id = 21")
    history.check_deeply("other partitioning, a column less, a sort order")


def test_branches_tags_and_rollback(history: History) -> None:
    t, system = history.t, history.source.name + ".system"
    history.create(COLUMNS, partitioned_by="dt", **MERGE_ON_READ)
    history.insert(numbers(0, 30))
    history.sql(f"ALTER TABLE {t} CREATE TAG first RETAIN 365 DAYS", f"ALTER TABLE {t} CREATE BRANCH side")
    history.check("a tag and a branch in the first version")
    history.sql(
        f"INSERT INTO {t}.branch_side {numbers(100, 130)}",
        f"DELETE FROM {t}.branch_side WHERE id % 10 = 1",
    )
    history.check("commits on the branch alone")
    history.insert(numbers(30, 60))
    history.sql(f"ALTER TABLE {t} CREATE TAG second", f"DELETE FROM {t} WHERE id = 7")
    history.check("main goes on")
    history.call("rollback_to_snapshot", f"snapshot_id => {history.snapshot_ids()[0]}")
    history.check("a rollback to the first snapshot")
    history.sql(f"CALL {system}.fast_forward('{history.name}', 'main', 'side')")
    history.check("main moved forward to the branch")
    heads = history.snapshot_ids()
    for one in (heads[0], heads[-1]):
        history.call("set_current_snapshot", f"snapshot_id => {one}")
    history.check("main was elsewhere and came back", is_deep=True)
    history.sql(f"ALTER TABLE {t} DROP BRANCH side", f"ALTER TABLE {t} REPLACE TAG first RETAIN 10 DAYS")
    history.insert(numbers(60, 70))
    history.check_deeply("a branch dropped, a tag moved")


def test_maintenance(history: History) -> None:
    t = history.t
    history.create(COLUMNS, partitioned_by="dt", **MERGE_ON_READ)
    for first in range(0, 120, 30):
        history.insert(numbers(first, first + 30))
    history.sql(f"DELETE FROM {t} WHERE id % 20 = 1")
    history.check("a handful of commits")
    history.insert(numbers(120, 150))
    history.call("rewrite_manifests")
    history.check("manifests rewritten: entries carried over from many snapshots")
    history.call("expire_snapshots", "older_than => TIMESTAMP'2100-01-01', retain_last => 1")
    history.insert(numbers(150, 160))
    history.check("live entries whose adding snapshot has expired")
    history.call("compute_table_stats")
    history.call("compute_partition_stats")
    history.check("statistics files")
    history.call("rewrite_data_files", "options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')")
    history.check("compaction")
    history.insert(numbers(160, 170))
    history.call("rewrite_manifests")
    history.call("expire_snapshots", "older_than => TIMESTAMP'2100-01-01', retain_last => 1")
    history.check_deeply("expired once more")
    for installation in history.lanes.values():
        kept = history.judge.metadata(installation.theirs(history.name))["snapshots"]
        assert [snapshot["snapshot-id"] for snapshot in kept] == history.snapshot_ids(), "the same, and no more"


def test_first_sight_of_an_old_table_in_an_odd_place(history: History) -> None:
    """T1: a mirror that starts late sees only entries whose snapshots are long gone. Paths have no scheme here."""
    place = history.source.folder / "warehouse" / "a b%20c+d=1,ü" / "t"
    history.create(COLUMNS, partitioned_by="dt", location=str(place), **MERGE_ON_READ)
    history.insert(numbers(0, 30), numbers(30, 60))
    history.sql(f"DELETE FROM {history.t} WHERE id % 10 = 1")
    history.call("rewrite_manifests")
    history.call("expire_snapshots", "older_than => TIMESTAMP'2100-01-01', retain_last => 1")
    assert len(history.snapshot_ids()) == 1
    history.check_deeply("the first look")


def test_replaced_and_recreated(history: History) -> None:
    t = history.t
    history.create(COLUMNS, partitioned_by="dt", **MERGE_ON_READ)
    history.insert(numbers(0, 30))
    history.check("the first table")
    history.sql(
        f"CREATE OR REPLACE TABLE {t} USING iceberg PARTITIONED BY (kind) TBLPROPERTIES ('format-version' = '2') "
        "AS SELECT id, concat('k', id % 2) AS kind FROM range(20)"
    )
    history.check("create or replace: the same uuid, another schema")
    history.sql(f"DROP TABLE {t}")
    for installation in history.lanes.values():
        assert installation.sync(history.name).lane == "none"
        assert installation.app().status(TableRef.parse(history.name)).as_json()["source"]["state"] == "dropped"
    history.create("other STRING, dt DATE", partitioned_by="dt")
    history.insert("VALUES ('a', DATE'2026-01-01')")
    history.check_deeply("dropped and created anew: another uuid")
