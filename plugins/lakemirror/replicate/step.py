"""The arithmetic of one step from the mirror's newest version to the next: what is referenced, new, known and gone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import pyarrow as pa

from lakemirror.errors import PermanentError, SourceVanishedError
from lakemirror.formats.iceberg import manifest_list, metadata_json
from lakemirror.formats.iceberg.metadata_json import Json
from lakemirror.model.paths import PrefixMap
from lakemirror.model.table import TableRef
from lakemirror.replicate.change import MANIFESTS
from lakemirror.replicate.index import VersionIndex
from lakemirror.storage.keys import check_key
from lakemirror.storage.port import ObjectNotFound, ObjectStore

UNKNOWN_COUNT = 1 << 40


class ManifestRow(TypedDict):
    """A row of a change's manifests, and how many live files it can name at most."""

    source: str
    target: str
    source_length: int
    entries: int | None
    target_length: int | None
    crc32c: int | None
    has_deletes: bool
    carries_over: bool
    state: str
    snapshots: list[int]
    count: int


@dataclass(frozen=True, slots=True)
class Step:
    """The arithmetic of one step: what is referenced, retained, new, known and gone."""

    table: TableRef
    metadata: Json
    head: int | None
    known: VersionIndex
    paths: PrefixMap
    retained: tuple[int, ...] = ()
    head_number: int = 0  # the sequence number of the mirror's head

    def referenced(self) -> tuple[int, ...]:
        heads = {name: ref["snapshot-id"] for name, ref in metadata_json.refs(self.metadata).items()}
        heads.pop("main", None)
        there = metadata_json.snapshots(self.metadata)
        wanted = {*heads.values()} | ({self.head} if self.head is not None else set())
        missing = sorted(wanted - there.keys())
        if missing:
            raise PermanentError(
                "detect", str(self.table), f"refs name missing snapshots {missing}", "repair the source"
            )
        return tuple(sorted(wanted))

    def leans_on(self) -> frozenset[int]:
        """The mirrored snapshots that this step starts from: each that refs name, else the nearest one before it."""
        there = metadata_json.snapshots(self.metadata)
        seen: set[int] = set()
        found = set()
        for snapshot_id in self.referenced():
            at: int | None = snapshot_id
            while at is not None and at in there and at not in self.known.mirrored and at not in seen:
                seen.add(at)
                at = there[at].get("parent-snapshot-id")
            if at in self.known.mirrored:
                found.add(at)
        return frozenset(found)

    def statistics(self) -> list[tuple[str, int]]:
        return metadata_json.statistics_files(self.metadata, self.retained)

    def new_statistics(self) -> tuple[tuple[str, int], ...]:
        """Those that the mirror lacks; one that it has under this name with another size is a stop."""
        sizes = dict(self.known.statistics)
        for path, size in self.statistics():
            if sizes.setdefault(path, size) != size:
                raise other_size(path, sizes[path], size)
        return tuple(sorted({*self.statistics()} - self.known.statistics))

    def dangling(self, source: ObjectStore) -> tuple[str, ...]:
        """New statistics files that are gone. Engines read a table without them; so does the mirror, and tells it."""
        new = [path for path, _ in self.new_statistics()]
        for path in new:
            check_key(self.paths.map(path))  # nothing outside the table's places is asked for
        return tuple(path for path in new if not _is_there(source, path))

    def manifests(self, source: ObjectStore) -> tuple[list[ManifestRow], tuple[tuple[int, str, str], ...]]:
        """One row for each manifest of the old and the new version, and the lists that had to be read, hashed."""
        there = metadata_json.snapshots(self.metadata)
        known = {row["source"]: row for row in self.known.manifests.to_pylist()}
        have: dict[int, list[str]] = {}
        for path, row in known.items():
            for snapshot_id in row["snapshots"]:
                have.setdefault(snapshot_id, []).append(path)
        rows: dict[str, ManifestRow] = {}
        new_lists = []
        known_up_to = self._known_up_to(there)
        seen = manifest_list.Seen[manifest_list.ManifestRef]()
        for snapshot_id in self.referenced():
            if snapshot_id in have:
                for path in have[snapshot_id]:
                    if path not in rows:
                        rows[path] = _reused(known[path])
                    rows[path]["snapshots"].append(snapshot_id)
                continue
            refs, digest = self._read_list(source, there[snapshot_id], seen)
            new_lists.append((snapshot_id, there[snapshot_id]["manifest-list"], digest))
            for ref in refs:
                if ref.path not in rows:
                    rows[ref.path] = _reused(known[ref.path]) if ref.path in known else self._added(ref, known_up_to)
                row = rows[ref.path]
                if row["source_length"] != ref.length:
                    raise other_size(ref.path, row["source_length"], ref.length, "rewrite_manifests")
                row["snapshots"].append(snapshot_id)
        gone = [_reused(row, "removed") for source, row in known.items() if source not in rows]
        return [*rows.values(), *gone], tuple(new_lists)

    def _read_list(
        self, source: ObjectStore, snapshot: Json, seen: manifest_list.Seen[manifest_list.ManifestRef]
    ) -> tuple[tuple[manifest_list.ManifestRef, ...], str]:
        path = snapshot["manifest-list"]
        check_key(self.paths.map(path))
        try:
            data = source.get(path, max_bytes=manifest_list.MAX_BYTES).data
        except ObjectNotFound as err:
            raise SourceVanishedError("detect", path, "the source's manifest list is gone", "run again") from err
        found = manifest_list.read(data, path, seen)
        if not found and metadata_json.has_files(snapshot):
            raise PermanentError(
                "detect",
                path,
                "the manifest list is empty, but the snapshot's summary tells of files",
                "the file is cut; repair the source",
            )
        return found, hashlib.sha256(data).hexdigest()

    def _known_up_to(self, there: dict[int, Json]) -> int:
        """The highest sequence number of a commit whose files the mirror can have; 0 in format version 1."""
        numbers = (int(there[one].get("sequence-number") or 0) for one in self.known.mirrored if one in there)
        return max((self.head_number, *numbers))

    def _added(self, ref: manifest_list.ManifestRef, known_up_to: int) -> ManifestRow:
        target = self.paths.map(ref.path)
        check_key(target)
        return {
            "source": ref.path,
            "target": target,
            "source_length": ref.length,
            "entries": None if ref.entries is None else min(ref.entries, UNKNOWN_COUNT),
            "target_length": None,
            "crc32c": None,
            "has_deletes": ref.has_deletes,
            "carries_over": ref.existing_files is None
            or ref.existing_files > 0
            or 0 < ref.sequence_number <= known_up_to,  # what it added, a later manifest may have carried on
            "state": "added",
            "snapshots": [],
            "count": UNKNOWN_COUNT if ref.added_files is None else ref.added_files + (ref.existing_files or 0),
        }


def _is_there(store: ObjectStore, uri: str) -> bool:
    try:
        store.head(uri)
    except ObjectNotFound:
        return False
    return True


def other_size(path: str, want: int, got: int, procedure: str = "rewrite_data_files") -> PermanentError:
    """A file's name was used again. With the same size that cannot be told from what manifests say."""
    return PermanentError(
        "plan",
        path,
        f"a file of this name is mirrored with another size (want {want} bytes, got {got})",
        f"files of a table never change in place: write this one again under a new name on the source ({procedure})",
    )


def _reused(row: Mapping[str, Any], state: str = "reused") -> ManifestRow:
    return {
        "source": row["source"],
        "target": row["target"],
        "source_length": row["source_length"],
        "entries": None,
        "target_length": row["target_length"],
        "crc32c": row["crc32c"],
        "has_deletes": row["has_deletes"],
        "carries_over": False,
        "state": state,
        "snapshots": [],
        "count": 0,
    }


def as_table(rows: Iterable[ManifestRow]) -> pa.Table:
    ordered = sorted(rows, key=lambda row: row["source"])
    return pa.Table.from_pylist([{name: row[name] for name in MANIFESTS.names} for row in ordered], MANIFESTS)  # type: ignore[literal-required]  # the names are the row's own
