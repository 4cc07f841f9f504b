"""Detect: is there anything to do, and what exactly changed between the mirror's newest version and the source's head.

An unchanged table costs one catalog call and no read of a source object. A changed one costs its metadata.json and the
manifest lists of snapshots that are new; everything known already comes from the mirror's own index.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from lakemirror import bridge
from lakemirror.bridge import Newest, Ordinals
from lakemirror.catalogs.ports import SourceCatalog
from lakemirror.errors import LostRaceError, PermanentError, SourceVanishedError, UsageError
from lakemirror.formats.iceberg import metadata_json
from lakemirror.formats.iceberg.metadata_json import Json
from lakemirror.model.layout import TableLayout
from lakemirror.model.marker import Marker, named
from lakemirror.model.paths import PrefixMap, canonical, is_below
from lakemirror.model.source_name import parse_source_name, source_name
from lakemirror.model.table import TableRef
from lakemirror.replicate import index as indexes
from lakemirror.replicate.change import Change
from lakemirror.replicate.history import HistoryBudget, retain
from lakemirror.replicate.index import VersionIndex
from lakemirror.replicate.lane import bytes_at_most, choose_lane
from lakemirror.replicate.rollback import Mirrored, went_back
from lakemirror.replicate.step import UNKNOWN_COUNT, Step, as_table
from lakemirror.storage.keys import check_prefix
from lakemirror.storage.port import ObjectNotFound, ObjectStore

LIFT = 16
"""How much each version raises the highest column id. A commit by requirements moves it by one, so a version may be
committed again over what somebody else wrote to it, and the next one still has a number of its own (ADR 18)."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The knobs that detection obeys."""

    small_change_files: int
    small_change_bytes: int
    follow_rollback: bool = True
    follow_recreated: bool = True
    accepts_v1: bool = True  # what the mirror's catalog says to tables of format version 1
    lifts_column_ids: bool = False  # the mirror's catalog compares numbers of the metadata, not files
    history: HistoryBudget = field(default_factory=HistoryBudget)


@dataclass(frozen=True, slots=True)
class Sides:
    """The ports that detection reads: the source, and the mirror bucket."""

    catalog: SourceCatalog
    source: ObjectStore
    mirror: ObjectStore
    roots: Mapping[str, str]  # name of a further root → its source prefix
    private: tuple[str, ...] = ()  # further places of the source that the mirror's metadata must not name


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Nothing to do; `reason` says why in words."""

    newest: Marker | None
    reason: str
    is_current: bool = True  # the newest version is all that the source has
    committed_at: datetime | None = None  # of the source's state, if that is another than the newest version is of


def detect(
    table: TableRef, layout: TableLayout, sides: Sides, policy: Policy, target_snapshot_id: int | None = None
) -> Change | Unchanged:
    """The step from the newest ready marker to the source's head (or to `target_snapshot_id`).

    The source is asked after the markers: its head is then at least as new as what they show. A run that slept between
    the two would otherwise take what others published meanwhile for its parent, and bring the mirror back to what the
    source was before.
    """
    chain = _read_chain(sides, layout)
    return _step_to(table, layout, sides, policy, chain, sides.catalog.head(table), target_snapshot_id)


def detect_again(table: TableRef, layout: TableLayout, sides: Sides, policy: Policy, name: str) -> Change:
    """The change that `detect` found, worked out anew from the name it gave to the source's state.

    A later stage, in another process, has the same change without anything having been written. If the mirror has
    moved on meanwhile there is no such change any more.
    """
    location, target_snapshot_id = parse_source_name(name)
    found = _step_to(table, layout, sides, policy, _read_chain(sides, layout), location, target_snapshot_id)
    if isinstance(found, Unchanged):
        raise LostRaceError("plan", str(table), f"another run was faster: {found.reason}", "run again: it plans anew")
    return found


@dataclass(frozen=True, slots=True)
class _Chain:
    """Where the mirror stands: its newest version, and which ordinals were used, dropped or demoted."""

    found: Newest | None
    ordinals: Ordinals


def _read_chain(sides: Sides, layout: TableLayout) -> _Chain:
    ordinals = bridge.published(sides.mirror, layout)
    return _Chain(bridge.read_newest(sides.mirror, layout, ordinals), ordinals)


def _step_to(
    table: TableRef,
    layout: TableLayout,
    sides: Sides,
    policy: Policy,
    chain: _Chain,
    location: str | None,
    target_snapshot_id: int | None,
) -> Change | Unchanged:
    newest = None if chain.found is None else chain.found.marker
    if chain.found is not None:
        bridge.refuse_late(sides.mirror, layout, chain.found)
    if location is None:
        if newest is None and chain.ordinals.dropped:
            return Unchanged(None, "the source table was dropped, and its mirror too")
        if newest is None:
            raise PermanentError("detect", str(table), "the source catalog has no such table", "check its name")
        return Unchanged(newest, "the source table was dropped; the mirror stays as it is", is_current=False)
    # Readers may have seen a later version that was demoted since, or somebody may have built on it. They are never led
    # back: what the source shows again is published once more.
    last = newest if chain.ordinals.is_newest_last else None
    if last is not None and last.source_metadata_location == source_name(location, target_snapshot_id):
        return Unchanged(last, "the source has not changed")
    metadata = read_metadata(sides.source, location)
    metadata_json.refuse_unsupported(metadata, str(table), accepts_v1=policy.accepts_v1)
    head = _head(metadata, target_snapshot_id, table)
    fingerprint = fingerprint_of(metadata, head)
    if last is not None and last.epoch == metadata["table-uuid"] and last.source_fingerprint == fingerprint:
        told = "nothing that a reader could see has changed on the source"
        return Unchanged(last, told, committed_at=metadata_json.at(metadata["last-updated-ms"]))
    if newest is not None:
        _check_policy(table, metadata, head, newest, policy)
    same_epoch = newest is not None and newest.epoch == metadata["table-uuid"]
    index = indexes.load(sides.mirror, newest.index_uri, newest.index_sha256) if newest and same_epoch else None
    known, left_out = _known(index, metadata, layout, sides, is_first=newest is None)
    paths = replace(known.paths, private=PrefixMap.of({}, sides.private).private)
    name = source_name(location, target_snapshot_id)
    version = chain.ordinals.last_used + 1
    lift = version * LIFT if policy.lifts_column_ids else 0
    known, moved = _with_its_lists(known, metadata, paths)
    step = Step(table, metadata, head, known, paths, head_number=newest.sequence_number if newest else 0)
    if forgotten := moved - {*step.referenced()}:
        left_out += (f"{len(forgotten)} earlier versions: their manifest lists lie elsewhere on the source now",)
    retained = retain(
        str(table),
        metadata,
        version,
        known.mirrored,
        step.referenced(),
        policy.history,
        lambda kept: metadata_json.for_mirror(metadata, paths, version, head, kept, location=layout.root, lift=lift),
    )
    unreferenced = {*retained.snapshots} - {*step.referenced()}
    earlier = known.handed_on(newest.index_sha256, unreferenced) if newest else ()
    known = known.recalling(sides.mirror, layout, step.leans_on())
    step = replace(step, known=known, retained=retained.snapshots)
    manifests, new_lists = step.manifests(sides.source)
    at_most = sum(row["count"] for row in manifests if row["state"] == "added")
    dangling = step.dangling(sides.source)
    statistics = tuple((path, size) for path, size in step.new_statistics() if path not in dangling)
    left_out = (*left_out, *(f"statistics whose file is gone at the source: {path}" for path in dangling))
    weight = bytes_at_most(metadata, [snapshot_id for snapshot_id, *_ in new_lists], known.mirrored)
    change = Change(
        table=table,
        plan_id="",
        epoch=metadata["table-uuid"],
        version=version,
        from_version=newest.version if newest else None,
        parent_checksum=newest.checksum if newest else None,
        demoted=named(chain.ordinals.gone),
        dropped=chain.ordinals.dropped,
        lift=lift,
        source_metadata_location=name,
        source_fingerprint=fingerprint,
        head=head,
        retained=retained.snapshots,
        referenced=step.referenced(),
        new_lists=new_lists,
        statistics=statistics,
        known_statistics=known.statistics & {*step.statistics()},
        dangling=dangling,
        files_at_most=min(at_most, UNKNOWN_COUNT) + len(statistics),
        lane=choose_lane(at_most + len(statistics), weight, policy.small_change_files, policy.small_change_bytes),
        rules=paths.rules,
        private=paths.private,
        generation=known.generation,
        left_out=(*left_out, *retained.left_out),
        manifests=as_table(manifests),
        earlier=earlier,
        former=known.former,
    )
    return replace(change, plan_id=change.expected_plan_id)


def read_metadata(store: ObjectStore, location: str) -> Json:
    """The source's metadata.json; one that vanished means that the head moved on: try again."""
    location, _ = parse_source_name(location)
    try:
        return metadata_json.parse(store.get(location, max_bytes=metadata_json.MAX_METADATA_BYTES).data, location)
    except ObjectNotFound as err:
        raise SourceVanishedError("detect", location, "the source's metadata file is gone", "run again") from err


def _known(
    index: VersionIndex | None, metadata: Json, layout: TableLayout, sides: Sides, *, is_first: bool
) -> tuple[VersionIndex, tuple[str, ...]]:
    """What the newest version holds under the map that is in force now.

    Manifests of the mirror hold places of files; deletes written by another map would miss those files. So a map that
    sends any place elsewhere than this generation ever did begins anew, in a folder of its own that is named by it:
    nothing that was written under another map is built on, and nothing of it is overwritten. So does a table that was
    recreated: its files may have the names of those that the mirror has of the table before it.
    """
    location = metadata["location"]
    whole = prefix_map(location, layout, sides.roots)
    generation = hashlib.sha256(f"{whole.digest} {metadata['table-uuid']}".encode()).hexdigest()
    if index is None:
        generation = "" if is_first else generation
        return VersionIndex.empty(prefix_map(location, layout, sides.roots, generation), generation), ()
    paths = prefix_map(location, layout, sides.roots, index.generation)
    ever = index.ever
    change = paths.first_change(ever)
    if change is None:
        former = tuple(rule for rule in ever.rules if rule not in paths.rules)
        return replace(index, paths=paths, former=former), ()
    paths = prefix_map(location, layout, sides.roots, generation)
    told = f"everything that was mirrored before: {change}; all files are copied anew, below {layout.home(generation)}"
    return VersionIndex.empty(paths, generation), (told,)


def _with_its_lists(known: VersionIndex, metadata: Json, paths: PrefixMap) -> tuple[VersionIndex, frozenset[int]]:
    """What is known, without the snapshots whose list was moved on the source; and those.

    The mirror shows the list where the source's goes by the map. Of a snapshot that refs need it is written there as if
    the snapshot were new. Others are not read again.
    """
    there = metadata_json.snapshots(metadata)
    names = {one: there[one]["manifest-list"] for one in known.mirrored if "manifest-list" in there.get(one, ())}
    shown = {one: target for one, name in names.items() if (target := paths.find(name)) is not None}
    moved = known.moved(shown)
    return known.without(moved), moved


def prefix_map(location: str, layout: TableLayout, roots: Mapping[str, str], generation: str = "") -> PrefixMap:
    """Where this table's files go: its own location to its folder, further roots below `_roots`."""
    check_prefix(location.rstrip("/"), "detect")  # a place that a store can hold, and not all of a file system
    rules = {prefix: layout.further_root(name, generation) for name, prefix in roots.items()}
    rules = {canonical(prefix).rstrip("/"): target for prefix, target in rules.items()}
    rules[canonical(location).rstrip("/")] = layout.home(generation)
    for source, target in rules.items():
        if is_below(f"{source}/x", target) or is_below(f"{target}/x", source):
            raise PermanentError(
                "detect",
                source,
                f"the source lies in its own mirror, or the mirror in it ({target})",
                "move one of them: maintenance of the source would destroy the mirror",
            )
    return PrefixMap.of(rules)


def _head(metadata: Json, target_snapshot_id: int | None, table: TableRef) -> int | None:
    if target_snapshot_id is None:
        current = metadata_json.current_snapshot_id(metadata)
        if current is not None and current not in metadata_json.snapshots(metadata):
            raise PermanentError(
                "detect", str(table), f"its current snapshot {current} is not among its snapshots", "repair the source"
            )
        return current
    if target_snapshot_id not in metadata_json.snapshots(metadata):
        raise UsageError(
            "detect", str(table), f"the source has no snapshot {target_snapshot_id}", "look at its history"
        )
    return target_snapshot_id


def fingerprint_of(metadata: Json, head: int | None) -> str:
    """A hash over all of the source's state that a reader could tell apart."""
    fields = {**metadata_json.fingerprint_fields(metadata, head), "head": head}
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
    if policy.follow_rollback:
        return
    mirrored = Mirrored(newest.snapshot_id, newest.sequence_number, _milliseconds(newest.source_committed_at))
    where = went_back(metadata, head, mirrored)
    if where is not None:
        raise PermanentError(
            "detect",
            str(table),
            f"the source was rolled back (from snapshot {newest.snapshot_id} {where})",
            "set on_source_rollback: follow to let the mirror go back too",
        )


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)
