from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

from dev.demo.home import DemoHome
from dev.demo.teller import Teller
from dev.demo.trouble import readable_tail, task_log
from dev.shop import TABLES
from lakemirror.config.loader import check_config, load_config

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "demo.py"


def test_the_demo_has_a_valid_configuration(tmp_path: Path) -> None:
    home = DemoHome(tmp_path)
    home.write_config()
    assert check_config(home.config) == []
    assert [str(table) for table in load_config(home.config).exact_tables()] == list(TABLES)


def test_a_fresh_home_is_empty(tmp_path: Path) -> None:
    home = DemoHome(tmp_path / "home")
    home.source.create()
    home.clear()
    assert not home.folder.exists()


def test_every_line_says_when() -> None:
    out, times = io.StringIO(), iter([100.0, 112.34])
    teller = Teller(out, clock=lambda: next(times))
    teller.tell("up")
    teller.detail("one\ntwo")
    assert out.getvalue() == "  12.3 s  up\n          one\n          two\n"


def test_a_task_log_is_readable(tmp_path: Path) -> None:
    task = {"dag_id": "d", "dag_run_id": "r", "task_id": "t", "try_number": 2}
    log = task_log(tmp_path, task)
    assert readable_tail(log) == "(the task left no log)"
    log.parent.mkdir(parents=True)
    error = {"level": "error", "event": "Task failed", "error_detail": [{"exc_type": "KeyError", "exc_value": "'x'"}]}
    log.write_text("\n".join(["not json", json.dumps({"level": "info", "event": "copied 3 files"}), json.dumps(error)]))
    assert readable_tail(log).splitlines() == [
        "not json",
        "info    copied 3 files",
        "error   Task failed",
        "        KeyError: 'x'",
    ]
    assert readable_tail(log, lines=1) == "        KeyError: 'x'"


def test_another_profile_is_refused_in_one_sentence() -> None:
    command = [sys.executable, str(SCRIPT), "--profile", "nowhere"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "make demo: no profile nowhere; there are embedded and services\n"
