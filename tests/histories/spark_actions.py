"""What may happen to a table that Spark writes: rows, maintenance, shape; each an action of one statement or two."""

from __future__ import annotations

from tests.duckdb_judge import Limit
from tests.histories.actions import action, chosen
from tests.histories.spark_table import BASE, FIELDS, FORMATS, PARTITIONS, Json, SparkTable, modes
from tests.spark_writer import delete_by_equality


class RowActions(SparkTable):
    @action(weight=6)
    def append(self, a: int, b: int, c: int) -> None:
        self.sql(f"INSERT INTO {self.target(b) if self.has_rows() else self.t} {self.new_rows(5 + a)}")

    @action(weight=2)
    def overwrite(self, a: int, b: int, c: int) -> None:
        """Of the partitions that the new rows are in; of everything, where there are none."""
        self.sql(f"INSERT OVERWRITE {self.t} {self.new_rows(1 + a % 8)}")

    @action(weight=5, when=SparkTable.has_rows)
    def delete(self, a: int, b: int, c: int) -> None:
        self.sql(f"DELETE FROM {self.target(b)} WHERE id % {3 + a % 11} = {c % 3}")

    @action(when=SparkTable.has_rows)
    def delete_a_day(self, a: int, b: int, c: int) -> None:
        self.sql(f"DELETE FROM {self.target(b)} WHERE dt = date_add(DATE'2026-01-01', {a % 3})")

    @action(weight=3, when=SparkTable.has_rows)
    def update(self, a: int, b: int, c: int) -> None:
        self.sql(f"UPDATE {self.target(b)} SET name = 'u{a}' WHERE id % {4 + a % 9} = {c % 4}")

    @action(weight=3, when=SparkTable.has_rows)
    def merge(self, a: int, b: int, c: int) -> None:
        """Some rows are deleted, some updated, some new."""
        first, last = max(0, self.ids - 6 - a % 9), self.ids + 4
        self.ids = last
        names = ", ".join(self.columns)
        self.sql(
            f"MERGE INTO {self.target(b)} t USING (SELECT {self._values()} FROM range({first}, {last})) s "
            "ON t.id = s.id "
            f"WHEN MATCHED AND s.id % 3 = {c % 3} THEN DELETE WHEN MATCHED THEN UPDATE SET t.name = 'merged' "
            f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({', '.join(f's.{name}' for name in self.columns)})"
        )

    def takes_equality_deletes(self) -> bool:
        return self.version > 1 and self.has_rows() and not self.partition_fields() and self.columns["id"] == "INT"

    @action(weight=2, when=takes_equality_deletes)
    def delete_by_equality(self, a: int, b: int, c: int) -> None:
        """As Flink does it: a file of keys, through Iceberg's own API, of all partitions of all specs."""
        keys = sorted({a, b, c})
        delete_by_equality(self.history.judge, self.history.table, "id", keys)


class MaintenanceActions(RowActions):
    @action(weight=2, when=SparkTable.has_rows)
    def compact(self, a: int, b: int, c: int) -> None:
        options = {"rewrite-all": "true"} | ({"remove-dangling-deletes": "true"} if b % 2 else {})
        where = f"where => 'id > {a}', " if c % 3 == 0 else ""
        words = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
        self.call("rewrite_data_files", f"{where}options => map({words})")

    @action(weight=2, when=SparkTable.has_rows)
    def rewrite_manifests(self, a: int, b: int, c: int) -> None:
        self.call("rewrite_manifests")

    @action(weight=2, when=lambda self: self.version == 2 and self.has_rows())
    def rewrite_position_deletes(self, a: int, b: int, c: int) -> None:
        self.call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")

    @action(weight=3, when=SparkTable.has_rows)
    def expire(self, a: int, b: int, c: int) -> None:
        self.call("expire_snapshots", f"older_than => TIMESTAMP'2100-01-01', retain_last => {1 + a % 3}")

    @action(when=SparkTable.has_rows)
    def compute_statistics(self, a: int, b: int, c: int) -> None:
        """Those of partitions where there are partitions, and data in a format that Iceberg can write them in."""
        is_possible = self.partition_fields() and self.state["properties"]["write.format.default"] != "orc"
        self.call("compute_partition_stats" if is_possible and a % 2 else "compute_table_stats")


class ShapeActions(MaintenanceActions):
    @action()
    def add_a_column(self, a: int, b: int, c: int) -> None:
        self.added += 1
        name, kind = f"c{self.added}", chosen(("INT", "STRING", "DOUBLE", "DECIMAL(12, 2)"), a)
        self.sql(f"ALTER TABLE {self.t} ADD COLUMN {name} {kind}")
        self.columns[name] = kind

    def droppable(self) -> list[str]:
        return [name for name in self.columns if name not in BASE]

    @action(when=droppable)
    def drop_a_column(self, a: int, b: int, c: int) -> None:
        name = chosen(self.droppable(), a)
        self.sql(f"ALTER TABLE {self.t} DROP COLUMN {name}")
        del self.columns[name]

    @action(when=droppable)
    def rename_a_column(self, a: int, b: int, c: int) -> None:
        self.added += 1
        old, new = chosen(self.droppable(), a), f"c{self.added}"
        self.sql(f"ALTER TABLE {self.t} RENAME COLUMN {old} TO {new}")
        self.columns = {new if name == old else name: kind for name, kind in self.columns.items()}

    @action(when=lambda self: self.columns["id"] == "INT")
    def widen_the_key(self, a: int, b: int, c: int) -> None:
        self.sql(f"ALTER TABLE {self.t} ALTER COLUMN id TYPE BIGINT")
        self.columns["id"] = "BIGINT"

    def addable(self) -> list[str]:
        """Fields that the spec has not, and never had: names of old ones may still be taken."""
        ids = {one["name"]: one["id"] for one in self.fields()}
        ever = [one for spec in self.state["partition-specs"] for one in spec["fields"]]
        taken = {(one["transform"].split("[")[0], one["source-id"]) for one in ever} | {
            ("void", one["source-id"]) for one in ever
        }
        return [
            name
            for name, (transform, column) in FIELDS.items()
            if (transform.split("[")[0], ids[column]) not in taken and ("void", ids[column]) not in taken
        ]

    def fields(self) -> list[Json]:
        by_id = {one["schema-id"]: one["fields"] for one in self.state["schemas"]}
        found: list[Json] = by_id[self.state["current-schema-id"]]
        return found

    @action(when=addable)
    def add_a_partition_field(self, a: int, b: int, c: int) -> None:
        self.sql(f"ALTER TABLE {self.t} ADD PARTITION FIELD {chosen(self.addable(), a)}")

    @action(when=SparkTable.partition_fields)
    def drop_a_partition_field(self, a: int, b: int, c: int) -> None:
        self.sql(f"ALTER TABLE {self.t} DROP PARTITION FIELD {chosen(self.partition_fields(), a)['name']}")

    @action(when=lambda self: self.version < 3)
    def upgrade(self, a: int, b: int, c: int) -> None:
        self.sql(f"ALTER TABLE {self.t} SET TBLPROPERTIES ('format-version' = '{self.version + 1}')")

    @action(weight=2)
    def write_otherwise(self, a: int, b: int, c: int) -> None:
        """Copy-on-write or merge-on-read, files of another format, another order: from now on."""
        settings = modes(a, self.version) | {
            "write.delete.granularity": ("file", "partition")[b % 2],
            "a.note": f"n {c}",
        }
        if Limit.DATA_FORMATS in self.history.limits:
            settings["write.format.default"] = chosen(FORMATS, b)
        words = ", ".join(f"'{key}' = '{value}'" for key, value in settings.items())
        self.sql(f"ALTER TABLE {self.t} SET TBLPROPERTIES ({words})")
        if c % 4 == 0:
            self.sql(f"ALTER TABLE {self.t} WRITE ORDERED BY id")

    @action()
    def replace(self, a: int, b: int, c: int) -> None:
        """The same uuid, other columns, other partitions, a snapshot without a parent.

        A type stays as wide as it was: Iceberg cannot read older snapshots by a narrower one.
        """
        self.columns = {**BASE, "id": self.columns["id"]}
        partitions = chosen(PARTITIONS, a)
        clause = f"PARTITIONED BY ({partitions})" if partitions else ""
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in self.kept_properties().items())
        self.sql(
            f"CREATE OR REPLACE TABLE {self.t} USING iceberg {clause} TBLPROPERTIES ({properties}) "
            f"AS {self.new_rows(3 + b % 9)}"
        )

    @action()
    def recreate(self, a: int, b: int, c: int) -> None:
        """Dropped, with its files or without, and made anew: another uuid."""
        self.sql(f"DROP TABLE {self.t}{' PURGE' if b % 2 else ''}")
        self.columns = dict(BASE)
        self.history.create(self._definition(), partitioned_by=chosen(PARTITIONS, a), **self.kept_properties())

    def kept_properties(self) -> dict[str, str]:
        return {**self.properties, "format-version": str(self.version)}
