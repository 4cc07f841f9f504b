"""A table that Spark writes, as a history needs it: how it is made, what it is like now, and SQL for rows of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.e2e.history import History
from tests.histories.actions import Actions, chosen

Json = dict[str, Any]
BASE = {"id": "INT", "name": "STRING", "dt": "DATE"}
FORMATS = ("parquet", "parquet", "orc", "avro")
MODES = ("copy-on-write", "merge-on-read", "merge-on-read")
PARTITIONS = ("", "dt", "bucket(2, id)", "dt, truncate(2, name)")
FIELDS = {"dt": ("identity", "dt"), "bucket(4, id)": ("bucket[4]", "id"), "truncate(1, name)": ("truncate[1]", "name")}
DAY = "date_add(DATE'2026-01-01', CAST(id % 3 AS INT))"


@dataclass(frozen=True)
class Shape:
    """What is drawn once for a history: how its table is written and laid out."""

    version: int
    partitioned_by: str
    is_elsewhere: bool  # its metadata lies under a further root
    properties: dict[str, str] = field(default_factory=dict)

    @classmethod
    def draw(cls, random: Random, location: str, elsewhere: str) -> Shape:
        version, is_elsewhere = random.choice((1, 2, 2, 3, 3)), random.random() < 0.25
        file_format = random.choice(FORMATS)
        properties = {
            "format-version": str(version),
            "write.format.default": file_format,
            "write.delete.format.default": random.choice((file_format, file_format, random.choice(FORMATS))),
            "write.delete.granularity": random.choice(("file", "partition")),
            "write.metadata.previous-versions-max": str(random.choice((1, 2, 100))),
            "write.metadata.delete-after-commit.enabled": random.choice(("true", "false")),
            "commit.manifest.min-count-to-merge": str(random.choice((2, 3, 100))),
            **modes(random, version),
        }
        if random.random() < 0.25:
            properties["write.metadata.compression-codec"] = "gzip"
        layout = random.choice(("plain", "plain", "objects", "own path"))
        if layout == "objects":
            properties["write.object-storage.enabled"] = "true"
        if layout == "own path":
            properties["write.data.path"] = f"{location}/deep down/files"
        if is_elsewhere:
            properties["write.metadata.path"] = f"{elsewhere}/t"
        return cls(version, random.choice(PARTITIONS), is_elsewhere, properties)

    @property
    def by_duckdb(self) -> bool:
        """Whether the second judge reads such files: Parquet only, and no packed metadata."""
        kinds = {self.properties[f"write.{what}format.default"] for what in ("", "delete.")}
        return kinds == {"parquet"} and "write.metadata.compression-codec" not in self.properties


def modes(random: Random, version: int) -> dict[str, str]:
    """Delete files came with v2."""
    usable = MODES if version > 1 else MODES[:1]
    return {f"write.{how}.mode": random.choice(usable) for how in ("delete", "update", "merge")}


class SparkTable(Actions):
    """The state that conditions look at comes from Iceberg's own view of the table, once for each step."""

    def __init__(self, history: History, shape: Shape) -> None:
        self.history, self.shape = history, shape
        self.columns = dict(BASE)
        self.ids = self.added = self.names = 0
        history.by_duckdb = shape.by_duckdb
        history.create(self._definition(), partitioned_by=shape.partitioned_by, **shape.properties)
        self.look()

    def look(self) -> None:
        self.state: Json = self.history.judge.metadata(self.history.table)

    # ----------------------------------------------------------------------------------------------------- conditions

    @property
    def t(self) -> str:
        return self.history.t

    @property
    def version(self) -> int:
        return int(self.state["format-version"])

    @property
    def refs(self) -> Json:
        return dict(self.state["refs"])

    @property
    def snapshots(self) -> dict[int, Json]:
        return {one["snapshot-id"]: one for one in self.state["snapshots"]}

    def head(self) -> int | None:
        return self.refs["main"]["snapshot-id"] if "main" in self.refs else None

    def has_rows(self) -> bool:
        return self.head() is not None

    def ancestors(self, snapshot: int | None) -> list[int]:
        found = []
        while snapshot in self.snapshots:
            found.append(snapshot)
            snapshot = self.snapshots[snapshot].get("parent-snapshot-id")
        return found

    def partition_fields(self) -> list[Json]:
        specs = {spec["spec-id"]: spec["fields"] for spec in self.state["partition-specs"]}
        return [one for one in specs[self.state["default-spec-id"]] if one["transform"] != "void"]

    # ------------------------------------------------------------------------------------------------------------ SQL

    def sql(self, *statements: str) -> None:
        self.history.sql(*statements)

    def call(self, procedure: str, arguments: str = "") -> None:
        self.history.call(procedure, arguments)

    def target(self, pick: int) -> str:
        """The table, or one of its branches."""
        branches = [name for name, ref in self.refs.items() if ref["type"] == "branch" and name != "main"]
        return chosen([self.t, self.t, *(f"{self.t}.branch_{name}" for name in branches)], pick)

    def new_rows(self, count: int) -> str:
        """A query of rows that no other has, spread over three days."""
        first, self.ids = self.ids, self.ids + count
        return f"SELECT {self._values()} FROM range({first}, {first + count})"

    def _values(self) -> str:
        known = {"id": f"CAST(id AS {self.columns['id']})", "name": "concat('n', id)", "dt": DAY}
        return ", ".join(f"{known.get(name, f'CAST(id AS {kind})')} AS {name}" for name, kind in self.columns.items())

    def _definition(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
