"""Ending all of a session: what matters is that nothing is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from dev import sessions

SLEEPER = "import time; print(1, flush=True); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"
WITH_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {STUBBORN!r}])"
ELSEWHERE = f"import os; os.setpgid(0, 0); {SLEEPER}"
IN_ANOTHER_GROUP = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ELSEWHERE!r}])"
ORPHAN = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}])"


def start(code: str) -> subprocess.Popen[bytes]:
    """Returns when somebody of it has said something."""
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as pipe:
        assert pipe.readline()
    return process


@pytest.mark.parametrize("code", [SLEEPER, STUBBORN, WITH_CHILD, IN_ANOTHER_GROUP, ORPHAN])
def test_all_of_it_ends(code: str) -> None:
    process = start(code)
    assert sessions.living(process.pid)
    sessions.stop(process.pid, timeout_s=0.5, reap=process.poll)
    assert sessions.living(process.pid) == []
    assert process.poll() is not None


def test_it_is_asked_before_it_is_killed() -> None:
    process = start(SLEEPER)
    sessions.stop(process.pid, timeout_s=30, reap=process.poll)
    assert process.returncode == -signal.SIGTERM


def test_some_may_be_left_and_the_leader_goes_first() -> None:
    process = start(WITH_CHILD)
    leader, child = sessions.living(process.pid)
    assert leader == process.pid
    sessions.kill(process.pid, but=(child,), reap=process.poll)
    assert sessions.living(process.pid) == [child]
    sessions.kill(process.pid)
    assert sessions.living(process.pid) == []
    assert process.wait(timeout=30) == -signal.SIGKILL


def test_one_that_is_gone_is_no_trouble() -> None:
    process = start("print(1)")
    process.wait(timeout=30)
    sessions.stop(process.pid, timeout_s=0.5)
    sessions.kill(process.pid)
