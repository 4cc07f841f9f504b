from __future__ import annotations

import json
from typing import Any

import pytest

from lakemirror.cli.interrupts import CtrlC
from lakemirror.errors import LostRaceError, PermanentError, TransientError, UsageError, VerificationError
from tests.unit.cli.fake_app import ITEMS, ORDERS, FakeApp, Pressed, run_cli, status_result

RACE = LostRaceError("publish", "sales.orders", "v8 was taken", "run it again")
RACE_JSON = {
    "kind": "transient",
    "op": "publish",
    "subject": "sales.orders",
    "message": "v8 was taken",
    "hint": "run it again",
}
NO_REQUESTS = {"get": 0, "head": 0, "list": 0, "put": 0, "copy": 0, "delete": 0}
UNKNOWN = {
    "kind": "usage",
    "op": "find table",
    "subject": "sales.nope",
    "message": "not in the configuration",
    "hint": "add it under tables:",
}


def mirror_json(table: str) -> dict[str, Any]:
    return {
        "table": table,
        "ok": True,
        "version": 8,
        "snapshot_id": "8830",
        "lane": "spark",
        "copied_files": 300,
        "copied_bytes": 2_500_000,
        "skipped_files": 4,
        "rewritten": {"manifests": 2, "manifest_lists": 1, "delete_files": 0, "puffins": 0},
        "requests": {"source": {**NO_REQUESTS, "get": 5}, "mirror": {**NO_REQUESTS, "put": 9, "head": 1}},
        "seconds": {
            "detect": 0.1,
            "plan": 0.0,
            "copy": 2.0,
            "rewrite": 0.0,
            "verify": 0.0,
            "publish": 0.0,
            "total": 2.346,
        },
        "copied_bytes_per_s": 1_250_000,
        "marker": "file:///mirror/_ready/v8.ready.json",
        "left_out": [],
        "reason": None,
    }


def follow_json(table: str) -> dict[str, Any]:
    return {
        "table": table,
        "ok": True,
        "version": 8,
        "snapshot_id": "8830",
        "committed": True,
        "seconds": {"total": 0.25},
        "warnings": [],
    }


def failed_json(table: str | None, error: dict[str, str], **facts: Any) -> dict[str, Any]:
    return {"table": table, "ok": False, **facts, "error": error}


def test_plan() -> None:
    ran = run_cli("plan sales.orders --json")
    assert ran.code == 0
    assert json.loads(ran.out) == {
        "table": "sales.orders",
        "ok": True,
        "from_version": 7,
        "to_snapshot_id": "8830",
        "files": 3,
        "bytes": 3_000_000,
        "manifest_lists_read": 1,
        "manifests_read": 2,
        "manifests_reused": 998,
        "lane": "task",
    }


def test_mirror_of_one_table_is_an_object() -> None:
    app = FakeApp()
    ran = run_cli("--json --config c.yaml mirror sales.orders --snapshot-id 12 --full-verify", app)
    assert (ran.code, json.loads(ran.out), ran.err) == (0, mirror_json("sales.orders"), "")
    options = {"target_snapshot_id": 12, "full_verify": True, "progress": None}
    assert app.calls == [("load", "c.yaml"), ("mirror", "sales.orders", options)]
    assert app.is_closed


def test_several_tables_answer_in_the_order_given() -> None:
    ran = run_cli("mirror sales.orders sales.items --json")
    assert (ran.code, json.loads(ran.out)) == (0, [mirror_json("sales.orders"), mirror_json("sales.items")])


def test_all_tables_answer_by_name_in_a_list() -> None:
    ran = run_cli("mirror --all --json", FakeApp(known=(ORDERS, ITEMS)))
    assert (ran.code, json.loads(ran.out)) == (0, [mirror_json("sales.items"), mirror_json("sales.orders")])


def test_all_of_one_table_is_a_list_still() -> None:
    ran = run_cli("mirror --all --json", FakeApp(known=(ORDERS,)))
    assert json.loads(ran.out) == [mirror_json("sales.orders")]


def test_all_of_no_table_is_an_empty_list() -> None:
    ran = run_cli("mirror --all --json", FakeApp(known=()))
    assert (ran.code, json.loads(ran.out)) == (0, [])


def test_follow_hands_its_options_on() -> None:
    app = FakeApp()
    ran = run_cli("follow sales.orders --adopt --overwrite-foreign --json", app)
    assert (ran.code, json.loads(ran.out)) == (0, follow_json("sales.orders"))
    assert app.calls[1:] == [("follow", "sales.orders", {"adopt": True, "overwrite_foreign": True})]


def test_sync_is_mirror_then_follow() -> None:
    app = FakeApp()
    ran = run_cli("sync sales.orders --json", app)
    assert ran.code == 0
    assert json.loads(ran.out) == {
        "table": "sales.orders",
        "ok": True,
        "mirror": mirror_json("sales.orders"),
        "follow": follow_json("sales.orders"),
    }
    assert [call[0] for call in app.calls] == ["load", "mirror", "follow"]


def test_sync_stops_when_mirror_fails() -> None:
    app = FakeApp({("mirror", "sales.orders"): RACE})
    ran = run_cli("sync sales.orders --json", app)
    assert ran.code == 5
    assert json.loads(ran.out) == failed_json("sales.orders", RACE_JSON, mirror=None, follow=None)
    assert [call[0] for call in app.calls] == ["load", "mirror"]


def test_sync_keeps_what_mirror_did_when_follow_fails() -> None:
    ran = run_cli("sync sales.orders --json", FakeApp({("follow", "sales.orders"): RACE}))
    assert json.loads(ran.out) == failed_json(
        "sales.orders", RACE_JSON, mirror=mirror_json("sales.orders"), follow=None
    )


def test_status() -> None:
    ran = run_cli("status sales.orders --json")
    assert ran.code == 0
    assert json.loads(ran.out) == {
        "table": "sales.orders",
        "ok": True,
        "epoch": "11111111-2222-3333-4444-555555555555",
        "source": {"snapshot_id": "8830", "committed_at": "2026-01-02T03:04:05.678Z", "state": "ok"},
        "mirror": {"version": 8, "snapshot_id": "8830", "visible_at": "2026-01-02T03:04:05.678Z", "state": "ok"},
        "lag_s": 0.0,
        "latency_s": 12.5,
        "backlog_files": 0,
        "backlog_bytes": 0,
        "level": None,
        "markers": {"ready": [7, 8], "in_progress": []},
        "problem": None,
        "catalog": None,
        "warnings": [],
    }


def test_status_without_tables_is_about_all() -> None:
    ran = run_cli("status --json")
    assert [document["table"] for document in json.loads(ran.out)] == ["sales.items", "sales.orders"]


@pytest.mark.parametrize(
    "changes",
    [{"lag_s": 12.0}, {"source_state": "dropped"}, {"mirror_state": "foreign"}, {"mirror_state": "missing"}],
    ids=str,
)
def test_status_that_finds_something_exits_3(changes: dict[str, Any]) -> None:
    found = status_result(ORDERS, **changes)
    assert run_cli("status --json", FakeApp({("status", "sales.orders"): found})).code == 3


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PermanentError("copy", "x", "no"), 1),
        (TransientError("copy", "x", "no"), 1),
        (UsageError("copy", "x", "no"), 2),
        (VerificationError("verify", "x", "no"), 4),
        (RACE, 5),
    ],
)
def test_one_failed_table_decides_the_exit_code(error: Exception, code: int) -> None:
    assert run_cli("mirror sales.orders --json", FakeApp({("mirror", "sales.orders"): error})).code == code


def test_one_tables_failure_does_not_stop_the_others() -> None:
    ran = run_cli("mirror sales.orders sales.items --json", FakeApp({("mirror", "sales.orders"): RACE}))
    assert ran.code == 3
    assert json.loads(ran.out) == [failed_json("sales.orders", RACE_JSON), mirror_json("sales.items")]


def test_an_unknown_table() -> None:
    ran = run_cli("mirror sales.nope --json")
    assert (ran.code, json.loads(ran.out)) == (2, failed_json("sales.nope", UNKNOWN))


def test_an_unknown_table_among_known_ones() -> None:
    ran = run_cli("mirror sales.nope sales.items --json")
    assert (ran.code, json.loads(ran.out)) == (3, [failed_json("sales.nope", UNKNOWN), mirror_json("sales.items")])


@pytest.mark.parametrize("command", ["mirror --all", "status"])
def test_names_that_match_but_cannot_be_mirrored_are_told_among_all(command: str) -> None:
    ran = run_cli(f"{command} --json", FakeApp(refused=("sales.a/b", "sales.z/z")))
    documents = json.loads(ran.out)
    assert ran.code == 3
    assert [(one["table"], one["ok"]) for one in documents] == [
        ("sales.a/b", False),
        ("sales.items", True),
        ("sales.orders", True),
        ("sales.z/z", False),
    ]
    assert documents[0]["error"]["kind"] == "usage"


def test_names_that_cannot_be_mirrored_do_not_disturb_who_asked_for_others() -> None:
    ran = run_cli("mirror sales.orders --json", FakeApp(refused=("sales.a/b",)))
    assert (ran.code, json.loads(ran.out)) == (0, mirror_json("sales.orders"))


def test_a_broken_configuration_is_told_for_each_table_named() -> None:
    broken = UsageError("load config", "c.yaml:3", "SECRET is not set", "export SECRET")
    ran = run_cli("mirror sales.orders sales.items --json", broken)
    assert ran.code == 2
    assert json.loads(ran.out) == [
        failed_json("sales.orders", broken.as_json()),
        failed_json("sales.items", broken.as_json()),
    ]


def test_a_broken_configuration_with_no_table_named() -> None:
    broken = UsageError("load config", "c.yaml:3", "SECRET is not set", "export SECRET")
    ran = run_cli("status --json", broken)
    assert (ran.code, json.loads(ran.out)) == (2, [failed_json(None, broken.as_json())])


def test_an_unreachable_catalog_when_all_are_asked_for() -> None:
    app = FakeApp(listing=TransientError("list tables", "onprem", "timed out", "try again"))
    ran = run_cli("mirror --all --json", app)
    assert ran.code == 1
    assert json.loads(ran.out)[0]["error"]["message"] == "timed out"
    assert app.is_closed


def test_a_defect_is_a_permanent_error_with_its_traceback_on_stderr() -> None:
    app = FakeApp({("mirror", "sales.orders"): ZeroDivisionError("oops")})
    ran = run_cli("mirror sales.orders sales.items --json", app)
    assert ran.code == 3
    defect = {
        "kind": "permanent",
        "op": "internal",
        "subject": "sales.orders",
        "message": "ZeroDivisionError: oops",
        "hint": "this is a defect of lakemirror: report it with the traceback",
    }
    assert json.loads(ran.out) == [failed_json("sales.orders", defect), mirror_json("sales.items")]
    assert "Traceback (most recent call last)" in ran.err


def test_a_defect_while_loading() -> None:
    ran = run_cli("mirror sales.orders --json", ZeroDivisionError("oops"))
    assert (ran.code, json.loads(ran.out)["error"]["op"]) == (1, "internal")


def test_ctrl_c_reports_what_was_done_and_marks_the_rest() -> None:
    app = FakeApp({("mirror", "sales.items"): KeyboardInterrupt()})
    ran = run_cli("mirror sales.orders sales.items --json", app)
    stopped = {
        "kind": "transient",
        "op": "interrupt",
        "subject": "sales.items",
        "message": "stopped by Ctrl-C",
        "hint": "run it again: it goes on where it was",
    }
    assert ran.code == 130
    assert json.loads(ran.out) == [mirror_json("sales.orders"), failed_json("sales.items", stopped)]
    assert "Traceback" not in ran.err
    assert app.is_closed


@pytest.mark.parametrize("command", ["mirror", "sync"])
@pytest.mark.parametrize("family", [RuntimeError, TransientError])
def test_ctrl_c_is_seen_behind_the_error_that_took_its_place(command: str, family: type[Exception]) -> None:
    app = FakeApp({("mirror", "sales.orders"): family("run", "job 0", "cancelled")})
    ran = run_cli(f"{command} sales.orders sales.items --json", app, ctrl_c=Pressed())
    assert ran.code == 130
    assert [one["error"]["op"] for one in json.loads(ran.out)] == ["interrupt", "interrupt"]
    assert "Traceback" not in ran.err


def test_a_table_that_ended_well_despite_ctrl_c_is_the_last() -> None:
    ran = run_cli("mirror sales.orders sales.items --json", ctrl_c=Pressed())
    first, second = json.loads(ran.out)
    assert (ran.code, first, second["error"]["op"]) == (130, mirror_json("sales.orders"), "interrupt")


def test_the_last_word_tells_what_is_done_so_far_and_nothing_is_said_twice() -> None:
    ctrl_c = CtrlC()
    app = FakeApp({("mirror", "sales.items"): lambda: ctrl_c.last_word()})
    ran = run_cli("mirror sales.orders sales.items --json", app, ctrl_c)
    first, second = json.loads(ran.out)
    assert (first, second["error"]["op"]) == (mirror_json("sales.orders"), "interrupt")


def test_only_the_first_line_of_a_defect_is_its_message() -> None:
    app = FakeApp({("mirror", "sales.orders"): RuntimeError("short\nlong\nlonger")})
    ran = run_cli("mirror sales.orders --json", app)
    assert json.loads(ran.out)["error"]["message"] == "RuntimeError: short"
    assert "longer" in ran.err


def test_help_with_json_is_json() -> None:
    ran = run_cli("mirror --help --json")
    assert ran.code == 0
    assert json.loads(ran.out)["help"].startswith("usage: lakemirror mirror")


BAD_LINES = [
    "",
    "bogus",
    "mirror",
    "mirror --bogus",
    "mirror sales.orders --all",
    "mirror sales.nope",
    "mirror sales.nope sales.neither",
    "mirror notatable",
    "mirror sales.orders --snapshot-id x",
    "mirror sales.orders --config",
    "mirror --config --all",
    "plan",
    "follow",
    "follow sales.orders --adpot",
    "sync",
    "status sales.nope",
    "config",
    "config bogus",
    "config check extra",
    "config show a.b c.d",
    "config check --config /nowhere/at/all.yaml",
    "config show --config /nowhere/at/all.yaml",
    "config show a.b --config /nowhere/at/all.yaml",
    "inspect sales.orders",
    "verify sales.orders --level l0",
    "reconcile",
    "gc status",
    "drop-mirror sales.orders",
    "cache stats",
]


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("line", BAD_LINES)
def test_with_json_a_bad_line_is_one_json_document_and_exit_2(line: str, place: str) -> None:
    ran = run_cli(f"--json {line}" if place == "before" else f"{line} --json")
    document = json.loads(ran.out)
    for one in document if isinstance(document, list) else [document]:
        assert one["ok"] is False
        assert "table" in one
        assert one["error"]["kind"] == "usage"
        assert set(one["error"]) == {"kind", "op", "subject", "message", "hint"}
    assert ran.code == 2


@pytest.mark.parametrize("line", BAD_LINES)
def test_without_json_a_bad_line_is_told_on_stderr(line: str) -> None:
    ran = run_cli(line)
    assert ran.code == 2
    assert "why" in ran.err
    assert "Traceback" not in ran.err
