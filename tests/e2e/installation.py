"""An installation of lakemirror in a temporary folder: from a lake that Spark writes to one that the judge reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dev.lake import Lake
from lakemirror.app import App
from lakemirror.model.results import MirrorResult
from lakemirror.model.table import TableRef
from lakemirror.replicate.stage import Engine
from tests.judge import TableOf


@dataclass(frozen=True)
class Installation:
    """A configuration file over a source lake and a mirror lake; `engine` is what the Spark lane runs on, if set.

    With `mirror_conn_id` the file says nothing of the mirror's catalog but this id.
    """

    config: Path
    source: Lake | None
    mirror: Lake
    tables: Sequence[Mapping[str, Any]] = ({"match": "*"},)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    spark: Mapping[str, Any] = field(default_factory=lambda: {"master": "local[2]"})
    engine: Engine | None = None
    mirror_conn_id: str | None = None
    roots: Mapping[str, str] = field(default_factory=dict)  # further roots of the source by name

    def write(self) -> Installation:
        self.config.write_text(yaml.safe_dump(self._document()), encoding="utf-8")
        return self

    def app(self, owner: str | None = None) -> App:
        """`owner` is the run that it works for; without one, each App is a run of its own."""
        return App.load(str(self.config), owner=owner)

    def sync(self, name: str) -> MirrorResult:
        """Mirror and follow; nothing is remembered between two calls."""
        app, table = self.app(), TableRef.parse(name)
        result = app.mirror(table, engine=self.engine)
        app.follow(table)
        return result

    def theirs(self, name: str) -> TableOf:
        return TableOf(self.mirror, name)

    def folder(self, name: str) -> Path:
        """Where the table's objects lie in the mirror bucket."""
        return self.mirror.folder / "warehouse" / TableRef.parse(name).folder

    def _document(self) -> dict[str, Any]:
        roots = [{"name": name, "from": place} for name, place in self.roots.items()]
        source = {} if self.source is None else {"catalog": dict(self.source.properties), "roots": roots}
        return {
            **({"source": source} if source else {}),
            "mirror": {"catalog": self._mirror_catalog(), "location": self.mirror.properties["warehouse"]},
            "spark": dict(self.spark),
            "defaults": dict(self.defaults),
            "tables": [dict(table) for table in self.tables],
        }

    def _mirror_catalog(self) -> dict[str, str]:
        if self.mirror_conn_id is None:
            return dict(self.mirror.properties)
        return {"name": self.mirror.name, "type": "sql", "conn_id": self.mirror_conn_id}


def objects(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Every file below a folder with what changes whenever it is written anew: inode, time and size."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            status = path.stat()
            found[str(path.relative_to(folder))] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return found
