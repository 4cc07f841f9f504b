"""Detect: is there anything to do, and what exactly changed between the mirror's newest version and the source's head.

An unchanged table costs one catalog call and no read of a source object. A changed one costs its metadata.json and the
manifest lists of snapshots that are new; everything known already comes from the mirror's own index.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakemirror import bridge
from lakemirror.catalogs.ports import SourceCatalog
from lakemirror.errors import PermanentError, SourceVanishedError, UsageError
from lakemirror.formats.iceberg import manifest_list, metadata_json
from lakemirror.formats.iceberg.metadata_json import Json
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import Marker
from lakemirror.model.paths import PrefixMap, canonical
from lakemirror.model.results import Lane
from lakemirror.model.table import TableRef
from lakemirror.replicate import index as indexes
from lakemirror.replicate.change import MANIFESTS, Change, plan_id_of
from lakemirror.replicate.index import VersionIndex
from lakemirror.storage.keys import check_key
from lakemirror.storage.port import ObjectNotFound, ObjectStore

UNKNOWN_COUNT = 1 << 40


@dataclass(frozen=True, slots=True)
class Policy:
    """The knobs that detection obeys."""

    small_change_files: int
    small_change_bytes: int
    follow_rollback: bool = True
    follow_recreated: bool = True


@dataclass(frozen=True, slots=True)
class Sides:
    """The ports that detection reads: the source, and the mirror bucket."""

    catalog: SourceCatalog
    source: ObjectStore
    mirror: ObjectStore
    roots: Mapping[str, str]  # name of a further root → its source prefix


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Nothing to do; `reason` says why in words."""

    newest: Marker | None
    reason: str


def detect(
    table: TableRef, layout: TableLayout, sides: Sides, policy: Policy, target_snapshot_id: int | None = None
) -> Change | Unchanged:
    """The step from the newest ready marker to the source's head (or to `target_snapshot_id`)."""
    location = sides.catalog.head(table)
    ordinals = bridge.published(sides.mirror, layout)
    newest = None if ordinals.newest is None else bridge.read_ready(sides.mirror, layout, ordinals.newest)
    if location is None:
        if newest is None:
            raise PermanentError("detect", str(table), "the source catalog has no such table", "check its name")
        return Unchanged(newest, "the source table was dropped; the mirror stays as it is")
    if newest is not None and newest.source_metadata_location == _source_name(location, target_snapshot_id):
        return Unchanged(newest, "the source has not changed")
    metadata = read_metadata(sides.source, location)
    metadata_json.refuse_unsupported(metadata, str(table))
    head = _head(metadata, target_snapshot_id, table)
    fingerprint = _fingerprint(metadata, head)
    if newest is not None and newest.epoch == metadata["table-uuid"] and newest.source_fingerprint == fingerprint:
        return Unchanged(newest, "nothing that a reader could see has changed on the source")
    if newest is not None:
        _check_policy(table, metadata, head, newest, policy)
    same_epoch = newest is not None and newest.epoch == metadata["table-uuid"]
    paths = prefix_map(metadata["location"], layout, sides.roots)
    known = (
        indexes.load(sides.mirror, newest.index_uri, newest.index_sha256)
        if newest and same_epoch
        else VersionIndex.empty(paths)
    )
    _refuse_other_map(table, paths, known.paths)
    step = _Step(table, metadata, head, known, paths)
    name = _source_name(location, target_snapshot_id)
    version = ordinals.last_used + 1
    metadata_json.for_mirror(metadata, paths, version, head, step.retained())  # refuses what could not be written later
    manifests, new_lists = step.manifests(sides.source)
    at_most = sum(_count(row) for row in manifests if row["state"] == "added")
    statistics = step.new_statistics()
    facts = {"table": str(table), "epoch": metadata["table-uuid"], "source": name, "version": version}
    parent = {"from": newest.version if newest else None, "checksum": newest.checksum if newest else None}
    return Change(
        table=table,
        plan_id=plan_id_of({**facts, **parent, "paths": paths.digest}),
        epoch=metadata["table-uuid"],
        version=version,
        from_version=newest.version if newest else None,
        parent_checksum=newest.checksum if newest else None,
        source_metadata_location=name,
        source_fingerprint=fingerprint,
        head=head,
        retained=step.retained(),
        referenced=step.referenced(),
        new_lists=new_lists,
        statistics=statistics,
        known_statistics=known.statistics & {path for path, _ in step.statistics()},
        files_at_most=min(at_most, UNKNOWN_COUNT) + len(statistics),
        lane=_lane(at_most + len(statistics), _bytes_at_most(metadata, head, newest if same_epoch else None), policy),
        rules=paths.rules,
        manifests=_table(manifests),
    )


def read_metadata(store: ObjectStore, location: str) -> Json:
    """The source's metadata.json; one that vanished means that the head moved on: try again."""
    location = location.partition("#snapshot=")[0]
    try:
        return metadata_json.parse(store.get(location).data, location)
    except ObjectNotFound as err:
        raise SourceVanishedError("detect", location, "the source's metadata file is gone", "run again") from err


def prefix_map(location: str, layout: TableLayout, roots: Mapping[str, str]) -> PrefixMap:
    """Where this table's files go: its own location to its folder, further roots below `_roots`."""
    rules = {prefix: layout.further_root(name) for name, prefix in roots.items()}
    rules = {canonical(prefix).rstrip("/"): target for prefix, target in rules.items()}
    rules[canonical(location).rstrip("/")] = layout.root
    return PrefixMap.of(rules)


def _refuse_other_map(table: TableRef, paths: PrefixMap, before: PrefixMap) -> None:
    """Manifests of the mirror hold old places of files; deletes written by another map would miss those files."""
    change = paths.first_change(before)
    if change is not None:
        raise PermanentError(
            "detect",
            str(table),
            f"the table's location or a source root has changed: {change}",
            "set it back: a mirror table cannot change its map in this version",
        )


@dataclass(frozen=True, slots=True)
class _Step:
    """The arithmetic of one step: what is referenced, retained, new, known and gone."""

    table: TableRef
    metadata: Json
    head: int | None
    known: VersionIndex
    paths: PrefixMap

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

    def retained(self) -> tuple[int, ...]:
        there = metadata_json.snapshots(self.metadata).keys()
        return tuple(sorted((self.known.mirrored & there) | set(self.referenced())))

    def statistics(self) -> list[tuple[str, int]]:
        return metadata_json.statistics_files(self.metadata, self.retained())

    def new_statistics(self) -> tuple[tuple[str, int], ...]:
        return tuple(sorted({(path, size) for path, size in self.statistics() if path not in self.known.statistics}))

    def manifests(self, source: ObjectStore) -> tuple[list[dict[str, object]], tuple[tuple[int, str], ...]]:
        """One row for each manifest of the old and the new version, and the lists that had to be read."""
        there = metadata_json.snapshots(self.metadata)
        known = {row["source"]: row for row in self.known.manifests.to_pylist()}
        have = self.known.referenced
        rows: dict[str, dict[str, object]] = {}
        new_lists = []
        for snapshot_id in self.referenced():
            if snapshot_id in have:
                for row in known.values():
                    if snapshot_id in row["snapshots"]:
                        rows.setdefault(row["source"], _reused(row))["snapshots"].append(snapshot_id)  # type: ignore[attr-defined]
                continue
            list_path = there[snapshot_id]["manifest-list"]
            new_lists.append((snapshot_id, list_path))
            for ref in self._read_list(source, there[snapshot_id]):
                row = _reused(known[ref.path]) if ref.path in known else self._added(ref)
                rows.setdefault(ref.path, row)["snapshots"].append(snapshot_id)  # type: ignore[attr-defined]
        gone = [{**_reused(row), "state": "removed"} for source, row in known.items() if source not in rows]
        return [*rows.values(), *gone], tuple(new_lists)

    def _read_list(self, source: ObjectStore, snapshot: Json) -> tuple[manifest_list.ManifestRef, ...]:
        path = snapshot["manifest-list"]
        check_key(self.paths.map(path))
        try:
            found = manifest_list.read(source.get(path).data, path)
        except ObjectNotFound as err:
            raise SourceVanishedError("detect", path, "the source's manifest list is gone", "run again") from err
        if not found and metadata_json.has_files(snapshot):
            raise PermanentError(
                "detect",
                path,
                "the manifest list is empty, but the snapshot's summary tells of files",
                "the file is cut; repair the source",
            )
        return found

    def _added(self, ref: manifest_list.ManifestRef) -> dict[str, object]:
        target = self.paths.map(ref.path)
        check_key(target)
        return {
            "source": ref.path,
            "target": target,
            "source_length": ref.length,
            "target_length": None,
            "has_deletes": ref.has_deletes,
            "has_existing": ref.existing_files is None or ref.existing_files > 0,
            "state": "added",
            "snapshots": [],
            "count": UNKNOWN_COUNT if ref.added_files is None else ref.added_files + (ref.existing_files or 0),
        }


def _reused(row: Mapping[str, object]) -> dict[str, object]:
    return {**row, "state": "reused", "has_existing": False, "snapshots": []}


def _count(row: Mapping[str, object]) -> int:
    return int(row["count"])  # type: ignore[call-overload,no-any-return]


def _table(rows: Iterable[Mapping[str, object]]) -> pa.Table:
    ordered = sorted(rows, key=lambda row: str(row["source"]))
    return pa.Table.from_pylist([{name: row[name] for name in MANIFESTS.names} for row in ordered], MANIFESTS)


def _source_name(location: str, target_snapshot_id: int | None) -> str:
    return location if target_snapshot_id is None else f"{location}#snapshot={target_snapshot_id}"


def _head(metadata: Json, target_snapshot_id: int | None, table: TableRef) -> int | None:
    if target_snapshot_id is None:
        return metadata_json.current_snapshot_id(metadata)
    if target_snapshot_id not in metadata_json.snapshots(metadata):
        raise UsageError(
            "detect", str(table), f"the source has no snapshot {target_snapshot_id}", "look at its history"
        )
    return target_snapshot_id


def _fingerprint(metadata: Json, head: int | None) -> str:
    fields = {**metadata_json.fingerprint_fields(metadata), "head": head}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _check_policy(table: TableRef, metadata: Json, head: int | None, newest: Marker, policy: Policy) -> None:
    if newest.epoch != metadata["table-uuid"]:
        if not policy.follow_recreated:
            raise PermanentError(
                "detect",
                str(table),
                f"the source table was recreated (want uuid {newest.epoch}, got {metadata['table-uuid']})",
                "set on_source_recreated: follow to mirror the new table",
            )
        return
    sequence = _sequence_number(metadata, head)
    if sequence < newest.sequence_number and not policy.follow_rollback:
        raise PermanentError(
            "detect",
            str(table),
            f"the source was rolled back (from sequence number {newest.sequence_number} to {sequence})",
            "set on_source_rollback: follow to let the mirror go back too",
        )


def _sequence_number(metadata: Json, snapshot_id: int | None) -> int:
    return 0 if snapshot_id is None else int(metadata_json.snapshots(metadata)[snapshot_id].get("sequence-number", 0))


def _bytes_at_most(metadata: Json, head: int | None, newest: Marker | None) -> int | None:
    """What the summaries say the change can weigh; None if they do not say."""
    if head is None:
        return 0
    there = metadata_json.snapshots(metadata)
    known = newest.sequence_number if newest else 0
    sizes = [there[head].get("summary", {}).get("total-files-size")] if newest is None else []
    if newest is not None:
        later = [snapshot for snapshot in there.values() if snapshot.get("sequence-number", 0) > known]
        sizes = [
            summary.get("added-files-size", "0" if summary.get("operation") in ("delete", "replace") else None)
            for summary in (snapshot.get("summary", {}) for snapshot in later)
        ]
    if any(size is None for size in sizes):
        return None
    return sum(int(size) for size in sizes if size is not None)


def _lane(files_at_most: int, bytes_at_most: int | None, policy: Policy) -> Lane:
    if files_at_most == 0:
        return "task"
    is_small = files_at_most <= policy.small_change_files and bytes_at_most is not None
    return "task" if is_small and (bytes_at_most or 0) <= policy.small_change_bytes else "spark"
