"""What only a real process shows: imports, descriptors, pipes, the shell wrapper."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
WRAPPER = PROJECT / "bin" / "lakemirror"
SLOW = ("pyiceberg", "pyarrow", "obstore", "pyspark", "airflow", "pydantic", "rich", "typer", "sqlalchemy", "yaml")


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_help_loads_nothing_slow() -> None:
    code = (
        "import io, sys\n"
        "from lakemirror.cli.main import run\n"
        "assert run(['--help'], stdout=io.StringIO(), stderr=sys.stderr) == 0\n"
        f"print(sorted(set({SLOW!r}) & set(sys.modules)))\n"
    )
    ran = run_python(code)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")


def test_what_else_prints_does_not_reach_stdout_with_json() -> None:
    code = (
        "import os, subprocess, sys\n"
        "import lakemirror.cli.__main__ as entry\n"
        "def noisy(argv, *, stdout, stderr, ctrl_c):\n"
        "    print('from python')\n"
        "    subprocess.run(['echo', 'from a child'])\n"
        "    stdout.write('{}')\n"
        "    return 4\n"
        "entry.run = noisy\n"
        "sys.argv = ['lakemirror', 'status', '--json']\n"
        "sys.exit(entry.main())\n"
    )
    ran = run_python(code)
    assert (ran.returncode, ran.stdout) == (4, "{}")
    assert sorted(ran.stderr.split("\n")) == ["", "from a child", "from python"]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_that_leaves_is_no_failure(options: list[str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "lakemirror.cli", "--help", *options],
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write_end)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_ctrl_c_is_noticed_whoever_catches_it() -> None:
    code = (
        "import os, signal\n"
        "from lakemirror.cli.interrupts import noticing_ctrl_c\n"
        "with noticing_ctrl_c(leave=lambda: os._exit(1)) as ctrl_c:\n"
        "    print(ctrl_c.was_pressed())\n"
        "    signal.signal(signal.SIGINT, lambda *_: None)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print(ctrl_c.was_pressed(), ctrl_c.was_pressed())\n"
    )
    ran = run_python(code)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "False\nTrue True\n", "")


def test_a_command_that_cannot_end_by_itself_is_ended() -> None:
    code = (
        "import os, signal, threading\n"
        "from lakemirror.cli.interrupts import noticing_ctrl_c\n"
        "with noticing_ctrl_c(leave=lambda: os._exit(130), grace_s=0.05) as ctrl_c:\n"
        "    ctrl_c.last_word = lambda: print('stopped', flush=True)\n"
        "    signal.signal(signal.SIGINT, lambda *_: None)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    threading.Event().wait()\n"
    )
    ran = run_python(code)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "stopped\n", "")


def test_the_wrapper_works_from_anywhere_and_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "lm").symlink_to(WRAPPER)
    (tmp_path / "json.py").write_text("raise RuntimeError('the folder one stands in must not be imported from')")
    ran = subprocess.run(
        [tmp_path / "lm", "bogus", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (2, "")
    assert json.loads(ran.stdout)["error"]["message"] == "unknown command"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_before_setup_the_wrapper_says_what_to_do(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy(WRAPPER, tmp_path / "bin" / "lakemirror")
    ran = subprocess.run(
        [tmp_path / "bin" / "lakemirror", "status", *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 2
    assert ran.stderr == f"lakemirror is not set up yet: run 'make setup' in {tmp_path}\n"
    if options:
        assert json.loads(ran.stdout)["error"]["kind"] == "usage"
    else:
        assert ran.stdout == ""
