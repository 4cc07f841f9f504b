"""From the metadata that a REST catalog has to the metadata that we published: requirements and updates. Pure.

What the catalog shows after the commit is what was published, but for its log of heads, which the server writes itself,
and for the time of the last update. Ids are kept: where the source's have gaps, filler entries take the numbers between
and go in the same commit. What no list of updates can express is an `Inexpressible` that says why.

Order matters to a server: it applies updates one by one, and checks each against what is there by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakemirror.catalogs.structure import Inexpressible, structure_updates
from lakemirror.formats.iceberg.metadata_json import VERSION_PROPERTY, current_snapshot_id, snapshots

Json = dict[str, Any]
FENCE: Final = "lakemirror-after-v"  # a tag that a step leaves which nothing else would tell from the one before
_ROW_LINEAGE: Final = 3  # the first format version with row ids
_STATISTICS: Final = (
    ("statistics", "set-statistics", "remove-statistics", "statistics"),
    ("partition-statistics", "set-partition-statistics", "remove-partition-statistics", "partition-statistics"),
)

__all__ = ["FENCE", "Commit", "Inexpressible", "commit_of", "refs_of"]


@dataclass(frozen=True, slots=True)
class Commit:
    """The body of a commit to one table."""

    requirements: tuple[Json, ...]
    updates: tuple[Json, ...]

    def as_json(self) -> Json:
        return {"requirements": list(self.requirements), "updates": list(self.updates)}


def commit_of(old: Json | None, new: Json) -> Commit:
    """`old` is what the catalog has (None: no such table), `new` what it shall show."""
    start = _empty(new) if old is None else old
    updates = tuple(_updates(start, new, is_new=old is None))
    if old is None:
        return Commit(({"type": "assert-create"},), updates)
    fence = _fence(old, new, updates)
    return Commit(tuple(_requirements(old, new)), (*updates, *fence))


def refs_of(metadata: Json) -> dict[str, Json]:
    """Refs as they count: a null field is none, main is what the table's head says, our fences are no refs."""
    named = {name: _plain(ref) for name, ref in _all_refs(metadata).items() if not name.startswith(FENCE)}
    return named


def _all_refs(metadata: Json) -> dict[str, Json]:
    named = {name: _plain(ref) for name, ref in (metadata.get("refs") or {}).items()}
    current = current_snapshot_id(metadata)
    if current is None:
        named.pop("main", None)
    else:
        named.setdefault("main", {"snapshot-id": current, "type": "branch"})
    return named


def _plain(ref: Json) -> Json:
    return {key: value for key, value in ref.items() if value is not None}


def _empty(new: Json) -> Json:
    """A table that was just created, of the oldest format version that the first snapshots still need."""
    return {
        "format-version": min(
            (_version_of(one, new) for one in _listed(new, "snapshots")), default=new["format-version"]
        )
    }


def _version_of(snapshot: Json, new: Json) -> int:
    """The format version that the table must have when this snapshot is added."""
    version: int = new["format-version"]
    if version >= _ROW_LINEAGE and snapshot.get("first-row-id") is None:
        version = _ROW_LINEAGE - 1
    if version > 1 and not snapshot.get("sequence-number"):
        version = 1
    return version


def _listed(metadata: Json, key: str) -> list[Json]:
    return list(metadata.get(key) or ())


# ------------------------------------------------------------------------------------------------------- requirements


def _requirements(old: Json, new: Json) -> Iterator[Json]:
    """That the head is the one we know, in everything that a server can be asked to compare."""
    yield {"type": "assert-table-uuid", "uuid": old["table-uuid"]}
    for name, ref in sorted((_all_refs(new) | _all_refs(old) | _next_fence(old)).items()):
        there = _all_refs(old).get(name)
        yield {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": there and there["snapshot-id"]}
        del ref
    named = (
        ("assert-last-assigned-field-id", "last-assigned-field-id", "last-column-id"),
        ("assert-current-schema-id", "current-schema-id", "current-schema-id"),
        ("assert-last-assigned-partition-id", "last-assigned-partition-id", "last-partition-id"),
        ("assert-default-spec-id", "default-spec-id", "default-spec-id"),
        ("assert-default-sort-order-id", "default-sort-order-id", "default-sort-order-id"),
    )
    for kind, field, key in named:
        if old.get(key) is not None:
            yield {"type": kind, field: old[key]}


def _next_fence(old: Json) -> dict[str, Json]:
    version = (old.get("properties") or {}).get(VERSION_PROPERTY)
    return {} if version is None else {f"{FENCE}{version}": {}}


def _fence(old: Json, new: Json, updates: tuple[Json, ...]) -> list[Json]:
    """A step that changes nothing a requirement could name would be made twice by two who race: it leaves a tag.

    Every step from the same version asks for that tag not to be there. Tags go when main moves, which tells the steps
    apart again.
    """
    has_moved = _all_refs(old).get("main", {}).get("snapshot-id") != current_snapshot_id(new)
    fences = [name for name in _all_refs(old) if name.startswith(FENCE)]
    if has_moved:
        return [{"action": "remove-snapshot-ref", "ref-name": name} for name in fences]
    current = current_snapshot_id(new)
    if current is None or not updates:
        return []
    return [
        {"action": "set-snapshot-ref", "ref-name": name, "type": "tag", "snapshot-id": current}
        for name in _next_fence(old)
    ]


# ------------------------------------------------------------------------------------------------------------ updates


def _updates(old: Json, new: Json, *, is_new: bool) -> Iterator[Json]:
    if is_new:
        yield {"action": "assign-uuid", "uuid": new["table-uuid"]}
        yield {"action": "upgrade-format-version", "format-version": old["format-version"]}
    elif old["table-uuid"] != new["table-uuid"]:
        yield {"action": "assign-uuid", "uuid": new["table-uuid"]}
    if new["format-version"] < old["format-version"]:
        raise Inexpressible(f"format version {old['format-version']} cannot become {new['format-version']}")
    if old.get("location") != new["location"]:
        yield {"action": "set-location", "location": new["location"]}
    snapshots_to_add = _added_snapshots(old, new)
    version = old["format-version"]
    if is_new:  # snapshots are added to a table that has its schema
        yield from structure_updates(old, new)
    for wanted, snapshot in snapshots_to_add:
        if wanted > version:
            yield {"action": "upgrade-format-version", "format-version": wanted}
            version = wanted
        yield {"action": "add-snapshot", "snapshot": snapshot}
    if version < new["format-version"]:
        yield {"action": "upgrade-format-version", "format-version": new["format-version"]}
    if not is_new:
        yield from structure_updates(old, new)
    yield from _ref_updates(old, new)
    yield from _removed_snapshots(old, new)
    yield from _statistics_updates(old, new)
    yield from _property_updates(old.get("properties") or {}, new.get("properties") or {})


def _added_snapshots(old: Json, new: Json) -> list[tuple[int, Json]]:
    """Those that the catalog does not have, each with the format version it needs, in an order that servers take."""
    there = snapshots(old)
    missing = [one for one in _listed(new, "snapshots") if one["snapshot-id"] not in there]
    version = old["format-version"]
    missing.sort(key=lambda one: (one.get("sequence-number") or 0, one["timestamp-ms"]))
    added = [(max(version, _version_of(one, new)), one) for one in missing]
    added.sort(key=lambda pair: pair[0])
    last = old.get("last-sequence-number") or 0
    for needs, one in added:
        number = one.get("sequence-number") or 0
        if needs > 1 and number <= last and one.get("parent-snapshot-id") is not None:
            raise Inexpressible(
                f"snapshot {one['snapshot-id']} of sequence number {number} cannot follow sequence number {last}"
            )
        last = number
    return _with_row_ids(old, new, added)


def _with_row_ids(old: Json, new: Json, added: list[tuple[int, Json]]) -> list[tuple[int, Json]]:
    """Servers count row ids up by `added-rows`, which is an upper bound: the last one covers what was left out."""
    next_row_id = old.get("next-row-id") or 0
    made = []
    for needs, one in added:
        if needs >= _ROW_LINEAGE:
            first = one.get("first-row-id")
            if first is None or first < next_row_id:
                raise Inexpressible(
                    f"snapshot {one['snapshot-id']} has first-row-id {first}, and the catalog counts {next_row_id} already"
                )
            next_row_id += one.get("added-rows") or 0
        made.append((needs, one))
    target = new.get("next-row-id") or 0
    if made and made[-1][0] >= _ROW_LINEAGE and next_row_id < target:
        needs, one = made[-1]
        made[-1] = (needs, {**one, "added-rows": (one.get("added-rows") or 0) + target - next_row_id})
    return made


def _ref_updates(old: Json, new: Json) -> Iterator[Json]:
    before, after = refs_of(old), refs_of(new)
    for name in sorted(before.keys() - after.keys()):
        yield {"action": "remove-snapshot-ref", "ref-name": name}
    for name, ref in sorted(after.items(), key=lambda item: item[0] == "main"):
        if before.get(name) != ref:
            yield {"action": "set-snapshot-ref", "ref-name": name, **ref}


def _removed_snapshots(old: Json, new: Json) -> Iterator[Json]:
    gone = [one for one in snapshots(old) if one not in snapshots(new)]
    if gone:
        yield {"action": "remove-snapshots", "snapshot-ids": gone}


def _statistics_updates(old: Json, new: Json) -> Iterator[Json]:
    kept = snapshots(new)
    for section, put, remove, field in _STATISTICS:
        before = {one["snapshot-id"]: one for one in _listed(old, section)}
        after = {one["snapshot-id"]: one for one in _listed(new, section)}
        for snapshot_id, one in after.items():
            if before.get(snapshot_id) != one:
                named = {"snapshot-id": snapshot_id} if section == "statistics" else {}
                yield {"action": put, **named, field: one}
        for snapshot_id in before:
            if snapshot_id not in after and snapshot_id in kept:
                yield {"action": remove, "snapshot-id": snapshot_id}


def _property_updates(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Json]:
    changed = {key: value for key, value in new.items() if old.get(key) != value}
    gone = sorted(old.keys() - new.keys())
    if changed:
        yield {"action": "set-properties", "updates": changed}
    if gone:
        yield {"action": "remove-properties", "removals": gone}
