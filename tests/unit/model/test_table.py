"""Table names: parsed, shown, and made into folders and DAG ids that cannot collide."""

from __future__ import annotations

from itertools import product

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
        ("a_b.c_d", "mirror__a_b__c_d"),
        ("a__b.c", "mirror__a-5f-5fb__c"),
        ("a.b__c", "mirror__a__b-5f-5fc"),
        ("a_.b.c___", "mirror__a_.b__c-5f-5f-5f"),
        ("a_.c", "mirror__a-5f__c"),
    ],
)
def test_dag_id(text: str, want: str) -> None:
    assert TableRef.parse(text).dag_id("mirror") == want


TRICKY = st.text(alphabet="ab_-5f", min_size=1, max_size=4).filter(lambda part: part[0] != "_")


@given(st.sets(st.lists(TRICKY, min_size=2, max_size=3).map(".".join), min_size=2, max_size=40))
def test_different_tables_have_different_dag_ids(names: set[str]) -> None:
    ids = {TableRef.parse(name).dag_id("mirror") for name in names}
    assert len(ids) == len(names)
    assert all(one.count("__") == 2 for one in ids)


def test_no_two_short_names_share_a_dag_id() -> None:
    """Every name of a small alphabet whose parts hold what the id is joined and escaped by."""
    parts = ["".join(chars) for size in (1, 2, 3, 4) for chars in product("a_-", repeat=size) if chars[0] != "_"]
    ids = {TableRef.parse(f"{left}.{right}").dag_id("mirror") for left, right in product(parts, repeat=2)}
    assert len(ids) == len(parts) ** 2


@given(st.lists(PART, min_size=2, max_size=3), st.lists(PART, min_size=2, max_size=3))
def test_different_tables_have_different_folders(left: list[str], right: list[str]) -> None:
    one, other = TableRef.parse(".".join(left)), TableRef.parse(".".join(right))
    assert (one == other) == (one.folder == other.folder) == (str(one) == str(other))
