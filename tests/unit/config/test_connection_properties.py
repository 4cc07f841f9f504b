"""The table from a connection's fields to pyiceberg's properties, and all that has no place in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from lakemirror.config.connection_properties import LIBPQ, properties_of
from lakemirror.config.connections import Connection
from lakemirror.errors import UsageError

HUSH = "hush"
ODD = "p@ss:w/o?r%41d ü+#"
POSTGRES = "postgresql+psycopg2://ada:" + HUSH
DATABASE: dict[str, Any] = {"conn_type": "postgres", "host": "db", "schema": "cat", "login": "ada", "password": HUSH}
ALL_TYPES = ("sql", "rest", "blms", "hive", "glue")


def made(catalog_type: str, **fields: Any) -> dict[str, str]:
    return properties_of(Connection.of("c", fields), catalog_type)


@pytest.mark.parametrize("catalog_type", ALL_TYPES)
@pytest.mark.parametrize("conn_type", ["", "generic", "aws", "postgres"])
def test_extra_alone_is_properties_as_they_are(catalog_type: str, conn_type: str) -> None:
    extra = {"uri": "x://y", "s3.access-key-id": "k", "s3.secret-access-key": "hush", "token": "t", "odd": ""}
    assert made(catalog_type, conn_type=conn_type, extra=extra) == extra
    assert made(catalog_type, conn_type=conn_type) == {}


@pytest.mark.parametrize(
    ("fields", "uri"),
    [
        (DATABASE, f"{POSTGRES}@db/cat"),
        (
            {**DATABASE, "conn_type": "postgresql", "port": 5433},
            f"{POSTGRES}@db:5433/cat",
        ),
        ({**DATABASE, "password": ""}, "postgresql+psycopg2://ada@db/cat"),
        ({**DATABASE, "login": "", "password": ""}, "postgresql+psycopg2://db/cat"),
        (
            {**DATABASE, "host": "::1", "port": 1},
            f"{POSTGRES}@[::1]:1/cat",
        ),
        (
            {**DATABASE, "password": ODD, "login": "a@b"},
            "postgresql+psycopg2://a%40b:p%40ss%3Aw%2Fo%3Fr%2541d %C3%BC+%23@db/cat",
        ),
        (
            {**DATABASE, "extra": {"sslmode": "verify-full", "sslrootcert": "/ca pem", "s3.region": "x"}},
            f"{POSTGRES}@db/cat?sslmode=verify-full&sslrootcert=%2Fca+pem",
        ),
        ({"conn_type": "sqlite", "host": "/var/my lake.db"}, "sqlite:////var/my lake.db"),
        ({"conn_type": "sqlite", "schema": "/var/lake.db"}, "sqlite:////var/lake.db"),
    ],
)
def test_the_address_of_a_sql_catalog(fields: dict[str, Any], uri: str) -> None:
    properties = made("sql", **fields)
    assert properties.pop("uri") == uri
    assert properties == {key: value for key, value in fields.get("extra", {}).items() if key not in LIBPQ}


def test_what_sqlalchemy_reads_is_what_the_connection_says() -> None:
    fields = {
        **DATABASE,
        "password": ODD,
        "login": "a:@/b",
        "schema": "my cat/%41?",
        "port": 7,
    }
    url = make_url(made("sql", **fields)["uri"])
    assert (url.username, url.password, url.host, url.port, url.database) == (
        fields["login"],
        fields["password"],
        "db",
        7,
        fields["schema"],
    )
    assert url.drivername == "postgresql+psycopg2"


@pytest.mark.parametrize("catalog_type", ["rest", "blms"])
@pytest.mark.parametrize(
    ("fields", "uri"),
    [
        ({"conn_type": "http", "host": "https://cat.example.com"}, "https://cat.example.com"),
        (
            {"conn_type": "http", "host": "https://cat.example.com/api/", "port": 8181},
            "https://cat.example.com:8181/api/",
        ),
        ({"conn_type": "http", "host": "http://cat:8181/api"}, "http://cat:8181/api"),
        ({"conn_type": "http", "host": "cat", "schema": "https"}, "https://cat"),
        ({"conn_type": "http", "host": "https://cat", "schema": "https"}, "https://cat"),
        ({"conn_type": "http", "host": "cat", "schema": "http", "port": 80}, "http://cat:80"),
        ({"conn_type": "https", "host": "cat/api", "port": 81}, "https://cat:81/api"),
        ({"conn_type": "https", "host": "::1", "port": 81}, "https://[::1]:81"),
    ],
)
def test_the_address_of_a_rest_catalog(catalog_type: str, fields: dict[str, Any], uri: str) -> None:
    assert made(catalog_type, **fields) == {"uri": uri}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"login": "id", "password": f"{HUSH}:x"}, {"credential": f"id:{HUSH}:x"}),
        ({"password": HUSH}, {"token": HUSH}),
        (
            {"password": HUSH, "extra": {"uri": "https://c"}},
            {"token": HUSH, "uri": "https://c"},
        ),
        (
            {"conn_type": "https", "host": "c", "login": "id", "password": "s"},
            {"uri": "https://c", "credential": "id:s"},
        ),
    ],
)
def test_the_credentials_of_a_rest_catalog(fields: dict[str, Any], expected: dict[str, str]) -> None:
    assert made("rest", **fields) == expected


def test_the_address_of_a_hive_metastore() -> None:
    assert made("hive", host="meta", port=9083) == {"uri": "thrift://meta:9083"}
    assert made("hive", host="thrift://meta:9083") == {"uri": "thrift://meta:9083"}


_NO_ADDRESS = "makes no address of a SQL catalog"
_NO_MEANING = "has no meaning for this catalog"
_NO_SCHEME = "it does not say whether it is http or https"


@pytest.mark.parametrize(
    ("catalog_type", "fields", "message"),
    [
        ("sql", {"conn_type": "mysql", "host": "h"}, f"conn_type 'mysql' {_NO_ADDRESS}"),
        ("sql", {"login": "ada", "password": HUSH}, f"conn_type '' {_NO_ADDRESS}"),
        (
            "sql",
            {"conn_type": "aws", "login": "AKIA", "password": HUSH},
            f"conn_type 'aws' {_NO_ADDRESS}",
        ),
        ("sql", {**DATABASE, "host": ""}, "`host` is missing"),
        ("sql", {**DATABASE, "schema": ""}, "`schema` is missing"),
        ("sql", {**DATABASE, "login": ""}, "it has a password and no login"),
        ("sql", {**DATABASE, "host": "a@hush"}, "its fields cannot be written as one address"),
        ("sql", {**DATABASE, "host": f"ada:{HUSH}@db"}, "its fields cannot be written as one address"),
        ("sql", {**DATABASE, "host": "/run/hush"}, "its fields cannot be written as one address"),
        ("sql", {**DATABASE, "extra": {"uri": "sqlite:////x"}}, "both `extra` and its fields give `uri`"),
        ("sql", {"extra": {"uri": "sqlite:////x", "sslmode": "require"}}, "`extra.sslmode` needs a host"),
        ("sql", {"conn_type": "sqlite", "host": "hush.db"}, "a SQLite connection wants an absolute path"),
        ("sql", {"conn_type": "sqlite", "host": "/a", "schema": "b"}, "a SQLite connection wants an absolute path"),
        ("sql", {"conn_type": "sqlite", "port": 1}, f"`port` {_NO_MEANING}"),
        ("sql", {"conn_type": "sqlite", "host": "/a", "password": HUSH}, f"`password` {_NO_MEANING}"),
        ("sql", {"conn_type": "sqlite", "host": "/a?hush"}, "the path of the SQLite file cannot be written"),
        ("sql", {"conn_type": "sqlite", "host": "/a%41"}, "the path of the SQLite file cannot be written"),
        ("rest", {"host": "cat"}, _NO_SCHEME),
        ("rest", {"conn_type": "http", "host": "cat"}, _NO_SCHEME),
        ("rest", {"conn_type": "http", "host": "cat", "schema": "api"}, "`schema` is neither http nor https"),
        ("rest", {"host": "https://cat", "schema": "http"}, "`host` has another scheme"),
        ("rest", {"host": "ftp://cat"}, "`host` has another scheme"),
        ("rest", {"host": "https://cat:1", "port": 2}, "both `host` and `port` name a port"),
        ("rest", {"port": 80, "schema": "https"}, "`host` is not the address of a host"),
        ("rest", {"host": f"https://id:{HUSH}@cat"}, "`host` is not the address of a host"),
        ("rest", {"host": "https://cat?token=hush"}, "`host` is not the address of a host"),
        ("rest", {"host": "https://cat:hush"}, "`host` is not the address of a host"),
        ("rest", {"host": "https://[hush"}, "`host` is not the address of a host"),
        ("rest", {"login": "hush"}, "its login and password make no credential"),
        ("rest", {"login": "i:d", "password": HUSH}, "its login and password make no credential"),
        ("rest", {"password": HUSH, "extra": {"token": "t"}}, "both `extra` and its fields give `token`"),
        ("blms", {"login": "hush"}, f"`login` {_NO_MEANING}"),
        ("blms", {"password": HUSH}, f"`password` {_NO_MEANING}"),
        ("hive", {"host": "meta"}, "not the address of a Hive metastore"),
        ("hive", {"host": "https://meta", "port": 1}, "not the address of a Hive metastore"),
        ("hive", {"host": "meta", "port": 1, "schema": "default"}, f"`schema` {_NO_MEANING}"),
        ("hive", {"host": "meta", "port": 1, "login": "hush"}, f"`login` {_NO_MEANING}"),
        ("glue", {"host": "h"}, f"`host` {_NO_MEANING}"),
        ("glue", {"login": "AKIA", "password": HUSH}, f"`login` {_NO_MEANING}"),
        *((kind, {"extra": "hush"}, "`extra` is not a JSON object") for kind in ALL_TYPES),
        *((kind, {"extra": '["hush"]'}, "`extra` is not a JSON object") for kind in ALL_TYPES),
        *((kind, {"extra": {"k": {"a": "hush"}}}, "`extra.k` is not text") for kind in ALL_TYPES),
        *(("glue", {"extra": json.dumps({"k": value})}, "`extra.k` is not text") for value in (1, True, None, [])),
        *(("sql", {"extra": {key: "hush"}}, f"`extra.{key}` is not for a") for key in ("name", "type", "conn_id")),
    ],
)
def test_what_has_no_place_is_refused_by_name(catalog_type: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        made(catalog_type, **fields)
    assert (caught.value.op, caught.value.subject) == ("use connection", "c")
    assert caught.value.message.startswith(message)
    assert caught.value.hint
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None
