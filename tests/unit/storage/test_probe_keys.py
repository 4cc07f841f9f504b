"""Which characters a store keeps, over stores that spoil some on purpose."""

from collections.abc import Iterator

import pytest

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import CREATE, Condition, ObjectInfo, ObjectStore, Written
from lakemirror.storage.probe_keys import ODD, spoiled_characters
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.forward import ForwardingStore

FOLDER = "memory://bucket/_probe/keys"


class Spelling(ForwardingStore):
    """Lists keys with some characters written as others, as servers do that clean paths."""

    def __init__(self, inner: ObjectStore, changed: dict[str, str]) -> None:
        super().__init__(inner)
        self._changed = str.maketrans(changed)

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        for info in super().list(prefix_uri):
            yield ObjectInfo(info.uri.translate(self._changed), info.size_bytes, info.e_tag, info.modified_at)


class Refusing(ForwardingStore):
    def __init__(self, inner: ObjectStore, character: str, error: type[Exception]) -> None:
        super().__init__(inner)
        self._character, self._error = character, error

    def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
        if self._character in uri.removeprefix(FOLDER):
            raise self._error("put", uri, "not here", "another key")
        return super().put(uri, body, condition)


def test_a_store_that_keeps_all_is_asked_a_few_times() -> None:
    store = CountingStore(ObstoreStore({}))

    assert spoiled_characters(store, FOLDER) == ""
    assert sum(store.counts.values()) == 3


def test_characters_that_are_listed_otherwise_are_named() -> None:
    assert spoiled_characters(Spelling(ObstoreStore({}), {"\\": "/", "+": " "}), FOLDER) == "+\\"


def test_a_refusal_is_a_finding_and_a_failure_is_none() -> None:
    assert spoiled_characters(Refusing(ObstoreStore({}), "|", PermanentError), FOLDER) == "|"
    with pytest.raises(TransientError):
        spoiled_characters(Refusing(ObstoreStore({}), "|", TransientError), FOLDER)


def test_partition_values_come_first() -> None:
    assert ODD.startswith("=%+, ")
    assert len(set(ODD)) == len(ODD)
