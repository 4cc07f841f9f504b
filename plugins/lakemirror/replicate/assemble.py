"""Assemble: run the rewriting stages in order and write the version's metadata.json and index.

Manifests before lists, lists before metadata: nothing is written that names what is not there yet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace

import pyarrow as pa

from lakemirror.errors import PermanentError, TransientError
from lakemirror.formats.iceberg import metadata_json, metadata_shape
from lakemirror.formats.iceberg.manifest_list import MirroredManifest, Seen
from lakemirror.model.layout import TableLayout
from lakemirror.model.results import Rewritten
from lakemirror.model.source_name import snapshot_asked_for
from lakemirror.replicate import control
from lakemirror.replicate.change import Change
from lakemirror.replicate.detect import fingerprint_of, read_metadata
from lakemirror.replicate.index import ROWS, VersionIndex, place_of
from lakemirror.replicate.plan import Plan
from lakemirror.replicate.rewrite import (
    REWRITTEN_DELETES,
    REWRITTEN_MANIFESTS,
    RewriteDeletes,
    RewriteManifests,
    put_or_adopt,
    rewrite_list,
)
from lakemirror.replicate.stage import Engine, Requests, StageContext, requests_of, sum_requests
from lakemirror.storage.keys import check_key
from lakemirror.storage.port import ObjectNotFound, ObjectStore, Overwrite
from lakemirror.storage.wrappers.count import CountingStore

_REWRITTEN = {field.name for field in fields(Rewritten)}


@dataclass(frozen=True, slots=True)
class Assembled:
    """A version whose files are all in the mirror: what its marker will say."""

    metadata_uri: str
    metadata_sha256: str
    manifest_list_uri: str | None
    manifest_count: int
    index_uri: str
    index_sha256: str
    closure_digest: str
    sequence_number: int
    committed_at_ms: int
    rewritten: Rewritten
    left_out: tuple[str, ...]
    lists: tuple[tuple[str, int, int], ...]  # URI, length and CRC32C of each new manifest list
    requests: Requests


def assemble(
    change: Change,
    plan: Plan,
    context: StageContext,
    engine: Engine,
    layout: TableLayout,
    progress: Callable[[int, int], None] | None = None,
) -> Assembled:
    """Rewrite what is new and write the version's metadata and index."""
    source, mirror = CountingStore(context.source), CountingStore(context.mirror)
    deletes = engine.run(RewriteDeletes(context), plan.rows("delete"), REWRITTEN_DELETES)
    fact_uris = (*deletes["fact_uri"].to_pylist(), *(segment.uri for segment in plan.of("fact")))
    added = change.rows("added")
    rewritten = engine.run(RewriteManifests(context, fact_uris), added, REWRITTEN_MANIFESTS, progress)
    index = _index(change, rewritten)
    mirrored = {
        row["source"]: MirroredManifest(row["target"], row["target_length"]) for row in index.manifests.to_pylist()
    }
    lists = []
    seen = Seen[tuple[bytes, bytes]]()
    for _, list_uri, digest in change.new_lists:
        target = change.paths.map(list_uri)
        check_key(target)
        stored = rewrite_list(source, mirror, list_uri, target, digest, mirrored, seen)
        lists.append((target, stored.size_bytes, stored.crc32c))
    metadata = _same_metadata(source, change)
    document = metadata_json.for_mirror(
        metadata,
        change.paths,
        change.version,
        change.head,
        change.retained,
        location=layout.root,
        dangling=change.dangling,
        lift=change.lift,
    )
    metadata_uri = layout.metadata(document.file_name)
    put_or_adopt(mirror, metadata_uri, document.data, lambda left, right: False)
    there = metadata_json.snapshots(metadata)
    lists_at = {one: place_of(change.paths.map(there[one]["manifest-list"])) for one in change.retained}
    index_uri, index_sha256 = replace(index, lists=lists_at).save(mirror, layout)
    snapshot = there.get(change.head) if change.head is not None else None
    return Assembled(
        metadata_uri=metadata_uri,
        metadata_sha256=hashlib.sha256(document.data).hexdigest(),
        manifest_list_uri=None if snapshot is None else change.paths.map(snapshot["manifest-list"]),
        manifest_count=sum(change.head in row for row in index.manifests["snapshots"].to_pylist()),
        index_uri=index_uri,
        index_sha256=index_sha256,
        closure_digest=index.closure_digest(),
        sequence_number=0 if snapshot is None else int(snapshot.get("sequence-number", 0)),
        committed_at_ms=_committed_at_ms(metadata, snapshot, change),
        rewritten=Rewritten(
            added.num_rows,
            len(change.new_lists),
            sum(deletes["files"].to_pylist()),
            sum(deletes["puffins"].to_pylist()),
        ),
        left_out=(*change.left_out, *document.left_out),
        lists=tuple(lists),
        requests=sum_requests(
            [requests_of(deletes), requests_of(rewritten), {"source": source.counts, "mirror": mirror.counts}]
        ),
    )


def _committed_at_ms(metadata: metadata_json.Json, snapshot: metadata_json.Json | None, change: Change) -> int:
    """Up to when the version has what was committed; of a snapshot that was asked for nothing later is in it."""
    if snapshot is None or snapshot_asked_for(change.source_metadata_location) is None:
        return int(metadata["last-updated-ms"])
    return int(snapshot["timestamp-ms"])


def _same_metadata(store: ObjectStore, change: Change) -> metadata_json.Json:
    """The metadata that was planned from: what is left out of it here would be left out of the mirror."""
    metadata = read_metadata(store, change.source_metadata_location)
    got = fingerprint_of(metadata, change.head)
    if got != change.source_fingerprint:
        raise TransientError(
            "rewrite",
            change.source_metadata_location,
            f"the metadata file is not what was planned from (want {change.source_fingerprint}, got {got})",
            "run again: it plans anew; if that does not help, the source overwrites its metadata files",
        )
    return metadata


def save(store: ObjectStore, plan_uri: str, assembled: Assembled) -> None:
    """For a later stage in another process; a run that goes on to publish by itself needs no such note."""
    store.put(f"{plan_uri}/assembled.json", json.dumps(asdict(assembled)).encode(), Overwrite())


def load(store: ObjectStore, plan_uri: str) -> Assembled:
    uri = f"{plan_uri}/assembled.json"
    try:
        document = control.read(store, uri, _fields(plan_uri.rpartition("/_plan/")[0]))
    except ObjectNotFound as err:
        raise PermanentError("publish", uri, "the version was not assembled", "run rewrite_metadata first") from err
    document["rewritten"] = Rewritten(**document["rewritten"])
    document["left_out"] = tuple(document["left_out"])
    document["lists"] = tuple((uri, length, crc32c) for uri, length, crc32c in document["lists"])
    return Assembled(**document)


def _fields(root: str) -> dict[str, control.Check]:
    is_inside = control.inside(root)
    return {
        **dict.fromkeys(("metadata_uri", "index_uri"), is_inside),
        "manifest_list_uri": control.or_none(is_inside),
        **dict.fromkeys(("metadata_sha256", "index_sha256", "closure_digest"), control.is_text),
        **dict.fromkeys(("manifest_count", "sequence_number"), control.is_count),
        "committed_at_ms": metadata_shape.is_time,
        "rewritten": lambda value: control.map_of(control.is_count)(value) and value.keys() == _REWRITTEN,
        "left_out": control.all_of(control.is_text),
        "lists": control.all_of(control.tuple_of(is_inside, control.is_count, control.is_count)),
        "requests": control.map_of(control.map_of(control.is_count)),
    }


def _index(change: Change, rewritten: pa.Table) -> VersionIndex:
    stored = {row["source"]: row for row in rewritten.to_pylist()}
    rows = []
    for row in change.rows("added", "reused").to_pylist():
        known = row if row["state"] == "reused" else stored.get(row["source"])
        if known is None:
            raise PermanentError("rewrite", row["source"], "a manifest was planned but not rewritten", "report this")
        there = {name: known[name] for name in ("target_length", "crc32c")}
        rows.append({**{name: row[name] for name in ROWS.names}, **there})
    statistics = change.known_statistics | {*change.statistics}
    manifests = pa.Table.from_pylist(rows, ROWS)
    retained = frozenset(change.retained)
    return VersionIndex(
        manifests=manifests,
        mirrored=retained,
        statistics=frozenset(statistics),
        paths=change.paths,
        generation=change.generation,
        former=change.former,
        earlier=dict(change.earlier),
    )
