"""Connections to the database of a SQL catalog that do not wait for ever, whoever stops answering.

- PostgreSQL by psycopg or psycopg2: a time for the whole way in, for a statement, and for a peer that takes nothing and
  says nothing. What the URI itself says of these stays as it is said.
- The time of a statement is set by one of its own: poolers refuse it among the words of the way in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus

from lakemirror.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

CONNECT_TIMEOUT_S: Final = 10
STATEMENT_TIMEOUT_S: Final = 60
_PEER_TIMEOUT_S: Final = 60
_DRIVERS: Final = ("psycopg", "psycopg2")
_BOUNDS: Final = {
    "connect_timeout": str(CONNECT_TIMEOUT_S),
    "keepalives": "1",
    "keepalives_idle": str(_PEER_TIMEOUT_S // 2),
    "keepalives_interval": str(_PEER_TIMEOUT_S // 6),
    "keepalives_count": "3",
    "tcp_user_timeout": str(1000 * _PEER_TIMEOUT_S),
}


def bounded_url(uri: str, subject: str = "catalog.uri") -> URL:
    """The address of the database, with the bounds that its driver understands.

    UsageError if it is none. Nothing of its text is told: what looks like a host or a port may be of the password.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        url = make_url(uri)
        is_split = _is_split(url, uri)
    except (SQLAlchemyError, ValueError):
        is_split = True
    if is_split:
        hint = "write postgresql://, then user:password, @ and host/database; percent-encode the password (@ is %40)"
        raise UsageError("open database", subject, "it is not an address of a database", hint)
    try:
        is_bounded = _is_bounded(url)
        url.get_dialect()
    except (SQLAlchemyError, ImportError):
        hint = "write postgresql, postgresql+psycopg, postgresql+psycopg2 or sqlite"
        raise UsageError("open database", subject, "there is no driver for this kind of database", hint) from None
    if not is_bounded:
        return url
    return url.update_query_dict({name: value for name, value in _BOUNDS.items() if name not in url.query})


def cleaned(text: str, uri: str) -> str:
    """What a driver says, without the address and the passwords in it, as they are written and as they are read."""
    text = text.replace(uri, "***")
    for password in _passwords(uri):
        for secret in (quote(password, safe=""), quote(password), quote_plus(password), password):
            text = text.replace(secret, "***")
    return text


def bounded_uri(uri: str) -> str:
    """The same as a text, password included: for those who open the database by themselves."""
    return bounded_url(uri).render_as_string(hide_password=False)


def bounded_engine(url: URL) -> Engine:
    from sqlalchemy import create_engine, event

    engine = create_engine(url, pool_pre_ping=True)
    if _is_bounded(url) and "statement_timeout" not in str(url.query.get("options", "")):
        event.listen(engine, "connect", _limit_statements)
    return engine


def _is_split(url: URL, uri: str) -> bool:
    """A password seems to go on in what is read as host, database or query: it has a sign that ends it."""
    if "@" in (url.host or ""):
        return True
    if url.database is not None:
        return "@" in url.database and url.get_backend_name() != "sqlite"
    behind_password = uri.partition("://")[2].partition(":")[2].partition("@")[2]
    return url.password is not None and "@" in behind_password


def _passwords(uri: str) -> list[str]:
    """All that the address has, those among its query included."""
    from sqlalchemy.engine import make_url

    url = make_url(uri)
    found = [str(url.password or "")]
    for name, values in url.normalized_query.items():
        found += values if "password" in name else ()
    return [password for password in found if password]


def _is_bounded(url: URL) -> bool:
    return url.get_backend_name() == "postgresql" and url.get_driver_name() in _DRIVERS


def _limit_statements(connection: Any, record: object) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute(f"SET statement_timeout = {1000 * STATEMENT_TIMEOUT_S}")
    finally:
        cursor.close()
    connection.commit()
