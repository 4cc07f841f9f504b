"""Three tables of a REST catalog that Spark SQL writes in rounds: merge-on-read of v2 and of v3, and plain appends."""

from __future__ import annotations

from dataclasses import dataclass

from dev.services import RestCatalog
from tests.e2e.history import COLUMNS, MERGE_ON_READ, numbers
from tests.e2e.services_way import RestTable
from tests.judge import Judge

POSITION_DELETES, DELETION_VECTORS, APPENDS = "shop.orders", "shop.returns", "shop.clicks"
TABLES = {
    POSITION_DELETES: {"format-version": "2", **MERGE_ON_READ},
    DELETION_VECTORS: {"format-version": "3", **MERGE_ON_READ},
    APPENDS: {"format-version": "2"},
}
_NEW = f"(SELECT * FROM ({numbers(50, 70)}) AS n(id, name, dt)) AS new ON old.id = new.id"
CHANGES: tuple[tuple[str, ...], ...] = (
    (f"INSERT INTO {{t}} {numbers(0, 60)}",),
    ("DELETE FROM {t} WHERE id % 10 = 3",),
    ("UPDATE {t} SET name = 'updated' WHERE id % 10 = 4",),
    (
        f"MERGE INTO {{t}} AS old USING {_NEW} WHEN MATCHED THEN UPDATE SET name = concat(new.name, '!')"
        " WHEN NOT MATCHED THEN INSERT *",
    ),
    (f"INSERT INTO {{t}} {numbers(70, 80)}", "DELETE FROM {t} WHERE id IN (5, 71)"),
    (
        f"INSERT INTO {{t}} {numbers(80, 90)}",
        "INSERT OVERWRITE {t} SELECT id, concat(name, '?'), dt FROM {t} WHERE dt = DATE'2026-01-01'",
    ),
    ("UPDATE {t} SET name = 'again' WHERE id % 10 = 4", "ALTER TABLE {t} CREATE TAG seven"),
    (
        f"MERGE INTO {{t}} AS old USING {_NEW} WHEN MATCHED AND old.id % 2 = 0 THEN DELETE"
        " WHEN MATCHED THEN UPDATE SET name = 'merged'",
    ),
    ("ALTER TABLE {t} ADD COLUMN more BIGINT", f"INSERT INTO {{t}} SELECT *, 7 FROM ({numbers(200, 210)})"),
    (
        "CALL {catalog}.system.rewrite_data_files(table => '{name}', where => \"dt = DATE'2026-01-02'\","
        " options => map('rewrite-all', 'true'))",
        "DELETE FROM {t} WHERE dt = DATE'2026-01-03' OR id = 6",
    ),
)


@dataclass(frozen=True, slots=True)
class Rounds:
    """The writer of the tables, and the judge of their mirrors."""

    judge: Judge
    source: RestCatalog
    mirror: RestCatalog
    mirror_name: str  # the judge's name of the mirror's catalog, by which it knows the store

    def ours(self, name: str) -> RestTable:
        return RestTable("rest_source", self.source, name)

    def theirs(self, name: str) -> RestTable:
        return RestTable(self.mirror_name, self.mirror, name)

    def create(self) -> None:
        self.judge.spark.sql("CREATE NAMESPACE rest_source.shop")
        for name, properties in TABLES.items():
            settings = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
            self.judge.spark.sql(
                f"CREATE TABLE {self.ours(name).sql} ({COLUMNS}) USING iceberg PARTITIONED BY (dt)"
                f" TBLPROPERTIES ({settings})"
            )

    def write(self, number: int) -> None:
        """The commits of a round; the first is number 1."""
        appended = f"INSERT INTO {{t}} {numbers(10 * number, 10 * number + 10)}"
        for name in TABLES:
            table = self.ours(name)
            for statement in (appended,) if name == APPENDS else CHANGES[number - 1]:
                self.judge.spark.sql(statement.format(t=table.sql, catalog=table.catalog_name, name=name))

    def compact(self, name: str) -> None:
        """All files of the table are other ones afterwards, and those of before are gone."""
        catalog = self.ours(name).catalog_name
        for call in (
            f"rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
            f"expire_snapshots(table => '{name}', older_than => TIMESTAMP'2100-01-01 00:00:00', retain_last => 1)",
        ):
            self.judge.spark.sql(f"CALL {catalog}.system.{call}")

    def check(self, *deep: str) -> None:
        """Both judges on every table; of those named, on every snapshot that a mirror retains and all metadata."""
        for name in TABLES:
            assert self.judge.differences(self.ours(name), self.theirs(name), is_deep=name in deep) == []
