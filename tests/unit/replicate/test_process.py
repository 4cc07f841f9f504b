"""Whether a process has ended is said only of processes that can be looked at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

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
