"""Tables made by hand that neither DuckDB nor pyiceberg reads, judged by Spark: it reads all that they hold.

Manifests and lists packed by each codec, with equality deletes and position deletes in ORC and Avro beside them; and
the last states of random histories.
"""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path

import pytest

from tests.avro_bytes import CODECS
from tests.histories.machine import run
from tests.histories.mirroring import UNREAD_BY_DUCKDB, SyntheticHistory
from tests.judge import Judge, TableOf

EXAMPLES, STEPS = 4, 30
_NUMBERS = itertools.count(1)


def judged_by_spark(judge: Judge, history: SyntheticHistory) -> tuple[TableOf, TableOf]:
    """Mirror the last state; rows of both sides, of every ref and retained snapshot, by Spark and if it can by DuckDB.

    Rows alone: where the files of a table that has moved lie is what the history itself compares.
    """
    history.sync(0, 0, 1)
    lake = judge.open_lake(f"byhand{next(_NUMBERS)}", history.folder / "spark")
    judge.spark.sql(f"CREATE NAMESPACE {lake.name}.db")
    for name in ("source", "mirror"):
        uri = history.pointer(f"{name}.db")
        judge.spark.sql(f"CALL {lake.name}.system.register_table('db.{name}', '{uri}')")
    ours, theirs = TableOf(lake, "db.source"), TableOf(lake, "db.mirror")
    found = judge.differences(ours, theirs, limits=UNREAD_BY_DUCKDB)
    rows = [one for one in found if ": rows of " in one or ": DuckDB at " in one]
    assert rows == [], "\n".join(rows)
    return ours, theirs


@pytest.mark.parametrize("codec", CODECS)
def test_codecs_beside_all_kinds_of_deletes(judge: Judge, tmp_path: Path, codec: str) -> None:
    history = SyntheticHistory(tmp_path, 2, 0, {})
    history.append(3, 0, 0)
    history.source.codec = codec
    history.append(2, 1, 0)
    for kind in range(3):
        history.delete_positions(kind, 63, kind)
    history.delete_by_equality(0, 1, 0)
    assert history.source.codecs("main") == {"deflate", codec}
    ours, theirs = judged_by_spark(judge, history)
    want = [{"id": number, "city": city} for number, city in history.comparison.rows(str(ours.metadata_uri))]
    rows = judge.spark.sql(f"SELECT id, city FROM {theirs.sql} ORDER BY id, city").collect()
    assert [row.asDict() for row in rows] == want


@pytest.mark.timeout(600)  # a failure is shortened, which takes a while
def test_the_ends_of_random_histories(judge: Judge, history_seed: int) -> None:
    run(partial(_finish, judge), history_seed, examples=EXAMPLES, steps=STEPS)


def _finish(judge: Judge, history: SyntheticHistory) -> None:
    judged_by_spark(judge, history)
