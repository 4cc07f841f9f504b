from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.fake_app import run_cli

GOOD = """\
source:
  catalog: {name: onprem, type: sql, uri: "sqlite:///src.db", warehouse: file:///lake}
mirror:
  catalog: {name: cloud, type: sql, uri: "sqlite:///dst.db", warehouse: file:///mirror}
  location: file:///mirror
defaults: {schedule: "*/7 * * * *"}
tables:
  - name: sales.orders
    priority: 10
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(GOOD)
    return path


def test_check_of_a_good_file(file: Path) -> None:
    ran = run_cli(f"config check --config {file} --json")
    assert (ran.code, json.loads(ran.out)) == (0, {"table": None, "ok": True, "file": str(file), "problems": []})
    assert run_cli(f"config check --config {file}").out == f"{file}: valid\n"


def test_check_tells_every_problem(file: Path) -> None:
    file.write_text(GOOD.replace("priority", "priorty").replace("*/7 * * * *", "every day"))
    ran = run_cli(f"--json config check --config {file}")
    document = json.loads(ran.out)
    assert ran.code == 2
    assert [problem["where"] for problem in document["problems"]] == [f"{file}:6", f"{file}:9"]
    assert "priority" in json.dumps(document["problems"][1])
    assert document["error"] == {
        "kind": "usage",
        "op": "check config",
        "subject": str(file),
        "message": "2 problems",
        "hint": "correct the lines named above",
    }


def test_check_tells_people_too(file: Path) -> None:
    file.write_text(GOOD.replace("priority", "priorty"))
    ran = run_cli(f"config check --config {file}")
    assert ran.out.startswith(f"{file}:9: ")
    assert "1 problem\n" in ran.err


def test_an_unset_variable_is_a_usage_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKEMIRROR_NEVER_SET", raising=False)
    file.write_text(GOOD.replace("file:///mirror\n", "${LAKEMIRROR_NEVER_SET}\n"))
    for command in ("config check", "config show", "config show sales.orders"):
        ran = run_cli(f"{command} --config {file} --json")
        assert ran.code == 2
        assert "LAKEMIRROR_NEVER_SET" in ran.out


def test_show_of_a_table_names_where_values_come_from(file: Path) -> None:
    ran = run_cli(f"config show sales.orders --config {file} --json")
    document = json.loads(ran.out)
    assert (ran.code, document["table"], document["ok"]) == (0, "sales.orders", True)
    assert document["values"]["priority"] == {"value": 10, "from": f"{file}:9"}
    assert document["values"]["schedule"] == {"value": "*/7 * * * *", "from": f"{file}:6"}
    assert document["values"]["small_change_files"] == {"value": 256, "from": "default"}


def test_show_without_table_and_for_people(file: Path) -> None:
    document = json.loads(run_cli(f"config show --config {file} --json").out)
    assert document["values"]["mirror.location"]["value"] == "file:///mirror"
    lines = run_cli(f"config show --config {file}").out.splitlines()
    assert lines[0].split() == ["key", "value", "from"]
    assert any(line.split()[:2] == ["mirror.location", "file:///mirror"] for line in lines)


def test_show_of_an_unknown_table(file: Path) -> None:
    ran = run_cli(f"config show sales.nope --config {file} --json")
    document = json.loads(ran.out)
    assert (ran.code, document["table"], document["error"]["kind"]) == (2, "sales.nope", "usage")


def test_the_environment_names_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEMIRROR_CONFIG", str(file))
    assert json.loads(run_cli("config check --json").out)["file"] == str(file)
