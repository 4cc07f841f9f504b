from __future__ import annotations

import google_crc32c
import pytest

from lakemirror.errors import PermanentError
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import IfMatch, ObjectNotFound, Written
from lakemirror.storage.wrappers.dry_run import DryRunStore, NotedWrite


def test_reads_pass_and_writes_are_noted_and_not_done() -> None:
    inner = ObstoreStore({})
    inner.put("memory://m/a", b"data")
    before = list(inner.list("memory://m"))
    store = DryRunStore(inner)
    assert store.get("memory://m/a").data == b"data"
    assert b"".join(store.stream("memory://m/a")) == b"data"
    expected = Written("memory://m/b", 3, google_crc32c.value(b"xyz"), None)
    assert store.put("memory://m/b", b"xyz") == expected
    assert store.put("memory://m/b", iter([b"x", b"yz"])) == expected
    assert store.copy("memory://m/a", "memory://m/c").size_bytes == 4
    store.delete(["memory://m/a", "memory://m/none"])
    assert store.writes == [
        NotedWrite("put", "memory://m/b", 3),
        NotedWrite("put", "memory://m/b", 3),
        NotedWrite("copy", "memory://m/c", 4),
        NotedWrite("delete", "memory://m/a", 0),
        NotedWrite("delete", "memory://m/none", 0),
    ]
    assert list(inner.list("memory://m")) == list(store.list("memory://m")) == before


def test_what_a_real_write_would_refuse_is_refused() -> None:
    store = DryRunStore(ObstoreStore({}))
    for write in (
        lambda: store.put("memory://m/a//b", b""),
        lambda: store.delete(["memory://m/a", "memory://m/.."]),
        lambda: store.copy("memory://m/a", "memory://m/b/"),
        lambda: store.copy("memory://m/a", "memory://m/b", IfMatch("1")),
    ):
        with pytest.raises(PermanentError):
            write()
    with pytest.raises(ObjectNotFound):
        store.copy("memory://m/none", "memory://m/b")
    assert store.writes == []
