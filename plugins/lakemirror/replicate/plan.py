"""Plan: which files the mirror lacks, by live paths, from changed manifests only.

Live entries of added manifests minus live entries of removed ones (the mirror's own copies) are packed into segments of
bounded count and bytes. Nothing is planned by snapshot id, so an entry whose snapshot has expired is still planned.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from operator import neg

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.copying.bins import pack
from lakemirror.formats.iceberg import manifest
from lakemirror.formats.iceberg.plain_manifest import Columns, PlainRules
from lakemirror.replicate import control, manifests, segments
from lakemirror.replicate.change import Change
from lakemirror.replicate.stage import Engine, Report, Requests, StageContext, gathered, sum_requests
from lakemirror.replicate.step import other_size
from lakemirror.storage.keys import check_key
from lakemirror.storage.port import ObjectNotFound, ObjectStore, Overwrite
from lakemirror.storage.probe_keys import ODD

ENTRY = pa.schema(
    [
        pa.field("target", pa.string()),
        pa.field("source", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("format", pa.string()),
        pa.field("lower", pa.binary()),
        pa.field("upper", pa.binary()),
    ]
)
VECTOR = pa.struct(
    [
        pa.field("referenced_data_file", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("cardinality", pa.int64()),
    ]
)
FACT = pa.schema(
    [
        pa.field("target", pa.string()),
        pa.field("size", pa.int64()),
        ENTRY.field("lower"),
        ENTRY.field("upper"),
        pa.field("vectors", pa.list_(VECTOR)),  # of a Puffin file that this plan rewrites
    ]
)
ITEM = pa.schema([ENTRY.field(name) for name in ("source", "target", "size", "kind", "format")])
TO_READ = pa.schema(
    [
        pa.field("uri", pa.string()),
        pa.field("length", pa.int64()),
        pa.field("entries", pa.int64()),  # so many, deleted ones too, if that is known
        pa.field("is_source", pa.bool_()),
    ]
)
BATCH_ROWS = 1 << 14
SEGMENT = pa.schema(
    [
        pa.field("uri", pa.string()),
        pa.field("role", pa.string()),  # copy, split: as it is · delete: rewrite · fact: known position deletes
        pa.field("files", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("odd", pa.string()),
    ]
)
_FIELDS: dict[str, control.Check] = {
    "segments": control.all_of(lambda row: isinstance(row, dict)),
    "manifests_read": control.is_count,
    "requests": control.map_of(control.map_of(control.is_count)),
}
_SEGMENT_FIELDS: dict[str, control.Check] = {
    "uri": control.is_text,
    "role": lambda role: role in ("copy", "split", "delete", "fact"),
    "files": control.is_count,
    "bytes": control.is_count,
    "odd": control.is_text,
}
_ODD = frozenset(ODD)


@dataclass(frozen=True, slots=True)
class Segment:
    uri: str
    role: str
    files: int
    bytes: int
    odd: str
    """Of the characters that some stores do not keep, those that are in its keys."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a change needs: segments of work, by role."""

    segments: tuple[Segment, ...]
    manifests_read: int
    requests: Requests

    def of(self, role: str) -> tuple[Segment, ...]:
        return tuple(segment for segment in self.segments if segment.role == role)

    @property
    def files(self) -> int:
        return sum(segment.files for segment in self.segments if segment.role != "fact")

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments if segment.role != "fact")

    def rows(self, role: str) -> pa.Table:
        return pa.Table.from_pylist([asdict(segment) for segment in self.of(role)], SEGMENT)


def make(change: Change, context: StageContext, engine: Engine, progress: Report | None = None) -> Plan:
    """Read the changed manifests and write the plan's segments; `plan.json` comes last and says that all are there."""
    statistics = _statistics(change)
    added, removed = change.rows("added"), _worth_reading(change)
    new = _to_read(added["source"], added["source_length"], added["entries"], is_source=True)
    old = _to_read(removed["target"], removed["target_length"], removed["entries"], is_source=False)
    found = engine.diff(ReadEntries(context), ENTRY, new, old, PackSegments(context), SEGMENT, progress)
    if statistics.num_rows:
        found = pa.concat_tables(
            [found, pa.Table.from_batches(PackSegments(context).write("copy", statistics), SEGMENT)]
        )
    requests = sum_requests(
        [{"source": {"get": added.num_rows}, "mirror": {"get": removed.num_rows, "put": found.num_rows + 1}}]
    )
    plan = Plan(
        tuple(Segment(**row) for row in found.sort_by("uri").to_pylist()), added.num_rows + removed.num_rows, requests
    )
    document = {**asdict(plan), "segments": [asdict(segment) for segment in plan.segments]}
    context.mirror.put(f"{context.plan_uri}/plan.json", json.dumps(document).encode(), Overwrite())
    return plan


def _to_read(uris: pa.ChunkedArray, lengths: pa.ChunkedArray, entries: pa.ChunkedArray, *, is_source: bool) -> pa.Table:
    return pa.table([uris, lengths, entries, pa.array([is_source] * len(uris), pa.bool_())], schema=TO_READ)


def load(store: ObjectStore, plan_uri: str) -> Plan | None:
    """The plan that an earlier try completed, if there is one."""
    uri = f"{plan_uri}/plan.json"
    try:
        document = control.read(store, uri, _FIELDS)
    except ObjectNotFound:
        return None
    fields = {**_SEGMENT_FIELDS, "uri": control.inside(plan_uri)}
    for row in document["segments"]:
        control.check(row, uri, fields)
    found = tuple(Segment(**row) for row in document["segments"])
    return Plan(found, document["manifests_read"], sum_requests([]))  # its requests were told by the run that made it


def _worth_reading(change: Change) -> pa.Table:
    """Removed manifests matter only if an added one may carry entries over from somewhere."""
    removed = change.rows("removed")
    carries = pc.any(change.rows("added")["carries_over"]).as_py()
    return removed if carries else removed.slice(0, 0)


def _statistics(change: Change) -> pa.Table:
    """The new statistics files as items to copy; their keys are checked before anything is written."""
    entries = [
        {"source": path, "target": change.paths.map(path), "size": size, "kind": "statistics", "format": None}
        for path, size in change.statistics
    ]
    for entry in entries:
        check_key(str(entry["target"]))
    return pa.Table.from_pylist(entries, ITEM)


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """Manifests → their live entries; source paths are mapped, those of the mirror's copies are so already."""

    context: StageContext

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        parts = (
            part for row in rows for part in self._read(row["uri"], row["length"], row["entries"], row["is_source"])
        )
        return gathered(parts, BATCH_ROWS)

    def _read(self, uri: str, length: int, entries: int | None, is_source: bool) -> Iterator[pa.RecordBatch]:
        paths = self.context.paths
        store = self.context.source if is_source else self.context.mirror
        data = manifests.pieces(store, uri, length, "read manifest", is_source=is_source)
        rules = PlainRules.mapping(paths) if is_source else PlainRules.staying(paths)
        for part in manifest.live_parts(data, uri, paths if is_source else None, rules, entries=entries):
            yield _batch_of(part) if isinstance(part, Columns) else self._rows(part, is_source)

    def _rows(self, entries: Iterable[manifest.LiveEntry], is_source: bool) -> pa.RecordBatch:
        rows = []
        for entry in entries:
            target = self.context.paths.map(entry.path) if is_source else entry.path
            check_key(target)
            file_format = entry.file_format if entry.kind == "position_delete" else None  # of others nobody asks
            rows.append((target, entry.path, entry.size_bytes, entry.kind, file_format, entry.lower, entry.upper))
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(ENTRY)
        return pa.record_batch(
            [pa.array(column, field.type) for column, field in zip(columns, ENTRY, strict=True)], ENTRY
        )


def _batch_of(files: Columns) -> pa.RecordBatch:
    """Data files whose paths are plain, hence their keys fine: the buffers become columns as they are."""

    def texts(offsets: bytes, data: bytes) -> pa.Array:
        return pa.StringArray.from_buffers(files.rows, pa.py_buffer(offsets), pa.py_buffer(data))

    return pa.record_batch(
        [
            texts(files.target_offsets, files.targets),
            texts(files.source_offsets, files.sources),
            pa.Array.from_buffers(pa.int64(), files.rows, [None, pa.py_buffer(files.sizes)]),
            pa.repeat("data", files.rows),
            pa.nulls(files.rows, pa.string()),
            pa.nulls(files.rows, pa.binary()),
            pa.nulls(files.rows, pa.binary()),
        ],
        ENTRY,
    )


def _refuse_other_sizes(joined: pa.Table, is_copied: pa.ChunkedArray) -> None:
    """What is copied as it is has the same size on both sides; deletes that were rewritten need not."""
    differs = pc.not_equal(joined["size"], joined["known_size"])  # null where nothing is known
    found = joined.filter(pc.and_(is_copied, differs))
    if found.num_rows:
        first = found.sort_by("target").slice(0, 1).to_pylist()[0]
        raise other_size(first["source"], first["known_size"], first["size"])


def _where(table: pa.Table, wanted: pa.ChunkedArray) -> pa.Table:
    """Those rows; the table itself, not a copy of it, if they are all."""
    return table if pc.all(wanted, min_count=0).as_py() else table.filter(wanted)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table by position, from its batches as they are: `Table.take` copies all of them first, each time."""

    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]
    starts: tuple[int, ...]

    @classmethod
    def of(cls, table: pa.Table) -> Rows:
        batches = tuple(table.to_batches())
        return cls(table.schema, batches, tuple(accumulate((batch.num_rows for batch in batches), initial=0)))

    def take(self, positions: Sequence[int]) -> pa.Table:
        """In the order asked for."""
        parts: dict[int, list[int]] = {}
        places: dict[int, list[int]] = {}
        for place, position in enumerate(positions):
            number = bisect_right(self.starts, position) - 1
            parts.setdefault(number, []).append(position - self.starts[number])
            places.setdefault(number, []).append(place)
        found = [self.batches[number].take(pa.array(inside)) for number, inside in parts.items()]
        gathered = pa.Table.from_batches(found, self.schema)
        back = sorted(range(len(positions)), key=[place for part in places.values() for place in part].__getitem__)
        return gathered.take(pa.array(back, pa.int64()))


@dataclass(frozen=True, slots=True)
class PackSegments:
    """Joined entries → segments on the store: what to copy, what to rewrite, and the facts that are known already."""

    context: StageContext

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = list(gathered(batches, BATCH_ROWS))  # each segment takes rows of each batch
        if not parts:
            return
        joined = pa.Table.from_batches(parts)
        del parts
        missing = pc.is_null(joined["known_size"])
        is_delete = pc.equal(joined["kind"], "position_delete")
        _refuse_other_sizes(joined, pc.invert(is_delete))
        items = joined.select(ITEM.names)
        yield from self.write("copy", _where(items, pc.and_(missing, pc.invert(is_delete))))
        yield from self.write("delete", _where(items, pc.and_(missing, is_delete)))
        known = joined.filter(pc.and_(pc.invert(missing), is_delete))
        facts = known.select(["target", "known_size", "known_lower", "known_upper"])
        facts = facts.append_column("vectors", pa.nulls(known.num_rows, FACT.field("vectors").type))
        yield from self.write("fact", facts.rename_columns(FACT.names))

    def write(self, role: str, items: pa.Table) -> Iterator[pa.RecordBatch]:
        """Pack items into balanced bins of bounded count and bytes; a file that several tasks shall share is alone."""
        order = pc.sort_indices(items, sort_keys=[("size", "descending"), ("target", "ascending")])
        rows, sizes = Rows.of(items), array("q", items["size"].take(order).to_pylist())
        split = bisect_left(sizes, -self.context.split_bytes, key=neg) if role == "copy" else 0
        for position in range(split):
            yield self._segment("split", rows.take([order[position].as_py()]), sizes[position])
        for chosen in pack(sizes[split:], self.context.bin_files, self.context.bin_bytes):
            positions = [split + position for position in chosen]
            taken = rows.take(order.take(pa.array(positions)).to_pylist())
            yield self._segment(role, taken, sum(sizes[position] for position in positions))

    def _segment(self, role: str, items: pa.Table, weight: int) -> pa.RecordBatch:
        uri = segments.write(self.context.mirror, self.context.plan_uri, role, items)
        odd = "".join(sorted(_ODD.intersection("".join(items["target"].to_pylist()))))
        row = {"uri": uri, "role": role, "files": items.num_rows, "bytes": weight, "odd": odd}
        return pa.RecordBatch.from_pylist([row], SEGMENT)
