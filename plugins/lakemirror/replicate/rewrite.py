"""Rewrite: new position deletes, then new manifests, then new manifest lists, each a pure function of its source.

A rewritten object is put create-only. One that is there already is adopted, with its length, if it holds the same
records; with other records it is a stop, never an overwrite.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from lakemirror.errors import PermanentError, SourceVanishedError, TransientError
from lakemirror.formats.iceberg import avro, delete_files, manifest, manifest_list, puffin
from lakemirror.formats.iceberg.manifest import DeleteFileFacts, DeletionVector
from lakemirror.formats.iceberg.manifest_entry import Bounds
from lakemirror.model.paths import PrefixMap
from lakemirror.replicate import control, manifests, segments
from lakemirror.replicate.copy import read_items
from lakemirror.replicate.delete_facts import DeleteFacts
from lakemirror.replicate.ledger import ledger_folder
from lakemirror.replicate.plan import FACT
from lakemirror.replicate.stage import Counted, StageContext
from lakemirror.storage.checksum import Tally
from lakemirror.storage.port import ConditionFailed, Create, ObjectNotFound, ObjectStore

MAX_DELETE_FILE_BYTES = 1 << 30
REWRITTEN_FACT = FACT.append(pa.field("crc32c", pa.int64()))
REWRITTEN_DELETES = pa.schema(
    [
        pa.field("fact_uri", pa.string()),
        pa.field("files", pa.int64()),
        pa.field("puffins", pa.int64()),
        pa.field("requests", pa.string()),
    ]
)
REWRITTEN_MANIFESTS = pa.schema(
    [
        pa.field("source", pa.string()),
        pa.field("target_length", pa.int64()),
        pa.field("crc32c", pa.int64()),
        pa.field("requests", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Stored:
    """What lies in the mirror now: written by this run, or found there and adopted."""

    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class RewriteDeletes:
    """Segments of delete files that hold paths → their copies in the mirror, and a fact segment for the manifests."""

    context: StageContext

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield self._rewrite_segment(row["uri"])

    def _rewrite_segment(self, uri: str) -> pa.RecordBatch:
        stores = Counted(self.context)
        items = read_items(stores.mirror, uri, self.context.paths)
        facts = [self._rewrite_file(stores, item) for item in items]
        folder = ledger_folder(self.context.ledger_uri, uri)
        fact_uri = segments.write(stores.mirror, folder, "facts", pa.Table.from_pylist(facts, REWRITTEN_FACT))
        puffins = sum(fact["vectors"] is not None for fact in facts)
        counts = {"files": len(facts) - puffins, "puffins": puffins}
        row = {"fact_uri": fact_uri, **counts, "requests": stores.requests}
        return pa.RecordBatch.from_pylist([row], REWRITTEN_DELETES)

    def _rewrite_file(self, stores: Counted, item: dict[str, object]) -> dict[str, object]:
        source, target = str(item["source"]), str(item["target"])
        data = read_source(stores.source, source, min(MAX_DELETE_FILE_BYTES, int(str(item["size"]))))
        if len(data) != item["size"]:
            raise PermanentError(
                "rewrite",
                source,
                f"its size is not what its manifest says (want {item['size']}, got {len(data)})",
                "look at it",
            )
        file_format = str(item["format"])
        new = delete_files.rewrite(data, source, file_format, self.context.paths)
        stored = put_or_adopt(
            stores.mirror,
            target,
            new.data,
            lambda left, right: delete_files.is_same(left, right, file_format, self.context.paths),
        )
        facts = new.facts
        vectors = None if facts.vectors is None else [asdict(vector) for vector in sorted(facts.vectors, key=_offset)]
        bounds = {"lower": facts.lower, "upper": facts.upper}
        return {
            "target": target,
            "size": stored.size_bytes,
            **bounds,
            "vectors": vectors,
            "crc32c": stored.crc32c,
        }


@dataclass(frozen=True, slots=True)
class _Manifest:
    """A manifest to rewrite; `read` gives its bytes as often as it is called."""

    source: str
    target: str
    entries: int | None
    has_deletes: bool
    is_small: bool
    read: Callable[[], Iterable[bytes]]

    def live_entries(self) -> Iterator[manifest.LiveEntry]:
        return manifest.live_entries(self.read(), self.source, entries=self.entries)


@dataclass(frozen=True, slots=True)
class RewriteManifests:
    """Manifests → their copies in the mirror, with the facts of the position deletes they hold."""

    context: StageContext
    fact_uris: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in _held_together(row for batch in batches for row in batch.to_pylist()):
            yield self._rewrite_all(rows)

    def _rewrite_all(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        """The requests of all are told by the last."""
        stores = Counted(self.context)
        opened = [self._open(stores, row) for row in rows]
        facts = self._facts(stores, [one for one in opened if one.has_deletes])
        results: list[dict[str, object]] = []
        for one in opened:
            stored = self._rewrite(stores, one, facts)
            result = {"source": one.source, "target_length": stored.size_bytes, "crc32c": stored.crc32c}
            results.append({**result, "requests": "{}"})
        results[-1]["requests"] = stores.requests
        return pa.RecordBatch.from_pylist(results, REWRITTEN_MANIFESTS)

    def _open(self, stores: Counted, row: dict[str, Any]) -> _Manifest:
        """A small one is held; one that is large and holds deletes is streamed once more."""
        source, target, length = str(row["source"]), str(row["target"]), int(row["source_length"])
        if self.context.paths.map(source) != target:
            raise control.altered(self.context.plan_uri, f"{source} goes to {target}")

        def read() -> Iterable[bytes]:
            return manifests.pieces(stores.source, source, length, "rewrite", is_source=True)

        is_small = manifests.is_small(length)
        held = read() if is_small else ()
        return _Manifest(
            source, target, row["entries"], row["has_deletes"], is_small, (lambda: held) if is_small else read
        )

    def _facts(self, stores: Counted, named_by: Iterable[_Manifest]) -> Mapping[str, DeleteFileFacts]:
        """Of the delete files that these manifests name; those of the whole change may be too many to hold."""
        paths = self.context.paths
        entries = (entry for one in named_by for entry in one.live_entries())
        wanted = {hash(paths.map(entry.path)) for entry in entries if entry.kind == "position_delete"}
        if not wanted:
            return {}
        found = [FACT.empty_table()]
        for uri in self.fact_uris:
            part = segments.read(stores.mirror, uri, FACT, ("target", "size"))
            found.append(part.filter(pa.array([hash(target) in wanted for target in part["target"].to_pylist()])))
        return DeleteFacts(pa.concat_tables(found), _FilesOf(stores.mirror))

    def _rewrite(self, stores: Counted, one: _Manifest, facts: Mapping[str, DeleteFileFacts]) -> Stored:
        def new() -> Iterator[bytes]:
            return manifest.rewritten(one.read(), one.source, self.context.paths, facts, entries=one.entries)

        if one.is_small:
            return put_or_adopt(
                stores.mirror,
                one.target,
                b"".join(new()),
                lambda left, right: manifest.is_same(left, right, one.target, self.context.paths),
            )
        return stream_or_adopt(stores.mirror, one.target, new, self.context.paths)


def _held_together(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Manifests of deletes share one read of the facts: no more bytes of them than one may have that is held alone.

    Those without deletes need no facts, and are alone.
    """
    held: list[dict[str, Any]] = []
    size_bytes = 0
    for row in rows:
        if not row["has_deletes"]:
            yield [row]
            continue
        length = int(row["source_length"])
        if held and not manifests.is_small(size_bytes + length):
            yield held
            held, size_bytes = [], 0
        held.append(row)
        size_bytes += length
    if held:
        yield held


@dataclass(frozen=True, slots=True)
class _FilesOf:
    """Reads what delete files of the mirror hold."""

    mirror: ObjectStore

    def vectors(self, target: str) -> frozenset[DeletionVector]:
        return puffin.vectors(self._get(target), target)

    def bounds(self, target: str, file_format: str) -> Bounds:
        return delete_files.bounds(self._get(target), target, file_format)

    def _get(self, target: str) -> bytes:
        return self.mirror.get(target, max_bytes=MAX_DELETE_FILE_BYTES).data


def _offset(vector: DeletionVector) -> int:
    return vector.offset


def rewrite_list(
    source: ObjectStore,
    mirror: ObjectStore,
    uri: str,
    target: str,
    sha256: str,
    manifests: Mapping[str, manifest_list.MirroredManifest],
    seen: manifest_list.Seen[tuple[bytes, bytes]] | None = None,
) -> Stored:
    """A manifest list, once all its manifests are in the mirror; `seen` is for lists with the same `manifests`.

    It must be the very bytes that were planned from. A list that lost some of its blocks is whole as Avro: it would be
    published without the manifests that it no longer names.
    """
    data = read_source(source, uri, manifest_list.MAX_BYTES)
    got = hashlib.sha256(data).hexdigest()
    if got != sha256:
        raise TransientError(
            "rewrite",
            uri,
            f"the manifest list is not what was planned from (want SHA-256 {sha256}, got {got} of {len(data)} bytes)",
            "run again: it reads the list anew; if that does not help, the source's file is damaged",
        )
    new = manifest_list.rewrite(data, uri, manifests, seen)
    return put_or_adopt(mirror, target, new, lambda left, right: avro.same_records(left, right, target))


def read_source(store: ObjectStore, uri: str, max_bytes: int) -> bytes:
    try:
        return store.get(uri, max_bytes=max_bytes).data
    except ObjectNotFound as err:
        raise SourceVanishedError(
            "rewrite", uri, "the source file is gone", "run again: it plans anew from the source's head"
        ) from err


def put_or_adopt(store: ObjectStore, uri: str, data: bytes, is_same: Callable[[bytes, bytes], bool]) -> Stored:
    """Create the object, or take the one that is there if it says the same; tells what is there."""
    try:
        written = store.put(uri, data, Create())
        return Stored(written.size_bytes, written.crc32c)
    except ConditionFailed as err:
        there = store.get(uri).data
        if there != data and not is_same(there, data):
            raise _other_records(uri) from err
        tally = Tally()
        tally.add(there)
        return Stored(tally.size_bytes, tally.crc32c)


def stream_or_adopt(store: ObjectStore, uri: str, make: Callable[[], Iterator[bytes]], paths: PrefixMap) -> Stored:
    """The same for a manifest that is too large to hold; `make` gives it in pieces, a second time if need be."""
    try:
        written = store.put(uri, make(), Create())
        return Stored(written.size_bytes, written.crc32c)
    except ConditionFailed as err:
        tally = Tally()
        if not manifest.is_same(tally.over(store.stream(uri)), make(), uri, paths):
            raise _other_records(uri) from err
        return Stored(tally.size_bytes, tally.crc32c)


def _other_records(uri: str) -> PermanentError:
    return PermanentError(
        "rewrite",
        uri,
        "another object with other records lies under this key",
        "was a source root changed? find out who wrote it; move it away and run again",
    )
