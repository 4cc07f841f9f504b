"""The index of a version: named by its own hash, read back only if it is what the marker says."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest

from lakemirror.errors import PermanentError
from lakemirror.model.paths import PrefixMap
from lakemirror.replicate import index as indexes
from lakemirror.replicate.index import ROWS, VersionIndex
from lakemirror.storage.port import Overwrite
from tests.unit.replicate.conftest import Bench

PATHS = PrefixMap.of({"s3://src": "gs://m", "s3://cold": "gs://m/_roots/cold"})


def row(name: str, *snapshots: int, length: int = 10, crc32c: int = 7) -> dict[str, object]:
    lengths = {"source_length": 9, "target_length": length, "crc32c": crc32c}
    return {"source": f"s3://{name}", "target": f"gs://{name}", **lengths, "has_deletes": False, "snapshots": snapshots}


def index(*rows: dict[str, object]) -> VersionIndex:
    table = pa.Table.from_pylist(list(rows), ROWS)
    return VersionIndex(table, frozenset({1, 2, 3}), frozenset({"s3://stats"}), PATHS)


def test_round_trip_in_any_order_gives_one_object(bench: Bench) -> None:
    uri, digest = index(row("b", 2), row("a", 1, 2)).save(bench.store, bench.layout)
    assert index(row("a", 1, 2), row("b", 2)).save(bench.store, bench.layout) == (uri, digest)
    assert hashlib.sha256(bench.store.get(uri).data).hexdigest() == digest
    loaded = indexes.load(bench.store, uri, digest)
    assert (loaded.manifests.to_pylist(), loaded.mirrored, loaded.statistics, loaded.paths) == (
        index(row("a", 1, 2), row("b", 2)).manifests.to_pylist(),
        frozenset({1, 2, 3}),
        frozenset({"s3://stats"}),
        PATHS,
    )


def test_referenced_are_the_snapshots_whose_manifests_it_holds() -> None:
    assert index(row("a", 1), row("b", 1, 5)).referenced == {1, 5}
    assert VersionIndex.empty(PATHS).referenced == frozenset()


def test_an_altered_index_is_refused(bench: Bench) -> None:
    uri, digest = index(row("a", 1)).save(bench.store, bench.layout)
    bench.store.put(uri, bench.store.get(uri).data + b"\x00", Overwrite())
    with pytest.raises(PermanentError, match=f"its hash is not {digest}"):
        indexes.load(bench.store, uri, digest)


def test_the_closure_digest_follows_names_lengths_and_contents_only() -> None:
    one = index(row("a", 1), row("b", 1)).closure_digest()
    assert index(row("b", 7), row("a", 8)).closure_digest() == one
    assert index(row("a", 1), row("b", 1, length=11)).closure_digest() != one
    assert index(row("a", 1), row("b", 1, crc32c=8)).closure_digest() != one
    assert index(row("a", 1)).closure_digest() != one
