"""From a commit on the source to its visibility in the mirror's catalog, with everything running.

A real Airflow (scheduler, api-server, triggerer, workers) mirrors one table of either profile. A watcher on the
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import yaml
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError

from dev.airflow_standalone import AirflowStandalone, Settings
from dev.lake import Lake
from dev.services import Services, down, running, up
from dev.services.cleaning import clean
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


@dataclass(frozen=True)
class Profile:
    """Where a table lives and is mirrored to; the sections of its configuration, and what they are read with."""

    name: str
    onprem: Catalog
    cloud: Catalog
    sections: dict[str, Any]
    environment: dict[str, str]


def measure_latency(folder: Path) -> Iterator[Row]:
    """On SQLite and files, and between REST catalogs and S3 stores, which are started if need be."""
    yield from _measured(folder / "embedded", _embedded(folder / "embedded"))
    before = set(running())
    services = up()
    try:
        clean(services)
        with patch.dict(os.environ, services.environment()):
            yield from _measured(folder / "services", _services(folder / "services", services))
    finally:
        if not before:
            down()


def _embedded(folder: Path) -> Profile:
    source, mirror = Lake("onprem", folder / "onprem"), Lake("cloud", folder / "cloud")
    sections = {
        "source": {"catalog": source.properties},
        "mirror": {"catalog": mirror.properties, "location": mirror.properties["warehouse"]},
    }
    return Profile("SQLite, files", source.create(), mirror.create(), sections, {})


def _services(folder: Path, services: Services) -> Profile:
    folder.mkdir(parents=True)
    sections = {
        "source": {"catalog": {"name": "onprem", **services.configured("source")}},
        "mirror": {
            "catalog": {"name": "cloud", **services.configured("mirror")},
            "location": services.mirror_location,
        },
    }
    onprem = load_catalog("onprem", **services.source_properties)
    cloud = load_catalog("cloud", **services.mirror_properties)
    return Profile("REST, S3", onprem, cloud, sections, services.environment())


def _measured(folder: Path, profile: Profile) -> Iterator[Row]:
    """Twenty small commits, one after the other; the first one, which makes the mirror's table, is not counted."""
    config = _write_config(folder / "lakemirror.yaml", profile.sections)
    onprem, cloud = profile.onprem, profile.cloud
    onprem.create_namespace("shop")
    onprem.create_table(NAME, ROWS.schema)
    seconds: list[float] = []
    chance = random.Random(SEED)
    environment = {
        **profile.environment,
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "30",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "30",
    }
    with AirflowStandalone(Settings(folder / "home", PROJECT, config, environment=environment)) as airflow:
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
    what = f"latency of {COMMITS} small commits on {profile.name} (load {os.getloadavg()[1]:.1f})"
    yield Row(f"{what}, p50", f"{p50:.1f} s", f"≤ {P50_S:g} s", p50 <= P50_S)
    yield Row(f"{what}, p95", f"{p95:.1f} s", f"≤ {P95_S:g} s", p95 <= P95_S)
    yield Row("the last one, as status tells it", f"{lag:.1f} s", "", None)


def _write_config(path: Path, sections: dict[str, Any]) -> Path:
    document = {
        **sections,
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
