from __future__ import annotations

from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.once import ReadOnceStore


def _stored(**objects: bytes) -> CountingStore:
    store = CountingStore(ObstoreStore({}))
    for name, data in objects.items():
        store.put(f"memory://m/{name}", data)
    return store


def test_a_second_get_is_answered_from_memory() -> None:
    counted = _stored(a=b"x" * 10)
    store = ReadOnceStore(counted)
    assert [store.get("memory://m/a").data for _ in range(3)] == [b"x" * 10] * 3
    assert counted.counts["get"] == 1


def test_ranges_and_streams_are_always_read() -> None:
    counted = _stored(a=b"0123456789")
    store = ReadOnceStore(counted)
    store.get("memory://m/a")
    assert store.get("memory://m/a", byte_range=(2, 3)).data == b"234"
    assert b"".join(store.stream("memory://m/a")) == b"0123456789"
    assert counted.counts["get"] == 3


def test_memory_is_bounded_and_the_least_recently_used_goes_first() -> None:
    counted = _stored(a=b"a" * 6, b=b"b" * 6, c=b"c" * 60)
    store = ReadOnceStore(counted, max_bytes=12)
    for name in ("a", "b", "a", "c", "b", "a"):  # c fits nowhere and drops everything on its way out
        store.get(f"memory://m/{name}")
    assert counted.counts["get"] == 5
    store.get("memory://m/a")
    assert counted.counts["get"] == 5
