"""A commit to a PostgreSQL catalog whose line is cut after COMMIT was sent: reading back tells what became of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from dev.services.endpoints import Services
from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.errors import LostRaceError, TransientError
from lakemirror.model.table import TableRef
from tests.faults.postgres_line import PostgresLine, postgres_line

T = TableRef.parse("shop.orders")


class Sides:
    """A catalog by way of a line that can be cut, and the same by a good one."""

    def __init__(self, services: Services, line: PostgresLine, folder: Path) -> None:
        url = make_url(services.postgres.uri("lakemirror")).set(drivername="postgresql+psycopg2")
        cut = url.set(host="127.0.0.1", port=line.port).update_query_dict(
            {"sslmode": "disable", "gssencmode": "disable"}
        )
        self.line = line
        self.cut, self.good = (
            SqlCatalog("mirror", {"uri": one.render_as_string(hide_password=False), "warehouse": f"file://{folder}"})
            for one in (cut, url)
        )


@pytest.fixture
def sides(clean_services: Services, tmp_path: Path) -> Iterator[Sides]:
    address = make_url(clean_services.postgres.uri("lakemirror"))
    assert address.host is not None
    assert address.port is not None
    with postgres_line(address.host, address.port) as line:
        sides = Sides(clean_services, line, tmp_path)
        sides.good.register(T, "gs://m/0")
        assert sides.cut.head(T) == "gs://m/0"
        yield sides


def test_a_swap_that_was_done(sides: Sides) -> None:
    sides.line.cut_next("after")
    sides.cut.swap(T, "gs://m/0", "gs://m/1")
    assert (sides.line.cuts, sides.good.head(T)) == (1, "gs://m/1")


def test_a_swap_that_was_not_done(sides: Sides) -> None:
    sides.line.cut_next("before")
    with pytest.raises(TransientError, match="the head is as before") as caught:
        sides.cut.swap(T, "gs://m/0", "gs://m/1")
    assert not isinstance(caught.value, LostRaceError)
    assert (sides.line.cuts, sides.good.head(T)) == (1, "gs://m/0")
    sides.cut.swap(T, "gs://m/0", "gs://m/1")
    assert sides.good.head(T) == "gs://m/1"


@pytest.mark.parametrize("is_done", [True, False])
def test_a_registration(sides: Sides, is_done: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    other = TableRef.parse("shop.lines")
    monkeypatch.setattr(sides.cut, "_ensure_namespace", lambda table: None)  # it is there; its commits are not ours
    sides.line.cut_next("after" if is_done else "before")
    if is_done:
        sides.cut.register(other, "gs://m/5")
    else:
        with pytest.raises(TransientError, match="the head is as before"):
            sides.cut.register(other, "gs://m/5")
    assert (sides.line.cuts, sides.good.head(other)) == (1, "gs://m/5" if is_done else None)
