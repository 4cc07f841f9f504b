from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ConditionFailed
from lakemirror.storage.wrappers.count import CountingStore


def test_calls_are_counted_by_verb_whether_they_succeed_or_not() -> None:
    store = CountingStore(ObstoreStore({}))
    assert store.counts == {"get": 0, "head": 0, "list": 0, "put": 0, "copy": 0, "delete": 0}
    store.put("memory://m/a", b"x")
    with pytest.raises(ConditionFailed):
        store.put("memory://m/a", b"x")
    store.get("memory://m/a")
    list(store.stream("memory://m/a"))
    store.head("memory://m/a")
    store.copy("memory://m/a", "memory://m/b")
    list(store.list("memory://m"))
    store.list("memory://m")
    store.delete(["memory://m/a", "memory://m/b"])
    assert store.counts == {"get": 2, "head": 1, "list": 2, "put": 2, "copy": 1, "delete": 1}


def test_threads_do_not_lose_counts() -> None:
    store = CountingStore(ObstoreStore({}))
    store.put("memory://m/a", b"x")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: store.head("memory://m/a"), range(400)))
    assert store.counts["head"] == 400


def test_counts_given_out_stay_as_they_were() -> None:
    store = CountingStore(ObstoreStore({}))
    before = store.counts
    store.put("memory://m/a", b"x")
    assert before["put"] == 0


def test_pickles_with_its_counts(tmp_path: Path) -> None:
    store = CountingStore(ObstoreStore({}))
    store.put(f"{tmp_path}/a", b"x")
    copy: CountingStore = pickle.loads(pickle.dumps(store))
    copy.head(f"{tmp_path}/a")
    assert (copy.counts["put"], copy.counts["head"], store.counts["head"]) == (1, 1, 0)
