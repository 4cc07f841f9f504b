"""Rewrite: new position deletes, then new manifests, then new manifest lists, each a pure function of its source.

A rewritten object is put create-only. One that is there already is adopted, with its length, if it holds the same
records; with other records it is a stop, never an overwrite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.errors import PermanentError, SourceVanishedError
from lakemirror.formats.iceberg import avro, manifest, manifest_list, position_deletes
from lakemirror.formats.iceberg.manifest import DeleteFileFacts
from lakemirror.replicate import segments
from lakemirror.replicate.copy import ledger_folder
from lakemirror.replicate.plan import FACT
from lakemirror.replicate.stage import Counted, StageContext
from lakemirror.storage.checksum import Tally
from lakemirror.storage.port import ConditionFailed, Create, ObjectNotFound, ObjectStore

REWRITTEN_FACT = FACT.append(pa.field("crc32c", pa.int64()))
REWRITTEN_DELETES = pa.schema(
    [pa.field("fact_uri", pa.string()), pa.field("files", pa.int64()), pa.field("requests", pa.string())]
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
    """Segments of position delete files → their copies in the mirror, and a fact segment for the manifests."""

    context: StageContext

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield self._rewrite_segment(row["uri"])

    def _rewrite_segment(self, uri: str) -> pa.RecordBatch:
        stores = Counted(self.context)
        facts = [self._rewrite_file(stores, item) for item in segments.read(stores.mirror, uri).to_pylist()]
        folder = ledger_folder(self.context.ledger_uri, uri)
        fact_uri = segments.write(stores.mirror, folder, "facts", pa.Table.from_pylist(facts, REWRITTEN_FACT))
        row = {"fact_uri": fact_uri, "files": len(facts), "requests": stores.requests}
        return pa.RecordBatch.from_pylist([row], REWRITTEN_DELETES)

    def _rewrite_file(self, stores: Counted, item: dict[str, object]) -> dict[str, object]:
        source, target = str(item["source"]), str(item["target"])
        data = read_source(stores.source, source)
        if len(data) != item["size"]:
            raise PermanentError(
                "rewrite",
                source,
                f"its size is not what its manifest says (want {item['size']}, got {len(data)})",
                "look at it",
            )
        new = position_deletes.rewrite(data, source, self.context.paths)
        stored = put_or_adopt(stores.mirror, target, new.data, position_deletes.same_rows)
        facts = {"lower": new.facts.lower, "upper": new.facts.upper}
        return {"target": target, "size": stored.size_bytes, **facts, "crc32c": stored.crc32c}


@dataclass(frozen=True, slots=True)
class RewriteManifests:
    """Manifests → their copies in the mirror, with the facts of the position deletes they hold."""

    context: StageContext
    fact_uris: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        facts: pa.Table | None = None
        for batch in batches:
            for row in batch.to_pylist():
                stores = Counted(self.context)
                if row["has_deletes"] and facts is None:
                    facts = pa.concat_tables(
                        [
                            FACT.empty_table(),
                            *(segments.read(stores.mirror, uri).select(FACT.names) for uri in self.fact_uris),
                        ]
                    )
                stored = self._rewrite(stores, row, facts if row["has_deletes"] else None)
                result = {"source": row["source"], "target_length": stored.size_bytes, "crc32c": stored.crc32c}
                yield pa.RecordBatch.from_pylist([{**result, "requests": stores.requests}], REWRITTEN_MANIFESTS)

    def _rewrite(self, stores: Counted, row: dict[str, Any], facts: pa.Table | None) -> Stored:
        source, target = str(row["source"]), str(row["target"])
        data = read_source(stores.source, source)
        manifest.check_length(data, source, row["source_length"])
        deletes = {} if facts is None else self._facts_of(data, source, facts)
        new = manifest.rewrite(data, source, self.context.paths, deletes)
        return put_or_adopt(stores.mirror, target, new, lambda left, right: avro.same_records(left, right, target))

    def _facts_of(self, data: bytes, uri: str, facts: pa.Table) -> Mapping[str, DeleteFileFacts]:
        targets = [
            self.context.paths.map(entry.path)
            for entry in manifest.live_entries(data, uri)
            if entry.kind == "position_delete"
        ]
        rows = facts.filter(pc.is_in(facts["target"], pa.array(targets, pa.string()))).to_pylist()
        return {row["target"]: DeleteFileFacts(row["size"], row["lower"], row["upper"]) for row in rows}


def rewrite_list(
    source: ObjectStore,
    mirror: ObjectStore,
    uri: str,
    target: str,
    manifests: Mapping[str, manifest_list.MirroredManifest],
) -> Stored:
    """A manifest list, once all its manifests are in the mirror."""
    new = manifest_list.rewrite(read_source(source, uri), uri, manifests)
    return put_or_adopt(mirror, target, new, lambda left, right: avro.same_records(left, right, target))


def read_source(store: ObjectStore, uri: str) -> bytes:
    try:
        return store.get(uri).data
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
            raise PermanentError(
                "rewrite",
                uri,
                "another object with other records lies under this key",
                "was a source root changed? find out who wrote it; move it away and run again",
            ) from err
        tally = Tally()
        tally.add(there)
        return Stored(tally.size_bytes, tally.crc32c)
