"""Databases that do not answer."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Iterator

import pytest
from sqlalchemy.engine import make_url

from lakemirror.catalogs import sql_engine
from lakemirror.catalogs.sql import SqlCatalog
from lakemirror.catalogs.sql_engine import bounded_uri, bounded_url, cleaned
from lakemirror.errors import TransientError, UsageError
from lakemirror.model.table import TableRef
from lakemirror.observe.state import StateDatabase

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


LEAKS = [
    "postgresql://user:ge@heim:x@127.0.0.1:1/db",  # pragma: allowlist secret
    "postgresql://user:ge@heim@127.0.0.1:1/db",  # pragma: allowlist secret
    "postgresql://user:ge@127.0.0.1/heim@127.0.0.1:1/db",  # pragma: allowlist secret
    "postgresql://user:ge@127.0.0.1?heim@127.0.0.1:1/db",  # pragma: allowlist secret
    "postgresql://us/er:gexheim@127.0.0.1:1/db",  # pragma: allowlist secret
    "postgresql://user:gexheim",  # pragma: allowlist secret
    "postgresql:/user:gexheim@h/db",  # pragma: allowlist secret
    "gexheim",
    "gexheim://user@h/db",
    "postgresql+gexheim://user@h/db",
]


@pytest.mark.parametrize("uri", LEAKS)
def test_an_address_that_cannot_be_read_is_told_without_its_text(uri: str) -> None:
    """A password with signs of its own looks like a host or a port."""
    for ask in (lambda: SqlCatalog("c", {"uri": uri}).head(TABLE), lambda: StateDatabase(uri).visible_at(TABLE, 1)):
        with pytest.raises(UsageError, match=r"not an address of a database|there is no driver") as met:
            ask()
        assert "heim" not in "".join(traceback.format_exception(met.value))


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:////tmp/a@b.db",
        "postgresql://user@server:ge%40heim@h/db",  # pragma: allowlist secret
        "postgresql://user:ge?hei/m@h",  # pragma: allowlist secret
        "postgresql://user:geheim@h/db?application_name=a@b",  # pragma: allowlist secret
        "postgresql:///?user=a@b",
    ],
)
def test_an_at_sign_that_is_of_no_password_is_let_in(uri: str) -> None:
    assert bounded_url(uri).render_as_string().startswith(uri[:13])


@pytest.mark.parametrize("name", ["password", "sslpassword"])
def test_what_a_driver_says_is_cleaned_of_passwords_behind_the_address(name: str) -> None:
    for written in ("ge%20heim", "ge+heim"):
        uri = f"postgresql://user@h/db?{name}={written}&application_name=x"
        for said in ("no entry for ge heim", f"no entry for {written}", f"in {uri}"):
            assert "heim" not in cleaned(said, uri)
        assert cleaned("x: connection to h refused", uri) == "x: connection to h refused"
    assert cleaned("neither one nor two", "postgresql://h/db?password=one&password=two") == "neither *** nor ***"


def test_what_a_driver_says_is_cleaned_of_the_password() -> None:
    uri = "postgresql://user:ge%40heim@h/db"  # pragma: allowlist secret
    for said in ("no entry for ge@heim", "no entry for ge%40heim", f"in {uri}"):
        assert "heim" not in cleaned(said, uri)
    assert cleaned("connection to h refused", uri) == "connection to h refused"
