from __future__ import annotations

import io
from dataclasses import replace

import pytest

from lakemirror.catalogs.abilities import CatalogAbilities
from lakemirror.cli.outcome import Answer, Outcome
from lakemirror.cli.text import write_answer
from lakemirror.errors import PermanentError, TransientError
from tests.unit.cli.fake_app import ITEMS, ORDERS, FakeApp, follow_result, mirror_result, run_cli, status_result


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_mirror_is_one_aligned_table() -> None:
    ran = run_cli("mirror --all")
    assert ran.out.splitlines() == [
        "table         version  snapshot  lane   files   bytes  skipped  seconds",
        "sales.items        v8      8830  spark    300  2.5 MB        4      2.3",
        "sales.orders       v8      8830  spark    300  2.5 MB        4      2.3",
    ]


def test_plan() -> None:
    assert run_cli("plan sales.orders").out.splitlines() == [
        "table         from  to snapshot  lane  files   bytes  lists read  manifests read  reused",
        "sales.orders    v7         8830  task      3  3.0 MB           1               2     998",
    ]


def test_sync() -> None:
    assert run_cli("sync sales.orders").out.splitlines() == [
        "table         version  snapshot  lane   files   bytes  skipped  mirror s  committed  follow s",
        "sales.orders       v8      8830  spark    300  2.5 MB        4       2.3  yes             0.2",
    ]


def test_follow() -> None:
    assert run_cli("follow sales.orders").out.splitlines() == [
        "table         version  snapshot  committed  seconds",
        "sales.orders       v8      8830  yes            0.2",
    ]


def test_status_shows_what_does_not_exist_yet_as_a_dash() -> None:
    nothing = status_result(
        ORDERS,
        source_state=None,
        mirror_state="missing",
        mirror_version=None,
        lag_s=None,
        latency_s=None,
        backlog_files=None,
        ready=(),
        in_progress=(3, 4),
    )
    ran = run_cli("status", FakeApp({("status", "sales.orders"): nothing}))
    assert ran.code == 3
    assert ran.out.splitlines() == [
        "table         source  snapshot  mirror   version  lag s  took s  backlog       ready  in progress",
        "sales.items   ok          8830  ok            v8    0.0    12.5  0 files, 0 B  v8     -",
        "sales.orders  -              -  missing        -      -       -  -             -      3, 4",
    ]


def test_what_was_left_out_is_told_under_the_table() -> None:
    result = replace(mirror_result(ORDERS), left_out=("ref audit: snapshot 12 is gone",))
    told = "sales.orders: left out: ref audit: snapshot 12 is gone"
    app = FakeApp({("mirror", "sales.orders"): result})
    assert run_cli("mirror sales.orders", app).out.splitlines()[2:] == [told]
    assert run_cli("sync sales.orders", app).out.splitlines()[2:] == [told]


def test_a_problem_of_a_status_is_told_under_the_table() -> None:
    error = PermanentError("read metadata", "s3://lake/v7.metadata.json", "not readable", "the file is damaged")
    result = status_result(ORDERS, problem=error.as_json())
    ran = run_cli("status", FakeApp({("status", "sales.orders"): result}))
    assert ran.code == 3
    assert ran.out.splitlines()[3:] == [
        "sales.orders: problem: read metadata s3://lake/v7.metadata.json: not readable; the file is damaged"
    ]


def test_what_the_catalog_can_do_is_told_once() -> None:
    can = CatalogAbilities("blms", "updates", has_namespace_levels=False, has_whole_swap=None, formats=(2, 3))
    can = replace(can, preview_formats=(3,), max_metadata_bytes=1_000_000)
    told = {"catalog": can.as_json(), "warnings": can.warnings({"format-version": 3})}
    asked = [status_result(table, **told) for table in (ITEMS, ORDERS)]
    app = FakeApp({("status", str(one.table)): one for one in asked})
    assert run_cli("status", app).out.splitlines()[3:] == [
        "sales.items: warning: format version 3 is a preview on catalogs of type blms",
        "sales.orders: warning: format version 3 is a preview on catalogs of type blms",
        "mirror catalog: blms: commits by requirements and updates; whole swap not told, register yes, drop yes, "
        "nested namespaces no, multi-table commit no, idempotency keys no; formats v2, v3 (preview); "
        "metadata up to 1000000 bytes",
    ]


def test_an_error_is_one_block_on_stderr() -> None:
    error = TransientError("copy object", "file:///lake/[red]a.parquet", "reset\nby peer", "run it again")
    error.add_note("gave up after 8 tries")
    ran = run_cli("mirror sales.orders", FakeApp({("mirror", "sales.orders"): error}))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines() == [
        "sales.orders: copy object failed (running it again may succeed)",
        "  on    file:///lake/[red]a.parquet",
        "  why   reset\\nby peer",  # what others wrote cannot begin a line of its own
        "  also  gave up after 8 tries",
        "  next  run it again",
    ]


def test_good_tables_are_shown_beside_failed_ones() -> None:
    app = FakeApp({("mirror", "sales.orders"): PermanentError("plan", "sales.orders", "format v3")})
    ran = run_cli("mirror --all", app)
    assert ran.code == 3
    assert [line.split()[0] for line in ran.out.splitlines()] == ["table", "sales.items"]
    assert ran.err.splitlines() == ["sales.orders: plan failed", "  on    sales.orders", "  why   format v3"]


def test_on_a_terminal_of_a_hundred_columns_nothing_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    result = replace(mirror_result(ORDERS), snapshot_id=8_440_926_975_532_398_619)
    out = Terminal()
    outcome = Outcome("sales.orders", {"mirror": result.as_json(), "follow": follow_result(ORDERS).as_json()})
    write_answer(Answer("sync", (outcome,), is_single=True), out, out)
    assert [line.split()[0] for line in out.getvalue().splitlines() if "─" not in line][1:] == ["sales.orders"]
    assert "8440926975532398619" in out.getvalue()


def test_a_configuration_without_tables() -> None:
    assert run_cli("status", FakeApp(known=())).out == "the configuration has no table\n"


def test_values_are_never_taken_for_markup_nor_cut() -> None:
    long_name = "[bold]" + "x" * 150
    result = replace(status_result(ORDERS), source_state=long_name)  # type: ignore[arg-type]  # hostile on purpose
    ran = run_cli("status sales.orders", FakeApp({("status", "sales.orders"): result}))
    assert long_name in ran.out
