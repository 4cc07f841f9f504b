"""The small index that each published version keeps: the manifests its refs hold, as they lie in the mirror.

With it the next run knows what is new and what is gone without reading a single old manifest or list, and without
asking the source, which may have expired them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.errors import PermanentError
from lakemirror.model.layout import INDEX_FOLDER, TableLayout
from lakemirror.model.paths import PrefixMap, canonical
from lakemirror.replicate import control, segments
from lakemirror.storage.port import ConditionFailed, Create, ObjectNotFound, ObjectStore

_DOCUMENT = b"lakemirror.index"
Rules = tuple[tuple[str, str], ...]  # places of the source and theirs in the mirror
_GENERATION = re.compile(r"[0-9a-f]{0,64}")
_SHA256 = re.compile(r"([0-9a-f]{64})?")
ROWS = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("source_length", pa.int64(), nullable=False),
        pa.field("target_length", pa.int64(), nullable=False),
        pa.field("crc32c", pa.int64(), nullable=False),
        pa.field("has_deletes", pa.bool_(), nullable=False),
        pa.field("snapshots", pa.list_(pa.int64()), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class VersionIndex:
    """`manifests` of the referenced snapshots; `mirrored` are all snapshots the version's metadata holds.

    `lists` tells by a hash where the manifest list of each of them lies in the mirror; older indexes do not say it.
    `earlier` tells of those that nothing refers to any more which index has their manifests: by its SHA-256.

    `paths` is the map by which the version was written. Manifests that were reused hold files where the map of their
    own time put them: `former` are the rules of such maps that are no longer in force.
    """

    manifests: pa.Table
    mirrored: frozenset[int]
    statistics: frozenset[tuple[str, int]]  # paths and sizes
    paths: PrefixMap
    generation: str = ""  # names the map, once it is not the first one of this mirror table
    former: Rules = ()
    lists: Mapping[int, str] = field(default_factory=dict)
    earlier: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def empty(cls, paths: PrefixMap, generation: str = "") -> VersionIndex:
        return cls(ROWS.empty_table(), frozenset(), frozenset(), paths, generation)

    @property
    def ever(self) -> PrefixMap:
        """Every rule by which anything of this generation was written; none of them contradicts another."""
        return PrefixMap.of(dict((*self.former, *self.paths.rules)))

    @property
    def referenced(self) -> frozenset[int]:
        """The snapshots whose manifests the index holds."""
        return frozenset(one for row in self.manifests["snapshots"].to_pylist() for one in row)

    def moved(self, lists: Mapping[int, str]) -> frozenset[int]:
        """Those mirrored snapshots whose list, as it is to be shown now, is not the one that the mirror has."""
        return frozenset(one for one, uri in lists.items() if self.lists.get(one, "") not in ("", place_of(uri)))

    def without(self, snapshots: Collection[int]) -> VersionIndex:
        """As if these were not mirrored; their manifests are known all the same."""
        if not snapshots:
            return self
        held = [[one for one in row if one not in snapshots] for row in self.manifests["snapshots"].to_pylist()]
        number = ROWS.get_field_index("snapshots")
        manifests = self.manifests.set_column(number, ROWS.field(number), pa.array(held, ROWS.field(number).type))
        return replace(self, manifests=manifests, mirrored=self.mirrored - {*snapshots})

    def recalling(self, store: ObjectStore, layout: TableLayout, snapshots: Collection[int]) -> VersionIndex:
        """With the manifests of these mirrored snapshots too, as far as the indexes of earlier versions are there.

        Each snapshot of one line shares most manifests with the next: to hold those of all would be to hold each
        change of many versions in each index. Somebody who goes back to one reads one index more.
        """
        wanted: dict[str, set[int]] = {}
        for one in self.mirrored.intersection(snapshots) - self.referenced:
            if digest := self.earlier.get(one, ""):
                wanted.setdefault(digest, set()).add(one)
        rows = {row["source"]: row for row in self.manifests.to_pylist()} if wanted else {}
        for digest, those in sorted(wanted.items()):
            try:
                found = load(store, layout.index(digest), digest)
            except ObjectNotFound:
                continue  # their lists are read again
            for row in found.manifests.to_pylist() if found.generation == self.generation else ():
                if held := [one for one in row["snapshots"] if one in those]:
                    known = rows.setdefault(row["source"], {**row, "snapshots": []})
                    known["snapshots"] = [*known["snapshots"], *held]
        return replace(self, manifests=pa.Table.from_pylist([*rows.values()], ROWS)) if wanted else self

    def handed_on(self, digest: str, snapshots: Collection[int]) -> tuple[tuple[int, str], ...]:
        """`earlier` of the next version, for these of its snapshots; `digest` is this index's own."""
        own = dict.fromkeys(self.referenced, digest)
        known = {one: own.get(one) or self.earlier.get(one, "") for one in sorted(snapshots) if one in self.mirrored}
        return tuple((one, held) for one, held in known.items() if held)

    def closure_digest(self) -> str:
        """One hash over place, length and content of every manifest, in the order of their mirror paths."""
        columns = (self.manifests[name].to_pylist() for name in ("target", "target_length", "crc32c"))
        return hashlib.sha256(json.dumps(sorted(zip(*columns, strict=True))).encode()).hexdigest()

    def save(self, store: ObjectStore, layout: TableLayout) -> tuple[str, str]:
        """Write the index under its own hash; gives back its URI and that hash."""
        mirrored = sorted(self.mirrored)
        document = {
            "mirrored": mirrored,
            "lists": [self.lists.get(one, "") for one in mirrored],
            "earlier": [self.earlier.get(one, "") for one in mirrored],
            "statistics": sorted(self.statistics),
            "rules": self.paths.rules,
            "generation": self.generation,
            "former": self.former,
        }
        table = self.manifests.sort_by("source").replace_schema_metadata({_DOCUMENT: json.dumps(document).encode()})
        data = segments.encode(table)
        digest = hashlib.sha256(data).hexdigest()
        uri = layout.index(digest)
        with suppress(ConditionFailed):  # named by its own hash: what is there is the same
            store.put(uri, data, Create())
        return uri, digest


def place_of(uri: str) -> str:
    """A short name for a place: an index has one for each version that the mirror keeps."""
    return hashlib.blake2s(canonical(uri).encode(), digest_size=6).hexdigest()


def load(store: ObjectStore, uri: str, sha256: str) -> VersionIndex:
    """The index that a marker names, if it has the hash that the marker says and speaks of the table's own folder."""
    data = store.get(uri, max_bytes=segments.MAX_BYTES).data
    if hashlib.sha256(data).hexdigest() != sha256:
        raise PermanentError("read index", uri, f"its hash is not {sha256}", "it was altered; restore it")
    table = segments.decode(data, uri, ROWS)
    root = uri.rpartition(f"/{INDEX_FOLDER}/")[0]
    is_inside = control.inside(root)
    are_rules = control.all_of(control.tuple_of(control.is_text, control.inside(root, or_itself=True)))
    fields: dict[str, control.Check] = {
        "mirrored": control.all_of(control.is_id),
        "statistics": control.all_of(control.tuple_of(control.is_text, control.is_count)),
        "rules": are_rules,
        "generation": lambda value: isinstance(value, str) and _GENERATION.fullmatch(value) is not None,
    }
    later = {
        "former": are_rules,
        "lists": control.all_of(control.is_text),
        "earlier": control.all_of(lambda value: isinstance(value, str) and _SHA256.fullmatch(value) is not None),
    }
    document = control.parse((table.schema.metadata or {}).get(_DOCUMENT, b""), uri, fields, later)
    rows = table.replace_schema_metadata(None)
    for target in rows["target"].to_pylist():
        if not is_inside(target):
            raise control.altered(uri, f"{target} lies outside {root}")
    if pc.any(pc.greater(0, rows["target_length"])).as_py() or rows["snapshots"].combine_chunks().flatten().null_count:
        raise control.altered(uri, "a length is negative, or a snapshot has no id")
    rules, former = (
        tuple((source, target) for source, target in document.get(name, ())) for name in ("rules", "former")
    )
    mirrored = frozenset(document["mirrored"])
    told = {name: document.get(name, [""] * len(document["mirrored"])) for name in ("lists", "earlier")}
    if any(len(values) != len(document["mirrored"]) for values in told.values()):
        raise control.altered(uri, "not as many manifest lists or indexes as snapshots")
    statistics = frozenset((path, size) for path, size in document["statistics"])
    return VersionIndex(
        manifests=rows,
        mirrored=mirrored,
        statistics=statistics,
        paths=PrefixMap(rules),
        generation=document["generation"],
        former=former,
        lists=dict(zip(document["mirrored"], told["lists"], strict=True)),
        earlier={one: held for one, held in zip(document["mirrored"], told["earlier"], strict=True) if held},
    )
