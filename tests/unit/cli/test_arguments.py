from __future__ import annotations

import pytest

from lakemirror.cli.arguments import Help, Invocation, parse, wants_json
from lakemirror.errors import UsageError


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("status", Invocation("status")),
        ("--json status", Invocation("status", json=True)),
        ("status --json", Invocation("status", json=True)),
        ("--config a.yaml status --config b.yaml", Invocation("status", config="b.yaml")),
        ("--config=a.yaml plan s.t", Invocation("plan", config="a.yaml", tables=("s.t",))),
        ("--config mirror mirror s.t", Invocation("mirror", config="mirror", tables=("s.t",))),
        ("mirror s.t --json s.u --config c", Invocation("mirror", "c", True, ("s.t", "s.u"))),
        ("mirror --all --full-verify", Invocation("mirror", all=True, full_verify=True)),
        ("mirror s.t --snapshot-id 42", Invocation("mirror", tables=("s.t",), snapshot_id=42)),
        ("follow --adopt s.t --overwrite-foreign", Invocation("follow", None, False, ("s.t",), False, True, True)),
        (
            "drop-mirror s.t --yes --overwrite-foreign",
            Invocation("drop-mirror", tables=("s.t",), yes=True, overwrite_foreign=True),
        ),
        ("sync s.b s.a", Invocation("sync", tables=("s.b", "s.a"))),
        ("config check", Invocation("config check")),
        ("config --json check", Invocation("config check", json=True)),
        ("config show s.t", Invocation("config show", tables=("s.t",))),
        ("mirror -- s.t", Invocation("mirror", tables=("s.t",))),
    ],
)
def test_understands(line: str, asked: Invocation) -> None:
    assert parse(line.split()) == asked


@pytest.mark.parametrize(
    ("line", "subject", "message"),
    [
        ("", "lakemirror", "no command given"),
        ("--json", "lakemirror", "no command given"),
        ("mirrr s.t", "'mirrr'", "unknown command"),
        ("inspect s.t", "'inspect'", "unknown command"),
        ("gc status", "'gc'", "unknown command"),
        ("--bogus", "lakemirror", "unrecognized arguments: --bogus"),
        ("mirror s.t --bogus", "lakemirror mirror", "unrecognized arguments: --bogus"),
        ("plan s.t --adopt", "lakemirror plan", "unrecognized arguments: --adopt"),
        ("mirror s.t --full", "lakemirror mirror", "unrecognized arguments: --full"),
        ("mirror s.t --config", "lakemirror mirror", "argument --config: expected one argument"),
        ("mirror s.t --snapshot-id x", "lakemirror mirror", "argument --snapshot-id: invalid int value: 'x'"),
        ("mirror s.t s.u --snapshot-id 4", "mirror", "--snapshot-id goes with exactly one table"),
        ("mirror --all --snapshot-id 4", "mirror", "--snapshot-id goes with exactly one table"),
        ("mirror", "mirror", "no table given"),
        ("follow --adopt", "follow", "no table given"),
        ("mirror s.t --all", "mirror", "both tables and --all are given"),
        ("config", "config", "want `config check` or `config show`"),
        ("config chekc", "config chekc", "want `config check` or `config show`"),
        ("config check s.t", "config check", "takes no table"),
        ("config show s.t s.u", "config show", "takes at most one table"),
    ],
)
def test_refuses(line: str, subject: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line.split())
    assert (caught.value.op, caught.value.subject, caught.value.message) == ("read command line", subject, message)
    assert caught.value.hint


def test_an_unknown_command_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean mirror"):
        parse(["mirrr"])


@pytest.mark.parametrize("line", ["--help", "-h", "--json --help", "--config x -h"])
def test_help_lists_commands_and_exit_codes(line: str) -> None:
    asked = parse(line.split())
    assert isinstance(asked, Help)
    for word in ("config check", "config show", "plan", "mirror", "follow", "sync", "status", "exit codes:", "--json"):
        assert word in asked.text


@pytest.mark.parametrize("line", ["mirror --help", "--help mirror", "mirror s.t -h"])
def test_help_of_a_command_has_its_options(line: str) -> None:
    asked = parse(line.split())
    assert isinstance(asked, Help)
    assert "usage: lakemirror mirror" in asked.text
    assert "--full-verify" in asked.text


@pytest.mark.parametrize(
    ("line", "wanted"),
    [("", False), ("mirror --json", True), ("--json bogus", True), ("mirror -- --json", False), ("--jso", False)],
)
def test_json_is_recognised_in_any_line(line: str, wanted: bool) -> None:
    assert wants_json(line.split()) is wanted
