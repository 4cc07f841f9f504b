"""The state database on PostgreSQL, where followers of different tables start together on an empty one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from dev.services.endpoints import STATE_DATABASE, Services
from lakemirror.model.table import TableRef
from lakemirror.observe.state import StateDatabase

FOLLOWERS = 16
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TABLES = [TableRef.parse(f"shop.t{number}") for number in range(FOLLOWERS)]


def test_many_that_open_it_at_once_all_write(clean_services: Services) -> None:
    uri = clean_services.postgres.uri(STATE_DATABASE).replace("postgresql:", "postgresql+psycopg2:", 1)
    start = threading.Barrier(FOLLOWERS)

    def write(table: TableRef) -> list[bool]:
        start.wait(10)
        state = StateDatabase(uri)
        return [state.record_visible(table, 1, 7, AT), state.record_visible(TABLES[0], 2, 7, AT)]

    with ThreadPoolExecutor(FOLLOWERS) as pool:
        told = list(pool.map(write, TABLES))
    assert [own for own, _ in told] == [True] * FOLLOWERS
    assert [common for _, common in told].count(True) == 1
    state = StateDatabase(uri)
    assert [state.visible_at(table, 1) for table in TABLES] == [AT] * FOLLOWERS
