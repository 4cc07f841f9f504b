"""Databases that do not answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from sqlalchemy.engine import make_url

from lakemirror.catalogs import sql_engine
from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.catalogs.sql_engine import bounded_uri, bounded_url
from lakemirror.errors import TransientError
from lakemirror.model.table import TableRef

TABLE = TableRef.parse("a.b")
POSTGRES = ["postgresql+psycopg", "postgresql+psycopg2", "postgresql"]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Takes connections and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(5)
        yield listening.getsockname()[1]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("driver", POSTGRES[:2])
def test_a_database_that_never_answers_is_transient(
    silent_port: int, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sql_engine._BOUNDS, "connect_timeout", "2")  # the least that libpq knows
    catalog = SqlCatalog("x", {"uri": f"{driver}://u:p@127.0.0.1:{silent_port}/db"})
    with pytest.raises(TransientError, match="did not answer"):
        catalog.head(TABLE)


@pytest.mark.parametrize("driver", POSTGRES)
def test_everything_has_a_time_unless_the_uri_says_another(driver: str) -> None:
    url = bounded_url(f"{driver}://u:p@host/db?connect_timeout=3")
    assert url.query == {
        "connect_timeout": "3",
        "keepalives": "1",
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "keepalives_count": "3",
        "tcp_user_timeout": "60000",
    }
    assert bounded_url(f"{driver}://host/db").query["connect_timeout"] == "10"
    assert make_url(bounded_uri(f"{driver}://u:p%40x@host/db")).password == "p@x"  # pragma: allowlist secret


@pytest.mark.parametrize("uri", ["sqlite:////tmp/x.db", "postgresql+pg8000://host/db"])
def test_drivers_that_do_not_know_these_words_do_not_get_them(uri: str) -> None:
    assert bounded_uri(uri) == uri
