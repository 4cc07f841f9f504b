"""Table names: parsed, shown, and made into folders and DAG ids that cannot collide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemirror.errors import UsageError
from lakemirror.model.table import TableRef

PART = st.text(min_size=1, max_size=8).filter(lambda part: "." not in part and "/" not in part and part[0] != "_")


@pytest.mark.parametrize("text", ["sales.orders", "a.b.orders", "s p.ü", "a-b.c_d"])
def test_parse_and_show(text: str) -> None:
    assert str(TableRef.parse(text)) == text


def test_parts() -> None:
    table = TableRef.parse("a.b.orders")
    assert (table.namespace, table.name, table.folder) == (("a", "b"), "orders", "a.b/orders")


@pytest.mark.parametrize("text", ["", "orders", ".orders", "sales.", "a..b", "a.b/c", "a/b.c", "_x.t", "a._ready"])
def test_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        TableRef.parse(text)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("sales.orders", "mirror__sales__orders"),
        ("a.b.orders", "mirror__a.b__orders"),
        ("s p.ü-", "mirror__s-20p__-c3-bc-2d"),
    ],
)
def test_dag_id(text: str, want: str) -> None:
    assert TableRef.parse(text).dag_id("mirror") == want


@given(st.lists(PART, min_size=2, max_size=3), st.lists(PART, min_size=2, max_size=3))
def test_different_tables_have_different_folders(left: list[str], right: list[str]) -> None:
    one, other = TableRef.parse(".".join(left)), TableRef.parse(".".join(right))
    assert (one == other) == (one.folder == other.folder) == (str(one) == str(other))
