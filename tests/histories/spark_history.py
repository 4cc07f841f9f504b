"""The history of a table that Spark writes: all that may happen to it, its refs, and its mirrors in both lanes."""

from __future__ import annotations

from tests.histories.actions import action, chosen
from tests.histories.spark_actions import ShapeActions
from tests.histories.spark_table import SparkTable

NAMES = ("side", "audit")


class SparkHistory(ShapeActions):
    # ----------------------------------------------------------------------------------------------------------- refs

    def unnamed(self) -> list[str]:
        return [name for name in NAMES if name not in self.refs]

    @action(weight=2, when=lambda self: self.has_rows() and self.unnamed())
    def name_a_snapshot(self, a: int, b: int, c: int) -> None:
        kind, retain = ("TAG", "RETAIN 365 DAYS") if c % 2 else ("BRANCH", "")
        at = chosen(list(self.snapshots), b)
        self.sql(f"ALTER TABLE {self.t} CREATE {kind} {chosen(self.unnamed(), a)} AS OF VERSION {at} {retain}")

    def named(self) -> list[str]:
        return [name for name in self.refs if name != "main"]

    @action(when=named)
    def drop_a_name(self, a: int, b: int, c: int) -> None:
        name = chosen(self.named(), a)
        self.sql(f"ALTER TABLE {self.t} DROP {self.refs[name]['type'].upper()} {name}")

    def behind(self) -> list[str]:
        """Branches that main can be moved forward to."""
        return [
            name
            for name, ref in self.refs.items()
            if name != "main" and ref["type"] == "branch" and self.head() in self.ancestors(ref["snapshot-id"])[1:]
        ]

    @action(weight=3, when=behind)
    def fast_forward(self, a: int, b: int, c: int) -> None:
        source = self.history.source.name
        self.sql(f"CALL {source}.system.fast_forward('{self.history.name}', 'main', '{chosen(self.behind(), a)}')")

    @action(weight=2, when=lambda self: len(self.ancestors(self.head())) > 1)
    def roll_back(self, a: int, b: int, c: int) -> None:
        self.call("rollback_to_snapshot", f"snapshot_id => {chosen(self.ancestors(self.head())[1:], a)}")

    @action(when=SparkTable.has_rows)
    def set_current(self, a: int, b: int, c: int) -> None:
        self.call("set_current_snapshot", f"snapshot_id => {chosen(list(self.snapshots), a)}")

    @action(when=SparkTable.has_rows)
    def stage(self, a: int, b: int, c: int) -> None:
        """Write, audit, publish: a snapshot that no ref names."""
        self.names += 1
        conf = self.history.judge.spark.conf
        self.sql(f"ALTER TABLE {self.t} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
        conf.set("spark.wap.id", f"wap{self.names}")
        try:
            self.sql(f"INSERT INTO {self.t} {self.new_rows(3 + a % 9)}")
        finally:
            conf.unset("spark.wap.id")

    def to_pick(self) -> list[int]:
        """Appends that main does not have, neither as they are nor picked before."""
        main = self.ancestors(self.head())
        sources = [self.snapshots[one]["summary"].get("source-snapshot-id") for one in main]
        published = [self.snapshots[one]["summary"].get("published-wap-id") for one in main]
        return [
            number
            for number, one in self.snapshots.items()
            if one["summary"]["operation"] == "append"
            and number not in main
            and str(number) not in sources
            and one["summary"].get("wap.id", "") not in published
        ]

    @action(weight=3, when=lambda self: self.has_rows() and self.to_pick())
    def cherry_pick(self, a: int, b: int, c: int) -> None:
        self.call("cherrypick_snapshot", f"snapshot_id => {chosen(self.to_pick(), a)}")

    # --------------------------------------------------------------------------------------------------------- mirror

    @action(weight=8, when=lambda self: "task" in self.due)
    def sync(self, a: int, b: int, c: int) -> None:
        self.check("task")

    @action(weight=2, when=lambda self: "spark" in self.due)
    def sync_by_spark(self, a: int, b: int, c: int) -> None:
        self.check("spark")

    def check(self, lane: str) -> None:
        self.history.check_lanes(f"a sync in the {lane} lane", [lane])
        self.due.discard(lane)

    def end(self) -> None:
        self.history.check_deeply("the last step")
