"""`make bench` tells what it measured, also where one measure fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.perf import bench
from tests.perf.row import Row


def good(folder: Path) -> list[Row]:
    return [Row("a good measure", "1 s", "≤ 2 s", True)]


def broken(folder: Path) -> Iterator[Row]:
    yield Row("what it did before", "2 s", "–", None)
    raise RuntimeError("its child is dead")


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(bench, "PROJECT", tmp_path)
    monkeypatch.setattr(bench, "MEASURES", {"good": good, "broken": broken, "better": good})
    monkeypatch.setattr(bench, "BY_DEFAULT", ["good", "broken", "better"])
    return tmp_path


def test_rows_are_told_although_a_measure_fails(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main([]) == 1
    told = capsys.readouterr()
    assert told.out.count("a good measure") == 2
    assert "what it did before" in told.out
    assert "broken" in told.out
    assert "FAILED" in told.out
    assert "its child is dead" in told.err
    assert "its child is dead" in (project / ".bench" / "results.json").read_text(encoding="utf-8")


def test_all_met_is_zero(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["good", "better"]) == 0
    assert "FAILED" not in capsys.readouterr().out
