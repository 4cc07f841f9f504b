"""Starting and stopping, without Airflow: what matters is that nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dev import sessions
from dev.airflow_standalone import PARTS, free_ports, stop_left_over, tail

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
WITH_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {STUBBORN!r}])"


def start(code: str, **env: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE, env={**os.environ, **env}
    )
    assert process.stdout is not None
    with process.stdout as pipe:
        pipe.readline()
    return process


def test_what_was_left_running_in_a_home_is_stopped(tmp_path: Path) -> None:
    process = start("import time; print(1, flush=True); time.sleep(60)", AIRFLOW_HOME=str(tmp_path))
    (tmp_path / "airflow.session").write_text(str(process.pid))
    assert stop_left_over(tmp_path, reap=process.poll)
    assert process.returncode == -signal.SIGTERM
    assert not (tmp_path / "airflow.session").exists()


def test_a_process_that_only_has_the_same_number_is_left_alone(tmp_path: Path) -> None:
    process = start("import time; print(1, flush=True); time.sleep(60)", AIRFLOW_HOME="elsewhere")
    try:
        (tmp_path / "airflow.session").write_text(str(process.pid))
        assert not stop_left_over(tmp_path)
        assert process.poll() is None
        assert not (tmp_path / "airflow.session").exists()
    finally:
        process.kill()
        process.wait(timeout=30)


def test_what_outlived_its_leader_is_found(tmp_path: Path) -> None:
    """Also what is in a process group of its own, and deaf to SIGTERM."""
    child = f"import os; os.setpgid(0, 0); {STUBBORN}"
    leader = start(
        f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}])", AIRFLOW_HOME=str(tmp_path)
    )
    leader.wait(timeout=30)
    (tmp_path / "airflow.session").write_text(str(leader.pid))
    assert sessions.living(leader.pid)
    assert stop_left_over(tmp_path, timeout_s=0.2)
    assert sessions.living(leader.pid) == []


@pytest.mark.parametrize(("dead", "started"), [("triggerer", 5), ("db", 1)])
def test_a_part_that_dies_is_told(tmp_path: Path, dead: str, started: int) -> None:
    """By its exit code, though the others live; without a database none starts."""
    airflow = tmp_path / "airflow"
    log = tmp_path / "log"
    airflow.write_text(f"""#!/bin/sh
echo "$@" >> {log}
if [ "$1" = {dead} ]; then
    until [ "$(wc -l < {log})" -ge {started} ]; do sleep 0.05; done
    exit 3
fi
[ "$1" = db ] || exec sleep 60
""")
    airflow.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    process = subprocess.Popen(["bash", "-c", PARTS], start_new_session=True, env=environment)
    try:
        assert process.wait(timeout=30) == 3
    finally:
        sessions.stop(process.pid, timeout_s=5, reap=process.poll)
    assert len(log.read_text().splitlines()) == started
    assert sessions.living(process.pid) == []


def test_nothing_was_left(tmp_path: Path) -> None:
    assert not stop_left_over(tmp_path)


def test_ports_differ() -> None:
    assert len(set(free_ports(5))) == 5


def test_the_end_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    assert "no" in tail(log)
    log.write_text("\n".join(map(str, range(100))))
    assert tail(log, lines=2) == "98\n99"
