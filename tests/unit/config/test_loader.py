"""From a file to a configuration or to all its problems, each with line, message and hint."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lakemirror.config.cache import CacheConfig
from lakemirror.config.document import MAX_FILE_BYTES
from lakemirror.config.knobs import Knobs
from lakemirror.config.loader import check_config, load_config
from lakemirror.config.problems import Problem
from lakemirror.config.sections import SparkConfig
from lakemirror.errors import UsageError
from tests.unit.config.conftest import MIRROR, Files

_DURATION = 'want a duration: seconds, or like "15m", "24h", "7d"'
_BYTES = 'want a number of bytes: a whole number, or like "256 MB", "1 GiB"'


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # unknown keys: the nearest known one
        ("defaults: {k_mim: 5}", "unknown key `k_mim` in `defaults`; did you mean `k_min`?"),
        ("defaults: {gc: {grace: 5}}", "unknown key `grace` in `defaults.gc`; the nearest known key is `sot_gc_grace`"),
        ("defaults: {Mode: A}", "unknown key `Mode` in `defaults`; did you mean `mode`?"),
        ("sparc: {}", "unknown key `sparc`; did you mean `spark`?"),
        ("zzz: 1", "unknown key `zzz`; the nearest known key is `tables`"),
        ("k_min: 5", "unknown key `k_min`; it belongs under `defaults` or an entry of `tables`"),
        ("defaults: {trash: true}", "unknown key `trash` in `defaults`; it belongs under `gc`"),
        ("defaults: {conn_id: x}", "unknown key `conn_id` in `defaults`; it belongs under `spark`"),
        ("tables: [{name: a.b, schedul: x}]", "unknown key `schedul` in `tables[0]`; did you mean `schedule`?"),
        ("tables: [{name: a.b, gc: {trsh: 1}}]", "unknown key `trsh` in `tables[0].gc`; did you mean `trash`?"),
        (
            "cache: {max_external_cache_loader_thread_pool_size: 5}",
            "unknown key `max_external_cache_loader_thread_pool_size` in `cache`; "
            "`unified_cache_loader_thread_pool_size` took its place",
        ),
        # wrong values
        ("defaults: {k_min: many}", "`defaults.k_min`: want a whole number, got 'many'"),
        ("defaults: {k_min: 1.5}", "`defaults.k_min`: want a whole number, got 1.5"),
        ("defaults: {k_min: yes}", "`defaults.k_min`: want a number, got true"),
        ("defaults: {k_min: }", "`defaults.k_min`: want a whole number, got nothing"),
        ("defaults: {k_min: -1}", "`defaults.k_min`: want at least 0, got -1"),
        ("defaults: {k_min: [1]}", "`defaults.k_min`: want a whole number, got a list"),
        ("defaults: {p: 2}", "`defaults.p`: want at most 1, got 2"),
        ("defaults: {p: .nan}", "`defaults.p`: want at most 1, got nan"),
        ("defaults: {p: x}", "`defaults.p`: want a number, got 'x'"),
        ("defaults: {rate_limit: 0}", "`defaults.rate_limit`: want more than 0, got 0"),
        ("defaults: {peak_bandwidth_bytes_per_s: 0}", "`defaults.peak_bandwidth_bytes_per_s`: want at least 1, got 0"),
        ("defaults: {critical: maybe}", "`defaults.critical`: want true or false, got 'maybe'"),
        ("defaults: {group: 5}", "`defaults.group`: want text, got 5; quote it"),
        ("defaults: {mode: D}", "`defaults.mode`: want A, B or C, got 'D'"),
        (
            "defaults: {follow_trigger: assets}",
            "`defaults.follow_trigger`: want asset, sensor, bucket, pubsub or sqs, got 'assets'; did you mean asset?",
        ),
        ("defaults: {on_source_rollback: no}", "`defaults.on_source_rollback`: want follow or stop, got false"),
        ("defaults: {retry_delay_seconds: soon}", f"`defaults.retry_delay_seconds`: {_DURATION}, got 'soon'"),
        ("defaults: {gc: {cloud_gc_grace: 7 days}}", f"`defaults.gc.cloud_gc_grace`: {_DURATION}, got '7 days'"),
        ("defaults: {bin_bytes: 1G}", f"`defaults.bin_bytes`: {_BYTES}, got '1G'; GB is decimal, GiB is binary"),
        ("defaults: {gc: 5}", "`defaults.gc`: want a map, got 5"),
        ("defaults: []", "`defaults`: want a map, got a list"),
        (
            'defaults: {schedule: "99 * * * *"}',
            "`defaults.schedule`: want a schedule with minute in 0–59, got '99 * * * *'; write it like \"*/5 * * * *\"",
        ),
        ("tables: {name: a.b}", "`tables`: want a list, got a map"),
        ("tables: [a.b]", "`tables[0]`: want a map, got 'a.b'"),
        ("tables: [{name: 5}]", "`tables[0].name`: want text, got 5; quote it"),
        ("tables: [{match: ''}]", "`tables[0].match`: want some text, got ''"),
        ("tables: [{match: x, exclude: y}]", "`tables[0].exclude`: want a list, got 'y'"),
        (
            "tables: [{name: 'a.*'}]",
            "`tables[0].name`: want the exact name of a table, got 'a.*'; write `match:` for a pattern",
        ),
        (
            "tables: [{name: orders}]",
            "`tables[0].name`: want a table name, <namespace>.<table>, got 'orders'; want <namespace>.<table>",
        ),
        (
            "tables: [{name: sales._x}]",
            "`tables[0].name`: want a table name, <namespace>.<table>, got 'sales._x'; "
            "'_x' cannot be a folder of the mirror",
        ),
        ("spark: {master: ''}", "`spark.master`: want some text, got ''"),
        ("spark: {conf: {a: {b: c}}}", "`spark.conf.a`: want text, got a map"),
        ("spark: {conf: {a: }}", "`spark.conf.a`: want text, got nothing"),
        (
            "state: {uri: mysql://h/db}",
            "`state.uri`: want the address of a SQLite or PostgreSQL database, got 'mysql://h/db'",
        ),
        (
            "state: {uri: state.db}",
            "`state.uri`: want an address with a scheme, got 'state.db'; a SQLite file is written sqlite:///path",
        ),
        ("state:", "`state`: want a map, got nothing; fill it in, or remove the key"),
        ("source:", "`source`: want a map, got nothing; fill it in, or remove the key"),
        ("source: {}", "`source.catalog` is required"),
        ("source: {catalog: {type: sql, uri: 'sqlite:///x'}}", "`source.catalog.name` is required"),
        ("source: {catalog: {name: x, type: sql}}", "`source.catalog.uri` is required for type sql"),
        (
            "source: {catalog: {name: x, type: dlf}}",
            "`source.catalog.type`: want sql, rest, hive or glue, got 'dlf'; DLF catalogs are not supported",
        ),
        (
            "source: {catalog: {name: x, type: sqll, uri: 'sqlite:///x'}}",
            "`source.catalog.type`: want sql, rest, hive or glue, got 'sqll'; did you mean sql?",
        ),
        ("source: {catalog: {name: x, type: glue, auth: {type: y}}}", "`source.catalog.auth`: want text, got a map"),
        (
            "source: {catalog: {name: x, type: glue}, roots: [{name: a/b, from: s3://c}]}",
            "`source.roots[0].name`: want a name of letters, digits, `_`, `-` and `.`: it becomes the folder "
            "`_roots/<name>`, got 'a/b'",
        ),
        (
            "source: {catalog: {name: x, type: glue}, roots: [{name: a, from: hdfs://c}]}",
            "`source.roots[0].from`: want a location like s3://bucket/path, gs://bucket/path, file:///path or a plain "
            "path, got 'hdfs://c'",
        ),
    ],
)
def test_one_problem_one_line(files: Files, lines: str, expected: str) -> None:
    assert files.check_with(lines) == [f"lake.yaml:4: {expected}"]
    with pytest.raises(UsageError):
        load_config(files.path, env={})


def test_all_problems_are_told_at_once_in_the_order_of_the_file(files: Files) -> None:
    text = """\
        source:
          catalog: {name: onprem, type: sql, uri: "${SOURCE_URI}", token: abc}
        mirror:
          catalog: {name: cloud, type: sql, uri: sqlite:///c.db}
        defaults:
          k_min: many
          k_max: 50
          p: 0.1
          p: 0.2
          mode: B
        tables:
          - just text
          - {name: a.b}
          - {name: a.b, schedul: x}
        """
    assert files.check(text) == [
        "lake.yaml:2: `source.catalog.uri`: the environment variable SOURCE_URI is not set; export SOURCE_URI before "
        "you start",
        "lake.yaml:2: `source.catalog.token` holds a secret in plain text; write ${SOURCE_CATALOG_TOKEN} and export "
        "that variable",
        "lake.yaml:3: `mirror.location` is required",
        "lake.yaml:6: `defaults.k_min`: want a whole number, got 'many'",
        "lake.yaml:9: `defaults.p` is given twice, first in line 8; keep one of them",
        "lake.yaml:12: `tables[0]`: want a map, got 'just text'",
        "lake.yaml:14: unknown key `schedul` in `tables[2]`; did you mean `schedule`?",
    ]


def test_a_slip_does_not_hide_what_the_rules_say(files: Files) -> None:
    text = """\
        defaults:
          k_mim: 5
          mode: B
        tables:
          - just text
          - {name: a.b}
          - {name: a.b}
        """
    assert files.check_with(text) == [
        "lake.yaml:5: unknown key `k_mim` in `defaults`; did you mean `k_min`?",
        "lake.yaml:6: `defaults`: `mode: B` is not in this version; write mode: A",
        "lake.yaml:8: `tables[0]`: want a map, got 'just text'",
        "lake.yaml:10: `tables[2]`: a.b is listed before, at tables[1]; keep one of them",
    ]


def test_a_wrong_value_is_not_blamed_twice(files: Files) -> None:
    assert files.check_with("defaults: {k_min: x, k_max: 50}") == [
        "lake.yaml:4: `defaults.k_min`: want a whole number, got 'x'"
    ]
    assert files.check_with("tables: [{name: '${X}'}]") == [
        "lake.yaml:4: `tables[0].name`: the environment variable X is not set; export X before you start"
    ]
    assert files.check_with("defaults: {k_min: 2026-13-45}") == [
        "lake.yaml:4: `defaults.k_min`: cannot be read as timestamp; quote it"
    ]


def test_one_problem_is_the_error(files: Files) -> None:
    path = files.write(MIRROR + "defaults: {k_mim: 5}\n")
    with pytest.raises(UsageError) as caught:
        load_config(path, env={})
    assert caught.value.as_json() == {
        "kind": "usage",
        "op": "load config",
        "subject": f"{path}:4",
        "message": "unknown key `k_mim` in `defaults`",
        "hint": "did you mean `k_min`?",
    }
    assert caught.value.exit_code == 2


def test_several_problems_are_listed_in_the_error(files: Files) -> None:
    path = files.write(MIRROR + "defaults:\n  k_mim: 5\n  p: 2\n")
    with pytest.raises(UsageError) as caught:
        load_config(path, env={})
    assert str(caught.value) == (
        f"load config {path}: 2 problems\n"
        f"  {path}:5: unknown key `k_mim` in `defaults`; did you mean `k_min`?\n"
        f"  {path}:6: `defaults.p`: want at most 1, got 2"
    )
    assert check_config(path, env={}) == [
        Problem(f"{path}:5", "unknown key `k_mim` in `defaults`", "did you mean `k_min`?"),
        Problem(f"{path}:6", "`defaults.p`: want at most 1, got 2"),
    ]


def test_a_problem_as_json() -> None:
    assert Problem("f:1", "m", "h").as_json() == {"where": "f:1", "message": "m", "hint": "h"}


def test_a_value_of_the_environment_is_never_shown_in_a_problem(files: Files) -> None:
    env = {"X": "hush"}
    lines = "state: {uri: '${X}'}\ndefaults: {k_min: '${X}', schedule: '${X}', mode: '${X}', gc: {trash: '${X}'}}\n"
    found = files.check_with(lines + "tables: [{name: '${X}'}]\n", env)
    assert len(found) == 6
    assert [line.split("; ")[0].endswith("got ***") for line in found] == [True] * 6
    assert "hush" not in "".join(found)


def test_rules_show_no_value_of_the_environment(files: Files) -> None:
    lines = """\
        defaults: {k_min: "${N}", k_max: 5, gc: {cloud_gc_grace: "${N}"}}
        tables:
          - {match: "${T}"}
          - {name: "${T}"}
        """
    assert files.check_with(lines, {"N": "1947", "T": "hush.hush"}) == [
        "lake.yaml:4: `defaults`: `k_min` (***) is larger than `k_max` (5); lower k_min or raise k_max",
        "lake.yaml:4: `defaults`: `gc.cloud_gc_grace` of *** is too short for mode A: readers would lose files; "
        "want at least 1d",
        "lake.yaml:7: `tables[1]`: *** is never reached, `***` at tables[0] takes it; "
        "move the exact name above the pattern",
    ]


def test_values_of_the_environment_are_typed_by_their_key(files: Files) -> None:
    config = files.load_with(
        "defaults: {k_min: '${N}', p: '${F}', critical: '${B}', bin_bytes: '${S}', schedule: '${C}'}",
        {"N": "5", "F": "0.5", "B": "true", "S": "1 MiB", "C": "@daily"},
    )
    knobs = config.defaults
    assert (knobs.k_min, knobs.p, knobs.critical, knobs.bin_bytes, knobs.schedule) == (5, 0.5, True, 1048576, "@daily")


def test_the_environment_of_the_process_is_the_default(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_GROUP", "finance")
    path = files.write(MIRROR + "defaults: {group: '${LAKE_GROUP}'}\n")
    assert load_config(path).defaults.group == "finance"
    assert check_config(path, env={}) == [
        Problem(
            f"{path}:4",
            "`defaults.group`: the environment variable LAKE_GROUP is not set",
            "export LAKE_GROUP before you start",
        )
    ]


def test_paths_are_relative_to_the_file_wherever_the_process_is(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """\
        source:
          catalog: {name: a, type: sql, uri: sqlite:///db/a.db, warehouse: "${WAREHOUSE}"}
          roots: [{name: cold, from: ../cold}]
        mirror:
          catalog: {name: b, type: rest, uri: "https://host/api/", warehouse: some-name}
          location: mirror
        state: {uri: sqlite:///state.db}
        """
    path = files.write(text)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = load_config(os.path.relpath(path), env={"WAREHOUSE": "warehouse"})
    assert config.source is not None
    assert config.state is not None
    assert config.source.catalog.properties == {
        "uri": f"sqlite:///{tmp_path}/db/a.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    assert config.source.roots[0].from_ == f"file://{tmp_path.parent}/cold"
    assert config.mirror.catalog.properties == {"uri": "https://host/api/", "warehouse": "some-name"}
    assert config.mirror.location == f"file://{tmp_path}/mirror"
    assert config.state.uri == f"sqlite:///{tmp_path}/state.db"
    assert config.path == "../lake.yaml"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    absent, folder, latin, large = (tmp_path / name for name in ("absent", "folder", "latin", "large"))
    folder.mkdir()
    latin.write_bytes(b"a: 1\nb: \xe4\n")
    large.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    assert [str(problem) for path in (absent, folder, latin, large) for problem in check_config(path, env={})] == [
        f"{absent}: there is no such file; name one with --config or LAKEMIRROR_CONFIG",
        f"{folder}: cannot be read: Is a directory; check its permissions",
        f"{latin}:2: not UTF-8 text; save it as UTF-8",
        f"{large}: larger than 1048576 bytes; use patterns in `tables:`",
    ]


def test_the_largest_file_is_read(files: Files) -> None:
    files.path.write_text(MIRROR + "#" * (MAX_FILE_BYTES - len(MIRROR)))
    assert load_config(files.path, env={}).tables == ()


def test_a_byte_order_mark_is_no_character(files: Files) -> None:
    files.path.write_bytes(b"\xef\xbb\xbf" + MIRROR.encode())
    assert check_config(files.path, env={}) == []


def test_empty_sections_are_no_sections(files: Files) -> None:
    config = files.load_with("spark:\ncache:\ndefaults:\ntables:\n")
    assert (config.spark, config.cache, config.defaults, config.tables) == (SparkConfig(), CacheConfig(), Knobs(), ())


def test_merge_keys_share_knobs_between_entries(files: Files) -> None:
    config = files.load_with(
        """\
        tables:
          - &first {name: a.b, k_min: 5, k_max: 9}
          - {<<: *first, name: a.c, k_max: 10}
        """
    )
    assert [(e.name, e.overrides.k_min, e.overrides.k_max) for e in config.tables] == [("a.b", 5, 9), ("a.c", 5, 10)]


def test_two_hundred_tables_load_in_a_tenth_of_a_second(files: Files) -> None:
    entries = "".join(
        f"  - {{name: ns{n % 7}.t_{n}, priority: {n % 10 + 1}, schedule: '*/{n % 50 + 1} * * * *', group: g{n % 5}}}\n"
        for n in range(200)
    )
    path = files.write(MIRROR + "tables:\n" + entries)
    assert len(load_config(path, env={}).tables) == 200
    seconds = []
    for _ in range(5):
        start = time.process_time()
        load_config(path, env={})
        seconds.append(time.process_time() - start)
    assert min(seconds) <= 0.1


def _modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_importing_the_loader_imports_no_pydantic() -> None:
    """`--help` does not pay for the models."""
    assert _modules_after("import lakemirror.config.loader").isdisjoint({"pydantic", "pydantic_core", "yaml"})


def test_loading_imports_nothing_heavy(files: Files) -> None:
    path = files.write(MIRROR)
    modules = _modules_after(f"from lakemirror.config.loader import load_config\nload_config({str(path)!r}, env={{}})")
    assert "pydantic" in modules
    assert modules.isdisjoint({"airflow", "pyiceberg", "pyarrow", "obstore", "pyspark", "sqlalchemy", "jsonschema"})
