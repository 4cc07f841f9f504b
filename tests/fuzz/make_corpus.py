"""Makes the corpus anew: small tables written by Spark with Iceberg's runtime, and by pyiceberg.

    python -m tests.fuzz.make_corpus

Needs Java and the jars (scripts/fetch_jars.sh). It writes below PLACE, which stands in the files, and copies to
`corpus/` what the head of each table still refers to. Files of two runs differ in ids and times; a run is only needed
when a writer or a kind of file is to be added.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from tests.fuzz.seeds import CORPUS, PLACE
from tests.judge import Judge, TableOf, what_is_missing

MERGE_ON_READ = {f"write.{how}.mode": "merge-on-read" for how in ("delete", "update", "merge")}
COMMON = {"write.parquet.compression-codec": "uncompressed", "write.metadata.previous-versions-max": "2"}
ORC = {"write.format.default": "orc", "write.delete.format.default": "orc", "write.orc.compression-codec": "none"}
AVRO = {"write.format.default": "avro", "write.delete.format.default": "avro"}
TABLES: dict[str, dict[str, str]] = {
    "v1": {"format-version": "1", "write.metadata.compression-codec": "gzip"},
    "v2": {"format-version": "2", **MERGE_ON_READ},
    "v2_partition": {"format-version": "2", **MERGE_ON_READ, "write.delete.granularity": "partition"},
    "v2_orc": {"format-version": "2", **MERGE_ON_READ, **ORC},
    "v2_orc_zlib": {"format-version": "2", **MERGE_ON_READ, **ORC, "write.orc.compression-codec": "zlib"},
    "v2_avro": {"format-version": "2", **MERGE_ON_READ, **AVRO, "write.avro.compression-codec": "snappy"},
    "v2_avro_plain": {"format-version": "2", **MERGE_ON_READ, **AVRO, "write.avro.compression-codec": "uncompressed"},
    "v3": {"format-version": "3", **MERGE_ON_READ},
}


def main() -> int:
    missing = what_is_missing()
    if missing:
        print(missing, file=sys.stderr)
        return 2
    place = Path(PLACE.removeprefix("file://"))
    shutil.rmtree(place, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="lakemirror-corpus-scratch-") as scratch:
        judge = Judge(Path(scratch))
        try:
            lake = judge.open_lake("corpus", Path(scratch) / "lake")
            judge.spark.sql("CREATE NAMESPACE corpus.db")
            for name, properties in TABLES.items():
                _write_by_spark(judge, TableOf(lake, f"db.{name}"), f"{PLACE}/{name}", {**COMMON, **properties})
        finally:
            judge.close()
        _write_by_pyiceberg(Path(scratch), f"{PLACE}/pyiceberg")
    shutil.rmtree(CORPUS / "tables", ignore_errors=True)
    for folder in sorted(place.iterdir()):
        _keep(folder, CORPUS / "tables" / folder.name)
    shutil.rmtree(place)
    return 0


def _write_by_spark(judge: Judge, table: TableOf, location: str, properties: dict[str, str]) -> None:
    settings = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
    statements = [
        f"CREATE TABLE {table.sql} (id INT, name STRING COMMENT 'see {location}/doc', dt DATE) USING iceberg "
        f"PARTITIONED BY (dt) LOCATION '{location}' TBLPROPERTIES ({settings})",
        f"INSERT INTO {table.sql} SELECT /*+ COALESCE(1) */ CAST(id AS INT), concat('n', id), DATE'2026-01-01' "
        "FROM range(6)",
        f"ALTER TABLE {table.sql} CREATE TAG first",
        f"INSERT INTO {table.sql} SELECT /*+ COALESCE(1) */ CAST(id AS INT), concat('n', id), DATE'2026-01-02' "
        "FROM range(6, 12)",
        f"DELETE FROM {table.sql} WHERE id IN (2, 4, 8)",
    ]
    if properties["format-version"] == "3":
        statements.append(f"CALL corpus.system.compute_table_stats('{table.name}')")
    for statement in statements:
        judge.spark.sql(statement)


def _write_by_pyiceberg(scratch: Path, location: str) -> None:
    catalog = SqlCatalog("corpus", uri=f"sqlite:///{scratch / 'pyiceberg.db'}", warehouse=PLACE)
    catalog.create_namespace("db")
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("city", pa.string())])
    table = catalog.create_table("db.t", schema, location=location, properties={"format-version": "2"})
    for start in (0, 3):
        table.append(pa.table([pa.array(range(start, start + 3)), pa.array(["Bern"] * 3)], schema=schema))
    catalog.close()


def _keep(folder: Path, target: Path) -> None:
    """The newest metadata file and all files but older metadata and Hadoop's checksums."""
    versions = sorted(folder.glob("metadata/*.metadata.json"))
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith(".") and path not in versions[:-1]:
            kept = target / path.relative_to(folder)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, kept)


if __name__ == "__main__":
    sys.exit(main())
