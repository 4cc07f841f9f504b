"""Each side has the mirror bucket and its own catalog, nothing else; however many followers there are, one commits."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest
import yaml

from dev.services import Services, ServicesFolder, kill, up
from dev.services.layout import SOURCE_CATALOG, SOURCE_STORE
from lakemirror.app import App
from lakemirror.errors import TransientError
from tests.e2e.processes import Program
from tests.faults.scene import NAME, TABLE, FaultyLake, faulty_lake
from tests.judge import ROOT
from tests.lake import ORDERS, Lake, rows

pytestmark = pytest.mark.integration
COMMAND_S = 60
FOLLOWERS = 10


@pytest.fixture
def served(clean_services: Services, tmp_path: Path) -> Iterator[FaultyLake]:
    with patch.dict(os.environ, clean_services.environment()), faulty_lake(clean_services, tmp_path) as lake:
        yield lake


def follower_config(lake: FaultyLake) -> Path:
    """As an installation in the cloud has it."""
    services, path = lake.services, lake.folder / "follower.yaml"
    mirror = {
        "catalog": {"name": "cloud", **services.configured("mirror")},
        "location": services.mirror_location,
    }
    path.write_text(yaml.safe_dump({"mirror": mirror, "tables": [{"name": NAME}]}), encoding="utf-8")
    return path


def command(lake: FaultyLake, *words: str) -> tuple[int, dict[str, Any]]:
    """A process of its own, which is told nothing of the source."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SOURCE_")}
    log = lake.folder / f"{'-'.join(words)}.json"
    with (
        patch.dict(os.environ, environment, clear=True),
        Program(
            [ROOT / "bin" / "lakemirror", "--json", "--config", follower_config(lake), *words], log, cwd=lake.folder
        ) as run,
    ):
        return run.wait(COMMAND_S), json.loads(run.output())


@pytest.mark.timeout(240)
def test_with_the_sources_servers_gone(served: FaultyLake, services_folder: ServicesFolder) -> None:
    served.append(50)
    with App.load(str(served.config)) as app:
        app.mirror(TABLE)
    try:
        assert all(kill(name, folder=services_folder) for name in (SOURCE_STORE, SOURCE_CATALOG))
        for uri in (served.services.source_store.endpoint, served.services.source_properties["uri"]):
            assert is_refused(uri), uri
        code, told = command(served, "follow", NAME)
        assert (code, told["ok"], told["version"], told["committed"]) == (0, True, 1, True)
        assert served.mirrored() == served.rows
        code, told = command(served, "status", NAME)
        assert (code, told["source"], told["mirror"]["state"], told["mirror"]["version"]) == (0, None, "ok", 1)
        code, told = command(served, "mirror", NAME)
        assert (code, told["error"]["kind"]) == (2, "usage")
    finally:
        up(folder=services_folder)


def is_refused(uri: str) -> bool:
    place = urlsplit(uri)
    assert place.hostname is not None
    assert place.port is not None
    try:
        socket.create_connection((place.hostname, place.port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def at_once(follow: Callable[[], Any]) -> list[str]:
    """What each of ten threads says: `committed`, `nothing`, or `lost`."""
    start = threading.Barrier(FOLLOWERS)

    def run(_: int) -> str:
        start.wait(30)
        try:
            return "committed" if follow().committed else "nothing"
        except TransientError:
            return "lost"

    with ThreadPoolExecutor(FOLLOWERS) as pool:
        return list(pool.map(run, range(FOLLOWERS)))


def test_ten_followers_of_one_marker_on_rest(served: FaultyLake) -> None:
    """The first version is registered once, the next ones committed once each: the server's own log counts them."""
    config = str(follower_config(served))

    def follow() -> Any:
        with App.load(config) as app:
            return app.follow(TABLE)

    for round_number in range(3):
        served.append(10)
        with App.load(str(served.config)) as app:
            app.mirror(TABLE)
        outcomes = at_once(follow)
        assert "committed" in outcomes
        assert served.mirrored() == served.rows
        metadata = served.mirror.load_table(NAME).metadata
        assert metadata.properties["lakemirror.version"] == str(round_number + 1)
        assert len(metadata.metadata_log) == round_number, outcomes
        assert follow().committed is False


def _follow(path: str, start: Any, outcomes: multiprocessing.Queue[str]) -> None:
    start.wait(30)
    try:
        with App.load(path) as app:
            outcomes.put("committed" if app.follow(ORDERS).committed else "nothing")
    except TransientError:
        outcomes.put("lost")


def test_ten_processes_of_one_marker_on_sql(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    orders = lake.create()
    context = multiprocessing.get_context("fork")
    for number in range(2):
        orders.refresh().append(rows(3, 10 * number))
        lake.mirror()
        if number == 0:
            lake.follow()
            continue
        start, outcomes = context.Barrier(FOLLOWERS), context.Queue()
        path = str(lake.follower_config_path)
        racers = [context.Process(target=_follow, args=(path, start, outcomes)) for _ in range(FOLLOWERS)]
        for racer in racers:
            racer.start()
        told = [outcomes.get(timeout=60) for _ in racers]
        for racer in racers:
            racer.join(60)
        assert told.count("committed") == 1
        assert lake.mirror_rows() == lake.source_rows()


def test_a_replicator_with_the_mirrors_catalog_gone(served: FaultyLake) -> None:
    """It may be in another network, and need not be let in there."""
    served.append()
    with App.load(str(served.write("no-catalog.yaml", patience_s=30, mirror_catalog="http://127.0.0.1:1"))) as app:
        assert app.mirror(TABLE).version == 1
        with pytest.raises(TransientError):
            app.follow(TABLE)
    with App.load(str(served.config)) as app:
        assert app.follow(TABLE).version == 1
    assert served.mirrored() == served.rows
