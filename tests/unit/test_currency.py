"""The note as of when a version was all that the source had."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lakemirror import currency
from lakemirror.errors import PermanentError
from lakemirror.model.layout import TableLayout
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import Overwrite

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
