"""The state database: when versions became visible, for the first time; its loss or its trouble is told, not hidden."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from lakemirror.errors import LakemirrorError, TransientError
from lakemirror.model.table import TableRef
from lakemirror.observe.state import StateDatabase

T, OTHER = TableRef.parse("ns.t"), TableRef.parse("ns.u")
AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def test_remembers_the_first_time_a_version_was_visible(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/deep/state.db"
    state = StateDatabase(uri)
    assert state.record_visible(T, 7, 12, AT)
    assert not state.record_visible(T, 7, 12, AT + timedelta(days=1))
    assert state.record_visible(OTHER, 7, None, AT + timedelta(days=2))
    again = StateDatabase(uri)
    assert again.visible_at(T, 7) == AT
    assert again.visible_at(OTHER, 7) == AT + timedelta(days=2)
    assert again.visible_at(T, 8) is None


def test_times_come_back_in_utc(tmp_path: Path) -> None:
    state = StateDatabase(f"sqlite:///{tmp_path}/state.db")
    state.record_visible(T, 1, 1, AT.astimezone(timezone(timedelta(hours=-7))))
    found = state.visible_at(T, 1)
    assert (found, found.tzinfo if found else None) == (AT, UTC)


def test_a_lost_database_is_an_empty_one(tmp_path: Path) -> None:
    StateDatabase(f"sqlite:///{tmp_path}/state.db").record_visible(T, 1, 1, AT)
    (tmp_path / "state.db").unlink()
    assert StateDatabase(f"sqlite:///{tmp_path}/state.db").visible_at(T, 1) is None


def test_trouble_is_transient(tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_bytes(b"not a database" * 100)
    broken = StateDatabase(f"sqlite:///{tmp_path}/broken.db")
    with pytest.raises(TransientError, match="file is not a database"):
        broken.visible_at(T, 1)
    locked = StateDatabase(f"sqlite:///{tmp_path}/state.db?timeout=0.05")
    locked.record_visible(T, 1, 1, AT)
    holder = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    asks: list[Callable[[], object]] = [
        lambda: locked.record_visible(T, 2, 1, AT),
        lambda: locked.visible_at(T, 1),
    ]
    for ask in asks:
        with pytest.raises(TransientError, match="locked"):
            ask()
    holder.close()


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:////proc/nowhere/state.db",
        "nosuchdialect://u:secret@h/d",  # pragma: allowlist secret
        "no uri: secret",
    ],
)
def test_any_other_trouble_is_told_without_the_uri(uri: str) -> None:
    with pytest.raises(LakemirrorError, match=r"state database|state\.uri") as caught:
        StateDatabase(uri).record_visible(T, 1, 1, AT)
    assert "secret" not in str(caught.value)


def test_of_many_that_record_one_version_one_was_the_first(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def write(_: int) -> bool:
        start.wait(10)
        return StateDatabase(f"sqlite:///{tmp_path}/state.db").record_visible(T, 1, 1, AT)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(write, range(8))).count(True) == 1


def test_many_that_open_it_at_once_all_write(tmp_path: Path) -> None:
    """Followers of different tables start together on an empty database."""
    start = threading.Barrier(8)

    def write(version: int) -> None:
        start.wait(10)
        StateDatabase(f"sqlite:///{tmp_path}/state.db").record_visible(T, version, 1, AT)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    state = StateDatabase(f"sqlite:///{tmp_path}/state.db")
    assert [state.visible_at(T, version) for version in range(8)] == [AT] * 8
