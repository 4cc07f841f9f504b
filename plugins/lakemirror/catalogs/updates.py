"""From the metadata that a REST catalog has to the metadata that we published: requirements and updates. Pure.

What the catalog shows after the commit is what was published, but for its log of heads, which the server writes itself,
and for the time of the last update. Ids are kept: where the source's have gaps, filler entries take the numbers between
and go in the same commit. What no list of updates can express is an `Inexpressible` that says why.

Requirements cannot name everything: properties, statistics, retention and expired snapshots are not compared, and after
a rollback a head looks as it did before. So a commit that does not bring a new head moves a number that is compared:
the highest column id, by a filler schema that comes and goes. Then of all commits from one head one is taken, as
long as nobody puts the number back: a whole swap does, and a table that is dropped and registered again (ADR 18).

Order matters to a server: it applies updates one by one, and checks each against what is there by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakemirror.catalogs.structure import Inexpressible, structure_updates
from lakemirror.formats.iceberg.metadata_json import current_snapshot_id, moved_lists, snapshots

Json = dict[str, Any]
_ROW_LINEAGE: Final = 3  # the first format version with row ids
_SKEW_MS: Final = 60_000  # what servers allow between entries of the log
_STATISTICS: Final = (
    ("statistics", "set-statistics", "remove-statistics", "statistics"),
    ("partition-statistics", "set-partition-statistics", "remove-partition-statistics", "partition-statistics"),
)

_COMPARED: Final = (  # requirement, its field, where the table has it
    ("assert-last-assigned-field-id", "last-assigned-field-id", "last-column-id"),
    ("assert-current-schema-id", "current-schema-id", "current-schema-id"),
    ("assert-last-assigned-partition-id", "last-assigned-partition-id", "last-partition-id"),
    ("assert-default-spec-id", "default-spec-id", "default-spec-id"),
    ("assert-default-sort-order-id", "default-sort-order-id", "default-sort-order-id"),
)

__all__ = ["Commit", "Inexpressible", "commit_of", "refs_of"]


@dataclass(frozen=True, slots=True)
class Commit:
    """The body of a commit to one table."""

    requirements: tuple[Json, ...]
    updates: tuple[Json, ...]
    is_guarded: bool = False  # a filler moves what is compared, because nothing else does

    def as_json(self) -> Json:
        return {"requirements": list(self.requirements), "updates": list(self.updates)}


def commit_of(old: Json | None, new: Json, *, may_guard: bool = True) -> Commit:
    """`old` is what the catalog has (None: no such table), `new` what it shall show.

    Without `may_guard` a commit that no requirement of another would notice goes as it is, and a new table has the
    highest column id that the server finds in its schemas.
    """
    if old is None:
        updates = tuple(_updates(_empty(new), new, is_new=True, is_guarded=may_guard))
        return Commit(({"type": "assert-create"},), updates, may_guard)
    is_guarded = may_guard and not _has_new_head(old, new)
    updates = tuple(_updates(old, new, is_guarded=is_guarded))
    return Commit(tuple(_requirements(old, new)), updates, is_guarded)


def refs_of(metadata: Json) -> dict[str, Json]:
    """Refs as they count: a null field is none, and main is what the table's head says."""
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
    needed = (_version_of(one, new) for one in _listed(new, "snapshots"))
    return {"format-version": min(needed, default=new["format-version"])}


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
    before = refs_of(old)
    for name in sorted({"main", *before, *refs_of(new)}):
        there = before.get(name)
        yield {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": there and there["snapshot-id"]}
    for kind, field, key in _COMPARED:
        if old.get(key) is not None:
            yield {"type": kind, field: old[key]}


def _has_new_head(old: Json, new: Json) -> bool:
    """Whether no other commit from the same head can pass after this one, neither now nor after a rollback.

    A head that the catalog never had is noticed by all requirements. It goes away by a commit without a new head alone,
    and that one moves the highest column id.
    """
    head = current_snapshot_id(new)
    return head is not None and head not in snapshots(old)


# ------------------------------------------------------------------------------------------------------------ updates


def _updates(old: Json, new: Json, *, is_new: bool = False, is_guarded: bool = False) -> Iterator[Json]:
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
        yield from structure_updates(old, new, moves_last_column=is_guarded)
    for wanted, snapshot in snapshots_to_add:
        if wanted > version:
            yield {"action": "upgrade-format-version", "format-version": wanted}
            version = wanted
        yield {"action": "add-snapshot", "snapshot": snapshot}
    if version < new["format-version"]:
        yield {"action": "upgrade-format-version", "format-version": new["format-version"]}
    if not is_new:
        yield from structure_updates(old, new, moves_last_column=is_guarded)
    yield from _ref_updates(old, new)
    yield from _removed_snapshots(old, new)
    yield from _statistics_updates(old, new)
    yield from _property_updates(old.get("properties") or {}, new.get("properties") or {})


def _added_snapshots(old: Json, new: Json) -> list[tuple[int, Json]]:
    """Those that the catalog does not have, each with the format version it needs, in an order that servers take."""
    there = snapshots(old)
    for number, (was, now) in moved_lists(old, new).items():  # nor would it take the same number once more
        raise Inexpressible(f"the manifest list of snapshot {number} lies elsewhere now (want {now}, got {was})")
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
    kept = [one.get("sequence-number") or 0 for number, one in there.items() if number in snapshots(new)]
    if added and added[-1][0] > 1 and max(kept, default=0) > last:  # the server would count on from the one added last
        raise Inexpressible(f"sequence number {last} cannot be added after {max(kept)}")
    return _with_row_ids(old, new, added)


def _with_row_ids(old: Json, new: Json, added: list[tuple[int, Json]]) -> list[tuple[int, Json]]:
    """Servers count row ids up by `added-rows`, which is an upper bound: the last one covers what was left out."""
    next_row_id = old.get("next-row-id") or 0
    made = []
    for needs, one in added:
        if needs >= _ROW_LINEAGE:
            first = one.get("first-row-id")
            if first is None or first < next_row_id:
                told = f"snapshot {one['snapshot-id']} has first-row-id {first}"
                raise Inexpressible(f"{told}, and the catalog is at {next_row_id} already")
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
    _refuse_unsorted(old, new)
    for name, ref in sorted(after.items(), key=lambda item: item[0] == "main"):
        if before.get(name) != ref:
            yield {"action": "set-snapshot-ref", "ref-name": name, **ref}


def _refuse_unsorted(old: Json, new: Json) -> None:
    """A server notes a rollback as of now, and then refuses a head that the source wrote well before that moment."""
    head, log = current_snapshot_id(new), _listed(old, "snapshot-log")
    if head is None or head in snapshots(old) or not log:
        return
    if snapshots(new)[head]["timestamp-ms"] < log[-1]["timestamp-ms"] - _SKEW_MS:
        told = "was written before the catalog took note of the rollback that came before it"
        raise Inexpressible(f"snapshot {head} {told}; the source's next commit will do")


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
