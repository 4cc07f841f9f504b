"""A small shop that never stands still: orders, customers and events, written to a lake by pyiceberg in rounds.

Round one is a first load large enough for Spark; the later rounds update, delete, append, and change schema and
partitioning. The same seed writes the same rows.
"""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import (
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

NAMESPACE = "shop"
TABLES = ("shop.customers", "shop.events", "shop.orders")

FIRST_DAY = date(2026, 1, 1)
FIRST_DAYS = 24
DAYS_PER_COMMIT = 4
COUNTRIES = ("BR", "DE", "JP", "KE")
KINDS = ("cart", "search", "view")
CUSTOMERS = 400
ORDERS_PER_FILE = 25

_ORDERS = Schema(
    NestedField(1, "order_id", LongType(), required=True),
    NestedField(2, "customer_id", LongType(), required=True),
    NestedField(3, "country", StringType(), required=True),
    NestedField(4, "status", StringType(), required=True),
    NestedField(5, "amount", DecimalType(10, 2), required=True),
    NestedField(6, "ordered_at", TimestamptzType(), required=True),
)
_CUSTOMERS = Schema(
    NestedField(1, "customer_id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=True),
    NestedField(3, "email", StringType(), required=False),
    NestedField(4, "since", TimestamptzType(), required=True),
)
_EVENTS = Schema(
    NestedField(1, "event_id", LongType(), required=True),
    NestedField(2, "customer_id", LongType(), required=True),
    NestedField(3, "kind", StringType(), required=True),
    NestedField(4, "weight", IntegerType(), required=True),
    NestedField(5, "at", TimestamptzType(), required=True),
)
_SPECS = {
    "orders": PartitionSpec(
        PartitionField(6, 1000, DayTransform(), "ordered_day"), PartitionField(3, 1001, IdentityTransform(), "country")
    ),
    "customers": PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "customer_bucket")),
    "events": PartitionSpec(PartitionField(5, 1000, DayTransform(), "day")),
}


class Shop:
    """The writers of the lake. Each round returns what it did, one sentence per table."""

    def __init__(self, catalog: Catalog, seed: int = 7) -> None:
        self._catalog = catalog
        self._random = random.Random(seed)
        self._next_order = 1
        self._next_event = 1

    def open_for_business(self) -> list[str]:
        """Round one: tables and first load."""
        self._catalog.create_namespace(NAMESPACE)
        schemas = {"customers": _CUSTOMERS, "events": _EVENTS, "orders": _ORDERS}
        for name, schema in schemas.items():
            self._catalog.create_table(f"{NAMESPACE}.{name}", schema, partition_spec=_SPECS[name])
        _append(self._table("customers"), [self._customer(number) for number in range(1, CUSTOMERS + 1)])
        _append(self._table("events"), self._events_of(0) + self._events_of(1))
        for first in range(0, FIRST_DAYS, DAYS_PER_COMMIT):
            _append(
                self._table("orders"),
                [row for day in range(first, first + DAYS_PER_COMMIT) for row in self._orders_of(day)],
            )
        return [
            f"shop.customers: {CUSTOMERS} customers in 4 buckets",
            "shop.events: 2 days of events",
            f"shop.orders: {FIRST_DAYS} days in {len(COUNTRIES)} countries, "
            f"{FIRST_DAYS * len(COUNTRIES)} files in {FIRST_DAYS // DAYS_PER_COMMIT} commits",
        ]

    def trade(self) -> list[str]:
        """Round two: appends, updates by overwrite, deletes."""
        moved = [{**self._customer(number), "email": f"c{number}@new.example"} for number in range(10, 40)]
        customers = self._table("customers")
        customers.overwrite(_arrow(customers, moved), "customer_id >= 10 and customer_id < 40")
        _append(self._table("events"), self._events_of(2))
        orders = self._table("orders")
        _append(orders, self._orders_of(FIRST_DAYS))
        on_day_20 = f"ordered_at >= '{_midnight(20).isoformat()}' and ordered_at < '{_midnight(21).isoformat()}'"
        in_japan = f"{on_day_20} and country = 'JP'"
        shipped = [{**row, "status": "shipped"} for row in orders.scan(row_filter=in_japan).to_arrow().to_pylist()]
        orders.overwrite(_arrow(orders, shipped), in_japan)
        orders.delete(f"{on_day_20} and status = 'cancelled'")
        return [
            f"shop.customers: {len(moved)} addresses updated (overwrite)",
            "shop.events: one more day",
            f"shop.orders: one more day, {len(shipped)} orders shipped (overwrite), cancelled ones of a day deleted",
        ]

    def grow(self) -> list[str]:
        """Round three: schema and partition changes, rows that use them, one more delete."""
        self._table("customers").delete("customer_id in (3, 77, 131)")
        events = self._table("events")
        with events.update_spec() as spec:
            spec.add_field("kind", IdentityTransform(), "kind")
        with events.update_schema() as schema:
            schema.update_column("weight", field_type=LongType())
        _append(self._table("events"), self._events_of(3))
        orders = self._table("orders")
        with orders.update_schema() as schema:
            schema.add_column("channel", StringType())
            schema.rename_column("amount", "total")
        rows = [_renamed(row) for row in self._orders_of(FIRST_DAYS + 1)]
        channels = [{**row, "channel": "app" if row["order_id"] % 2 else "web"} for row in rows]
        _append(self._table("orders"), channels)
        return [
            "shop.customers: three customers forgotten (delete)",
            "shop.events: partitioned by kind as well, weight widened to long, one more day",
            "shop.orders: column channel added, amount renamed to total, one more day",
        ]

    def _table(self, name: str) -> Table:
        return self._catalog.load_table(f"{NAMESPACE}.{name}")

    def _customer(self, number: int) -> dict[str, Any]:
        since = _midnight(-number)
        return {"customer_id": number, "name": f"Customer {number}", "email": f"c{number}@shop.example", "since": since}

    def _orders_of(self, day: int) -> list[dict[str, Any]]:
        rows = []
        for country in COUNTRIES:
            for _ in range(ORDERS_PER_FILE):
                rows.append(
                    {
                        "order_id": self._next_order,
                        "customer_id": self._random.randint(1, CUSTOMERS),
                        "country": country,
                        "status": self._random.choice(("open", "paid", "cancelled")),
                        "amount": Decimal(self._random.randint(100, 99999)).scaleb(-2),
                        "ordered_at": _midnight(day) + timedelta(seconds=self._random.randrange(86400)),
                    }
                )
                self._next_order += 1
        return rows

    def _events_of(self, day: int) -> list[dict[str, Any]]:
        rows = []
        for _ in range(500):
            rows.append(
                {
                    "event_id": self._next_event,
                    "customer_id": self._random.randint(1, CUSTOMERS),
                    "kind": self._random.choice(KINDS),
                    "weight": self._random.randint(0, 9),
                    "at": _midnight(day) + timedelta(seconds=self._random.randrange(86400)),
                }
            )
            self._next_event += 1
        return rows


def _midnight(day: int) -> datetime:
    return datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, tzinfo=UTC) + timedelta(days=day)


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    return {"total" if name == "amount" else name: value for name, value in row.items()}


def _append(table: Table, rows: list[dict[str, Any]]) -> None:
    table.append(_arrow(table, rows))


def _arrow(table: Table, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=table.schema().as_arrow())
