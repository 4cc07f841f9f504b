"""What a connection says, in pyiceberg's property names. Pure; what has no place in the table is refused, not guessed.

| catalog | host, port, schema                                       | login, password                         |
|---------|----------------------------------------------------------|-----------------------------------------|
| sql     | conn_type postgres: `uri`, `schema` is the database      | in the `uri`; a password needs a login  |
| sql     | conn_type sqlite: `uri`, `host` is an absolute path      | refused                                 |
| rest    | `uri`; the scheme stands in host or schema, or conn_type | `credential`; a password alone: `token` |
|         | is https                                                 |                                         |
| blms    | as rest                                                  | refused: Google's credentials are used  |
| hive    | `uri`, thrift://host:port                                | refused                                 |
| glue    | refused                                                  | refused                                 |

Every key of `extra` is a property as it is and must be text. Of a `uri` made for PostgreSQL, libpq's own settings
(`sslmode`, …) become part. A property that both `extra` and the fields give is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

from lakemirror.config.connections import Connection, parse_object
from lakemirror.errors import UsageError

DRIVER: Final = "postgresql+psycopg2"
LIBPQ: Final[tuple[str, ...]] = (
    "application_name",
    "channel_binding",
    "connect_timeout",
    "gssencmode",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "options",
    "require_auth",
    "sslcert",
    "sslcrl",
    "sslkey",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
)
_NOT_PROPERTIES: Final = ("name", "type", "conn_id")
_FIELDS: Final = ("host", "port", "schema", "login", "password")
_WEB: Final = ("http", "https")
_BY_NAME: Final = "put it into `extra` by pyiceberg's name, or into the configuration"


def properties_of(connection: Connection, catalog_type: str) -> dict[str, str]:
    """The properties that a catalog of this type takes from the connection; UsageError names what it cannot take."""
    extra = _extra(connection)
    settings = {name: extra.pop(name) for name in LIBPQ if catalog_type == "sql" and name in extra}
    made = _MAKERS[catalog_type](connection, settings)
    if settings and "uri" not in made:
        raise _refused(connection, f"`extra.{min(settings)}` needs a host", "write it into the query of `uri`")
    twice = sorted(set(made) & set(extra))
    if twice:
        raise _refused(connection, f"both `extra` and its fields give `{twice[0]}`", "keep one of them")
    return {**made, **extra}


def _extra(connection: Connection) -> dict[str, str]:
    if not connection.extra:
        return {}
    found = parse_object(connection.extra)
    if found is None:
        raise _refused(connection, "`extra` is not a JSON object", "check its quotes and commas")
    properties: dict[str, str] = {}
    for name, value in found.items():
        if name in _NOT_PROPERTIES:
            raise _refused(connection, f"`extra.{name}` is not for a connection to say", "say it in the configuration")
        if not isinstance(value, str):
            raise _refused(connection, f"`extra.{name}` is not text", "quote it, or remove it")
        properties[name] = value
    return properties


def _sql(connection: Connection, settings: Mapping[str, str]) -> dict[str, str]:
    if not _given(connection):
        return {}
    if connection.conn_type == "sqlite":
        return {"uri": _sqlite(connection)}
    if connection.conn_type == "postgres":
        return {"uri": _postgres(connection, settings)}
    message = f"conn_type {connection.conn_type!r} makes no address of a SQL catalog"
    raise _refused(connection, message, "want postgres or sqlite, or leave all but `extra` empty")


def _sqlite(connection: Connection) -> str:
    from sqlalchemy.engine import make_url

    _refuse(connection, "port", "login", "password")
    path = connection.host or connection.schema
    if (connection.host and connection.schema) or not os.path.isabs(path):
        raise _refused(
            connection, "a SQLite connection wants an absolute path", "write it, and nothing else, as `host`"
        )
    uri = f"sqlite:///{path}"
    if make_url(uri).database != path:
        raise _refused(connection, "the path of the SQLite file cannot be written in an address", "rename the file")
    return uri


def _postgres(connection: Connection, settings: Mapping[str, str]) -> str:
    from sqlalchemy.engine import URL, make_url

    for name in ("host", "schema"):
        if not getattr(connection, name):
            raise _refused(connection, f"`{name}` is missing", "`schema` is the database; or give `extra.uri` alone")
    if connection.password and not connection.login:
        raise _refused(connection, "it has a password and no login", "set `login`")
    login, password = connection.login or None, connection.password or None
    url = URL.create(DRIVER, login, password, connection.host, connection.port, connection.schema, query=dict(settings))
    uri = url.render_as_string(hide_password=False)
    if make_url(uri) != url or "@" in connection.host:
        raise _refused(connection, "its fields cannot be written as one address", "check `host` and `schema`")
    return uri


def _rest(connection: Connection, settings: Mapping[str, str]) -> dict[str, str]:
    return {**_web_address(connection), **_credential(connection)}


def _blms(connection: Connection, settings: Mapping[str, str]) -> dict[str, str]:
    _refuse(connection, "login", "password")
    return _web_address(connection)


def _hive(connection: Connection, settings: Mapping[str, str]) -> dict[str, str]:
    _refuse(connection, "schema", "login", "password")
    if not _given(connection):
        return {}
    parts = _address(connection, "thrift")
    if parts.scheme != "thrift" or parts.port is None or parts.path:
        raise _refused(connection, "not the address of a Hive metastore", "want a host and a port")
    return {"uri": parts.geturl()}


def _glue(connection: Connection, settings: Mapping[str, str]) -> dict[str, str]:
    _refuse(connection, *_FIELDS)
    return {}


_MAKERS: Final[Mapping[str, Callable[[Connection, Mapping[str, str]], dict[str, str]]]] = {
    "sql": _sql,
    "rest": _rest,
    "blms": _blms,
    "hive": _hive,
    "glue": _glue,
}


def _web_address(connection: Connection) -> dict[str, str]:
    schema = connection.schema
    if not (connection.host or connection.port or schema):
        return {}
    hint = "set `schema` to https, or write the whole address as `host`"
    if schema and schema not in _WEB:
        raise _refused(connection, "`schema` is neither http nor https", hint)
    has_scheme = "://" in connection.host
    scheme = schema or ("https" if connection.conn_type == "https" or has_scheme else "")
    if not scheme:
        raise _refused(connection, "it does not say whether it is http or https", hint)
    parts = _address(connection, scheme)
    if parts.scheme not in _WEB or (schema and parts.scheme != schema):
        raise _refused(connection, "`host` has another scheme than http, https or its `schema`", hint)
    return {"uri": parts.geturl()}


def _address(connection: Connection, scheme: str) -> SplitResult:
    """The address in `host`, with this scheme if it has none, and with the port."""
    host = connection.host if "://" in connection.host else f"{scheme}://{_bracketed(connection.host)}"
    refused = _refused(connection, "`host` is not the address of a host", "want a name, or scheme://name/path")
    try:
        parts = urlsplit(host)
        port = parts.port
    except ValueError:  # the error would show the host, and with it what somebody took for one
        raise refused from None
    if not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise refused
    if connection.port is None:
        return parts
    if port is not None:
        raise _refused(connection, "both `host` and `port` name a port", "keep one of them")
    return parts._replace(netloc=f"{parts.netloc}:{connection.port}")


def _bracketed(host: str) -> str:
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


def _credential(connection: Connection) -> dict[str, str]:
    login, password = connection.login, connection.password
    if not login:
        return {"token": password} if password else {}
    if not password or ":" in login:
        raise _refused(connection, "its login and password make no credential", "want both, and no `:` in the login")
    return {"credential": f"{login}:{password}"}


def _given(connection: Connection) -> bool:
    return any(getattr(connection, name) for name in _FIELDS)


def _refuse(connection: Connection, *names: str) -> None:
    for name in names:
        if getattr(connection, name):
            raise _refused(connection, f"`{name}` has no meaning for this catalog", _BY_NAME)


def _refused(connection: Connection, message: str, hint: str) -> UsageError:
    return UsageError("use connection", connection.conn_id, message, hint)
