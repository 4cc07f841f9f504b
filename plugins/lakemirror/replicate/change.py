"""A change: what must happen to bring the mirror from its newest version to the source's head.

It is made by `detect`, kept as one Parquet object next to the table once it is planned, and read by every later
stage; all of it is a function of the source's metadata, the newest marker and the prefix map, so a retry finds the same
plan id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakemirror.model.layout import TableLayout
from lakemirror.model.paths import PrefixMap
from lakemirror.model.results import Lane
from lakemirror.model.table import TableRef
from lakemirror.replicate import control, segments
from lakemirror.replicate.control import all_of, is_count, is_id, is_text, or_none, tuple_of
from lakemirror.storage.port import ObjectNotFound, ObjectStore, Overwrite

LAYOUT_VERSION = 7
_DOCUMENT = b"lakemirror.change"
_FIELDS: dict[str, control.Check] = {
    **dict.fromkeys(("table", "plan_id", "epoch", "source_metadata_location", "source_fingerprint"), is_text),
    **dict.fromkeys(("generation",), is_text),
    **dict.fromkeys(("version", "dropped", "lift", "files_at_most"), is_count),
    "from_version": or_none(is_count),
    "parent_checksum": or_none(is_text),
    "demoted": all_of(is_count),
    "head": or_none(is_id),
    **dict.fromkeys(("retained", "referenced"), all_of(is_id)),
    **dict.fromkeys(("private", "left_out", "dangling"), all_of(is_text)),
    "earlier": all_of(tuple_of(is_id, is_text)),
    "new_lists": all_of(tuple_of(is_id, is_text, is_text)),
    **dict.fromkeys(("statistics", "known_statistics"), all_of(tuple_of(is_text, is_count))),
    **dict.fromkeys(("rules", "former"), all_of(tuple_of(is_text, is_text))),
    "lane": lambda lane: lane in ("none", "task", "spark"),
}

# state: added (rewrite it), reused (the mirror has it), removed (only the mirror's newest version has it)
MANIFESTS = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("source_length", pa.int64(), nullable=False),
        pa.field("entries", pa.int64()),  # as the manifest list says, if it does
        pa.field("target_length", pa.int64()),
        pa.field("crc32c", pa.int64()),
        pa.field("has_deletes", pa.bool_(), nullable=False),
        pa.field("carries_over", pa.bool_(), nullable=False),  # it may name files that the mirror has
        pa.field("state", pa.string(), nullable=False),
        pa.field("snapshots", pa.list_(pa.int64()), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Change:
    """One step of the mirror, from marker `from_version` to version `version`."""

    table: TableRef
    plan_id: str
    epoch: str
    version: int
    from_version: int | None
    parent_checksum: str | None
    demoted: tuple[int, ...]  # ordinals that its parent does not build on, because they were demoted
    dropped: int  # the last ordinal that was dropped before it; 0: none was
    lift: int  # of the highest column id, above the source's
    source_metadata_location: str
    source_fingerprint: str
    head: int | None
    retained: tuple[int, ...]
    referenced: tuple[int, ...]
    new_lists: tuple[tuple[int, str, str], ...]  # snapshot, manifest list, and its SHA-256 as detect read it
    statistics: tuple[tuple[str, int], ...]
    known_statistics: frozenset[tuple[str, int]]
    dangling: tuple[str, ...]  # statistics files that the source names and does not have
    files_at_most: int
    lane: Lane
    rules: tuple[tuple[str, str], ...]
    private: tuple[str, ...]
    generation: str
    left_out: tuple[str, ...]
    manifests: pa.Table
    earlier: tuple[tuple[int, str], ...] = ()  # snapshots, and the SHA-256 of the index that has their manifests
    former: tuple[tuple[str, str], ...] = ()  # rules that were in force earlier in this generation

    @property
    def paths(self) -> PrefixMap:
        return PrefixMap(self.rules, self.private)

    @property
    def expected_plan_id(self) -> str:
        """The plan's name as it follows from the change."""
        facts = {"table": str(self.table), "epoch": self.epoch, "version": self.version, "lift": self.lift}
        parent = {"from": self.from_version, "checksum": self.parent_checksum, "dropped": self.dropped}
        source = {"source": self.source_metadata_location, "lists": self.new_lists, "statistics": self.statistics}
        return plan_id_of({**facts, **parent, **source, "paths": self.paths.digest})

    def rows(self, *states: str) -> pa.Table:
        return self.manifests.filter(pa.compute.is_in(self.manifests["state"], pa.array(states)))

    def save(self, store: ObjectStore, layout: TableLayout) -> str:
        """Write the change below its plan folder, whose URI is given back."""
        plan_uri = layout.plan(self.plan_id)
        store.put(f"{plan_uri}/change.parquet", self.to_bytes(), Overwrite())
        return plan_uri

    def to_bytes(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in ("manifests", "table")}
        fields["known_statistics"] = sorted(self.known_statistics)
        document = json.dumps({**fields, "table": str(self.table)})
        return segments.encode(self.manifests.replace_schema_metadata({_DOCUMENT: document.encode()}))

    @classmethod
    def from_bytes(cls, data: bytes, uri: str) -> Change:
        table = segments.decode(data, uri, MANIFESTS)
        document = control.parse((table.schema.metadata or {}).get(_DOCUMENT, b""), uri, _FIELDS)
        return _of(document, table.replace_schema_metadata(None))


def load(store: ObjectStore, plan_uri: str) -> Change | None:
    """The change of a plan; None if it was not saved.

    The plan's own name is a hash over what decides where the change reads and writes: whoever altered that since is
    found out.
    """
    uri = f"{plan_uri}/change.parquet"
    try:
        found = Change.from_bytes(store.get(uri, max_bytes=segments.MAX_BYTES).data, uri)
    except ObjectNotFound:
        return None
    if not plan_uri.rpartition("/")[2] == found.plan_id == found.expected_plan_id:
        raise control.altered(uri, f"it is of plan {found.expected_plan_id}")
    return found


def _of(document: dict[str, Any], manifests: pa.Table) -> Change:
    document["table"] = TableRef.parse(document["table"])
    document["known_statistics"] = frozenset((path, size) for path, size in document["known_statistics"])
    for name in ("retained", "referenced", "private", "left_out", "dangling", "demoted"):
        document[name] = tuple(document[name])
    for name in ("new_lists", "statistics", "rules", "former", "earlier"):
        document[name] = tuple(tuple(item) for item in document[name])
    return Change(**document, manifests=manifests)


def plan_id_of(facts: Mapping[str, Any]) -> str:
    """The name of a plan: equal facts, equal name, on every machine and every retry."""
    text = json.dumps({**facts, "layout": LAYOUT_VERSION}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
