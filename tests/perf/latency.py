"""From a commit on the source to its visibility in the mirror's catalog, with everything running.

A real Airflow (scheduler, api-server, triggerer, workers) mirrors one table of the embedded profile. A watcher on the
source's heads starts the replicator, whose event starts the follower. Both moments are taken at the catalogs (T42): the
source's when its commit has returned, the mirror's when its head is first seen to be that snapshot. Commits come at
moments that know nothing of the watcher's rounds.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import yaml
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from dev.airflow_standalone import AirflowStandalone, Settings
from dev.lake import Lake
from lakemirror.app import App
from lakemirror.model.table import TableRef
from tests.perf.row import Row

PROJECT = Path(__file__).resolve().parents[2]
NAME = "shop.orders"
COMMITS = 20
P50_S, P95_S = 15.0, 30.0
TIMEOUT_S = 180.0
POLL_S = 0.1
SEED = 20
ROWS = pa.table({"id": pa.array(range(10), pa.int64())})


def measure_latency(folder: Path) -> list[Row]:
    """Twenty small commits, one after the other; the first one, which makes the mirror's table, is not counted."""
    source, mirror = Lake("onprem", folder / "onprem"), Lake("cloud", folder / "cloud")
    config = _write_config(folder / "lakemirror.yaml", source, mirror)
    onprem, cloud = source.create(), mirror.create()
    onprem.create_namespace("shop")
    onprem.create_table(NAME, ROWS.schema)
    seconds: list[float] = []
    chance = random.Random(SEED)
    quiet = {
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "30",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "30",
    }
    with AirflowStandalone(Settings(folder / "home", PROJECT, config, environment=quiet)) as airflow:
        airflow.start(timeout_s=300)
        api = airflow.api()
        _until(lambda: len(api.dag_ids()) == 2, "the DAGs appear")
        api.unpause_all()
        for number in range(1 + COMMITS):
            spent = _one(onprem, cloud)
            print(f"bench: commit {number}: {spent:.1f} s, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
            if number:
                seconds.append(spent)
            time.sleep(chance.uniform(0, 5))
        lag = _lag(config)
    p50, p95 = statistics.median(seconds), sorted(seconds)[-(-95 * len(seconds) // 100) - 1]
    load = f"load {os.getloadavg()[1]:.1f}"
    return [
        Row(f"latency of {COMMITS} small commits, p50 ({load})", f"{p50:.1f} s", f"≤ {P50_S:g} s", p50 <= P50_S),
        Row(f"latency of {COMMITS} small commits, p95 ({load})", f"{p95:.1f} s", f"≤ {P95_S:g} s", p95 <= P95_S),
        Row("the last one, as status tells it", f"{lag:.1f} s", "", None),
    ]


def _write_config(path: Path, source: Lake, mirror: Lake) -> Path:
    document = {
        "source": {"catalog": source.properties},
        "mirror": {"catalog": mirror.properties, "location": mirror.properties["warehouse"]},
        "state": {"uri": "sqlite:///state.db"},
        "defaults": {"schedule": None, "mirror_trigger": "watch", "follow_trigger": "asset", "follow_schedule": None},
        "tables": [{"name": NAME}],
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def _one(onprem: Catalog, cloud: Catalog) -> float:
    table = onprem.load_table(NAME)
    table.append(ROWS)
    start = time.perf_counter()
    want = table.metadata.current_snapshot_id
    _until(lambda: _head(cloud) == want, f"snapshot {want} is visible")
    return time.perf_counter() - start


def _head(cloud: Catalog) -> int | None:
    try:
        return cloud.load_table(NAME).metadata.current_snapshot_id
    except NoSuchTableError:
        return None


def _lag(config: Path) -> float:
    with App.load(str(config)) as app:
        status = app.status(TableRef.parse(NAME))
    if status.latency_s is None:
        raise RuntimeError("status does not tell how long the last version took")
    return status.latency_s


def _until(is_true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_true():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {TIMEOUT_S:g} s")
        time.sleep(POLL_S)
