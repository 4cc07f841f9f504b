"""Ports whose catalogs name connections: asked for late and once, and nothing of them is left anywhere."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakemirror.app import App
from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.cli.main import run
from lakemirror.config.connections import Connection
from lakemirror.config.loader import load_config
from lakemirror.config.sections import CatalogConfig
from lakemirror.errors import UsageError
from lakemirror.usecases import ports as module
from lakemirror.usecases.ports import Ports
from tests.lake import ORDERS, Lake, rows

SECRET = "key-hush-47"  # pragma: allowlist secret


class Airflow:
    """Knows what used to stand in the file, and remembers what it was asked for."""

    def __init__(self, known: dict[str, dict[str, Any]]) -> None:
        self.known = known
        self.asked: list[str] = []

    def __call__(self, conn_id: str) -> Connection:
        self.asked.append(conn_id)
        return Connection.of(conn_id, self.known[conn_id])


def _move_into_connections(lake: Lake) -> dict[str, dict[str, Any]]:
    """The file keeps name and type; everything else, and a secret, is in the connections `source` and `mirror`."""
    document = yaml.safe_load(lake.config_path.read_text())
    known = {}
    for side in ("source", "mirror"):
        catalog = document[side]["catalog"]
        kept = {"name": catalog["name"], "type": catalog["type"], "conn_id": side}
        extra = {key: value for key, value in catalog.items() if key not in (*kept, "uri")}
        database = str((lake.folder / catalog["uri"].removeprefix("sqlite:///")).resolve())
        known[side] = {"conn_type": "sqlite", "host": database, "extra": {**extra, "s3.secret-access-key": SECRET}}
        document[side]["catalog"] = kept
    lake.config_path.write_text(yaml.safe_dump(document))
    return known


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.create().append(rows(3))
    return lake


@pytest.fixture
def airflow(lake: Lake) -> Airflow:
    return Airflow(_move_into_connections(lake))


def test_ports_ask_when_they_open_and_once(lake: Lake, airflow: Airflow) -> None:
    ports = Ports(load_config(lake.config_path, env={}), connections=airflow)
    assert ports.has_source
    assert ports.layout(ORDERS).ready_folder.startswith(f"file://{lake.mirror_folder}/")
    assert airflow.asked == []
    assert ports.source_catalog.head(ORDERS) is not None
    assert (ports.mirror_store, ports.source_store, ports.roots) is not None
    assert ports.mirror_catalog.load(ORDERS) is None
    assert airflow.asked == ["mirror", "source"]


def test_ids_do_not_reach_stores_and_catalogs(lake: Lake, airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[set[str]] = []

    def opened(catalog: CatalogConfig, *_: object) -> SqlCatalog:
        given.append(set(catalog.properties))
        return SqlCatalog(catalog.name, catalog.properties, may_be_new=True)

    for name in ("open_source", "open_mirror"):
        monkeypatch.setattr(module, name, opened)
    monkeypatch.setattr(module, "ObstoreStore", lambda properties, **_: given.append(set(properties)))
    ports = Ports(load_config(lake.config_path, env={}), connections=airflow)
    assert (ports.source_catalog, ports.mirror_catalog, ports.source_store, ports.mirror_store) is not None
    assert given == [{"uri", "warehouse", "s3.secret-access-key"}] * 4


def test_the_whole_way_leaves_no_secret_behind(lake: Lake, airflow: Airflow) -> None:
    with App.load(str(lake.config_path), connections=airflow) as app:
        result = app.mirror(ORDERS)
        app.follow(ORDERS)
        shown = [repr(app.config), json.dumps(app.config.explain()), repr(app.mirror_store), repr(app._ports)]
        shown += [json.dumps(result.as_json()), json.dumps(app.status(ORDERS).as_json())]
    assert lake.mirror_rows() == lake.source_rows()
    assert not any(SECRET in text for text in shown)
    left = [path for path in lake.folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert left == []


def test_the_command_line_reads_the_environment(lake: Lake, airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = io.StringIO(), io.StringIO()
    command = ["--config", str(lake.config_path), "--json", "sync", str(ORDERS)]
    assert run(command, stdout=out, stderr=err) == 2
    assert json.loads(out.getvalue())["error"]["kind"] == "usage"
    assert "export AIRFLOW_CONN_MIRROR" in out.getvalue()
    for conn_id, fields in airflow.known.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))
    assert run(command, stdout=out, stderr=err) == 0
    assert lake.mirror_rows() == lake.source_rows()
    assert SECRET not in out.getvalue() + err.getvalue()


def test_what_failed_once_is_asked_again(lake: Lake, airflow: Airflow) -> None:
    ports = Ports(load_config(lake.config_path, env={}), connections=airflow)
    mirror = airflow.known["mirror"]
    airflow.known["mirror"] = {"host": "h"}
    with pytest.raises(UsageError, match="use connection mirror: conn_type '' makes no address of a SQL catalog"):
        _ = ports.mirror_store
    airflow.known["mirror"] = mirror
    assert ports.mirror_catalog.load(ORDERS) is None


def test_wires_travel_without_a_catalogs_secrets(lake: Lake) -> None:
    ports = Ports(load_config(str(lake.config_path)))
    for wire in (ports.source_wire, ports.mirror_wire):
        assert b"sqlite" not in pickle.dumps(wire)


KEYS = {"s3.access-key-id": "k", "s3.secret-access-key": "${A}"}
EMULATOR = {"gcs.service.host": "http://127.0.0.1:4443"}
TOKEN = {"gcs.oauth2.token": "${A}"}


@pytest.mark.parametrize(
    ("warehouse", "theirs", "location", "ours", "is_one"),
    [
        ("s3://lake/w", KEYS, "s3://mirror/w", KEYS, True),
        ("s3://lake/w", {}, "s3://mirror/w", {}, False),
        ("s3://lake/w", KEYS, "s3://mirror/w", {**KEYS, "s3.endpoint": "http://cloud"}, False),
        ("gs://lake/w", {}, "gs://mirror/w", {}, True),
        ("gs://lake/w", EMULATOR, "gs://mirror/w", EMULATOR, True),
        ("gs://lake/w", TOKEN, "gs://mirror/w", TOKEN, True),
        ("gs://lake/w", TOKEN, "gs://mirror/w", {"gcs.oauth2.token": "${B}"}, False),
        ("gs://lake/w", TOKEN, "gs://mirror/w", {}, False),
        ("gs://lake/w", {}, "gs://mirror/w", EMULATOR, False),
        ("s3://lake/w", KEYS, "gs://mirror/w", {}, False),
        ("file:///lake/w", {}, "gs://mirror/w", {}, False),
        ("gs://lake/w", {}, "s3://mirror/w", KEYS, False),
    ],
)
def test_which_two_sides_are_one_store(
    tmp_path: Path, warehouse: str, theirs: dict[str, str], location: str, ours: dict[str, str], is_one: bool
) -> None:
    """Only then may it be asked to copy by itself: with the rights of one account, within one service."""
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db"}
    document = {
        "source": {"catalog": {"name": "onprem", **catalog, "warehouse": warehouse, **theirs}},
        "mirror": {"catalog": {"name": "cloud", **catalog, "warehouse": location, **ours}, "location": location},
        "tables": [{"match": "*"}],
    }
    path = tmp_path / "lake.yaml"
    path.write_text(yaml.safe_dump(document))
    assert Ports(load_config(path, env={"A": "one", "B": "of somebody else"})).is_one_store is is_one
