"""A table of the corpus in memory, mirrored and followed by the real application; every URI that is asked for is noted.

lake = MemoryLake("v2", start="mirrored")
lake.source.objects[uri] = hostile
lake.run()                        # what a scheduler would do, and what must not happen is a BrokenPromise
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml

from lakemirror.app import App
from lakemirror.catalogs.abilities import CatalogAbilities, CatalogDemands
from lakemirror.catalogs.ports import MirrorHead, Published
from lakemirror.config.loader import load_config
from lakemirror.config.models import Config
from lakemirror.errors import LakemirrorError, LostRaceError
from lakemirror.model.table import TableRef
from lakemirror.replicate.stage import LocalEngine
from lakemirror.storage.port import ObjectStore
from tests.fuzz import seeds
from tests.fuzz.memory_store import LONG_AGO, MemoryStore
from tests.wires import wire_over

TABLE = TableRef.parse("db.t")
MIRROR = "gs://mirror/lake"
ROOT = f"{MIRROR}/db/t"
Start = Literal["empty", "mirrored", "planned"]


class BrokenPromise(AssertionError):
    """Something happened that no input may bring about."""


@dataclass
class FixedCatalog:
    """One table; `moves` are the pointers that were set."""

    pointer: str | None
    moves: list[str] = field(default_factory=list)

    def head(self, table: TableRef) -> str | None:
        return self.pointer

    def tables(self) -> tuple[TableRef, ...]:
        return (TABLE,)

    def file_io(self) -> Mapping[str, str]:
        return {}

    def load(self, table: TableRef) -> MirrorHead | None:
        return None if self.pointer is None else MirrorHead(self.pointer)

    def commit(self, table: TableRef, expected: MirrorHead | None, new: Published) -> None:
        if self.load(table) != expected:
            raise LostRaceError("commit", str(table), "head moved", "run again")
        self.pointer = new.metadata_uri
        self.moves.append(new.metadata_uri)

    def demands(self) -> CatalogDemands:
        return CatalogDemands()

    def abilities(self) -> CatalogAbilities:
        return CatalogAbilities("memory", "pointer", has_namespace_levels=True)

    def drop(self, table: TableRef, expected: MirrorHead) -> None:
        if self.load(table) not in (None, expected):
            raise LostRaceError("drop", str(table), "head moved", "run again")
        self.pointer = None


class MemoryLake:
    """Source and mirror of one table. `planned` has a plan of the second version, whose stages then run one by one."""

    def __init__(self, name: str, start: Start = "mirrored") -> None:
        self.name, self.start = name, start
        files = seeds.tables()[name]
        self.location = f"{seeds.PLACE}/{name}"
        self.source = MemoryStore(dict(files))
        self.source_catalog = FixedCatalog(seeds.metadata_uri(files))
        self.mirror, self.mirror_catalog = MemoryStore(), FixedCatalog(None)
        self.detected: tuple[str, str] | None = None
        if start != "empty":
            objects, self.mirror_catalog.pointer, self.detected = _prepared(name, start)
            self.mirror.objects.update(objects)

    def app(self) -> App:
        app = App(
            _config(),
            wrap_store=lambda side, store: self._store(side),
            wrap_wire=lambda side, wire: lambda: wire_over(self._store(side)),
            now=lambda: LONG_AGO,
            owner="fuzz",  # one run, whatever process goes on with it
        )
        app._ports.__dict__.update(source_catalog=self.source_catalog, mirror_catalog=self.mirror_catalog)
        return app

    def _store(self, side: str) -> ObjectStore:
        store: ObjectStore = self.source if side == "source" else self.mirror
        return store

    def run(self) -> None:
        """Mirror and follow; raises what they raise. Whatever happens, the promises are checked."""
        before = self._ready(), self.mirror_catalog.pointer
        failure: BaseException | None = None
        try:
            self._go()
        except LakemirrorError as err:
            failure = err
        self._check_promises()
        if failure is not None:
            raise failure
        self._check_commit(before[1])

    def _go(self) -> None:
        app, engine = self.app(), LocalEngine(1)
        before = self._ready(), self.mirror_catalog.pointer
        try:
            if self.start == "planned" and self.detected is not None:
                uri, _ = self.detected
                app.copy_objects(TABLE, uri, engine)
                app.rewrite_metadata(TABLE, uri, engine)
                app.publish(TABLE, uri, full_verify=True)
            else:
                app.mirror(TABLE, engine=engine, full_verify=True)
        except LakemirrorError:
            if self._ready() != before[0]:
                raise BrokenPromise("a version became ready though the run failed") from None
            raise
        finally:
            app.status(TABLE)
            app.follow(TABLE)

    def follow(self) -> None:
        """The follower alone, as it runs on its own side; a hostile bucket may not make it commit what is not ours."""
        before = self.mirror_catalog.pointer
        try:
            self.app().follow(TABLE)
        finally:
            self._check_promises()
            self._check_commit(before)

    def _ready(self) -> set[str]:
        return {uri for uri in self.mirror.objects if uri.startswith(f"{ROOT}/_ready/")}

    def _check_promises(self) -> None:
        for verb, uri in self.source.calls:
            if verb in ("put", "delete", "copy") or not _is_inside(uri, self.location):
                raise BrokenPromise(f"{verb} of {uri[:200]!r} on the source")
        for verb, uri in self.mirror.calls:
            is_register = uri.startswith(f"{MIRROR}/_tables")
            if not _is_inside(uri, ROOT) and not is_register:
                raise BrokenPromise(f"{verb} of {uri[:200]!r} on the mirror")

    def _check_commit(self, before: str | None) -> None:
        pointer = self.mirror_catalog.pointer
        if pointer == before:
            return
        if pointer is None or not _is_inside(pointer, ROOT) or pointer not in self.mirror.objects:
            raise BrokenPromise(f"the follower committed {str(pointer)[:200]!r}")
        metadata = json.loads(self.mirror.objects[pointer])
        named = [metadata["location"], *(one["manifest-list"] for one in metadata["snapshots"])]
        named += [one["statistics-path"] for part in _STATISTICS for one in metadata.get(part) or ()]
        for path in named:
            if path != ROOT and not _is_inside(path, ROOT):
                raise BrokenPromise(f"the follower committed a table that names {path[:200]!r}")


_STATISTICS = ("statistics", "partition-statistics")


def _is_inside(uri: str, root: str) -> bool:
    """Written apart from the library's own."""
    plain = uri.replace("file:///", "/").replace("file:/", "/")
    outside = root.replace("file:///", "/") + "/"
    return plain.startswith(outside) and not {"..", "."} & set(plain.split("/"))


def metadata_of(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return found


def earlier(metadata: dict[str, Any]) -> bytes:
    """The table as it was at its first snapshot."""
    first = metadata["snapshots"][0]
    past = {**metadata, "snapshots": [first], "current-snapshot-id": first["snapshot-id"]}
    past["refs"] = {"main": {"snapshot-id": first["snapshot-id"], "type": "branch"}}
    past["snapshot-log"] = metadata["snapshot-log"][:1]
    past["last-updated-ms"] = first["timestamp-ms"]
    past.update({part: [] for part in _STATISTICS if part in metadata})
    return json.dumps(past).encode()


@lru_cache(maxsize=32)
def _prepared(name: str, start: Start) -> tuple[dict[str, bytes], str | None, tuple[str, str] | None]:
    lake = MemoryLake(name, "empty")
    head = str(lake.source_catalog.pointer)
    past = f"{lake.location}/metadata/past.metadata.json"
    lake.source.objects[past] = earlier(metadata_of(lake.source.objects[head]))
    lake.source_catalog.pointer = past
    lake.app().mirror(TABLE)
    lake.app().follow(TABLE)
    found = None
    if start == "planned":
        lake.source_catalog.pointer = head
        detected = lake.app().detect(TABLE)
        found = str(detected.plan_uri), str(detected.source_name)
        lake.app().plan_diff(TABLE, *found, LocalEngine(1))
    return lake.mirror.objects, lake.mirror_catalog.pointer, found


@lru_cache(maxsize=1)
def _config() -> Config:
    catalogs = {side: {"name": side, "type": "sql", "uri": "sqlite:///none.db"} for side in ("source", "mirror")}
    document = {
        "source": {"catalog": catalogs["source"]},
        "mirror": {"catalog": catalogs["mirror"], "location": MIRROR},
        "tables": [{"name": str(TABLE)}],
    }
    with tempfile.TemporaryDirectory(prefix="lakemirror-fuzz-") as folder:
        path = Path(folder, "lake.yaml")
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return load_config(path)
