"""Whether a process has ended is said only of processes that can be looked at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakemirror.replicate import process
from lakemirror.replicate.process import has_ended, name_of_this_process

TELLS_ITS_NAME = (
    "import sys; from lakemirror.replicate.process import name_of_this_process as name; "
    "print(name(), flush=True); sys.stdin.read()"
)


def test_names_are_never_the_same_and_this_process_lives() -> None:
    one, other = name_of_this_process(), name_of_this_process()
    assert one != other
    assert str(os.getpid()) in one
    assert not has_ended(one)


@pytest.mark.parametrize("name", ["", "run 1", "vm:1", "airflow mirror__a__b manual__1 2026-01-01T00:00:00+00:00"])
def test_of_what_is_no_process_nothing_is_said(name: str) -> None:
    assert not has_ended(name)


def test_of_a_process_elsewhere_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    host, pid, rest = name_of_this_process().split(":")
    assert has_ended(f"{host}:{4_000_000_000}:{rest}")
    assert not has_ended(f"{host}:{pid}:ffffffff.{rest.partition('.')[2]}")
    monkeypatch.setattr(process, "_machine", lambda: "0" * 8)
    assert not has_ended(f"{host}:{4_000_000_000}:00000000.{rest.partition('.')[2]}")


def test_another_process_of_the_same_number_is_another() -> None:
    host, pid, rest = name_of_this_process().split(":")
    machine, start, chance = rest.split(".")
    assert has_ended(f"{host}:{pid}:{machine}.{int(start) - 1}.{chance}")


def test_a_stopped_process_lives_and_a_killed_one_does_not() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TELLS_ITS_NAME], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            name = child.stdout.readline().strip()
            assert not has_ended(name)
            child.send_signal(signal.SIGSTOP)
            assert not has_ended(name)
        finally:
            child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, but not buried
        assert has_ended(name)
    assert has_ended(name)


def hide(monkeypatch: pytest.MonkeyPatch, pid: int, err: OSError, *, answers: OSError | None) -> None:
    """What /proc mounted with hidepid shows of another user's process; signals are no part of that."""
    read_text = Path.read_text

    def hidden(path: Path, *args: Any, **options: Any) -> str:
        if path == Path(f"/proc/{pid}/stat"):
            raise err
        return read_text(path, *args, **options)

    def kill(number: int, signal_number: int) -> None:
        assert (number, signal_number) == (pid, 0), "nobody is to be harmed"
        if answers is not None:
            raise answers

    monkeypatch.setattr(Path, "read_text", hidden)
    monkeypatch.setattr(os, "kill", kill)


@pytest.mark.parametrize(
    ("seen", "answers", "want"),
    [
        pytest.param(PermissionError(), PermissionError(), False, id="hidepid=1"),
        pytest.param(FileNotFoundError(), PermissionError(), False, id="hidepid=2, of another user"),
        pytest.param(FileNotFoundError(), None, False, id="hidepid=2, of this user"),
        pytest.param(FileNotFoundError(), ProcessLookupError(), True, id="there is none"),
        pytest.param(ProcessLookupError(), ProcessLookupError(), True, id="it ended while it was looked at"),
    ],
)
def test_of_a_process_that_is_hidden_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, seen: OSError, answers: OSError | None, want: bool
) -> None:
    host, _, rest = name_of_this_process().split(":")
    hide(monkeypatch, 4321, seen, answers=answers)
    assert has_ended(f"{host}:4321:{rest}") is want
