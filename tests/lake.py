"""A small lake in a temporary folder: a source that pyiceberg writes, a mirror, and the application between them.

lake = Lake(tmp_path)
orders = lake.create()            # shop.orders: id long, city string; v2
orders.append(rows(3))
lake.sync()                       # mirror and follow
assert lake.mirror_rows() == lake.source_rows()
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from lakemirror.app import App, utc_now
from lakemirror.config.loader import load_config
from lakemirror.model.results import FollowResult, MirrorResult
from lakemirror.model.table import TableRef
from lakemirror.replicate.stage import LocalEngine
from lakemirror.storage.port import ObjectStore
from tests.wires import WrappedSides

ORDERS = TableRef.parse("shop.orders")
SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("city", pa.string())])
WrapStore = Callable[[str, ObjectStore], ObjectStore]


def rows(count: int, start: int = 0, city: str = "Bern") -> pa.Table:
    return pa.table([pa.array(range(start, start + count), pa.int64()), pa.array([city] * count)], schema=SCHEMA)


def uri(path: Path) -> str:
    return f"file://{path}"


class Lake:
    """Everything below `folder`: lake.yaml, follower.yaml (no source), two SQLite catalogs, warehouse/ and mirror/."""

    def __init__(
        self,
        folder: Path,
        *,
        tables: Sequence[Mapping[str, Any]] = ({"name": str(ORDERS)},),
        defaults: Mapping[str, Any] | None = None,
        roots: Mapping[str, Path] | None = None,
        warehouse: str = "warehouse",
    ) -> None:
        self.folder = folder
        self.has_fence = True
        self.owner: str | None = "a run of this test"  # who Apps work for; None: each is a run of its own
        self.warehouse = folder / warehouse
        self.mirror_folder = folder / "mirror"
        self.config_path = folder / "lake.yaml"
        self.follower_config_path = folder / "follower.yaml"
        mirror = {
            "mirror": {
                "catalog": self._catalog("cloud", "mirror.db", self.mirror_folder),
                "location": uri(self.mirror_folder),
            },
            "state": {"uri": "sqlite:///state.db"},
            "defaults": dict(defaults or {}),
            "tables": [dict(table) for table in tables],
        }
        source = {
            "catalog": self._catalog("onprem", "source.db", self.warehouse),
            "roots": [{"name": name, "from": uri(path)} for name, path in (roots or {}).items()],
        }
        folder.mkdir(parents=True, exist_ok=True)
        self.config_path.write_text(yaml.safe_dump({"source": source, **mirror}), encoding="utf-8")
        self.follower_config_path.write_text(yaml.safe_dump(mirror), encoding="utf-8")
        self.source = self._open("onprem", "source.db", self.warehouse)

    def create(
        self,
        table: TableRef = ORDERS,
        *,
        schema: pa.Schema = SCHEMA,
        properties: Mapping[str, str] | None = None,
        location: str | None = None,
        partitioned_by: Iterable[str] = (),
    ) -> Table:
        self.source.create_namespace_if_not_exists(table.namespace)
        made = self.source.create_table(
            str(table), schema, location=location, properties={"format-version": "2", **(properties or {})}
        )
        for column in partitioned_by:
            with made.update_spec() as update:
                update.add_identity(column)
        return made

    def app(
        self,
        *,
        wrap_store: WrapStore | None = None,
        now: Callable[[], datetime] = utc_now,
        owner: str | None = None,
    ) -> App:
        owner = owner or self.owner
        if wrap_store is None:
            return App(load_config(self.config_path), now=now, owner=owner)
        sides = WrappedSides(wrap_store)
        return App(load_config(self.config_path), wrap_store=sides.store, wrap_wire=sides.wire, now=now, owner=owner)

    def follower(self, *, wrap_store: WrapStore | None = None) -> App:
        """An App whose configuration knows no source."""
        return App(load_config(self.follower_config_path), wrap_store=wrap_store)

    def mirror(self, table: TableRef = ORDERS, **options: Any) -> MirrorResult:
        """One run in this process; what would go to Spark is done by threads."""
        return self.app().mirror(table, engine=LocalEngine(4), **options)

    def follow(self, table: TableRef = ORDERS, **options: Any) -> FollowResult:
        return self.follower().follow(table, **options)

    def sync(self, table: TableRef = ORDERS, **options: Any) -> MirrorResult:
        """Mirror and follow with new processes' worth of state."""
        result = self.mirror(table, **options)
        self.follow(table)
        return result

    def source_rows(self, table: TableRef = ORDERS, **scan: Any) -> list[dict[str, Any]]:
        return _rows_of(self.source.load_table(str(table)), scan)

    def mirror_rows(self, table: TableRef = ORDERS, **scan: Any) -> list[dict[str, Any]]:
        return _rows_of(self.mirror_table(table), scan)

    def mirror_table(self, table: TableRef = ORDERS) -> Table:
        with self.mirror_catalog() as catalog:
            return catalog.load_table(str(table))

    def mirror_head(self, table: TableRef = ORDERS) -> str | None:
        """What the mirror catalog points at; None if it has no such table."""
        if not (self.folder / "mirror.db").exists():
            return None
        with self.mirror_catalog() as catalog:
            return catalog.load_table(str(table)).metadata_location if catalog.table_exists(str(table)) else None

    @contextmanager
    def mirror_catalog(self) -> Iterator[SqlCatalog]:
        """pyiceberg's own view of the mirror: the reader."""
        catalog = self._open("cloud", "mirror.db", self.mirror_folder)
        try:
            yield catalog
        finally:
            catalog.close()

    def mirror_objects(self, *, below: str = "") -> dict[str, bytes]:
        """Every object of the mirror, by its path below the mirror's location; but leases, which tell of runs only."""
        found = {}
        for folder, _, names in os.walk(self.mirror_folder / below):
            for name in names:
                path = Path(folder, name)
                if path.parts[-2:] == ("_control", "lease.json"):
                    continue
                found[str(path.relative_to(self.mirror_folder))] = path.read_bytes()
        return found

    def ready(self, table: TableRef = ORDERS) -> list[str]:
        folder = self.mirror_folder / table.folder / "_ready"
        return sorted(path.name for path in folder.glob("*")) if folder.exists() else []

    def _catalog(self, name: str, database: str, warehouse: Path) -> dict[str, str]:
        return {"name": name, "type": "sql", "uri": f"sqlite:///{database}", "warehouse": uri(warehouse)}

    def _open(self, name: str, database: str, warehouse: Path) -> SqlCatalog:
        return SqlCatalog(name, uri=f"sqlite:///{self.folder / database}", warehouse=uri(warehouse))


def _rows_of(table: Table, scan: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan(**scan).to_arrow().to_pylist()
    return sorted(found, key=lambda row: (row["id"], str(row)))


def path_of(location: str) -> Path:
    """The file that a URI names, in any of the spellings of `file:`."""
    return Path("/" + location.removeprefix("file:").lstrip("/"))
