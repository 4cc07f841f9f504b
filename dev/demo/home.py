"""The demo's own folder: both lakes, the configuration, and Airflow's home. Fresh at every start."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from dev.airflow_standalone import stop_left_over
from dev.lake import Lake
from dev.shop import TABLES

SMALL_CHANGE_FILES = 48  # the first load of shop.orders has 96 files: Spark; every later change has fewer: in the task


@dataclass(frozen=True, slots=True)
class DemoHome:
    """Where everything of one demo is."""

    folder: Path

    @property
    def airflow(self) -> Path:
        return self.folder / "airflow"

    @property
    def config(self) -> Path:
        return self.folder / "lakemirror.yaml"

    @property
    def source(self) -> Lake:
        return Lake("onprem", self.folder / "onprem")

    @property
    def mirror(self) -> Lake:
        return Lake("cloud", self.folder / "cloud")

    def clear(self) -> None:
        """Stops what an earlier demo left running here and removes its files."""
        stop_left_over(self.airflow)
        shutil.rmtree(self.folder, ignore_errors=True)

    def write_config(self) -> None:
        self.config.write_text(
            f"""\
# Written by the demo; try changing it while Airflow runs.
source:
  catalog: {_flow(self.source)}
mirror:
  catalog: {_flow(self.mirror)}
  location: {self.mirror.properties["warehouse"]}
state: {{uri: "sqlite:///{self.folder / "state.db"}"}}
spark:
  conn_id: spark_default
  master: "local[2]"
  conf:  # short jobs on few cores: little parallelism, no time for the JVM to optimise itself
    spark.sql.shuffle.partitions: "8"
    spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
defaults:
  schedule: "* * * * *"
  small_change_files: {SMALL_CHANGE_FILES}
tables:
"""
            + "".join(f"  - name: {table}\n" for table in TABLES),
            encoding="utf-8",
        )


def _flow(lake: Lake) -> str:
    """A YAML flow map; JSON is one."""
    return json.dumps(lake.properties)
