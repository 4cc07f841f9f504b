"""The history of a table that Spark writes, mirrored and judged step by step, in both lanes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dev.lake import Lake
from lakemirror.spark.engine import SparkEngine
from tests.duckdb_judge import Limit
from tests.e2e.installation import Installation
from tests.judge import Judge, TableOf

COLUMNS = "id INT, name STRING, dt DATE"
MERGE_ON_READ = {f"write.{how}.mode": "merge-on-read" for how in ("delete", "update", "merge")}
_NUMBERS = itertools.count(1)


def numbers(first: int, last: int) -> str:
    """Rows for COLUMNS, spread over three days."""
    return (
        "SELECT CAST(id AS INT), concat('n', id), date_add(DATE'2026-01-01', CAST(id % 3 AS INT)) "
        f"FROM range({first}, {last})"
    )


@dataclass
class History:
    """One source table and its mirrors, one for each lane.

    The Spark lane mirrors at every second step only: it is slower, and so it also has to take several commits in one
    leap. At the end both are held against the source in depth.
    """

    judge: Judge
    source: Lake
    lanes: dict[str, Installation]
    name: str = "db.t"
    steps: int = 0
    limits: frozenset[Limit] = frozenset()  # what the second judge cannot read of the source's own files
    roots: Mapping[str, str] = field(default_factory=dict)  # further places of the source, and their mirror folders

    @property
    def table(self) -> TableOf:
        return TableOf(self.source, self.name)

    @property
    def t(self) -> str:
        return self.table.sql

    @property
    def jvm(self) -> Any:
        return self.judge.spark.sparkContext._jvm

    @property
    def java(self) -> Any:
        """Iceberg's Java API, for what Spark SQL cannot say."""
        return self.jvm.org.apache.iceberg

    def add_roots(self, **roots: str) -> None:
        """Further places of the source, by name; known to every mirror from now on."""
        self.lanes = {lane: replace(one, roots={**one.roots, **roots}).write() for lane, one in self.lanes.items()}
        self.roots = {**self.roots, **{place: f"_roots/{name}" for name, place in roots.items()}}

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.judge.spark.sql(statement)

    def create(self, columns: str, *, partitioned_by: str = "", location: str = "", **properties: str) -> None:
        settings = {"format-version": "2", **properties}
        clauses = [f"PARTITIONED BY ({partitioned_by})"] if partitioned_by else []
        clauses += [f"LOCATION '{location}'"] if location else []
        clauses += ["TBLPROPERTIES (" + ", ".join(f"'{key}'='{value}'" for key, value in settings.items()) + ")"]
        self.sql(f"CREATE TABLE {self.t} ({columns}) USING iceberg {' '.join(clauses)}")

    def insert(self, *selects: str) -> None:
        for select in selects:
            self.sql(f"INSERT INTO {self.t} {select}")

    def call(self, procedure: str, arguments: str = "") -> None:
        call = f"table => '{self.name}'" + (f", {arguments}" if arguments else "")
        self.sql(f"CALL {self.source.name}.system.{procedure}({call})")

    def snapshot_ids(self) -> list[int]:
        """From the oldest to the newest."""
        rows = self.judge.spark.sql(f"SELECT snapshot_id FROM {self.t}.snapshots ORDER BY committed_at").collect()
        return [row["snapshot_id"] for row in rows]

    def check(self, step: str, *, is_deep: bool = False) -> None:
        """Mirror what is there now and hear the judge."""
        self.steps += 1
        self.check_lanes(step, list(self.lanes) if is_deep or self.steps % 2 == 0 else ["task"], is_deep=is_deep)

    def check_lanes(self, step: str, due: Sequence[str], *, is_deep: bool = False) -> None:
        results = {lane: self.lanes[lane].sync(self.name) for lane in due}
        mirrors = [self.lanes[lane].theirs(self.name) for lane in due]
        found = self.judge.differences(self.table, *mirrors, is_deep=is_deep, limits=self.limits, roots=self.roots)
        reports = [result.report() for result in results.values()]
        assert found == [], "\n".join([f"after {step}: {reports}", *found])

    def check_deeply(self, step: str) -> None:
        """Both lanes, every retained snapshot, all metadata; and no path of the source anywhere in the mirror."""
        self.check(step, is_deep=True)
        for installation in self.lanes.values():
            for part in ("metadata", "data"):
                traces = self.judge.traces(installation.folder(self.name) / part, str(self.source.folder))
                assert traces == [], f"after {step}: paths of the source in {traces}"


def start_history(judge: Judge, folder: Path, roots: Mapping[str, str] | None = None) -> History:
    """A source without tables, and a mirror for each lane; `roots` are further places of its files, by name."""
    number = next(_NUMBERS)
    source = judge.open_lake(f"onprem{number}", folder / "onprem")
    lanes = {}
    for lane, small_change_files in (("task", 10_000), ("spark", 0)):
        lanes[lane] = Installation(
            folder / f"{lane}.yaml",
            source,
            judge.open_lake(f"cloud{number}{lane}", folder / lane),
            defaults={"small_change_files": small_change_files},
            engine=SparkEngine(judge.spark),
            roots=roots or {},
        ).write()
    judge.spark.sql(f"CREATE NAMESPACE {source.name}.db")
    places = {place: f"_roots/{name}" for name, place in (roots or {}).items()}
    return History(judge, source, lanes, roots=places)
