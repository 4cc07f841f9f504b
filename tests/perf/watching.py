"""How long a watcher needs to look at the heads of ten thousand tables of Iceberg's own REST server.

The server is that of the services profile, over PostgreSQL and SeaweedFS, started if need be. One table is made, and
its row is written again and again into the catalog's database, under other names: the server loads each by itself.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import yaml
from pyiceberg.catalog import load_catalog

from dev.services import Services, down, running, up
from dev.services.cleaning import clean
from dev.services.layout import DATABASES, SOURCE_CATALOG
from lakemirror.app import App
from lakemirror.catalogs.heads import read_heads
from lakemirror.catalogs.rest import RestCatalog
from lakemirror.catalogs.rest_transport import Answer
from lakemirror.model.table import TableRef
from lakemirror.usecases.watch import WORKERS
from tests.perf.row import Row

TABLES = 10_000
MOST_S = 60.0
_COPY = (
    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) "
    "SELECT catalog_name, table_namespace, 't' || n, metadata_location, iceberg_type "
    f"FROM iceberg_tables, generate_series(1, {TABLES - 1}) n WHERE table_name = 't0'"
)


class Counting(RestCatalog):
    """Notes by which status each head was answered."""

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        super().__init__(name, properties)
        self.statuses: list[int] = []

    def _load(self, *args: Any, **options: Any) -> Answer | None:
        answer = super()._load(*args, **options)
        if answer is not None:
            self.statuses.append(answer.status)
        return answer


def measure_watch(folder: Path) -> list[Row]:
    """Heads that nobody knows yet, heads that the server answers by 304, and a watcher's first look at all of them."""
    before = set(running())
    services = up()
    try:
        clean(services)
        tables = _make(services)
        with patch.dict(os.environ, services.environment()):
            return _measured(services, tables, folder)
    finally:
        if not before:
            down()


def _make(services: Services) -> list[TableRef]:
    catalog = load_catalog("onprem", **services.source_properties)
    catalog.create_namespace("many")
    catalog.create_table("many.t0", pa.schema([pa.field("id", pa.int64())]))
    services.postgres.execute(DATABASES[SOURCE_CATALOG], _COPY)
    return [TableRef(("many",), f"t{number}") for number in range(TABLES)]


def _measured(services: Services, tables: list[TableRef], folder: Path) -> list[Row]:
    catalog = Counting("onprem", services.source_properties)
    rows = []
    for what, status in (("by their heads", 200), ("again, answered by 304", 304)):
        catalog.statuses.clear()
        start = time.perf_counter()
        heads = read_heads(catalog, tables, WORKERS).told
        spent = time.perf_counter() - start
        if not all(isinstance(head, str) for head in heads.values()):
            raise RuntimeError("a head was not told")
        if Counter(catalog.statuses) != {status: len(tables)}:
            raise RuntimeError(f"want {len(tables)} answers {status}, got {dict(Counter(catalog.statuses))}")
        rows.append(Row(f"watch {TABLES:,} tables {what}", f"{spent:.1f} s", f"< {MOST_S:g} s", spent < MOST_S))
    config = folder / "lake.yaml"
    document = {
        "source": {"catalog": {"name": "onprem", **services.configured("source")}},
        "mirror": {
            "catalog": {"name": "cloud", **services.configured("mirror")},
            "location": services.mirror_location,
        },
        "tables": [{"match": "many.*"}],
    }
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    with App.load(str(config)) as app:
        watch = app.watch_source()
        start = time.perf_counter()
        hints = watch.look(tables).hints
        spent = time.perf_counter() - start
    if len(hints) != TABLES:
        raise RuntimeError(f"want {TABLES} tables that ask to be mirrored, got {len(hints)}")
    first = f"a watcher's first look at {TABLES:,} tables, with the mirror's bucket"
    return [*rows, Row(first, f"{spent:.1f} s", "", None)]
