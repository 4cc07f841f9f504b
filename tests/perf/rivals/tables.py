"""Tables of metadata alone, made by Iceberg's Java API: every entry has 20 columns of random statistics.

    python -m tests.perf.rivals.tables FOLDER COMMITS FILES_PER_COMMIT

The loop runs in the JVM, as a script that Spark's own compiler (Janino) takes, because a call from Python for each file
would take most of an hour. The data files do not exist. A table is made once and used again; `made.json` comes last.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dev.lake import Lake
from tests.perf.rivals import session as sessions

COLUMNS = 20
NAME = "db.t"
_SEED = 20261116
# 2,000 sets of statistics are more than fit into the window of deflate, so that repetition is no help.
_APPEND = """
java.util.Random chance = new java.util.Random(seed);
org.apache.iceberg.Metrics[] pool = new org.apache.iceberg.Metrics[2000];
for (int i = 0; i < pool.length; i++) {
  java.util.Map[] maps = new java.util.Map[5];
  for (int m = 0; m < maps.length; m++) {
    maps[m] = new java.util.LinkedHashMap();
    for (int c = 1; c <= columns; c++) {
      Object value = m < 3 ? (Object) Long.valueOf(chance.nextInt(1 << 22))
          : (Object) java.nio.ByteBuffer.allocate(8).putLong(0, chance.nextLong());
      maps[m].put(Integer.valueOf(c), value);
    }
  }
  Long rows = Long.valueOf(1 + chance.nextInt(1 << 20));
  pool[i] = new org.apache.iceberg.Metrics(rows, maps[0], maps[1], maps[2], null, maps[3], maps[4]);
}
for (int n = 0; n < commits; n++) {
  org.apache.iceberg.AppendFiles append = table.newFastAppend();
  for (int f = 0; f < files; f++) {
    String name = Long.toHexString(chance.nextLong()) + Long.toHexString(chance.nextLong());
    append.appendFile(org.apache.iceberg.DataFiles.builder(table.spec())
        .withPath(table.location() + "/data/" + (f % 997) + "/" + n + "-" + f + "-" + name + "-00001.parquet")
        .withFormat("parquet").withFileSizeInBytes(1 + chance.nextInt(1 << 24))
        .withMetrics(pool[chance.nextInt(pool.length)]).build());
  }
  append.commit();
}
return null;
"""
_TAG_ALL = """
org.apache.iceberg.ManageSnapshots tags = table.manageSnapshots();
for (java.util.Iterator all = table.snapshots().iterator(); all.hasNext();) {
  long id = ((org.apache.iceberg.Snapshot) all.next()).snapshotId();
  tags.createTag("s" + id, id);
}
tags.commit();
return null;
"""


@dataclass(frozen=True, slots=True)
class Made:
    """A table with a long history, the same after one more commit, and the same with a tag on every snapshot."""

    folder: str
    commits: int
    files_per_commit: int
    before: str  # the metadata file after `commits` commits
    after: str  # and one more
    tagged: str  # and every snapshot tagged
    seconds: float

    @property
    def lake(self) -> Lake:
        return Lake("big", Path(self.folder))

    def version(self, commits: int) -> str:
        """The metadata file after so many commits."""
        (found,) = Path(self.folder).glob(f"warehouse/{NAME.replace('.', '/')}/metadata/{commits:05d}-*.metadata.json")
        return f"file:{found}"


def load(folder: Path) -> Made | None:
    """The table that an earlier run left in this folder, if it is whole."""
    done = folder / "made.json"
    return Made(**json.loads(done.read_text())) if done.exists() else None


def make(folder: Path, commits: int, files_per_commit: int) -> Made:
    shutil.rmtree(folder, ignore_errors=True)
    lake = Lake("big", folder)
    (folder / "warehouse").mkdir(parents=True)
    start = time.monotonic()
    session = sessions.start([lake], folder / "scratch")
    try:
        columns = ", ".join(f"c{number} BIGINT" for number in range(1, COLUMNS + 1))
        session.sql(f"CREATE NAMESPACE {lake.name}.db")
        session.sql(f"CREATE TABLE {lake.name}.{NAME} ({columns}) USING iceberg TBLPROPERTIES ('format-version' = '2')")
        table = sessions.java_table(session, f"{lake.name}.{NAME}")
        places = []
        for count, seed in ((commits, _SEED), (1, _SEED + 1)):
            numbers = {"commits": count, "files": files_per_commit, "columns": COLUMNS, "seed": seed}
            _run(session, _APPEND, table, numbers)
            places.append(table.operations().current().metadataFileLocation())
        _run(session, _TAG_ALL, table, {})
        places.append(table.operations().current().metadataFileLocation())
    finally:
        session.stop()
        shutil.rmtree(folder / "scratch", ignore_errors=True)
    before, after, tagged = places
    made = Made(str(folder), commits, files_per_commit, before, after, tagged, time.monotonic() - start)
    (folder / "made.json").write_text(json.dumps(asdict(made)))
    return made


def _run(session: SparkSession, script: str, table: Any, numbers: dict[str, int]) -> None:
    """Compile a script of Java with a `table` and these numbers, and run it once."""
    jvm: Any = session.sparkContext._jvm
    gateway: Any = session.sparkContext._gateway
    lang = jvm.java.lang
    loader = lang.Thread.currentThread().getContextClassLoader()
    names = gateway.new_array(lang.String, 1 + len(numbers))
    types = gateway.new_array(lang.Class, 1 + len(numbers))
    values = gateway.new_array(lang.Object, 1 + len(numbers))
    names[0], types[0], values[0] = "table", lang.Class.forName("org.apache.iceberg.Table", True, loader), table
    for position, (name, number) in enumerate(numbers.items(), start=1):
        names[position], types[position], values[position] = name, lang.Integer.TYPE, number
    evaluator = jvm.org.codehaus.janino.ScriptEvaluator()
    evaluator.setParentClassLoader(loader)
    evaluator.setParameters(names, types)
    evaluator.setReturnType(lang.Class.forName("java.lang.Object"))
    evaluator.cook(script)
    evaluator.evaluate(values)


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3]))
