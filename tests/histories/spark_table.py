"""A table that Spark writes, as a history needs it: how it is made, what it is like now, and SQL for rows of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.duckdb_judge import Limit
from tests.e2e.history import History
from tests.histories.actions import LIMIT, Actions, chosen

Json = dict[str, Any]
BASE = {"id": "INT", "name": "STRING", "dt": "DATE"}
FORMATS = ("parquet", "parquet", "parquet", "orc", "avro")
MODES = ("copy-on-write", "merge-on-read", "merge-on-read", "merge-on-read")
PARTITIONS = ("", "dt", "bucket(2, id)", "dt, truncate(2, name)")
FIELDS = {"dt": ("identity", "dt"), "bucket(4, id)": ("bucket[4]", "id"), "truncate(1, name)": ("truncate[1]", "name")}
ELSEWHERE = "elsewhere"  # the folder of the source that is a further root
DAY = "date_add(DATE'2026-01-01', CAST(id % 3 AS INT))"


@dataclass(frozen=True)
class Shape:
    """What is drawn once for a history: how its table is written and laid out."""

    version: int
    file_format: str
    delete_format: str
    partitioned_by: str
    modes: int
    layout: str
    granularity: str
    merged_manifests: int
    previous_versions: int
    deletes_old_metadata: bool
    is_packed: bool  # gzip'ed metadata
    is_elsewhere: bool  # its metadata lies under a further root

    def properties(self, location: str, elsewhere: str) -> dict[str, str]:
        found = {
            "format-version": str(self.version),
            "write.format.default": self.file_format,
            "write.delete.format.default": self.delete_format,
            "write.delete.granularity": self.granularity,
            "write.metadata.previous-versions-max": str(self.previous_versions),
            "write.metadata.delete-after-commit.enabled": str(self.deletes_old_metadata).lower(),
            "commit.manifest.min-count-to-merge": str(self.merged_manifests),
            **modes(self.modes, self.version),
        }
        if self.is_packed:
            found["write.metadata.compression-codec"] = "gzip"
        if self.layout == "objects":
            found["write.object-storage.enabled"] = "true"
        if self.layout == "own path":
            found["write.data.path"] = f"{location}/deep down/files"
        if self.is_elsewhere:
            found["write.metadata.path"] = f"{elsewhere}/t"
        return found

    def limits(self) -> frozenset[Limit]:
        """What the second judge may not be able to read of such a table."""
        may = {
            Limit.V1_SNAPSHOTS: self.version == 1,
            Limit.V1_MANIFESTS: self.version == 1,
            Limit.DATA_FORMATS: self.file_format != "parquet",
            Limit.DELETE_FORMATS: self.delete_format != "parquet",
        }
        return frozenset(limit for limit, is_so in may.items() if is_so)


def shapes() -> st.SearchStrategy[Shape]:
    return st.builds(
        Shape,
        version=st.sampled_from((2, 2, 3, 3, 1)),
        file_format=st.sampled_from(FORMATS),
        delete_format=st.sampled_from(FORMATS),
        partitioned_by=st.sampled_from(PARTITIONS),
        modes=st.integers(0, LIMIT),
        layout=st.sampled_from(("plain", "plain", "objects", "own path")),
        granularity=st.sampled_from(("file", "partition")),
        merged_manifests=st.sampled_from((2, 3, 100)),
        previous_versions=st.sampled_from((1, 2, 100)),
        deletes_old_metadata=st.booleans(),
        is_packed=st.sampled_from((False, False, False, True)),
        is_elsewhere=st.sampled_from((False, False, False, True)),
    )


def modes(pick: int, version: int) -> dict[str, str]:
    """Delete files came with v2."""
    usable = MODES if version > 1 else MODES[:1]
    return {f"write.{how}.mode": chosen(usable, pick >> 2 * at) for at, how in enumerate(("delete", "update", "merge"))}


class SparkTable(Actions):
    """The state that conditions look at comes from Iceberg's own view of the table, once for each step."""

    def __init__(self, history: History, shape: Shape) -> None:
        self.history, self.shape = history, shape
        self.columns = dict(BASE)
        self.ids = self.added = self.names = 0
        self.due = {*history.lanes}  # those that have not seen the last change
        history.limits = shape.limits()
        onprem = history.source.folder
        self.properties = shape.properties(str(onprem / "warehouse" / "db" / "t"), str(onprem / ELSEWHERE))
        history.create(self._definition(), partitioned_by=shape.partitioned_by, **self.properties)
        self.look()

    def act(self, name: str, a: int, b: int, c: int) -> bool:
        before = self.state
        is_done = super().act(name, a, b, c)
        if is_done:
            self.look()
        if self.state != before:
            self.due = {*self.history.lanes}
        return is_done

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
        return dict(sorted(self.state["refs"].items()))

    @property
    def snapshots(self) -> dict[int, Json]:
        """From the first to the last: their numbers are random, so no step may choose by them."""
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
