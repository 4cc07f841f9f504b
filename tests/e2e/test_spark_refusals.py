"""Tables that Spark writes and that cannot be mirrored, in both lanes: told by name, and the mirror is as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakemirror.errors import LakemirrorError, PermanentError, SourceVanishedError
from tests.e2e.history import COLUMNS, History, numbers
from tests.e2e.installation import objects


@pytest.mark.parametrize(
    ("damaged", "damage", "error", "said"),
    [
        ("data/dt=2026-01-02/*.parquet", Path.unlink, SourceVanishedError, "the source file is gone"),
        (
            "data/dt=2026-01-02/*.parquet",
            lambda path: path.write_bytes(b"PAR1"),
            PermanentError,
            "its size is not what",
        ),
        ("metadata/*-m0.avro", lambda path: path.write_bytes(path.read_bytes()[:-40]), PermanentError, "read manifest"),
    ],
    ids=["a file that vanished", "a file of another size", "a manifest that was cut"],
)
def test_a_source_that_is_damaged(
    history: History, damaged: str, damage: Callable[[Path], object], error: type[LakemirrorError], said: str
) -> None:
    """What a task meets on an executor is told by its own name; the mirror keeps the version it has."""
    history.create(COLUMNS, partitioned_by="dt")
    history.insert(numbers(0, 10))
    history.check("a sound version", is_deep=True)
    rows = history.judge.rows(history.table)
    before = {*history.source.folder.rglob(damaged)}
    history.insert(numbers(10, 20))
    (victim,) = {*history.source.folder.rglob(damaged)} - before
    damage(victim)
    there = {lane: objects(one.mirror.folder / "warehouse") for lane, one in history.lanes.items()}
    for lane, installation in history.lanes.items():
        with pytest.raises(error, match=said) as raised:
            installation.sync(history.name)
        assert type(raised.value) is error
        assert raised.value.subject.endswith(victim.name)
        assert [path.name for path in installation.folder(history.name).glob("_ready/*")] == ["v1.ready.json"]
        assert history.judge.rows(installation.theirs(history.name)) == rows
        if victim.suffix == ".avro":  # seen while planning: not even a plan was written
            assert objects(installation.mirror.folder / "warehouse") == there[lane]
