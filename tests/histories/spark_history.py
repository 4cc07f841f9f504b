"""Random histories of a table that Spark writes, mirrored in both lanes and judged: one for each seed.

    run(judge, folder, 123)

Every step draws from a source of its own, made of the seed and its number. So the steps that led to a failure can be
left out one by one (`skip`), and the others stay what they were.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.e2e.history import start_history
from tests.histories.actions import LIMIT, action, chosen
from tests.histories.spark_actions import ShapeActions
from tests.histories.spark_table import Shape, SparkTable
from tests.judge import Judge

NAMES = ("side", "audit")
STEPS = 14
TRIES = 20  # actions that are drawn until the state allows one


class SparkHistory(ShapeActions):
    # ----------------------------------------------------------------------------------------------------------- refs

    def unnamed(self) -> list[str]:
        return [name for name in NAMES if name not in self.refs]

    @action(weight=2, when=lambda self: self.has_rows() and self.unnamed())
    def name_a_snapshot(self, a: int, b: int, c: int) -> None:
        kind, retain = ("TAG", "RETAIN 365 DAYS") if c % 2 else ("BRANCH", "")
        at = chosen(sorted(self.snapshots), b)
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
        self.call("set_current_snapshot", f"snapshot_id => {chosen(sorted(self.snapshots), a)}")

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

    @action(weight=8)
    def sync(self, a: int, b: int, c: int) -> None:
        self.history.check_lanes("sync", ["task"])

    @action(weight=2)
    def sync_by_spark(self, a: int, b: int, c: int) -> None:
        self.history.check_lanes("sync by Spark", ["spark"])


@dataclass
class Told:
    """What a history was, in words; kept while it runs, so that a failure can tell it."""

    seed: int
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"Spark history {self.seed}", *self.lines])


def run(judge: Judge, folder: Path, seed: int, *, steps: int = STEPS, skip: Collection[int] = ()) -> Told:
    """The history of a seed, to its end and its last, deep comparison; a failure is told with all steps before it."""
    told = Told(seed)
    try:
        _run(judge, folder, told, steps, skip)
    except Exception as err:
        err.add_note(str(told))
        raise
    return told


def _run(judge: Judge, folder: Path, told: Told, steps: int, skip: Collection[int]) -> None:
    elsewhere = folder / "onprem" / "elsewhere"
    location = folder / "onprem" / "warehouse" / "db" / "t"
    shape = Shape.draw(Random(f"{told.seed}"), str(location), str(elsewhere))
    told.lines.append(f"   {shape}")
    roots = {"meta": str(elsewhere)} if shape.is_elsewhere else {}
    table = SparkHistory(start_history(judge, folder, roots), shape)
    for number in range(steps):
        if number in skip:
            continue
        random = Random(f"{told.seed}/{number}")
        for _ in range(TRIES):
            name, numbers = random.choice(table.weighted()), [random.randint(0, LIMIT) for _ in range(3)]
            told.lines.append(f"{number:3} {name} {numbers}")
            if table.act(name, *numbers):
                break
            told.lines.pop()
        table.look()
    told.lines.append("    check deeply")
    table.history.check_deeply("the last step")
