"""A connection as the environment writes it: both of Airflow's forms, and no error that shows what is in it."""

from __future__ import annotations

import json
import pickle
import traceback
from typing import Any

import pytest

from lakemirror.config.connections import Connection, environment_connection, variable_of
from lakemirror.errors import UsageError

WHOLE = {
    "conn_type": "postgres",
    "host": "db.example.com",
    "port": 5433,
    "schema": "catalog",
    "login": "ada",
    "password": "p@ss/hush",  # pragma: allowlist secret
    "extra": {"s3.secret-access-key": "key-hush"},
}
EXPECTED = Connection(
    "my_conn",
    "postgres",
    "db.example.com",
    5433,
    "catalog",
    "ada",
    "p@ss/hush",
    '{"s3.secret-access-key": "key-hush"}',
)


def read(text: str, conn_id: str = "my_conn") -> Connection:
    return environment_connection(conn_id, {variable_of(conn_id): text})


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(WHOLE),
        json.dumps({**WHOLE, "extra": json.dumps(WHOLE["extra"])}),
        json.dumps({**WHOLE, "conn_type": "postgresql", "port": "5433", "description": "the lake"}),
        f"\n  {json.dumps(WHOLE)}  ",
        "postgresql://ada:p%40ss%2Fhush@db.example.com:5433"  # pragma: allowlist secret
        "/catalog?s3.secret-access-key=key-hush",
        "postgres://ada:p%40ss%2Fhush@db.example.com:5433/catalog"  # pragma: allowlist secret
        "?__extra__=%7B%22s3.secret-access-key%22%3A%20%22key-hush%22%7D",
    ],
)
def test_one_connection_in_many_forms(text: str) -> None:
    assert read(text) == EXPECTED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", Connection("my_conn")),
        ('{"host": null, "port": null, "extra": {}, "login": ""}', Connection("my_conn")),
        ('{"extra": "not json"}', Connection("my_conn", extra="not json")),
        ("generic://", Connection("my_conn", "generic")),
        ("http://https://cat.example.com:8181", Connection("my_conn", "http", "https://cat.example.com", 8181)),
        ("google-cloud-platform://?x=", Connection("my_conn", "google_cloud_platform", extra='{"x": ""}')),
        ("sqlite:////var/Lake.db", Connection("my_conn", "sqlite", schema="/var/Lake.db")),
        ("sqlite://%2Fvar%2FLake.db", Connection("my_conn", "sqlite", "/var/Lake.db")),
        ("postgres://[::1]:5432/d", Connection("my_conn", "postgres", "::1", 5432, "d")),
        ("postgres://:word@h/", Connection("my_conn", "postgres", "h", password="word")),  # pragma: allowlist secret
    ],
)
def test_what_is_not_set_is_empty(text: str, expected: Connection) -> None:
    assert read(text) == expected


def test_the_id_is_in_upper_case_as_airflow_has_it() -> None:
    assert variable_of("My-conn.1") == "AIRFLOW_CONN_MY-CONN.1"
    assert environment_connection("a", {"AIRFLOW_CONN_A": "generic://h"}).host == "h"


def test_without_an_argument_it_is_the_environment_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MY_CONN", json.dumps(WHOLE))
    assert environment_connection("my_conn") == EXPECTED


@pytest.mark.parametrize("env", [{}, {"AIRFLOW_CONN_MY_CONN": ""}, {"AIRFLOW_CONN_MY_CONN": " \n"}])
def test_a_connection_that_is_not_there(env: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        environment_connection("my_conn", env)
    assert str(caught.value) == (
        "read connection my_conn: there is no such connection: its environment variable is not set; "
        "export AIRFLOW_CONN_MY_CONN, in Airflow's JSON or URI form"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"password": "hush"', "AIRFLOW_CONN_MY_CONN is not a JSON object"),  # pragma: allowlist secret
        ('{"a":' * 100_000, "AIRFLOW_CONN_MY_CONN is not a JSON object"),
        ('{"passwrod": "hush"}', "unknown field `passwrod`"),
        ('{"password": 41424344}', "`password` is not text"),
        ('{"host": ["hush"]}', "`host` is not text"),
        ('{"extra": ["hush"]}', "`extra` is not text"),
        ('{"port": "hush"}', "`port` is not a port"),
        ('{"port": true}', "`port` is not a port"),
        ('{"port": 65536}', "`port` is not a port"),
        ('{"port": -1}', "`port` is not a port"),
        ('{"port": 1.5}', "`port` is not a port"),
        (f'{{"port": "{"7" * 5000}"}}', "`port` is not a port"),
        ('{"port": "²"}', "`port` is not a port"),
        ("hush", "AIRFLOW_CONN_MY_CONN is neither JSON nor a connection URI"),
        ("my_type://hush", "AIRFLOW_CONN_MY_CONN is neither JSON nor a connection URI"),
        ("spark://local[hush]", "AIRFLOW_CONN_MY_CONN is neither JSON nor a connection URI"),
        ("postgres://h:hush/db", "AIRFLOW_CONN_MY_CONN is neither JSON nor a connection URI"),
        ("postgres://u:hu#sh@h/db", "AIRFLOW_CONN_MY_CONN is neither JSON nor a connection URI"),
        (
            "postgres://u:hush@h/db?s3.endpoint=http://m",  # pragma: allowlist secret
            "AIRFLOW_CONN_MY_CONN is neither JSON nor a connection URI",
        ),
        ("a://b://c://hush", "AIRFLOW_CONN_MY_CONN is neither JSON nor a connection URI"),
    ],
)
def test_what_cannot_be_read_is_named_and_not_shown(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert (caught.value.op, caught.value.subject, caught.value.message) == ("read connection", "my_conn", message)
    shown = "".join(traceback.format_exception(caught.value, chain=True))
    assert caught.value.hint
    assert not any(part in str(caught.value) for part in ("hush", "4142"))
    assert "hush" not in shown.rpartition("UsageError")[2]
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_it_never_shows_itself() -> None:
    assert repr(EXPECTED) == str(EXPECTED) == "Connection('my_conn')"
    assert "hush" not in f"{[EXPECTED]} {EXPECTED!r:>40}"
    assert pickle.loads(pickle.dumps(EXPECTED)) == EXPECTED


@pytest.mark.parametrize(
    "connection",
    [EXPECTED, Connection("my_conn"), Connection("my_conn", extra="not json"), Connection("my_conn", host="ü {}")],
)
def test_as_json_is_read_back(connection: Connection) -> None:
    assert read(connection.as_json()) == connection


def _fields(connection: Any) -> tuple[Any, ...]:
    names = ("conn_type", "host", "port", "schema", "login", "password")
    extra = json.loads(connection.extra) if connection.extra else {}
    return (*(getattr(connection, name) or None for name in names), extra)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(WHOLE),
        json.dumps({**WHOLE, "extra": json.dumps(WHOLE["extra"]), "port": "17"}),
        "postgresql://ada:p%40ss@db.example.com:5433/cat%20alog?a=b&c=%C3%BC",  # pragma: allowlist secret
        "my-type://https://host:80/x?__extra__=%7B%22a%22%3A%20%7B%7D%7D",
        "http://https://u:p%40@host/x?a=",  # pragma: allowlist secret
        "sqlite:////var/Lake.db",
        "sqlite://%2Fvar%2FLake.db",
        "postgres://:word@h",
        "postgres://h",
        "generic://?a=1",
    ],
)
def test_airflow_reads_the_same(text: str) -> None:
    from tests.dags.airflow_home import use_private_airflow_home

    use_private_airflow_home()
    from airflow.sdk import Connection as Airflows

    theirs = Airflows.from_json(text, "my_conn") if text.startswith("{") else Airflows.from_uri(text, "my_conn")
    assert _fields(read(text)) == _fields(theirs)
