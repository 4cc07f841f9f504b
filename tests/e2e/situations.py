"""Situations in which Iceberg's own `rewrite_table_path` goes wrong: tables that Spark and Iceberg's API make.

`test_rivals` shows what Lakemirror does in each; `tests.perf.rivals.observe` runs the other and tells what it did.
Paths are spelt `file:/…` throughout, as Hadoop spells them, unless the situation is about spellings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.history import COLUMNS, MERGE_ON_READ, History, numbers
from tests.iceberg_files import position_deletes
from tests.judge import Judge
from tests.lake import path_of
from tests.puffin_bytes import bitmap, puffin, vector, vector_blob
from tests.spark_writer import delete_by_equality

RETAIN_ONE = "older_than => TIMESTAMP'2100-01-01', retain_last => 1"
ONE_FILE = "id INT, name STRING"


def home(history: History, folder: str = "t") -> str:
    return f"file:{history.source.folder}/warehouse/db/{folder}"


def live_entries_of_expired_snapshots(history: History) -> None:
    """apache/iceberg #14458: manifests were rewritten, and the snapshots that added the files have expired.

    The metadata log has rolled over since: no version that it names knows those snapshots.
    """
    properties = {"write.metadata.previous-versions-max": "1"}
    history.create(COLUMNS, partitioned_by="dt", location=home(history), **properties)
    history.insert(numbers(0, 30), numbers(30, 60), numbers(60, 90))
    history.call("rewrite_manifests")
    history.call("expire_snapshots", RETAIN_ONE)
    for note in ("one", "two"):
        history.sql(f"ALTER TABLE {history.t} SET TBLPROPERTIES ('a.note' = '{note}')")


def plain_appends(history: History) -> None:
    """#13719: nothing special; the mirror's paths are longer, so its manifests have other lengths."""
    history.create(COLUMNS, partitioned_by="dt", location=home(history))
    history.insert(numbers(0, 30), numbers(30, 60))


def tombstones_of_delete_files(history: History) -> None:
    """#16662, #17498, #12586: deleted entries of position delete files that expiry has removed."""
    history.create(COLUMNS, location=home(history), **MERGE_ON_READ)
    history.insert(numbers(0, 30), numbers(30, 60))
    history.sql(f"DELETE FROM {history.t} WHERE id % 10 = 1")
    history.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    history.call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
    history.call("expire_snapshots", RETAIN_ONE)


def two_roots(history: History) -> str:
    """#17794: metadata in one root, data in another; gives the other one."""
    elsewhere = f"file:{history.source.folder}/elsewhere/t-data"
    properties = {**MERGE_ON_READ, "write.data.path": elsewhere}
    history.create(COLUMNS, partitioned_by="dt", location=home(history), **properties)
    history.insert(numbers(0, 30), numbers(30, 60))
    history.sql(f"DELETE FROM {history.t} WHERE id % 10 = 1")
    return elsewhere


def a_tag_whose_list_is_damaged(history: History) -> str:
    """The manifest list of an older snapshot, which a tag holds, cannot be read; gives its path."""
    history.create(COLUMNS, location=home(history))
    history.insert(numbers(0, 30))
    history.sql(f"ALTER TABLE {history.t} CREATE TAG first")
    history.insert(numbers(30, 60))
    (oldest, _) = history.judge.metadata(history.table)["snapshots"]
    path_of(oldest["manifest-list"]).write_bytes(b"this was a manifest list")
    return str(oldest["manifest-list"])


def deletes_that_name_their_file(history: History) -> None:
    """Position deletes of v2 whose manifest entry has `referenced_data_file`, as the specification allows."""
    history.create(ONE_FILE, location=home(history))
    history.insert("SELECT /*+ COALESCE(1) */ CAST(id AS INT), 'n' FROM range(20)")
    (path,) = data_files(history)
    place = f"{home(history)}/data/named-deletes.parquet"
    path_of(place).write_bytes(position_deletes([(path, 3), (path, 7)]))
    commit_deletes(history.judge, history, [_deletes(history, place, "parquet", 2, {"withReferencedDataFile": path})])


def vectors_that_share_a_file(history: History) -> None:
    """Two deletion vectors in one Puffin file, written by Spark."""
    history.create(ONE_FILE, location=home(history), **MERGE_ON_READ, **{"format-version": "3"})
    for first in (0, 20):
        history.insert(f"SELECT /*+ COALESCE(1) */ CAST(id AS INT), 'n' FROM range({first}, {first + 20})")
    history.sql(f"DELETE FROM {history.t} WHERE id % 10 = 3")
    places = history.judge.spark.sql(f"SELECT file_path FROM {history.t}.delete_files").collect()
    assert (len(places), len({*places})) == (2, 1)


def a_vector_after_a_gap(history: History) -> None:
    """A deletion vector that does not begin right after the magic of its Puffin file: padding is allowed."""
    history.create(ONE_FILE, location=home(history), **{"format-version": "3"})
    history.insert("SELECT /*+ COALESCE(1) */ CAST(id AS INT), 'n' FROM range(20)")
    (path,) = data_files(history)
    place = f"{home(history)}/data/vectors.puffin"
    deleted, gap = (3, 7, 11), 37
    body = vector(bitmap(deleted))
    path_of(place).write_bytes(puffin([(vector_blob(path, len(deleted)), body)], padding=b"\0" * gap))
    facts = {"withReferencedDataFile": path, "withContentOffset": 4 + gap, "withContentSizeInBytes": len(body)}
    commit_deletes(history.judge, history, [_deletes(history, place, "puffin", len(deleted), facts)])


def compaction_beside_equality_deletes(history: History) -> None:
    """Files were compacted while equality deletes came in: the new file keeps the older sequence number.

    So says the specification, and so does `rewrite_data_files`: otherwise the deletes would no longer apply to it.
    """
    history.create(ONE_FILE, location=home(history), **MERGE_ON_READ)
    history.insert("SELECT /*+ COALESCE(1) */ CAST(id AS INT), 'n' FROM range(20)")
    jvm: Any = history.judge.spark.sparkContext._jvm
    table = history.judge.java_table(history.table)
    old = table.newScan().planFiles().iterator().next().file()
    sequence = table.currentSnapshot().sequenceNumber()
    delete_by_equality(history.judge, history.table, "id", [5, 6, 7])
    place = f"{home(history)}/data/compacted.parquet"
    path_of(place).write_bytes(path_of(old.location()).read_bytes())
    new = jvm.org.apache.iceberg.DataFiles.builder(table.spec()).copy(old).withPath(place).build()
    table.refresh()
    rewrite = table.newRewrite().validateFromSnapshot(table.currentSnapshot().snapshotId())
    rewrite.deleteFile(old).addFile(new).dataSequenceNumber(sequence).commit()


def a_sibling_of_the_location(history: History) -> str:
    """A file in `…/t_old`, which begins like the table's location `…/t` but lies beside it; gives that folder."""
    history.create(ONE_FILE, location=home(history))
    history.insert("SELECT CAST(id AS INT), 'n' FROM range(5)")
    sibling = home(history, "t_old")
    append_copy(history, f"{sibling}/moved.parquet")
    return sibling


def two_spellings(history: History) -> None:
    """Files as `file:/…` and as `file:///…` in one table, like s3:// and s3a:// after a migration."""
    history.create(ONE_FILE, location=home(history))
    history.insert("SELECT CAST(id AS INT), 'n' FROM range(5)")
    append_copy(history, home(history).replace("file:/", "file:///") + "/data/other-spelling.parquet")


def position_deletes_of_another_size(history: History) -> None:
    """#12554: rewritten position deletes have another size than the source's, because paths are longer."""
    properties = {**MERGE_ON_READ, "write.delete.granularity": "partition"}
    history.create(COLUMNS, partitioned_by="dt", location=home(history), **properties)
    history.insert(numbers(0, 60), numbers(60, 120))
    history.sql(f"DELETE FROM {history.t} WHERE id % 10 = 3")


def a_comma_in_keys(history: History) -> None:
    history.create(COLUMNS, location=home(history, "a,b"))
    history.insert(numbers(0, 30))


def a_log_that_will_roll_over(history: History) -> None:
    history.create(COLUMNS, location=home(history), **{"write.metadata.previous-versions-max": "2"})
    history.insert(numbers(0, 30))


def roll_the_log_over(history: History) -> None:
    """More commits than the metadata log of the table keeps."""
    for first in range(30, 110, 20):
        history.insert(numbers(first, first + 20))


def data_files(history: History) -> list[str]:
    rows = history.judge.spark.sql(f"SELECT file_path FROM {history.t}.data_files ORDER BY 1").collect()
    return [row["file_path"] for row in rows]


def append_copy(history: History, place: str) -> None:
    """Commit a copy of the table's first data file under another path."""
    jvm: Any = history.judge.spark.sparkContext._jvm
    table = history.judge.java_table(history.table)
    file = table.newScan().planFiles().iterator().next().file()
    target = path_of(place)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(path_of(file.location()).read_bytes())
    table.newAppend().appendFile(
        jvm.org.apache.iceberg.DataFiles.builder(table.spec()).copy(file).withPath(place).build()
    ).commit()


def _deletes(history: History, place: str, file_format: str, rows: int, facts: Mapping[str, Any]) -> Any:
    jvm: Any = history.judge.spark.sparkContext._jvm
    builder = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(history.judge.java_table(history.table).spec())
    builder = builder.ofPositionDeletes().withPath(place).withFormat(file_format).withRecordCount(rows)
    builder = builder.withFileSizeInBytes(path_of(place).stat().st_size)
    for setter, value in facts.items():
        builder = getattr(builder, setter)(value)
    return builder.build()


def commit_deletes(judge: Judge, history: History, deletes: Sequence[Any]) -> None:
    delta = judge.java_table(history.table).newRowDelta()
    for one in deletes:
        delta.addDeletes(one)
    delta.commit()


def metadata_file(history: History) -> Path:
    """The table's current metadata file."""
    uri = history.table.metadata_uri
    assert uri is not None
    return path_of(uri)
