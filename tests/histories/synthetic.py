"""A source table made by hand: any format version, any history, at a few milliseconds a commit.

It knows every file that it wrote, so that it can also remove what no snapshot needs any more. All names come from a
counter: the same steps make the same table.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.avro_bytes import header_of
from tests.histories.encoding import (
    COLUMNS,
    PARTITIONED,
    Entry,
    File,
    Json,
    Manifest,
    Snapshot,
    list_bytes,
    manifest_bytes,
)
from tests.iceberg_files import ADDED, DATA, DELETED, EXISTING
from tests.lake import ORDERS, path_of

START_MS = 1_790_000_000_000
SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda path: f"file://{path}",
    lambda path: f"file:{path}",
    lambda path: path,
)


class Source:
    """One table and its row in the catalog; nothing of it is seen by a reader before `publish`."""

    def __init__(self, database: Path, location: Path, version: int) -> None:
        self._database, self._count, self._data_names = database, 0, 0
        self.files_on_disk: set[Path] = set()
        self.start(location, version)

    def start(self, location: Path, version: int, *, same_names: bool = False) -> None:
        """Another table, with another uuid, under the same name; files of the one before stay where they are.

        With `same_names` its data and delete files have the names that those of the first table had, as Hive's have.
        """
        self._data_names = 0 if same_names else self._data_names
        self.uuid = str(uuid.UUID(int=self._next()))
        self.location, self.version = location, version
        self.data_home: Path | None = None  # where data goes, if not below the location
        self.snapshots: dict[int, Snapshot] = {}
        self.refs: dict[str, Json] = {}
        self.properties: dict[str, str] = {}
        self.statistics: dict[int, Json] = {}
        self.schemas: list[list[Json]] = [COLUMNS]
        self.spec_id, self.sequence, self.next_row_id = 0, 0, 0
        self.log: list[Json] = []
        self.codec = "deflate"
        self.is_packed, self.spelling = False, 0

    # ------------------------------------------------------------------------------------------- what it consists of

    def head(self, ref: str = "main") -> Snapshot | None:
        found = self.refs.get(ref)
        return None if found is None else self.snapshots[found["snapshot-id"]]

    def live(self, ref: str, content: int | None = DATA) -> list[Entry]:
        head = self.head(ref)
        return [] if head is None else [one for one in head.live if content in (None, one.file.content)]

    def codecs(self, ref: str) -> set[str]:
        """Those by which the manifests of a ref, and its list, are packed."""
        head = self.head(ref)
        paths = [] if head is None else [head.list_path, *(one.path for one in head.manifests)]
        return {header_of(path_of(path).read_bytes())["avro.codec"] for path in paths}

    def branches(self) -> list[str]:
        return [name for name, ref in self.refs.items() if ref["type"] == "branch"] or ["main"]

    # --------------------------------------------------------------------------------------------------------- files

    def write(self, folder: str, name: str, data: bytes, *, spelled: bool = True) -> str:
        home = self.data_home if self.data_home is not None and folder == "data" else self.location
        path = f"{home}/{folder}/{self._number(folder):05d}-{name}"
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        self.files_on_disk.add(target)
        return SPELLINGS[self.spelling if spelled else 0](path)

    def _number(self, folder: str) -> int:
        """Names of metadata are never used again, by no writer."""
        if folder != "data":
            return self._next()
        self._data_names += 1
        return self._data_names

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _manifest(self, entries: Sequence[Entry], snapshot_id: int, sequence: int) -> Manifest:
        deletes, spec_id = entries[0].file.content != DATA, entries[0].file.spec_id
        data = manifest_bytes(entries, version=self.version, deletes=deletes, spec_id=spec_id, codec=self.codec)
        path = self.write("metadata", "m0.avro", data)
        first = self.next_row_id if self.version == 3 and not deletes else None
        return Manifest(path, len(data), deletes, spec_id, sequence, snapshot_id, tuple(entries), first)

    def manifests_of(
        self, entries: Iterable[Entry], snapshot_id: int, sequence: int, split: int = 99
    ) -> list[Manifest]:
        """Entries of one kind and one spec each, at most `split` in a manifest."""
        groups: dict[tuple[bool, int], list[Entry]] = {}
        for one in entries:
            groups.setdefault((one.file.content != DATA, one.file.spec_id), []).append(one)
        return [
            self._manifest(group[start : start + split], snapshot_id, sequence)
            for group in groups.values()
            for start in range(0, len(group), split)
        ]

    # ------------------------------------------------------------------------------------------------------- commits

    def commit(
        self,
        ref: str | None,
        *,
        add: Sequence[File] = (),
        remove: Iterable[File] = (),
        split: int = 99,
        from_scratch: bool = False,
    ) -> Snapshot:
        """A snapshot on a ref that adds and removes files; without a ref it is staged on main's head.

        Manifests that lose a file are written anew: the rest of their entries is carried over as EXISTING.
        """
        parent = None if from_scratch else self.head(ref or "main")
        snapshot_id, sequence = self._new_ids()
        gone = {one.key for one in remove}
        manifests = []
        for manifest in parent.manifests if parent else ():
            if any(one.is_live and one.file.key in gone for one in manifest.entries):
                kept = [
                    one.again(DELETED, snapshot_id) if one.file.key in gone else one.again(EXISTING)
                    for one in manifest.entries
                    if one.is_live
                ]
                manifests += self.manifests_of(kept, snapshot_id, sequence)
            else:
                manifests.append(manifest)
        added = [Entry(file, ADDED, snapshot_id, sequence) for file in add]
        manifests += self.manifests_of(added, snapshot_id, sequence, split)
        return self._take(ref, parent, snapshot_id, sequence, manifests, is_append=not gone and not from_scratch)

    def rewrite_manifests(self, ref: str, chosen: Callable[[int], bool], split: int) -> None:
        """Chosen manifests become new ones that hold their live entries only."""
        parent = self.head(ref)
        assert parent is not None
        snapshot_id, sequence = self._new_ids()
        kept = [one for number, one in enumerate(parent.manifests) if not chosen(number)]
        merged = [one for number, one in enumerate(parent.manifests) if chosen(number)]
        entries = [one.again(EXISTING) for manifest in merged for one in manifest.entries if one.is_live]
        new = self.manifests_of(entries, snapshot_id, sequence, split)
        self._take(ref, parent, snapshot_id, sequence, [*new, *kept], is_append=False)

    def _new_ids(self) -> tuple[int, int]:
        snapshot_id = 7_000_000_000_000_000_000 + self._next()
        self.sequence += self.version > 1
        return snapshot_id, self.sequence

    def _take(
        self,
        ref: str | None,
        parent: Snapshot | None,
        snapshot_id: int,
        sequence: int,
        manifests: Sequence[Manifest],
        *,
        is_append: bool,
    ) -> Snapshot:
        data = list_bytes(manifests, version=self.version, codec=self.codec)
        path = self.write("metadata", f"snap-{snapshot_id}.avro", data)
        new = [one for manifest in manifests for one in manifest.entries if one.snapshot_id == snapshot_id]
        rows = sum(one.file.record_count for one in new if one.status == ADDED and one.file.content == DATA)
        row_ids = (self.next_row_id, rows) if self.version == 3 else None
        self.next_row_id += rows if self.version == 3 else 0
        parent_id, now = None if parent is None else parent.id, START_MS + 1000 * self._next()
        schema_id = len(self.schemas) - 1
        made = Snapshot(snapshot_id, parent_id, sequence, now, path, schema_id, tuple(manifests), is_append, row_ids)
        self.snapshots[snapshot_id] = made
        if ref is not None:
            self.point(ref, snapshot_id)
        return made

    def point(self, ref: str, snapshot_id: int, kind: str = "branch") -> None:
        self.refs[ref] = {**self.refs.get(ref, {"type": kind}), "snapshot-id": snapshot_id}
        if ref == "main":
            self.log.append({"snapshot-id": snapshot_id, "timestamp-ms": START_MS + 1000 * self._next()})

    def expire(self, keep: Callable[[int], bool]) -> None:
        """Snapshots that no ref needs and nobody wants to keep go, and with them every file that nothing names."""
        wanted = {ref["snapshot-id"] for ref in self.refs.values()}
        self.snapshots = {one: made for one, made in self.snapshots.items() if one in wanted or keep(one)}
        self.statistics = {one: made for one, made in self.statistics.items() if one in self.snapshots}
        while self.log and self.log[0]["snapshot-id"] not in self.snapshots:
            del self.log[0]
        for path in self.files_on_disk - self._reachable():
            path.unlink()
            self.files_on_disk.remove(path)

    def _reachable(self) -> set[Path]:
        paths = {made["statistics-path"] for made in self.statistics.values()}
        for snapshot in self.snapshots.values():
            paths |= {snapshot.list_path, *(one.path for one in snapshot.manifests)}
            paths |= {one.file.path for one in snapshot.live}
        return {path_of(path) for path in paths}

    # ------------------------------------------------------------------------------------------------------- publish

    def publish(self) -> str:
        """Write the metadata and move the catalog's pointer."""
        data = json.dumps(self._metadata()).encode()
        name = "v.gz.metadata.json" if self.is_packed else "v.metadata.json"
        uri = self.write("metadata", name, gzip.compress(data) if self.is_packed else data, spelled=False)
        self.point_catalog(uri)
        return uri

    def point_catalog(self, uri: str | None) -> None:
        """None: the table is dropped."""
        key = ("onprem", ".".join(ORDERS.namespace), ORDERS.name)
        connection = sqlite3.connect(self._database)
        with connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(
                "DELETE FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?", key
            )
            if uri is not None:
                connection.execute(
                    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location,"
                    " iceberg_type) VALUES (?, ?, ?, ?, 'TABLE')",
                    (*key, uri),
                )
        connection.close()

    def _metadata(self) -> Json:
        head = self.head()
        version = self.version
        schemas = [
            {"type": "struct", "schema-id": number, "fields": columns} for number, columns in enumerate(self.schemas)
        ]
        specs = [{"spec-id": 0, "fields": []}, {"spec-id": 1, "fields": [PARTITIONED]}]
        made: Json = {
            "format-version": version,
            "table-uuid": self.uuid,
            "location": f"file://{self.location}",
            "last-updated-ms": START_MS + 1000 * self._next(),
            "last-column-id": max(column["id"] for columns in self.schemas for column in columns),
            "schemas": schemas,
            "current-schema-id": len(schemas) - 1,
            "partition-specs": specs,
            "default-spec-id": self.spec_id,
            "last-partition-id": 1000,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": self.properties,
            "current-snapshot-id": -1 if head is None else head.id,
            "snapshots": [one.as_json(version) for one in self.snapshots.values()],
            "snapshot-log": self.log,
            "metadata-log": [],
            "refs": self.refs,
            "statistics": [*self.statistics.values()],
            "a-field-of-tomorrow": {"kept": True},
        }
        if version > 1:
            made["last-sequence-number"] = self.sequence
        else:
            made |= {"schema": schemas[-1], "partition-spec": specs[self.spec_id]["fields"]}
        if version == 3:
            made["next-row-id"] = self.next_row_id
        return made
