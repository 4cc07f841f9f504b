"""A Spark session with Iceberg's runtime, as somebody would run `rewrite_table_path`: two cores, code generation on."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dev.lake import Lake

PROJECT = Path(__file__).resolve().parents[3]
JARS = PROJECT / ".cache" / "jars"
MASTER = "local[2]"


def start(lakes: list[Lake], scratch: Path, memory: str = "4g") -> SparkSession:
    """The catalogs of these lakes by their names; `memory` is the heap of the one JVM there is."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = {
        "spark.jars": ",".join(str(jar) for jar in sorted(JARS.glob("*.jar"))),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.driver.memory": memory,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "spark-warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for lake in lakes:
        catalog = f"spark.sql.catalog.{lake.name}"
        conf |= {
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{catalog}.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
            f"{catalog}.uri": f"jdbc:sqlite:{lake.folder / 'catalog.db'}",
            f"{catalog}.jdbc.schema-version": "V1",
            f"{catalog}.jdbc.busy_timeout": "20000",
            # Spelt as Hadoop spells the files: their procedure knows one spelling of a place only.
            f"{catalog}.warehouse": f"file:{lake.folder / 'warehouse'}",
            f"{catalog}.cache-enabled": "false",
        }
    builder = SparkSession.builder.master(MASTER).appName("rivals")
    for key, value in conf.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def java_table(session: SparkSession, name: str) -> Any:
    """Iceberg's own Table object, by py4j."""
    jvm: Any = session.sparkContext._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, name)
