"""The judges: engines that lakemirror has no part in read both sides and say where they differ.

Spark SQL with Iceberg's own runtime reads source and mirror through Java's JdbcCatalog, over the very SQLite files that
lakemirror and pyiceberg use; DuckDB reads the metadata.json files. Both look at rows, whole and row for row; Spark also
at every ref, at every snapshot that the mirror retains, and at what the metadata says of files.

The same session is the writer of the source tables in the end-to-end tests (see `spark_writer`).
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from dev.lake import Lake
from tests.duckdb_judge import DuckDbJudge

ROOT = Path(__file__).resolve().parents[1]
JARS = ROOT / ".cache" / "jars"
POSITION_DELETES = 1  # the value of `content`
PATH_COLUMN_OF_DELETES = "2147483546"  # the field id of the path column in a position delete file
ROWS_OF_HEAD = "rows of main"
SHOWN = 5  # differences of one kind that are spelled out

# What the two sides must say alike about the head, but for paths.
_METADATA = {
    "files": "* EXCEPT (column_sizes, readable_metrics)",
    "entries": "status, snapshot_id, sequence_number, file_sequence_number, data_file.file_path AS file_path",
    "manifests": """content, path, length, partition_spec_id, added_snapshot_id, added_data_files_count,
        existing_data_files_count, deleted_data_files_count, added_delete_files_count, existing_delete_files_count,
        deleted_delete_files_count, partition_summaries""",
    "refs": "*",
}


@dataclass(frozen=True, slots=True)
class TableOf:
    """A table of a lake, as both judges address it."""

    lake: Lake
    name: str

    @property
    def sql(self) -> str:
        return f"{self.lake.name}.{self.name}"

    @property
    def metadata_uri(self) -> str | None:
        """What the catalog's row says, read without any Iceberg library."""
        namespace, _, name = self.name.rpartition(".")
        database = self.lake.folder / "catalog.db"
        if not database.exists():
            return None
        connection = sqlite3.connect(database)
        try:
            found = connection.execute(
                "SELECT metadata_location FROM iceberg_tables"
                " WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?",
                (self.lake.name, namespace, name),
            ).fetchone()
        except sqlite3.OperationalError:  # no catalog tables yet
            return None
        finally:
            connection.close()
        return None if found is None else str(found[0])


def what_is_missing() -> str | None:
    """What this machine lacks to run the judges, in words."""
    if shutil.which("java") is None:
        return "the judge needs Java 17, and there is no java in PATH"
    lines = (ROOT / "include" / "jars.txt").read_text(encoding="utf-8").splitlines()
    coordinates = [line.split()[0].split(":") for line in lines if line.strip() and not line.startswith("#")]
    wanted = [f"{artifact}-{version}.jar" for _, artifact, version in coordinates]
    absent = [jar for jar in wanted if not (JARS / jar).exists()]
    return f"the judge needs {', '.join(absent)}: run scripts/fetch_jars.sh" if absent else None


class Judge:
    """One Spark session for the whole run; lakes are made known to it by name."""

    def __init__(self, scratch: Path) -> None:
        self._duckdb = DuckDbJudge()
        self.spark = _start_spark(scratch)

    def close(self) -> None:
        self.spark.stop()
        self._duckdb.close()

    def open_lake(self, name: str, folder: Path) -> Lake:
        """A lake in `folder`, made if it is not there; `name` is its catalog on both sides, so it must be new."""
        lake = Lake(name, folder)
        (folder / "warehouse").mkdir(parents=True, exist_ok=True)
        catalog = f"spark.sql.catalog.{name}"
        options = {
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{catalog}.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
            f"{catalog}.uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
            f"{catalog}.jdbc.schema-version": "V1",
            f"{catalog}.jdbc.busy_timeout": "20000",
            f"{catalog}.warehouse": lake.properties["warehouse"],
            f"{catalog}.cache-enabled": "false",
        }
        for key, value in options.items():
            self.spark.conf.set(key, value)
        return lake

    def java_table(self, table: TableOf) -> Any:
        """Iceberg's own Table object, by py4j."""
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self.spark._jsparkSession, table.sql)

    def differences(self, source: TableOf, *mirrors: TableOf, is_deep: bool = True) -> list[str]:
        """Everything in which a mirror is not the source, in words; empty if they agree.

        Deep also looks at every snapshot that the mirrors retain, and at all that the metadata says; otherwise it is
        rows of the head, branches, tags, and the live files.
        """
        ours = self.java_table(source)
        found = []
        for mirror in mirrors:
            found += [f"{mirror.sql}: {one}" for one in _differing_state(ours, self.java_table(mirror))]
        return [*found, *self._differing_content(source, ours, mirrors, is_deep=is_deep)]

    def _differing_content(
        self, source: TableOf, ours: Any, mirrors: Sequence[TableOf], *, is_deep: bool
    ) -> Iterator[str]:
        """One query for everything, because starting a query costs more than reading these tables."""
        views = {mirror: _views(self.java_table(mirror), is_deep=is_deep) for mirror in mirrors}
        wanted = {source: {what: view for per_mirror in views.values() for what, view in per_mirror.items()}, **views}
        there: dict[tuple[str, str], list[str]] = {}
        for name, what, row in self.spark.sql(_query(wanted)).collect():
            there.setdefault((name, what), []).append(row)
        for mirror in mirrors:
            roots = {_plain(ours.location()): _plain(self.java_table(mirror).location())}
            for what in views[mirror]:
                ours_say, theirs_say = (there.get((table.sql, what), []) for table in (source, mirror))
                want = Counter(_mapped(what, row, roots) for row in ours_say)
                got = Counter(_mapped(what, row, {}) for row in theirs_say)
                for row in itertools.islice((want - got).elements(), SHOWN):
                    yield f"{mirror.sql}: {what}: only in the source: {row}"
                for row in itertools.islice((got - want).elements(), SHOWN):
                    yield f"{mirror.sql}: {what}: only in the mirror: {row}"
                for row in theirs_say:
                    yield from _differs_from_disk(what, row)
            if ours.currentSnapshot() is not None:
                want_counts = (len(there.get((mirror.sql, ROWS_OF_HEAD), ())), 0, 0)
                got_counts = self._duckdb.compare(source.metadata_uri, mirror.metadata_uri)
                if got_counts != want_counts:
                    names = "rows, only in source, in mirror"
                    yield f"{mirror.sql}: DuckDB ({names}): want {want_counts}, got {got_counts}"

    def rows(self, table: TableOf, version: int | str | None = None) -> Counter[str]:
        """All rows at the head or at a version, each as JSON."""
        clause = "" if version is None else f" VERSION AS OF {version!r}"
        frame = self.spark.sql(f"SELECT {_JSON_OF_ALL} AS row FROM {table.sql}{clause}")
        return Counter(row["row"] for row in frame.collect())

    def traces(self, folder: Path, text: str) -> list[str]:
        """The files below a folder that hold a text, raw or in any value once they are decoded."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        packed = [str(path) for path in files if path.suffix in (".avro", ".parquet")]
        return [str(path) for path in files if text.encode() in path.read_bytes()] + self._duckdb.holding(packed, text)


_JSON_OF_ALL = "to_json(struct(*), map('ignoreNullFields', 'false'))"


def _views(table: Any, *, is_deep: bool) -> dict[str, str]:
    """What to read of a mirror, as the part of a query after the table's name."""
    views = {ROWS_OF_HEAD: ""}
    views |= {f"rows of {name}": f" VERSION AS OF '{name}'" for name in table.refs() if name != "main"}
    if table.currentSnapshot() is not None:
        views |= {what: f".{what}" for what in _METADATA if is_deep or what == "files"}
    if is_deep:
        ids = [snapshot.snapshotId() for snapshot in table.snapshots()]
        views |= {f"rows of snapshot {one}": f" VERSION AS OF {one}" for one in ids}
    return views


def _query(wanted: Mapping[TableOf, Mapping[str, str]]) -> str:
    parts = []
    for table, views in wanted.items():
        for what, view in views.items():
            inner = f"SELECT {_METADATA.get(what, '*')} FROM {table.sql}{view}"
            parts.append(f"SELECT '{table.sql}' AS name, '{what}' AS what, {_JSON_OF_ALL} AS row FROM ({inner})")
    return " UNION ALL ".join(parts)


def _differing_state(ours: Any, theirs: Any) -> Iterator[str]:
    """What the tables say of themselves: schemas, specs, orders, refs, and snapshots but for their paths."""
    for what in ("schema", "schemas", "spec", "specs", "sortOrder", "uuid"):
        want, got = (str(getattr(table, what)().toString()) for table in (ours, theirs))
        if want != got:
            yield f"{what}: want {want}, got {got}"
    want_refs, got_refs = ({name: str(table.refs()[name]) for name in sorted(table.refs())} for table in (ours, theirs))
    if want_refs != got_refs:
        yield f"refs: want {want_refs}, got {got_refs}"
    there = {snapshot.snapshotId(): _facts(snapshot) for snapshot in ours.snapshots()}
    for snapshot in theirs.snapshots():
        if there.get(snapshot.snapshotId()) != _facts(snapshot):
            yield f"snapshot: want {there.get(snapshot.snapshotId())}, got {_facts(snapshot)}"


def _facts(snapshot: Any) -> str:
    facts = (snapshot.sequenceNumber(), snapshot.parentId(), snapshot.timestampMillis(), snapshot.operation())
    return f"{snapshot.snapshotId()} {facts} schema {snapshot.schemaId()} {sorted(dict(snapshot.summary()).items())}"


def _mapped(what: str, row: str, roots: Mapping[str, str]) -> str:
    """A row of a metadata table with paths as the mirror must have them, and without what follows from paths."""
    if what not in _METADATA:
        return row
    fields = json.loads(row)
    for name in ("file_path", "path", "referenced_data_file"):
        if fields.get(name) is not None:
            fields[name] = _moved(_plain(fields[name]), roots)
    if what == "manifests":
        del fields["length"]
    if what == "files" and fields["content"] == POSITION_DELETES:
        del fields["file_size_in_bytes"], fields["split_offsets"]
        for name in ("lower_bounds", "upper_bounds"):
            (fields[name] or {}).pop(PATH_COLUMN_OF_DELETES, None)
    return json.dumps(fields, sort_keys=True, ensure_ascii=False)


def _differs_from_disk(what: str, row: str) -> Iterator[str]:
    """Sizes that the mirror's metadata claims, held against the objects: readers trust them."""
    if what not in ("files", "manifests"):
        return
    fields = json.loads(row)
    names = ("path", "length") if what == "manifests" else ("file_path", "file_size_in_bytes")
    path, want = _plain(fields[names[0]]), fields[names[1]]
    got = os.path.getsize(path) if os.path.exists(path) else None
    if got != want:
        yield f"{what}: the metadata says that {path} has {want} bytes, it has {got}"


def _moved(path: str, roots: Mapping[str, str]) -> str:
    for ours, theirs in sorted(roots.items(), key=lambda root: -len(root[0])):
        if path.startswith(f"{ours}/"):
            return theirs + path[len(ours) :]
    return path


def _plain(uri: str) -> str:
    """`file:/x`, `file:///x` and `/x` are one place."""
    return "/" + uri.removeprefix("file:").lstrip("/")


def _start_spark(scratch: Path) -> SparkSession:
    if SparkContext._gateway is not None and SparkContext._active_spark_context is None:
        # A JVM that an earlier test started and is done with: it lacks the jars, and a running JVM cannot take them.
        SparkContext._gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = {
        "spark.jars": ",".join(str(jar) for jar in sorted(JARS.glob("*.jar"))),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.driver.memory": "1200m",
        # Tables of a few rows: compiling queries to Java and Java to the best machine code costs more than it saves.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "spark-warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("judge")
    for key, value in conf.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
