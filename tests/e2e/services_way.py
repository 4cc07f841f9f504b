"""A table on the services profile: written through a REST catalog, mirrored by the CLI, judged by two engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import yaml

from dev.services import RestCatalog, Services
from tests.judge import Judge

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class RestTable:
    """A table of a REST catalog, as both judges address it."""

    catalog_name: str
    catalog: RestCatalog
    name: str

    @property
    def sql(self) -> str:
        return f"{self.catalog_name}.{self.name}"

    @property
    def metadata_uri(self) -> str | None:
        """What the catalog says, asked without any Iceberg library."""
        answer = requests.get(f"{self.catalog.uri}/v1/{self._path}", headers=self._headers(), timeout=30)
        return None if answer.status_code == 404 else str(answer.json()["metadata-location"])

    def metadata(self) -> dict[str, Any]:
        answer = requests.get(f"{self.catalog.uri}/v1/{self._path}", headers=self._headers(), timeout=30)
        found: dict[str, Any] = answer.json()["metadata"]
        return found

    @property
    def _path(self) -> str:
        namespace, _, name = self.name.rpartition(".")
        return f"namespaces/{namespace}/tables/{name}"

    def _headers(self) -> dict[str, str]:
        token = self.catalog.token
        if self.catalog.credential is not None:
            login, _, secret = self.catalog.credential.partition(":")
            form = {"grant_type": "client_credentials", "client_id": login, "client_secret": secret}
            token = requests.post(self.catalog.oauth2_server_uri, data=form, timeout=30).json()["access_token"]
        return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True)
class ServicesWay:
    """Two configuration files: one for the replicator, one for a follower that knows no source.

    The variables of the services must be in the environment.
    """

    services: Services
    judge: Judge
    folder: Path
    name: str

    def write(self) -> ServicesWay:
        mirror = {
            "mirror": {
                "catalog": {"name": "cloud", **self.services.configured("mirror")},
                "location": self.services.mirror_location,
            },
            "state": {"uri": "sqlite:///state.db"},
            "tables": [{"match": "*"}],
        }
        source = {"source": {"catalog": {"name": "onprem", **self.services.configured("source")}}}
        for file, document in (("lake.yaml", {**source, **mirror}), ("follower.yaml", mirror)):
            (self.folder / file).write_text(yaml.safe_dump(document), encoding="utf-8")
        self.judge.open_rest("rest_source", self.services.source_catalog, self.services.source_store)
        self.judge.open_rest("rest_mirror", self.services.mirror_catalog, self.services.mirror_store)
        return self

    @property
    def ours(self) -> RestTable:
        return RestTable("rest_source", self.services.source_catalog, self.name)

    @property
    def theirs(self) -> RestTable:
        return RestTable("rest_mirror", self.services.mirror_catalog, self.name)

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.judge.spark.sql(statement.format(t=self.ours.sql))

    def cli(self, config: str, *arguments: str) -> dict[str, Any]:
        """In a process of its own; its answer, which must be a success."""
        command = [sys.executable, "-m", "lakemirror.cli", "--config", str(self.folder / config), "--json", *arguments]
        path = f"{ROOT / 'plugins'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=110, check=False, env={**os.environ, "PYTHONPATH": path}
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def check(self, *, by_cli: bool = False) -> None:
        """Mirror, follow, and let both judges say where the sides differ."""
        if by_cli:
            self.cli("lake.yaml", "mirror", self.name)
            self.cli("follower.yaml", "follow", self.name)
        else:
            self.sync()
        found = self.judge.differences(self.ours, self.theirs)
        assert found == [], found

    def sync(self) -> None:
        from lakemirror.app import App
        from lakemirror.model.table import TableRef
        from lakemirror.replicate.stage import LocalEngine

        with App.load(str(self.folder / "lake.yaml")) as app:
            app.mirror(TableRef.parse(self.name), engine=LocalEngine(2))
        with App.load(str(self.folder / "follower.yaml")) as app:
            app.follow(TableRef.parse(self.name))
