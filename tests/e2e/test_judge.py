"""The judges can find fault: a mirror that was tampered with does not pass, and what is not read is not passed over."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.duckdb_judge import Limit
from tests.e2e.history import COLUMNS, MERGE_ON_READ, History, numbers
from tests.e2e.installation import Installation
from tests.judge import Judge, TableOf

UPGRADE = "ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '2')"


def tamper(folder: Path) -> None:
    """Every row becomes 1."""
    for copied in folder.glob("data/*.parquet"):
        content = pq.read_table(copied)
        ones = pa.array([1] * content.num_rows, pa.int64())
        pq.write_table(content.set_column(0, content.schema.field(0), ones), copied)


@pytest.fixture
def fault(judge: Judge, history: History) -> tuple[TableOf, Installation]:
    """A table of three rows, mirrored rightly."""
    history.create("id BIGINT")
    history.insert("VALUES (1), (2), (2)")
    history.sql(f"ALTER TABLE {history.t} CREATE TAG first")
    installation = history.lanes["task"]
    installation.sync(history.name)
    assert judge.differences(history.table, installation.theirs(history.name)) == []
    return history.table, installation


def test_a_row_that_differs_is_found(judge: Judge, fault: tuple[TableOf, Installation]) -> None:
    table, installation = fault
    tamper(installation.folder("db.t"))
    judge.spark.sql(f"ALTER TABLE {table.sql} CREATE TAG second")
    found = judge.differences(table, installation.theirs("db.t"))

    counted = "(rows, only in source, in mirror): want (3, 0, 0), got (3, 2, 2)"
    for said in (
        'rows of main: only in the source: {"id":2}',
        'rows of main: only in the mirror: {"id":1}',
        "rows of first: only in the source",
        "refs: want {",
        "files: the metadata says that",
        f"DuckDB at the head {counted}",
        f"DuckDB at {judge.metadata(table)['current-snapshot-id']} {counted}",
    ):
        assert any(said in one for one in found), (said, found)
    assert judge.traces(installation.folder("db.t"), str(table.lake.folder / "nowhere")) == []
    assert judge.traces(table.lake.folder / "warehouse", str(table.lake.folder)) != []


@pytest.mark.parametrize("is_deep", [True, False], ids=["every snapshot", "refs"])
def test_a_row_that_differs_in_an_older_version_is_found(
    judge: Judge, fault: tuple[TableOf, Installation], is_deep: bool
) -> None:
    """Both judges say so; of the head neither says anything."""
    table, installation = fault
    first, at = (judge.metadata(table)["snapshot-log"][0][name] for name in ("snapshot-id", "timestamp-ms"))
    tamper(installation.folder("db.t"))
    judge.spark.sql(f"INSERT OVERWRITE {table.sql} VALUES (7)")
    installation.sync("db.t")
    found = judge.differences(table, installation.theirs("db.t"), is_deep=is_deep)

    rows = [one.split(": ", 1)[1] for one in found if "rows" in one]
    places = {"rows of first", *([f"rows of snapshot {first}", f"rows as of {at}"] if is_deep else [])}
    assert {one.split(":")[0] for one in rows if not one.startswith("DuckDB")} == places
    assert [one for one in rows if one.startswith("DuckDB")] == [
        f"DuckDB at {place} (rows, only in source, in mirror): want (3, 0, 0), got (3, 2, 2)"
        for place in ([first, f"the time {at}"] if is_deep else [first])
    ]


def test_a_row_of_another_lineage_is_found(judge: Judge, history: History) -> None:
    """The same rows, written in another order: what tells them apart is their numbers alone."""
    other = TableOf(history.source, "db.other")
    history.create("id BIGINT", **{"format-version": "3"})
    history.sql(f"CREATE TABLE {other.sql} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '3')")
    history.insert("VALUES (1)", "VALUES (2)")
    history.sql(f"INSERT INTO {other.sql} VALUES (2)", f"INSERT INTO {other.sql} VALUES (1)")
    found = [one for one in judge.differences(history.table, other, is_deep=False) if "rows of main" in one]
    assert sorted(one.split("only in ", 1)[1] for one in found) == [
        'the mirror: {"id":1,"_row_id":1,"_last_updated_sequence_number":2}',
        'the mirror: {"id":2,"_row_id":0,"_last_updated_sequence_number":1}',
        'the source: {"id":1,"_row_id":0,"_last_updated_sequence_number":1}',
        'the source: {"id":2,"_row_id":1,"_last_updated_sequence_number":2}',
    ]


def test_a_mirror_that_only_duckdb_cannot_read_is_found(judge: Judge, fault: tuple[TableOf, Installation]) -> None:
    table, installation = fault
    for copied in installation.folder("db.t").glob("data/*.parquet"):
        copied.unlink()
    uri = str(installation.theirs("db.t").metadata_uri)
    ((mirror, said),) = judge.duckdb.differences(table.metadata_uri, {uri: {None: 3}}, [*Limit])
    assert mirror == uri
    assert said.startswith("DuckDB at the head does not read alike")


@pytest.mark.parametrize(
    ("limit", "properties", "changes"),
    [
        (Limit.V1_SNAPSHOTS, {"format-version": "1"}, [UPGRADE]),
        (
            Limit.V1_MANIFESTS,
            {"format-version": "1"},
            ["DELETE FROM {t} WHERE dt = DATE'2026-01-03'", UPGRADE, "DELETE FROM {t} WHERE id = 3"],
        ),
        (Limit.DATA_FORMATS, {"write.format.default": "orc"}, []),
        (Limit.DATA_FORMATS, {"write.format.default": "avro"}, []),
        (Limit.DELETE_FORMATS, {"write.delete.format.default": "orc"}, ["DELETE FROM {t} WHERE id = 3"]),
        (Limit.DELETE_FORMATS, {"write.delete.format.default": "avro"}, ["DELETE FROM {t} WHERE id = 3"]),
    ],
    ids=["v1 snapshots", "v1 manifests", "orc", "avro", "orc deletes", "avro deletes"],
)
def test_what_duckdb_does_not_read(
    judge: Judge, history: History, limit: Limit, properties: dict[str, str], changes: list[str]
) -> None:
    """Red as soon as DuckDB reads it: then the limit goes, and it judges these tables too."""
    history.create(COLUMNS, partitioned_by="dt", **MERGE_ON_READ, **properties)
    history.insert(numbers(0, 10))
    history.sql(*(change.format(t=history.t) for change in changes))
    history.lanes["task"].sync(history.name)
    mirror = history.lanes["task"].theirs(history.name)

    found = judge.differences(history.table, mirror, is_deep=False)
    assert found
    for one in found:
        assert "does not read alike, or not for a reason that the test names" in one
        assert one.count(limit.value) == 2
    before = judge.duckdb.unread[limit]
    assert judge.differences(history.table, mirror, is_deep=False, limits={limit}) == []
    assert judge.duckdb.unread[limit] - before == len(found)


def test_manifests_that_duckdb_dies_of(judge: Judge, history: History) -> None:
    """Spark packs manifests by zstandard and lists by deflate: so DuckDB comes to the manifest, and aborts.

    A test that names the codecs has it open each manifest by itself first, where it only refuses.
    """
    history.create(COLUMNS, **{"write.manifest.compression-codec": "zstd"})
    history.insert(numbers(0, 10))
    history.lanes["task"].sync(history.name)
    mirror = history.lanes["task"].theirs(history.name)

    found = judge.differences(history.table, mirror, is_deep=False)
    assert len(found) == 2  # the head, and its snapshot as main
    assert all("DuckDB died over one of the reads" in one for one in found)
    before = judge.duckdb.unread[Limit.CODECS]
    assert judge.differences(history.table, mirror, is_deep=False, limits={Limit.CODECS}) == []
    assert judge.duckdb.unread[Limit.CODECS] - before == len(found)
