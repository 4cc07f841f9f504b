"""A Spark session of this process, started when the first stage needs it and shared by all tables of a call."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakemirror.errors import PermanentError
from lakemirror.replicate.stage import Report, Stage
from lakemirror.spark.engine import SparkEngine
from lakemirror.spark.library import build_archive, spark_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LazySparkEngine:
    """An engine whose session does not exist until it is needed; `stop` ends it."""

    name = "spark"

    def __init__(self, master: str, conf: Mapping[str, str]) -> None:
        self._master, self._conf = master, dict(conf)
        self._session: SparkSession | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def driver(self) -> tuple[str, str] | None:
        return SparkEngine(self._start()).driver

    @property
    def attempts(self) -> int:
        return SparkEngine(self._start()).attempts

    @staticmethod
    def is_repeated() -> bool:
        return SparkEngine.is_repeated()

    def narrow(self, most: int) -> tuple[SparkEngine, int]:
        return SparkEngine(self._start()).narrow(most)

    def run(self, stage: Stage, rows: pa.Table, out: pa.Schema, progress: Report | None = None) -> pa.Table:
        return out.empty_table() if rows.num_rows == 0 else SparkEngine(self._start()).run(stage, rows, out, progress)

    def diff(
        self,
        read: Stage,
        entry: pa.Schema,
        new: pa.Table,
        old: pa.Table,
        pack: Stage,
        out: pa.Schema,
        progress: Report | None = None,
    ) -> pa.Table:
        return SparkEngine(self._start()).diff(read, entry, new, old, pack, out, progress)

    def stop(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _start(self) -> SparkSession:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        if self._session is None:
            # PySpark reads the executors' Python from the environment only; `spark.pyspark.python` is spark-submit's.
            python = self._conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
            os.environ["PYSPARK_PYTHON"] = python
            if self._master.startswith("local"):
                os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            self._folder = tempfile.TemporaryDirectory(prefix="lakemirror-")
            builder = (
                SparkSession.builder.master(self._master)
                .appName("lakemirror")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
            )
            for key, value in {**spark_conf(build_archive(Path(self._folder.name))), **self._conf}.items():
                builder = builder.config(key, value)
            try:
                self._session = builder.getOrCreate()
            except PySparkException as err:
                raise PermanentError("start spark", self._master, str(err), "check spark.master and Java 17") from err
            self._session.sparkContext.setLogLevel("ERROR")
        return self._session
