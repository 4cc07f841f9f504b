"""The demo's own folder: both lakes, the configuration, and Airflow's home. Fresh at every start."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

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

    @property
    def environment(self) -> dict[str, str]:
        """What the configuration reads from the environment."""
        return {}

    @property
    def prelude(self) -> str:
        """What a shell must do before it can use the configuration."""
        return ""

    @property
    def again(self) -> str:
        """The command that runs this demo and leaves Airflow up."""
        return "make demo KEEP=1"

    @property
    def files(self) -> str:
        """A command that lists what the mirror has of shop.orders."""
        return f"ls {short(self.mirror.folder)}/warehouse/shop/orders/*"

    def clear(self) -> None:
        """Stops what an earlier demo left running here and removes its files."""
        stop_left_over(self.airflow)
        shutil.rmtree(self.folder, ignore_errors=True)

    def sections(self) -> dict[str, Any]:
        """Where the lakes and the state are, as the configuration says it."""
        location = self.mirror.properties["warehouse"]
        return {
            "source": {"catalog": dict(self.source.properties)},
            "mirror": {"catalog": dict(self.mirror.properties), "location": location},
            "state": {"uri": f"sqlite:///{self.folder / 'state.db'}"},
        }

    def write_config(self, sections: Mapping[str, Any] | None = None) -> None:
        """`sections` in place of its own."""
        self.config.write_text(
            f"""\
# Written by the demo; try changing it while Airflow runs.
{yaml.safe_dump(dict(sections or self.sections()), sort_keys=False)}spark:
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


def short(path: Path) -> Path:
    """As one would type it from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
