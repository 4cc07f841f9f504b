import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.services import processes
from dev.services.processes import MARK, Process
from dev.services.trouble import ServicesError

SLEEP = (sys.executable, "-S", "-c", "import time; time.sleep(60)")
STUBBORN = (
    sys.executable,
    "-S",
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)",
)


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path)
    processes.kill_marked(str(tmp_path))


def started(tmp_path: Path, command: tuple[str, ...], stop_timeout_s: float = 10.0) -> Process:
    pid = processes.launch(
        command,
        environment={"PATH": os.environ["PATH"], MARK: str(tmp_path)},
        log=tmp_path / "log",
        folder=tmp_path,
    )
    born = processes.birth(pid)
    assert born is not None
    return Process(pid, born, "f", stop_timeout_s=stop_timeout_s)


def test_a_launched_process_outlives_its_launcher_in_a_session_of_its_own(tmp_path: Path, mark: str) -> None:
    process = started(tmp_path, SLEEP)

    assert process.is_alive
    assert os.getsid(process.pid) != os.getsid(0)
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def test_what_it_says_goes_to_its_log_with_what_was_said_before(tmp_path: Path, mark: str) -> None:
    (tmp_path / "log").write_text("before\n")
    script = "import sys; print('out'); print('err', file=sys.stderr)"

    pid = processes.launch((sys.executable, "-S", "-c", script), environment={}, log=tmp_path / "log", folder=tmp_path)

    deadline = time.monotonic() + 10
    while processes.birth(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted((tmp_path / "log").read_text().split()) == ["before", "err", "out"]


def test_stop_returns_when_it_is_gone_and_its_leavings_with_it(tmp_path: Path, mark: str) -> None:
    socket = tmp_path / "socket"
    socket.touch()
    process = started(tmp_path, SLEEP)

    processes.stop(Process(process.pid, process.born, "f", leaves=(str(socket), str(tmp_path / "never-there"))))

    assert not process.is_alive
    assert not socket.exists()


def test_who_ignores_the_polite_signal_is_killed_after_the_bound(tmp_path: Path, mark: str) -> None:
    process = started(tmp_path, STUBBORN, stop_timeout_s=0.3)
    deadline = time.monotonic() + 10
    while "ready" not in (tmp_path / "log").read_text() and time.monotonic() < deadline:
        time.sleep(0.01)

    begin = time.monotonic()
    processes.stop(process)

    assert not process.is_alive
    assert 0.3 <= time.monotonic() - begin < 5


def test_a_stranger_with_the_same_pid_is_left_alone(tmp_path: Path, mark: str) -> None:
    stranger = started(tmp_path, SLEEP)
    boot, ticks = stranger.born.split()
    ours = Process(stranger.pid, f"{boot} {int(ticks) - 1}", "f")

    assert not ours.is_alive
    processes.stop(ours)

    assert stranger.is_alive


def test_a_process_of_another_boot_is_a_stranger(tmp_path: Path, mark: str) -> None:
    stranger = started(tmp_path, SLEEP)

    assert not Process(stranger.pid, "another-boot " + stranger.born.split()[1], "f").is_alive


def test_a_zombie_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as child:
        deadline = time.monotonic() + 10
        while processes.birth(child.pid) is not None and time.monotonic() < deadline:
            time.sleep(0.01)

        assert Path(f"/proc/{child.pid}").exists()
        assert processes.birth(child.pid) is None


def test_children_and_unrecorded_servers_are_found_by_their_mark(tmp_path: Path, mark: str) -> None:
    script = f"import subprocess; subprocess.run({list(SLEEP)!r})"
    parent = started(tmp_path, (sys.executable, "-S", "-c", script))
    deadline = time.monotonic() + 10
    while len(list(processes.marked(mark))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(parent.pid, signal.SIGKILL)

    killed = processes.kill_marked(mark)

    assert killed
    assert list(processes.marked(mark)) == []


def test_a_mark_is_whole_not_a_beginning(tmp_path: Path, mark: str) -> None:
    process = started(tmp_path, SLEEP)

    assert processes.kill_marked(mark[:-1]) == []
    assert process.is_alive


def test_a_record_survives_the_disk_and_damage_is_no_record(tmp_path: Path) -> None:
    record = tmp_path / "one.json"
    process = Process(1, "boot 2", "f", int(signal.SIGINT), 2.0, ("/a", "/b"))
    process.write(record)

    assert Process.read(record) == process
    assert record.stat().st_mode & 0o777 == 0o600
    for damage in ("", "{", "[]", '{"pid": 1}', '{"pid": 1, "born": "x", "fingerprint": "f", "other": 1}'):
        record.write_text(damage)
        assert Process.read(record) is None
    assert Process.read(tmp_path / "none.json") is None


def test_what_does_not_even_end_by_sigkill_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "KILL_TIMEOUT_S", 0.05)
    monkeypatch.setattr(processes.os, "kill", lambda pid, blow: None)
    born = processes.birth(os.getpid())
    assert born is not None

    with pytest.raises(ServicesError, match="not even by SIGKILL"):
        processes.stop(Process(os.getpid(), born, "f", stop_timeout_s=0.05))
