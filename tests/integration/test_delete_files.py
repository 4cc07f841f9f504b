"""Delete files that Spark and Iceberg wrote, rewritten, then applied by Spark: the same rows are deleted."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import pytest

from lakemirror.model.paths import PrefixMap
from tests.hand_mirror import deletes_of, ids_of, mirror_by_hand, write_deletes
from tests.judge import Judge, TableOf

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    # PySpark leaves the sockets of its collects to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
MERGE_ON_READ = ", ".join(f"'write.{how}.mode'='merge-on-read'" for how in ("delete", "update", "merge"))
COLUMNS = (
    "id INT, at TIMESTAMP, amount DECIMAL(9, 2), tags ARRAY<STRING>, more STRUCT<a: INT, b: MAP<STRING, INT>>, dt INT"
)
FAR = "TIMESTAMP'3026-01-01 10:00:00'"  # does not fit nanoseconds
CODECS = {
    "parquet": ["zstd", "snappy"],
    "orc": ["zlib", "zstd", "snappy", "lz4", "none"],
    "avro": ["gzip", "zstd", "snappy", "uncompressed"],
}
_NUMBERS = itertools.count(1)


class Two:
    """A table on the source, its copy in a place with a longer name, and the map between them."""

    def __init__(self, judge: Judge, folder: Path) -> None:
        self.judge, number = judge, next(_NUMBERS)
        self.source = TableOf(judge.open_lake(f"from{number}", folder / "a"), "db.t")
        self.mirror = TableOf(judge.open_lake(f"to{number}", folder / "a-much-longer-name"), "db.t")
        for lake in (self.source.lake, self.mirror.lake):
            judge.spark.sql(f"CREATE NAMESPACE {lake.name}.db")
        self.paths = PrefixMap.of({f"file://{folder}/a/warehouse": f"file:{folder}/a-much-longer-name/warehouse"})

    def sql(self, statement: str) -> None:
        self.judge.spark.sql(statement.format(t=self.source.sql))

    def create(self, **properties: str) -> None:
        settings = "".join(f", '{key.replace('_', '.')}'='{value}'" for key, value in properties.items())
        self.sql(
            f"CREATE TABLE {{t}} ({COLUMNS}) USING iceberg PARTITIONED BY (dt) "
            f"TBLPROPERTIES ('format-version'='2', {MERGE_ON_READ}{settings})"
        )

    def set(self, **properties: str) -> None:
        settings = ", ".join(f"'{key.replace('_', '.')}'='{value}'" for key, value in properties.items())
        self.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({settings})")

    def insert(self, first: int, last: int, dt: str = "id % 2") -> None:
        self.sql(
            f"INSERT INTO {{t}} SELECT CAST(id AS INT), {FAR}, 1.25, array('x', NULL), "
            f"named_struct('a', 1, 'b', map('k', 2)), CAST({dt} AS INT) FROM range({first}, {last})"
        )

    def data_files(self) -> list[str]:
        return [
            one["file_path"] for one in self.judge.spark.sql(f"SELECT file_path FROM {self.source.sql}.files").collect()
        ]

    def check(self, formats: dict[str, int], rows: int) -> None:
        """Mirror by hand; then Iceberg must decode the same deletes, and Spark must see the same rows."""
        assert mirror_by_hand(self.judge, self.source, self.mirror, self.paths) == Counter(formats)
        ours = deletes_of(self.judge, self.source)
        want = Counter({(self.paths.map(path), position, row): n for (path, position, row), n in ours.items()})
        assert deletes_of(self.judge, self.mirror) == want
        found = self.judge.rows(self.mirror)
        assert found == self.judge.rows(self.source)
        assert found.total() == rows
        assert ids_of(self.judge, self.mirror) == sorted(json.loads(row)["id"] for row in found)


@pytest.fixture
def two(judge: Judge, tmp_path: Path) -> Two:
    return Two(judge, tmp_path)


@pytest.mark.parametrize("file_format", CODECS)
def test_position_deletes(two: Two, file_format: str) -> None:
    """Both granularities, and every codec that Iceberg can write the format with."""
    codecs = CODECS[file_format]
    two.create(write_delete_format_default=file_format, write_delete_granularity="partition")
    two.insert(0, 40)
    two.insert(40, 80)
    for number, codec in enumerate(codecs):
        two.set(**{f"write_delete_{file_format}_compression-codec": codec})
        two.sql(f"DELETE FROM {{t}} WHERE id % 20 IN ({number}, {number + 5})")
    two.set(write_delete_granularity="file")
    two.sql("DELETE FROM {t} WHERE id % 20 IN (10, 15)")
    two.check({file_format.upper(): 2 * len(codecs) + 4}, 80 - 8 * (len(codecs) + 1))


def test_deletes_that_hold_the_deleted_rows(two: Two) -> None:
    two.create()
    two.insert(0, 10, dt="0")
    (path,) = two.data_files()
    for position, file_format in enumerate(CODECS):
        write_deletes(two.judge, two.source, file_format, [(path, position), (path, position + 4)])
    two.check({"PARQUET": 1, "ORC": 1, "AVRO": 1}, 4)


def test_rows_that_need_another_order(two: Two) -> None:
    """The first file in the order of the source's paths is the last one in that of the mirror's."""
    two.create(write_delete_granularity="partition")
    two.insert(0, 40, dt="0")
    two.insert(40, 80, dt="0")
    first, _ = sorted(two.data_files())
    last = two.paths.map(first).replace("/dt=0/", "/zzz/")
    two.paths = PrefixMap.of({**dict(two.paths.rules), first: last})
    for number, file_format in enumerate(CODECS):
        two.set(write_delete_format_default=file_format)
        two.sql(f"DELETE FROM {{t}} WHERE id % 20 IN ({number}, {number + 5})")
    two.check({"PARQUET": 1, "ORC": 1, "AVRO": 1}, 80 - 3 * 8)


def test_orc_is_read_from_the_middle_of_a_stripe(two: Two) -> None:
    """As many paths as rows, so without a dictionary; the reader seeks the row group of the one path that it wants."""
    two.create()
    two.insert(0, 10, dt="0")
    (path,) = two.data_files()
    folder = path.rpartition("/")[0]
    before, after = ([(f"{folder}/{mark}{n:04d}{'x' * (n % 7)}", n) for n in range(1500)] for mark in "!~")
    for position, codec in enumerate(("none", "zlib")):
        options = {"orc_row_index_stride": "1000", "write_delete_orc_compression-codec": codec}
        write_deletes(two.judge, two.source, "orc", [*before, (path, position), *after], **options)
    two.check({"ORC": 2}, 8)


def test_deletion_vectors(two: Two) -> None:
    """Several in one Puffin file, next to position deletes that are older than the upgrade."""
    two.create(write_delete_format_default="orc", write_delete_granularity="partition")
    two.insert(0, 40)
    two.insert(40, 80)
    two.sql("DELETE FROM {t} WHERE id % 20 IN (0, 5)")
    two.set(**{"format-version": "3"})
    two.sql("DELETE FROM {t} WHERE id < 40 AND id % 20 IN (1, 6)")
    two.check({"PUFFIN": 1, "ORC": 2}, 80 - 8 - 4)
