"""The judges: engines that lakemirror has no part in read both sides and say where they differ.

Spark SQL with Iceberg's own runtime reads source and mirror through Java's JdbcCatalog, over the very SQLite files that
lakemirror and pyiceberg use, or through REST catalogs on S3 and GCS; DuckDB reads the metadata.json files, from disk or
from these stores. Both look at rows, whole and row for row, of the head, of every ref, and of every snapshot that the
mirror retains; Spark also at what the metadata says of files.

The same session is the writer of the source tables in the end-to-end tests (see `spark_writer`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pyspark import SparkContext
from pyspark.sql import SparkSession

from dev.lake import Lake
from dev.services import RestCatalog, S3Store
from dev.spark_classes import java_options
from tests.comparison import (
    METADATA,
    Json,
    SizeOf,
    differing_metadata,
    differing_rows,
    plain,
    row_columns,
    size_on_disk,
)
from tests.duckdb_judge import At, DuckDbJudge, Limit, Time
from tests.judged_stores import GcsStore, size_in_gcs, size_in_s3

ROOT = Path(__file__).resolve().parents[1]
JARS = ROOT / ".cache" / "jars"
ROWS_OF_HEAD = "rows of main"
TIMES_READ = 3  # of the log, by TIMESTAMP AS OF; of all others it is compared which snapshot they mean
Said = dict[tuple[str, str], list[str]]  # by table and view: the rows, as JSON


class Judged(Protocol):
    """A table as both judges address it."""

    @property
    def sql(self) -> str: ...

    @property
    def metadata_uri(self) -> str | None: ...


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
        self.duckdb = DuckDbJudge()
        self._buckets: dict[str, SizeOf] = {}  # by scheme and name: the size of an object by its key
        self._clients: dict[str, Any] = {}  # of S3, by bucket
        self._rest: set[str] = set()  # names of REST catalogs
        self.spark = _start_spark(scratch)

    def close(self) -> None:
        self.spark.stop()
        self.duckdb.close()
        for client in self._clients.values():
            client.close()

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

    def open_rest(self, name: str, catalog: RestCatalog, store: S3Store | GcsStore) -> None:
        """Make a REST catalog known by name, and the store that its tables live in; both judges read that."""
        prefix = f"spark.sql.catalog.{name}"
        options = {"type": "rest", "cache-enabled": "false", **catalog.properties, **store.properties}
        if isinstance(store, GcsStore):
            options["io-impl"] = "org.apache.iceberg.gcp.gcs.GCSFileIO"
            self.duckdb.use_gcs(store.bucket, store.endpoint)
        else:
            options |= {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "client.region": store.region}
            access = (store.access_key_id, store.secret_access_key)
            self.duckdb.use_s3(store.bucket, store.endpoint, store.region, *access)
        self.spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
        for key, value in options.items():
            self.spark.conf.set(f"{prefix}.{key}", value)
        self._rest.add(name)
        self._open_bucket(store)

    def _open_bucket(self, store: S3Store | GcsStore) -> None:
        if isinstance(store, GcsStore):
            self._buckets[f"gs://{store.bucket}"] = partial(size_in_gcs, store)
            return
        if store.bucket in self._clients:
            self._clients[store.bucket].close()
        self._clients[store.bucket] = store.client()
        self._buckets[f"s3://{store.bucket}"] = partial(size_in_s3, self._clients[store.bucket], store.bucket)

    def size_of(self, place: str) -> int | None:
        """Of an object by its plain place, asked of the disk or of the store itself."""
        scheme, separator, rest = place.partition("://")
        if not separator:
            return size_on_disk(place)
        bucket, _, key = rest.partition("/")
        return self._buckets[f"{scheme}://{bucket}"](key)

    def java_table(self, table: Judged) -> Any:
        """Iceberg's own Table object, by py4j."""
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self.spark._jsparkSession, table.sql)

    def metadata(self, table: Judged) -> Json:
        """The table's metadata as Iceberg understood it, written out again by Iceberg."""
        jvm: Any = self.spark.sparkContext._jvm
        current = self.java_table(table).operations().current()
        found: Json = json.loads(jvm.org.apache.iceberg.TableMetadataParser.toJson(current))
        return found

    def differences(
        self,
        source: Judged,
        *mirrors: Judged,
        is_deep: bool = True,
        limits: Collection[Limit] = (),
        roots: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Everything in which a mirror is not the source, in words; empty if they agree.

        `roots` are places besides the table's location that hold files of it, each with its folder below the mirror
        table's location. Deep also looks at every snapshot that the mirrors retain, and at all that the metadata says
        of files; otherwise it is rows of the head, branches, tags, and the live files. Rows are read by both judges,
        but for what `limits` says that DuckDB cannot read.
        """
        ours = self.metadata(source)
        theirs = {mirror: self.metadata(mirror) for mirror in mirrors}
        views = {
            mirror: _views(metadata, is_deep=is_deep, has_own_log=self._is_on_rest(mirror))
            for mirror, metadata in theirs.items()
        }
        everything = {what: view for per_mirror in views.values() for what, view in per_mirror.items()}
        said: Said = {}
        # One query for everything, because starting a query costs more than reading these tables.
        for name, what, row in self.spark.sql(_query({source: everything, **views})).collect():
            said.setdefault((name, what), []).append(row)
        found = []
        for mirror, metadata in theirs.items():
            home = _home(metadata)
            places = {plain(place): f"{home}/{folder}" for place, folder in (roots or {}).items()}
            places[plain(ours["location"])] = home
            on_rest = self._is_on_rest(mirror)
            if not on_rest:
                found += [f"{mirror.sql}: {one}" for one in self._differing_times(source, mirror, metadata)]
            found += [
                f"{mirror.sql}: {one}"
                for one in differing_metadata(ours, metadata, places, self.size_of, on_rest=on_rest)
            ]
            retained = {snapshot["snapshot-id"] for snapshot in metadata["snapshots"]}
            for what in views[mirror]:
                ours_say, theirs_say = (said.get((table.sql, what), []) for table in (source, mirror))
                rows = differing_rows(what, ours_say, theirs_say, places, retained, self.size_of)
                found += [f"{mirror.sql}: {what}: {one}" for one in rows]
        return found + self._by_duckdb(source, theirs, said, limits, is_deep=is_deep)

    def _is_on_rest(self, table: Judged) -> bool:
        return table.sql.partition(".")[0] in self._rest

    def _differing_times(self, source: Judged, mirror: Judged, metadata: Json) -> list[str]:
        """Which snapshot Iceberg takes for each time of the mirror's log: on both sides the same."""
        jvm: Any = self.spark.sparkContext._jvm
        tables = [self.java_table(table) for table in (source, mirror)]
        found = []
        for time in sorted({entry["timestamp-ms"] for entry in metadata.get("snapshot-log") or ()}):
            want, got = (jvm.org.apache.iceberg.util.SnapshotUtil.snapshotIdAsOfTime(table, time) for table in tables)
            if want != got:
                found.append(f"as of {time}: want snapshot {want}, got {got}")
        return found

    def _by_duckdb(
        self, source: Judged, mirrors: Mapping[Judged, Json], said: Said, limits: Collection[Limit], *, is_deep: bool
    ) -> list[str]:
        """The same places once more, by the second judge; it must see as many rows as the first."""
        wanted: dict[str, dict[At, int]] = {}
        names = {}
        for mirror, metadata in mirrors.items():
            uri = str(mirror.metadata_uri)
            names[uri] = mirror.sql
            places = _places(metadata, is_deep=is_deep, has_own_log=self._is_on_rest(mirror))
            wanted[uri] = {at: len(said.get((mirror.sql, view), ())) for at, view in places.items()}
        found = self.duckdb.differences(source.metadata_uri, wanted, limits) if any(wanted.values()) else []
        return [f"{names[uri]}: {one}" for uri, one in found]

    def rows(self, table: Judged, version: int | str | None = None) -> Counter[str]:
        """All rows at the head or at a version, each as JSON."""
        clause = "" if version is None else f" VERSION AS OF {version!r}"
        frame = self.spark.sql(f"SELECT {_JSON_OF_ALL} AS row FROM {table.sql}{clause}")
        return Counter(row["row"] for row in frame.collect())

    def traces(self, folder: Path, text: str) -> list[str]:
        """The files below a folder that hold a text, raw or in any value once they are decoded."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        packed = [str(path) for path in files if path.suffix in (".avro", ".parquet")]
        return [str(path) for path in files if text.encode() in path.read_bytes()] + self.duckdb.holding(packed, text)


_JSON_OF_ALL = "to_json(struct(*), map('ignoreNullFields', 'false'))"


def _has_snapshot(metadata: Json) -> bool:
    return metadata.get("current-snapshot-id") not in (None, -1)


def _home(metadata: Json) -> str:
    """Where the files of a mirror table lie: its location, or a folder of its own for a table that was recreated."""
    location = plain(metadata["location"])
    for snapshot in metadata["snapshots"]:
        found = re.match(f"{re.escape(location)}/_maps/[0-9a-f]+(?=/)", plain(snapshot["manifest-list"]))
        return location if found is None else found.group()
    return location


def _views(metadata: Json, *, is_deep: bool, has_own_log: bool) -> dict[str, str]:
    """What to read of a table, each as a query with `{table}` for its name."""
    places = {ROWS_OF_HEAD: ""}
    places |= {f"rows of {name}": f" VERSION AS OF '{name}'" for name in metadata["refs"] if name != "main"}
    if is_deep:
        ids = [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]]
        places |= {f"rows of snapshot {one}": f" VERSION AS OF {one}" for one in ids}
        times = _times(metadata, has_own_log=has_own_log)
        places |= {_rows_as_of(ms): f" TIMESTAMP AS OF timestamp_millis({ms})" for ms in times}
    views = {what: f"SELECT {row_columns(metadata)} FROM {{table}}{place}" for what, place in places.items()}
    if _has_snapshot(metadata):
        said = {what: f"SELECT {columns} FROM {{table}}.{what}" for what, columns in METADATA.items()}
        views |= {what: query for what, query in said.items() if is_deep or what == "files"}
    return views


def _places(metadata: Json, *, is_deep: bool, has_own_log: bool) -> dict[At, str]:
    """Where DuckDB reads: the head, and snapshots by number or time, each with the view by which Spark reads it."""
    places: dict[At, str] = {None: ROWS_OF_HEAD} if _has_snapshot(metadata) else {}
    places |= {ref["snapshot-id"]: f"rows of {name}" for name, ref in metadata["refs"].items()}
    if is_deep:
        places |= {one["snapshot-id"]: f"rows of snapshot {one['snapshot-id']}" for one in metadata["snapshots"]}
        places |= {Time(ms): _rows_as_of(ms) for ms in _times(metadata, has_own_log=has_own_log)}
    return places


def _times(metadata: Json, *, has_own_log: bool) -> list[int]:
    """Of the log, those at which rows are read; of a catalog that writes a log of its own, none."""
    times = dict.fromkeys(entry["timestamp-ms"] for entry in metadata.get("snapshot-log") or ())
    return [] if has_own_log else [*times][-TIMES_READ:]


def _rows_as_of(ms: int) -> str:
    return f"rows as of {ms}"


def _query(wanted: Mapping[Judged, Mapping[str, str]]) -> str:
    parts = []
    for table, views in wanted.items():
        for what, view in views.items():
            inner = view.replace("{table}", table.sql)
            parts.append(f"SELECT '{table.sql}' AS name, '{what}' AS what, {_JSON_OF_ALL} AS row FROM ({inner})")
    return " UNION ALL ".join(parts)


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
        "spark.driver.extraJavaOptions": java_options(),
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
