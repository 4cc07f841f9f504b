"""A lake on this machine: a SQL catalog on SQLite and files below one folder, read and written by pyiceberg.

`fingerprint` reads a table the way any engine would and says what is in it; two tables with equal fingerprints hold the
same rows. Nothing here knows how lakemirror works, so that it can judge it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class Lake:
    """A catalog named `name` in `folder/catalog.db`, its files in `folder/warehouse`."""

    name: str
    folder: Path

    @property
    def properties(self) -> dict[str, str]:
        """What a configuration file says about this lake."""
        return {
            "name": self.name,
            "type": "sql",
            "uri": f"sqlite:///{self.folder / 'catalog.db'}",
            "warehouse": (self.folder / "warehouse").as_uri(),
        }

    def create(self) -> Catalog:
        (self.folder / "warehouse").mkdir(parents=True, exist_ok=True)
        return self.open()

    def open(self) -> Catalog:
        return SqlCatalog(self.name, **{key: value for key, value in self.properties.items() if key != "name"})


@dataclass(frozen=True, slots=True)
class ServedLake:
    """A catalog behind a server; `properties` are pyiceberg's, secrets included."""

    name: str
    properties: Mapping[str, str] = field(repr=False)

    def create(self) -> Catalog:
        return self.open()

    def open(self) -> Catalog:
        return load_catalog(self.name, **self.properties)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a reader finds in a table at its head; `digest` is over all rows, whatever their order."""

    rows: int
    digest: str
    columns: tuple[str, ...]
    snapshot_id: int | None
    committed_at: datetime | None
    files: int
    size_bytes: int
    properties: dict[str, str]

    def holds_the_same_as(self, other: Fingerprint) -> bool:
        return (self.rows, self.digest, self.columns) == (other.rows, other.digest, other.columns)


def head(catalog: Catalog, name: str) -> Table | None:
    """The table as the catalog has it now, or None while it has none."""
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        return None


def fingerprint(table: Table) -> Fingerprint:
    scan = table.scan()
    rows = scan.to_arrow()
    columns = tuple(rows.column_names)
    tasks = list(scan.plan_files())
    snapshot = table.current_snapshot()
    return Fingerprint(
        rows=rows.num_rows,
        digest=_digest(repr(tuple(row.items())) for row in rows.to_pylist()),
        columns=columns,
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        committed_at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC) if snapshot else None,
        files=len(tasks),
        size_bytes=sum(task.file.file_size_in_bytes for task in tasks),
        properties=dict(table.properties),
    )


def _digest(rows: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for row in sorted(rows):
        digest.update(row.encode())
        digest.update(b"\n")
    return digest.hexdigest()
