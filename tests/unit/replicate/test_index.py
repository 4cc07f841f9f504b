"""The index of a version: named by its own hash, read back only if it is what the marker says."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pyarrow as pa
import pytest

from lakemirror.errors import PermanentError
from lakemirror.model.layout import TableLayout
from lakemirror.model.paths import PrefixMap
from lakemirror.replicate import index as indexes
from lakemirror.replicate import segments
from lakemirror.replicate.index import ROWS, VersionIndex
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectStore, Overwrite

LAYOUT = TableLayout("memory://m/t")
ROOT = "memory://m/t"
PATHS = PrefixMap.of({"s3://src": ROOT, "s3://cold": f"{ROOT}/_roots/cold"})


@pytest.fixture
def store() -> ObjectStore:
    return ObstoreStore({})


def row(name: str, *snapshots: int, length: int = 10, crc32c: int = 7) -> dict[str, object]:
    lengths = {"source_length": 9, "target_length": length, "crc32c": crc32c}
    return {
        "source": f"s3://{name}",
        "target": f"{ROOT}/{name}",
        **lengths,
        "has_deletes": False,
        "snapshots": snapshots,
    }


def index(*rows: dict[str, object]) -> VersionIndex:
    table = pa.Table.from_pylist(list(rows), ROWS)
    return VersionIndex(table, frozenset({1, 2, 3}), frozenset({("s3://stats", 5)}), PATHS)


def test_round_trip_in_any_order_gives_one_object(store: ObjectStore) -> None:
    uri, digest = index(row("b", 2), row("a", 1, 2)).save(store, LAYOUT)
    assert index(row("a", 1, 2), row("b", 2)).save(store, LAYOUT) == (uri, digest)
    assert hashlib.sha256(store.get(uri).data).hexdigest() == digest
    loaded = indexes.load(store, uri, digest)
    assert (loaded.manifests.to_pylist(), loaded.mirrored, loaded.statistics, loaded.paths) == (
        index(row("a", 1, 2), row("b", 2)).manifests.to_pylist(),
        frozenset({1, 2, 3}),
        frozenset({("s3://stats", 5)}),
        PATHS,
    )


def test_rules_that_are_no_longer_in_force_are_remembered(store: ObjectStore) -> None:
    former = (("s3://old", f"{ROOT}/_roots/old"),)
    loaded = indexes.load(store, *replace(index(), former=former).save(store, LAYOUT))
    assert loaded.former == former
    assert loaded.ever == PrefixMap.of({**dict(PATHS.rules), **dict(former)})


def test_an_index_that_was_written_before_there_were_such_is_read(store: ObjectStore) -> None:
    uri, _ = index(row("a", 1)).save(store, LAYOUT)
    table = segments.decode(store.get(uri).data, uri, ROWS)
    document = json.loads(table.schema.metadata[b"lakemirror.index"])
    later = {name: document.pop(name) for name in ("former", "lists", "earlier")}
    old = segments.encode(table.replace_schema_metadata({b"lakemirror.index": json.dumps(document).encode()}))
    store.put(uri, old, Overwrite())
    loaded = indexes.load(store, uri, hashlib.sha256(old).hexdigest())
    assert (later, loaded.former) == ({"former": [], "lists": ["", "", ""], "earlier": ["", "", ""]}, ())
    assert loaded.moved({1: f"{ROOT}/a", 2: f"{ROOT}/b"}) == frozenset()
    assert loaded.ever == loaded.paths == PATHS


def test_a_snapshot_whose_list_is_not_where_it_was_is_no_longer_known(store: ObjectStore) -> None:
    places = {one: indexes.place_of(f"{ROOT}/metadata/snap-{one}.avro") for one in (1, 2, 3)}
    made = replace(index(row("a", 1, 2), row("b", 2)), lists=places)
    loaded = indexes.load(store, *made.save(store, LAYOUT))
    moved = loaded.moved({1: f"{ROOT}/metadata/snap-1.avro", 2: f"{ROOT}/elsewhere/snap-2.avro"})
    assert (loaded.lists, moved) == (places, {2})
    left = loaded.without(moved)
    assert (left.mirrored, left.referenced) == ({1, 3}, {1})
    assert left.manifests["source"].to_pylist() == ["s3://a", "s3://b"]
    assert left.manifests.schema == ROWS


def test_the_lists_of_a_thousand_versions_are_small(store: ObjectStore) -> None:
    """Ids of 19 digits and lists with long names."""
    ids = frozenset(range(7_000_000_000_000_000_000, 7_000_000_000_000_001_000))
    lists = {one: indexes.place_of(f"{ROOT}/metadata/snap-{one}-1-{one:032d}.avro") for one in ids}
    sizes = [
        len(store.get(replace(index(), mirrored=ids, lists=known).save(store, LAYOUT)[0]).data) for known in ({}, lists)
    ]
    assert sizes[1] - sizes[0] < 30_000


def test_manifests_of_snapshots_that_nothing_refers_to_are_found_in_the_index_of_their_time(store: ObjectStore) -> None:
    first = replace(index(row("a", 1), row("b", 1, 2), row("c", 2)), mirrored=frozenset({1, 2}))
    _, first_digest = first.save(store, LAYOUT)
    assert first.handed_on(first_digest, {1, 2, 9}) == ((1, first_digest), (2, first_digest))
    second = replace(index(row("b", 3), row("d", 3)), earlier=dict(first.handed_on(first_digest, {1, 2})))
    uri, second_digest = second.save(store, LAYOUT)
    loaded = indexes.load(store, uri, second_digest)
    assert loaded.handed_on(second_digest, {1, 3}) == ((1, first_digest), (3, second_digest))
    assert loaded.recalling(store, LAYOUT, {3, 9}) is loaded, "nothing is read for what it has itself"
    recalled = loaded.recalling(store, LAYOUT, {1, 3})
    found = {one["source"]: one["snapshots"] for one in recalled.manifests.to_pylist()}
    assert found == {"s3://b": [3, 1], "s3://d": [3], "s3://a": [1]}
    assert recalled.manifests.schema == ROWS


def test_an_earlier_index_that_is_gone_or_of_another_folder_tells_nothing(store: ObjectStore) -> None:
    uri, digest = replace(index(row("a", 1)), generation="ab").save(store, LAYOUT)
    later = replace(index(row("b", 2)), earlier={1: digest})
    assert later.recalling(store, LAYOUT, {1}).manifests == later.manifests
    store.delete([uri])
    assert later.recalling(store, LAYOUT, {1}).manifests == later.manifests


def test_referenced_are_the_snapshots_whose_manifests_it_holds() -> None:
    assert index(row("a", 1), row("b", 1, 5)).referenced == {1, 5}
    assert VersionIndex.empty(PATHS).referenced == frozenset()


def test_an_altered_index_is_refused(store: ObjectStore) -> None:
    uri, digest = index(row("a", 1)).save(store, LAYOUT)
    store.put(uri, store.get(uri).data + b"\x00", Overwrite())
    with pytest.raises(PermanentError, match=f"its hash is not {digest}"):
        indexes.load(store, uri, digest)


FORGED = [
    index({**row("a", 1), "target": "memory://m/other/a"}),
    index({**row("a", 1), "target": f"{ROOT}/../other/a"}),
    index({**row("a", 1), "target": "file:///etc/passwd"}),
    index(row("a", 1, length=-1)),
    replace(index(), generation="../../other"),
    replace(index(), paths=PrefixMap((("s3://src", "memory://m/other"),))),
    replace(index(), paths=PrefixMap((("s3://src", f"{ROOT}/.."),))),
    replace(index(), former=(("s3://src", "memory://m/other"),)),
    replace(index(), lists={1: 7}),  # type: ignore[dict-item]
    replace(index(), earlier={1: "../../other/index"}),
    replace(index(), mirrored=frozenset({"x"})),  # type: ignore[arg-type]
    replace(index(), statistics=frozenset({7})),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_index_leads_nowhere(store: ObjectStore, forged: VersionIndex) -> None:
    """Whoever can write a marker can make the hash fit: what the index names lies in the table's folder."""
    with pytest.raises(PermanentError, match="not as it was written"):
        indexes.load(store, *forged.save(store, LAYOUT))


def test_an_index_without_its_document(store: ObjectStore) -> None:
    data = segments.encode(ROWS.empty_table())
    uri, digest = LAYOUT.index("x"), hashlib.sha256(data).hexdigest()
    store.put(uri, data)
    with pytest.raises(PermanentError, match="not as it was written"):
        indexes.load(store, uri, digest)


def test_the_closure_digest_follows_names_lengths_and_contents_only() -> None:
    one = index(row("a", 1), row("b", 1)).closure_digest()
    assert index(row("b", 7), row("a", 8)).closure_digest() == one
    assert index(row("a", 1), row("b", 1, length=11)).closure_digest() != one
    assert index(row("a", 1), row("b", 1, crc32c=8)).closure_digest() != one
    assert index(row("a", 1)).closure_digest() != one
