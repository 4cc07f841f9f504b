from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakemirror.errors import PermanentError
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ConditionFailed, ObjectNotFound, Overwrite, Written
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.forward import ForwardingStore
from lakemirror.storage.wrappers.own_writes import OwnWritesStore

FOLDER, OTHER, APART = "memory://m/_plan", "memory://m/_ledger", "memory://m/_ledger/index"


def _made(max_bytes: int = 100) -> tuple[CountingStore, OwnWritesStore]:
    counted = CountingStore(ObstoreStore({}))
    return counted, OwnWritesStore(counted, FOLDER, OTHER, apart_from=(APART,), max_bytes=max_bytes)


def test_each_of_its_folders_counts() -> None:
    counted, store = _made()
    store.put(f"{OTHER}/p/a.parquet", b"0123456789")
    assert (store.get(f"{OTHER}/p/a.parquet").data, counted.counts["get"]) == (b"0123456789", 0)


def test_what_was_created_here_is_not_read_again() -> None:
    counted, store = _made()
    store.put(f"{FOLDER}/p/a.parquet", b"0123456789")
    assert [store.get(f"{FOLDER}/p/a.parquet").data for _ in range(2)] == [b"0123456789"] * 2
    assert counted.counts["get"] == 0
    assert store.get(f"{FOLDER}/p/a.parquet", byte_range=(2, 3)).data == b"234"
    assert counted.counts["get"] == 1
    with pytest.raises(PermanentError, match="larger than it may be"):
        store.get(f"{FOLDER}/p/a.parquet", max_bytes=5)


@pytest.mark.parametrize(
    "uri",
    [
        f"{FOLDER}/p/plan.json",
        f"{FOLDER}_old/a.parquet",
        "memory://m/metadata/snap-1.avro",
        f"{APART}/a.parquet",
    ],
)
def test_of_everything_else_the_store_is_asked_whether_it_is_still_that(uri: str) -> None:
    counted, store = _made()
    store.put(uri, b"0123456789")
    assert store.get(uri) == counted.get(uri)
    assert list(store.stream(uri, chunk_bytes=4)) == [b"0123", b"4567", b"89"]
    assert (counted.counts["get"], counted.counts["head"]) == (1, 2)
    with pytest.raises(PermanentError, match="larger than it may be"):
        store.get(uri, max_bytes=5)
    counted.put(uri, b"altered by others", Overwrite())
    assert (store.get(uri).data, b"".join(store.stream(uri))) == (b"altered by others",) * 2
    counted.delete([uri])
    for read in (store.get, store.stream):
        with pytest.raises(ObjectNotFound):
            read(uri)


@pytest.mark.parametrize("change", [{"is_proven": False}, {"e_tag": None}])
def test_what_may_have_arrived_otherwise_is_read(change: dict[str, Any]) -> None:
    """A store that says nothing of the bytes: those that it has may be others."""

    class Silent(ForwardingStore):
        def put(self, *args: Any, **options: Any) -> Written:
            return replace(super().put(*args, **options), **change)

    counted = CountingStore(Silent(ObstoreStore({})))
    store = OwnWritesStore(counted)
    store.put("memory://m/metadata/snap-1.avro", b"x")
    store.get("memory://m/metadata/snap-1.avro")
    assert (counted.counts["get"], counted.counts["head"]) == (1, 0)


def test_what_somebody_else_created_or_may_alter_is_read() -> None:
    counted, store = _made()
    counted.put(f"{FOLDER}/p/a.parquet", b"theirs")
    with pytest.raises(ConditionFailed):
        store.put(f"{FOLDER}/p/a.parquet", b"ours")
    assert store.get(f"{FOLDER}/p/a.parquet").data == b"theirs"
    store.put(f"{FOLDER}/p/b.parquet", b"x", Overwrite())
    store.get(f"{FOLDER}/p/b.parquet")
    assert (counted.counts["get"], counted.counts["head"]) == (2, 0)


def test_memory_is_bounded() -> None:
    counted, store = _made(max_bytes=10)
    for name in ("a", "b", "c"):
        store.put(f"{FOLDER}/{name}.parquet", b"123456" if name != "c" else b"1234")
    for name in ("a", "b", "c"):
        store.get(f"{FOLDER}/{name}.parquet")
    assert counted.counts["get"] == 1
