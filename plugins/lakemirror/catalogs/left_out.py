"""Snapshots that a catalog cannot take any more, and the tags that hold them: left out of a commit, and told. Pure.

A catalog that counts sequence numbers and row ids takes no snapshot from before its last. If a late tag needs one that
was never mirrored, or whose manifest list lies elsewhere since (a map that began anew), the table is committed without
that tag. The property `lakemirror.unsupported-by-catalog` names what
is missing, so that whoever compares the head with what was published knows, and the next commit tries again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from lakemirror.catalogs.abilities import CatalogAbilities
from lakemirror.formats.iceberg.metadata_json import current_snapshot_id, moved_lists, snapshots
from lakemirror.model import bounded_json

Json = dict[str, Any]
PROPERTY: Final = "lakemirror.unsupported-by-catalog"
MAX_SNAPSHOTS: Final = 1000
_STATISTICS: Final = ("statistics", "partition-statistics")


def late_snapshots(old: Json, new: Json) -> dict[int, list[str]]:
    """Those of `new` that the catalog lacks, or has elsewhere, and that are older than its last, with their refs."""
    if old["format-version"] == 1:  # counts nothing
        return {}
    there, last = snapshots(old).keys() - moved_lists(old, new).keys(), old.get("last-sequence-number") or 0
    late: dict[int, list[str]] = {
        number: []
        for number, one in snapshots(new).items()
        if number not in there and (one.get("sequence-number") or 0) <= last
    }
    for name, ref in (new.get("refs") or {}).items():
        if ref["snapshot-id"] in late:
            late[ref["snapshot-id"]].append(name)
    return late


def without(metadata: Json, ids: Mapping[int, object]) -> Json:
    """The same table without these snapshots and without all that points at them."""
    kept = {
        **metadata,
        "snapshots": [one for one in metadata.get("snapshots") or () if one["snapshot-id"] not in ids],
        "snapshot-log": [one for one in metadata.get("snapshot-log") or () if one["snapshot-id"] not in ids],
        "refs": {name: ref for name, ref in (metadata.get("refs") or {}).items() if ref["snapshot-id"] not in ids},
    }
    for section in _STATISTICS:
        kept[section] = [one for one in metadata.get(section) or () if one["snapshot-id"] not in ids]
    return kept


def reduced(old: Json, new: Json) -> Json | None:
    """`new` without its late snapshots, and with the property that names them; None if that is no way."""
    late = late_snapshots(old, new)
    if not late or len(late) > MAX_SNAPSHOTS or current_snapshot_id(new) in late:
        return None
    told = json.dumps({str(number): names for number, names in sorted(late.items())}, ensure_ascii=False)
    return {**without(new, late), "properties": {**(new.get("properties") or {}), PROPERTY: told}}


def left_out_of(metadata: Json) -> dict[int, list[str]]:
    """What the property of a head says; nothing if it is not one that we wrote."""
    text = (metadata.get("properties") or {}).get(PROPERTY)
    if not isinstance(text, str):
        return {}
    try:
        found = bounded_json.loads(text.encode())
        if not isinstance(found, dict) or len(found) > MAX_SNAPSHOTS:
            return {}
        return {int(number): [str(name) for name in names] for number, names in found.items()}
    except (ValueError, TypeError):
        return {}


def told(metadata: Json) -> tuple[str, ...]:
    """For people: what the mirror lacks because its catalog cannot take it."""
    return tuple(
        f"unsupported_by_catalog: {'ref ' + ', '.join(names) if names else 'a snapshot of the history'} is left out:"
        f" snapshot {number} is older than the catalog's last"
        for number, names in left_out_of(metadata).items()
    )


def warnings_of(abilities: CatalogAbilities, metadata: Json | None) -> tuple[str, ...]:
    """All that a reader of a table on this catalog should know; `metadata` is what the head says."""
    return () if metadata is None else (*abilities.warnings(metadata), *told(metadata))
