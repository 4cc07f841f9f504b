"""`python -m dev.spark_classes`: an archive of the classes that every Spark loads, so that JVMs of tests start sooner.

Java calls it class data sharing: a JVM maps the archive instead of reading, checking and linking the same thousands of
classes each time. One that was made for other jars is passed over by the JVM, so it has the environment's stamp in its
name and is made anew with it. Tests work without it, only slower. Silent when it is there.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
FOLDER = PROJECT / ".cache" / "spark-classes"
STAMP = PROJECT / ".venv" / ".lakemirror-setup"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # small jobs: a quick start is worth more than fast code
TIMEOUT_S = 300
# What jobs and judges do: plans of SQL, files, rows through Python.
_JOB = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
place = sys.argv[1]
spark.range(0, 100, 1, 2).selectExpr("id", "CAST(id AS STRING) AS text", "id % 3 AS part").write.parquet(place)
spark.read.parquet(place).createOrReplaceTempView("t")
spark.sql("SELECT part, count(*), to_json(struct(max(text))) FROM t WHERE id > 3 GROUP BY part UNION ALL "
          "SELECT a.part, b.id, a.text FROM t a LEFT JOIN t b ON a.id = b.part ORDER BY 1").collect()
spark.range(0, 4, 1, 2).mapInArrow(lambda batches: batches, "id long").toArrow()
spark.stop()
"""


def archive() -> Path:
    """Where the archive for this environment is, or would be."""
    stamp = STAMP.read_bytes() if STAMP.exists() else b""
    return FOLDER / f"{hashlib.sha256(stamp).hexdigest()[:16]}.jsa"


def java_options() -> str:
    """For a JVM that shall start quickly."""
    found = archive()
    return f"{QUICK} -Xshare:auto -XX:SharedArchiveFile={found}" if found.exists() and " " not in str(found) else QUICK


def main() -> int:
    wanted = archive()
    if wanted.exists():
        return 0
    print("spark: archiving its classes, once", flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.jsa"):
        old.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        made, job = Path(scratch, "classes.jsa"), Path(scratch, "job.py")
        job.write_text(_JOB, encoding="utf-8")
        said = _run(job, made, Path(scratch, "table"))
        if not made.exists():
            print(f"spark: no archive of its classes could be made; tests only start slower\n{said}", file=sys.stderr)
            return 0
        made.rename(wanted)
    return 0


def _run(job: Path, made: Path, table: Path) -> str:
    """The last words of Spark, if there is no archive then."""
    conf = {
        "spark.driver.extraJavaOptions": f"{QUICK} -Xlog:cds=off -Xlog:cds+dynamic=off -XX:ArchiveClassesAtExit={made}",
        "spark.pyspark.python": sys.executable,
        "spark.ui.enabled": "false",
    }
    flags = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    bin_folder = Path(sys.executable).parent
    path = f"{bin_folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {**os.environ, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(bin_folder / "spark-submit"), "--master", "local[2]", *flags, str(job), str(table)]
    done = subprocess.run(
        command, env=environment, cwd=job.parent, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return done.stderr[-2000:]


if __name__ == "__main__":
    sys.exit(main())
