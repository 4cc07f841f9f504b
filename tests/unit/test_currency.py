"""The note as of when a version was all that the source had."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from lakemirror import currency
from lakemirror.errors import PermanentError
from lakemirror.model.layout import TableLayout
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import CREATE, Condition, Overwrite, Written
from lakemirror.storage.wrappers.forward import ForwardingStore

LAYOUT = TableLayout("memory://bucket/m/shop/orders")


def test_the_later_note_counts() -> None:
    store = ObstoreStore({})
    assert currency.read(store, LAYOUT) is None
    for hour in (1, 2):
        currency.note(store, LAYOUT, currency.Current(hour, datetime(2026, 5, 1, hour, tzinfo=UTC)))
    assert currency.read(store, LAYOUT) == currency.Current(2, datetime(2026, 5, 1, 2, tzinfo=UTC))
    told = currency.Current(2, datetime(2026, 5, 1, 3, tzinfo=UTC), datetime(2026, 5, 1, 1, tzinfo=UTC))
    currency.note(store, LAYOUT, told)
    assert currency.read(store, LAYOUT) == told


def at(hour: int) -> datetime:
    return datetime(2026, 5, 1, hour, tzinfo=UTC)


def test_nothing_that_was_noted_is_forgotten() -> None:
    """A slower run notes what it has seen, an earlier moment or an older version: the source had been further."""
    store = ObstoreStore({})
    currency.note(store, LAYOUT, currency.Current(1, at(5), at(4)))
    currency.note(store, LAYOUT, currency.Current(1, at(3), at(1)))
    assert currency.read(store, LAYOUT) == currency.Current(1, at(5), at(4))
    currency.note(store, LAYOUT, currency.Current(2, at(3), at(2)))
    assert currency.read(store, LAYOUT) == currency.Current(2, at(3), at(4))
    currency.note(store, LAYOUT, currency.Current(1, at(9), at(9)))
    assert currency.read(store, LAYOUT) == currency.Current(2, at(3), at(4))


def test_a_note_that_comes_late_changes_nothing() -> None:
    """It was read, and others have noted since: whoever is overtaken leaves it at that."""
    store = ObstoreStore({})
    currency.note(store, LAYOUT, currency.Current(1, at(1), at(1)))

    class Slow(ForwardingStore):
        def put(self, uri: str, body: bytes | Iterator[bytes], condition: Condition = CREATE) -> Written:
            currency.note(store, LAYOUT, currency.Current(1, at(5), at(4)))
            return super().put(uri, body, condition)

    currency.note(Slow(store), LAYOUT, currency.Current(1, at(2), at(1)))
    assert currency.read(store, LAYOUT) == currency.Current(1, at(5), at(4))


def test_a_damaged_one_is_replaced() -> None:
    store = ObstoreStore({})
    store.put(LAYOUT.current, b"7", Overwrite())
    currency.note(store, LAYOUT, currency.Current(1, at(1)))
    assert currency.read(store, LAYOUT) == currency.Current(1, at(1))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"7",
        b'{"version": 1}',
        b'{"version": "1", "as_of": "2026-05-01T12:00:00+00:00"}',
        b'{"version": 0, "as_of": "2026-05-01T12:00:00+00:00"}',
        b'{"version": 1, "as_of": "2026-05-01T12:00:00"}',
        b'{"version": 1, "as_of": "soon"}',
    ],
)
def test_what_nobody_of_us_wrote_is_refused(data: bytes) -> None:
    store = ObstoreStore({})
    store.put(LAYOUT.current, data, Overwrite())
    with pytest.raises(PermanentError, match="not as it was written"):
        currency.read(store, LAYOUT)
