"""`make bench`: measure what the project promises and print it next to the bar.

Each measure stands alone: `make bench BENCH_ARGS="commit help"` runs only these. `setup` makes a whole environment
from an empty cache and needs the package registry, so it runs only when it is named. `rivals` runs the same work by
Iceberg's `rewrite_table_path`, and `large` plans millions of files: they need Java, and half an hour the first time.
Results also go to `.bench/results.json`. A measure that fails is a row of its own: the others are told all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from tests.perf.latency import measure_latency
from tests.perf.rivals.measure import measure_large, measure_rivals
from tests.perf.row import Row
from tests.perf.small_commit import measure_small
from tests.perf.walking import measure_fuzz, measure_million, measure_walk
from tests.perf.watching import measure_watch

PROJECT = Path(__file__).resolve().parents[2]


def measure_commit(folder: Path) -> list[Row]:
    """One commit on a table of 1,000 snapshots and 1,000 manifests: requests counted, and seconds."""
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    from dev import long_history
    from lakemirror.app import App
    from lakemirror.model.table import TableRef

    catalog = SqlCatalog("onprem", uri=f"sqlite:///{folder}/source.db", warehouse=(folder / "warehouse").as_uri())
    catalog.create_namespace("big")
    table = long_history.make(catalog, "big.history", 1000)
    config = folder / "lakemirror.yaml"
    config.write_text(
        "source:\n  catalog: {name: onprem, type: sql, uri: sqlite:///source.db, warehouse: warehouse}\n"
        "mirror:\n  catalog: {name: cloud, type: sql, uri: sqlite:///mirror.db}\n  location: mirror\n"
        "defaults: {small_change_files: 100000}\ntables: [{name: big.history}]\n"
    )
    name = TableRef.parse("big.history")
    with App.load(str(config)) as app:
        first = app.mirror(name).as_json()
        app.follow(name)
        table.append(pa.table({"id": [1001], "name": ["row 1001"]}, schema=long_history.COLUMNS))
        start = time.monotonic()
        change = app.mirror(name).as_json()
        app.follow(name)
        spent = time.monotonic() - start
        idle = app.mirror(name).as_json()
    source, mirror = change["requests"]["source"], change["requests"]["mirror"]
    bootstrap = first["seconds"]["total"]
    return [
        Row("first mirror of 1,000 commits of one file", f"{bootstrap:.2f} s", "–", None),
        Row(
            "one commit: source reads (metadata, list, manifest, file)",
            str(sum(source.values())),
            "4",
            sum(source.values()) == 4,
        ),
        Row("one commit: requests to the mirror bucket", _verbs(mirror), "≤ 30", sum(mirror.values()) <= 30),
        Row("one commit: mirror and follow", f"{spent:.2f} s", "–", None),
        Row(
            "unchanged table: source object reads",
            str(sum(idle["requests"]["source"].values())),
            "0",
            not any(idle["requests"]["source"].values()),
        ),
    ]


def measure_copy(folder: Path) -> Iterable[Row]:
    """The copy engine against rclone and a bare loop, between two real stores, which it starts if need be."""
    from tests.perf import copying

    return copying.measure_copy(folder)


def measure_limits(folder: Path) -> list[Row]:
    """Limits of bandwidth and requests over two executors of a Spark cluster."""
    from tests.perf import limits

    return limits.measure_limits(folder)


def measure_parse(folder: Path) -> list[Row]:
    """Parse the DAGs of 200 tables in a fresh process, without Airflow's own imports."""
    config = folder / "lakemirror.yaml"
    tables = "".join(f"  - name: sales.table_{number:03d}\n" for number in range(200))
    config.write_text(
        "source:\n  catalog: {name: onprem, type: sql, uri: sqlite:///source.db}\n"
        "mirror:\n  catalog: {name: cloud, type: sql, uri: sqlite:///mirror.db}\n  location: mirror\n"
        f"tables:\n{tables}"
    )
    code = (
        "import sys, time, runpy\n"
        "import airflow.sdk, airflow.triggers.base, airflow.providers.apache.spark.operators.spark_submit\n"
        "start = time.perf_counter()\n"
        "made = [value for file in sys.argv[1:] for value in runpy.run_path(file).values()]\n"
        "count = sum(isinstance(value, airflow.sdk.DAG) for value in made)\n"
        "print(count, time.perf_counter() - start)\n"
    )
    env = {**os.environ, "LAKEMIRROR_CONFIG": str(config), "AIRFLOW_HOME": str(folder / "airflow")}
    files = [str(PROJECT / "dags" / name) for name in ("mirror.py", "follow.py")]
    samples = []
    for _ in range(3):
        command = [sys.executable, "-c", code, *files]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120)
        count, spent = done.stdout.split()[-2:]
        if int(count) < 400:
            raise RuntimeError(f"want 400 DAGs, got {count}")
        samples.append(float(spent))
    best = min(samples)
    return [Row("parse the DAGs of 200 tables (400 DAGs)", f"{best:.2f} s", "≤ 2 s", best <= 2)]


def measure_help(folder: Path) -> list[Row]:
    """The time to the first answer of the command line."""
    command = [str(PROJECT / "bin" / "lakemirror"), "--help"]
    samples = [_seconds(lambda: subprocess.run(command, capture_output=True, check=True, timeout=60)) for _ in range(7)]
    median = statistics.median(samples)
    return [Row("bin/lakemirror --help", f"{median:.2f} s", "≤ 0.7 s", median <= 0.7)]


def measure_resetup(folder: Path) -> list[Row]:
    """`make setup` when everything is up to date: quick and silent."""
    start = time.monotonic()
    done = subprocess.run(["make", "-s", "setup"], cwd=PROJECT, capture_output=True, text=True, check=True, timeout=300)
    spent = time.monotonic() - start
    is_silent = not done.stdout and not done.stderr
    return [
        Row(
            "make setup, the second time",
            f"{spent:.2f} s, {'silent' if is_silent else 'NOT silent'}",
            "< 2 s, silent",
            spent < 2 and is_silent,
        )
    ]


def measure_setup(folder: Path) -> list[Row]:
    """`make setup` in a copy of the project, from an empty cache."""
    copy = folder / "project"
    subprocess.run(["git", "clone", "--quiet", str(PROJECT), str(copy)], check=True, timeout=120)
    env = {**os.environ, "UV_CACHE_DIR": str(folder / "uv"), "PIP_NO_CACHE_DIR": "1"}
    spent = _seconds(
        lambda: subprocess.run(["make", "-s", "setup"], cwd=copy, env=env, capture_output=True, check=True, timeout=600)
    )
    return [Row("make setup, from an empty cache", f"{spent:.0f} s", "≤ 90 s", spent <= 90)]


MEASURES: dict[str, Callable[[Path], Iterable[Row]]] = {
    "commit": measure_commit,
    "copy": measure_copy,
    "limits": measure_limits,
    "small": measure_small,
    "watch": measure_watch,
    "latency": measure_latency,
    "walk": measure_walk,
    "million": measure_million,
    "fuzz": measure_fuzz,
    "rivals": measure_rivals,
    "large": measure_large,
    "parse": measure_parse,
    "help": measure_help,
    "resetup": measure_resetup,
    "setup": measure_setup,
}
BY_DEFAULT = [name for name in MEASURES if name != "setup"]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measure", nargs="*", choices=[*MEASURES, []], help=f"default: {' '.join(BY_DEFAULT)}")
    names = parser.parse_args(argv).measure or BY_DEFAULT
    rows: list[Row] = []
    for name in names:
        print(f"bench: {name} …", file=sys.stderr, flush=True)
        folder = Path(tempfile.mkdtemp(prefix=f"lakemirror-bench-{name}-"))
        try:
            for row in MEASURES[name](folder):
                rows.append(row)  # noqa: PERF402 - one by one: a measure may fail after some
        except Exception as err:  # noqa: BLE001 - told, and the exit code is not 0
            traceback.print_exc()
            if isinstance(err, subprocess.CalledProcessError):
                print(err.stderr, file=sys.stderr)
            rows.append(Row(f"{name}: {type(err).__name__}: {_first_line(err)}", "FAILED", "–", False))
        finally:
            shutil.rmtree(folder)
    _tell(rows)
    return 1 if any(row.is_met is False for row in rows) else 0


def _tell(rows: list[Row]) -> None:
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    widths = [max(len(getattr(row, name)) for row in rows) for name in ("what", "measured", "bar")]
    print(machine)
    for row in rows:
        verdict = {True: "met", False: "MISSED", None: ""}[row.is_met]
        print(f"  {row.what:<{widths[0]}}  {row.measured:>{widths[1]}}  {row.bar:>{widths[2]}}  {verdict}")
    results = PROJECT / ".bench" / "results.json"
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=2) + "\n")


def _first_line(err: Exception) -> str:
    return str(err).partition("\n")[0][:80]


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _verbs(counts: dict[str, int]) -> str:
    shown = ", ".join(f"{count} {verb}" for verb, count in counts.items() if count)
    return f"{sum(counts.values())} ({shown})"


if __name__ == "__main__":
    sys.exit(main())
