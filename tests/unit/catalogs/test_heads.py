"""The heads of many tables: one query or one call each, bounded, and one bad table keeps nobody back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lakemirror.catalogs.asking import FAILURES_AT_MOST
from lakemirror.catalogs.heads import read_heads
from lakemirror.catalogs.rest import RestCatalog
from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.errors import PermanentError, TransientError
from lakemirror.model.table import TableRef
from tests.lake import ORDERS, Lake, rows
from tests.rest_double import rest_double

LATE = TableRef.parse("shop.late")


class Catalog:
    """A source that tells one head at a time, from a map; errors are raised."""

    def __init__(self, known: Mapping[TableRef, str | Exception]) -> None:
        self.known = known
        self.asked: list[TableRef] = []

    def head(self, table: TableRef) -> str | None:
        self.asked.append(table)
        found = self.known.get(table)
        if isinstance(found, Exception):
            raise found
        return found

    def tables(self) -> tuple[TableRef, ...]:
        return tuple(self.known)  # type: ignore[arg-type]

    def file_io(self) -> Mapping[str, str]:
        return {}


def test_one_call_for_each_table() -> None:
    catalog = Catalog({ORDERS: "s3://a/1.json"})
    assert read_heads(catalog, [ORDERS, LATE], 4).told == {ORDERS: "s3://a/1.json", LATE: None}
    assert sorted(catalog.asked) == [LATE, ORDERS]


def test_a_table_that_is_refused_keeps_nobody_back() -> None:
    refused = PermanentError("read head", "shop.late", "no")
    assert read_heads(Catalog({ORDERS: "1", LATE: refused}), [LATE, ORDERS], 4).told == {LATE: refused, ORDERS: "1"}


def test_a_table_that_fails_in_passing_keeps_nobody_back() -> None:
    busy = TransientError("read head", "shop.late", "503")
    found = read_heads(Catalog({ORDERS: "1", LATE: busy}), [LATE, ORDERS], 4)
    assert (found.told, found.failed) == ({ORDERS: "1"}, {LATE: busy})


def test_a_catalog_that_is_away_is_not_asked_ten_thousand_times() -> None:
    many = [TableRef(("shop",), f"t{number}") for number in range(10_000)]
    catalog = Catalog(dict.fromkeys(many, TransientError("read head", "shop", "away")))
    found = read_heads(catalog, many, 4)
    assert (found.told, {*found.failed}) == ({}, {*catalog.asked})
    assert len(catalog.asked) < FAILURES_AT_MOST + 4


def test_a_sql_catalog_tells_all_heads_in_one_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    lake.create().append(rows(1))
    lake.create(TableRef.parse("crm.eu.people"))
    catalog = SqlCatalog("onprem", {"uri": f"sqlite:///{tmp_path}/source.db"})
    want = {table: catalog.head(table) for table in catalog.tables()}
    monkeypatch.setattr(catalog, "head", None)  # nobody asks for one
    assert len(want) == 2
    assert read_heads(catalog, [*want, LATE], 4).told == {**want, LATE: None}


def test_a_rest_catalog_answers_by_304_when_nothing_changed() -> None:
    with rest_double() as double:
        catalog = RestCatalog("onprem", {"uri": double.uri, "token": "token-1"})
        for name in ("orders", "late"):
            double.tables[f"namespaces/shop/tables/{name}"] = f"s3://a/{name}-1.json", {"large": "x" * 1000}
        first = read_heads(catalog, [ORDERS, LATE], 4).told
        assert first == {ORDERS: "s3://a/orders-1.json", LATE: "s3://a/late-1.json"}
        double.tables["namespaces/shop/tables/late"] = "s3://a/late-2.json", {}
        before = len(double.asked)
        assert read_heads(catalog, [ORDERS, LATE], 4).told == {**first, LATE: "s3://a/late-2.json"}
        assert len(double.asked) - before == 2
        assert sorted(double.statuses[before:]) == [200, 304]
