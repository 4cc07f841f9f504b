"""The demo on the servers of `make up`: its own namespace in both catalogs, its own database for the state.

What others keep on these servers is not touched. Secrets are in the environment only; the configuration names them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pyiceberg.exceptions import NoSuchNamespaceError

from dev.demo.home import DemoHome, short
from dev.lake import ServedLake
from dev.services import Services
from dev.services.cleaning import remove_below
from dev.services.endpoints import shell_exports
from dev.services.folder import write_private
from dev.shop import TABLES

DATABASE = "demo"
NAMESPACES = sorted({table.rpartition(".")[0] for table in TABLES})
PROFILE = Path(__file__).resolve().parents[2] / "include" / "config" / "services.yaml"


@dataclass(frozen=True, slots=True)
class ServicesHome:
    """Airflow's home and the configuration are in `folder`, all else is on the servers."""

    folder: Path
    services: Services

    @property
    def _files(self) -> DemoHome:
        return DemoHome(self.folder)

    @property
    def airflow(self) -> Path:
        return self._files.airflow

    @property
    def config(self) -> Path:
        return self._files.config

    @property
    def source(self) -> ServedLake:
        return ServedLake("onprem", self.services.source_properties)

    @property
    def mirror(self) -> ServedLake:
        return ServedLake("cloud", self.services.mirror_properties)

    @property
    def environment(self) -> dict[str, str]:
        return {**self.services.environment(), "POSTGRES_URI": self.services.postgres.uri(DATABASE)}

    @property
    def prelude(self) -> str:
        return f"make up && source {short(self.folder / 'env')} && "

    @property
    def again(self) -> str:
        return "make demo PROFILE=services KEEP=1"

    @property
    def files(self) -> str:
        return f"make up && .venv/bin/python -m dev.services ls {self.services.mirror_location}/shop/orders/"

    def clear(self) -> None:
        """Stops what an earlier demo left running, and removes its tables, their files and the state."""
        self._files.clear()
        self.folder.mkdir(parents=True)
        for lake in (self.source, self.mirror):
            catalog = lake.open()
            for namespace in NAMESPACES:
                try:
                    for table in catalog.list_tables(namespace):
                        catalog.drop_table(table)
                    catalog.drop_namespace(namespace)
                except NoSuchNamespaceError:
                    continue
        for store, location in (
            (self.services.source_store, self.services.source_catalog.warehouse),
            (self.services.mirror_store, self.services.mirror_location),
        ):
            for namespace in NAMESPACES:
                remove_below(store, f"{location.removeprefix(store.uri + '/')}/{namespace}/")
        self.services.postgres.execute(
            "postgres", f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)", f"CREATE DATABASE {DATABASE}"
        )

    def sections(self) -> dict[str, Any]:
        """Those of the profile's own configuration."""
        found = yaml.safe_load(PROFILE.read_text(encoding="utf-8"))
        return {name: found[name] for name in ("source", "mirror", "state")}

    def write_config(self) -> None:
        self._files.write_config(self.sections())
        write_private(self.folder / "env", shell_exports(self.environment))
