from __future__ import annotations

import io
import re

import pytest

from lakemirror.cli.progress import watch_on


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_silent_when_nobody_looks() -> None:
    stderr = io.StringIO()
    with watch_on(stderr)("sales.orders") as progress:
        assert progress is None
    assert stderr.getvalue() == ""


def test_a_terminal_shows_stage_files_bytes_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    stderr = Terminal()
    with watch_on(stderr)("sales.orders") as progress:
        assert progress is not None
        progress("copy", 0, 12, 0, 16_000_000)
        progress("copy", 3, 12, 4_000_000, 16_000_000)
        progress("rewrite", 1, 2, 0, 0)
    shown = stderr.getvalue()
    assert re.search(r"4\.0 MB of 16\.0 MB, [0-9.]+ .?B/s, [0-9]+ (s|min) left", shown)
    for part in ("sales.orders copy", "3/12", "4.0 MB of 16.0 MB", "sales.orders rewrite", "1/2"):
        assert part in shown
