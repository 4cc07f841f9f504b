"""From a file with connection ids to what ports are made of: who wins, what is secret, and the rules that waited."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from lakemirror.config.connect import Sides, connect, connection_ids
from lakemirror.config.connections import Connection
from lakemirror.errors import PermanentError, UsageError
from tests.unit.config.conftest import Files

BOTH = """\
source:
  catalog: {name: onprem, type: sql, conn_id: lake, s3.region: north}
mirror:
  catalog: {name: cloud, type: sql, conn_id: cloud}
  location: s3://mirror/lake
"""
DATABASE = {"conn_type": "postgres", "schema": "cat", "login": "ada", "password": "pw-hush"}  # pragma: allowlist secret
LAKE = {**DATABASE, "host": "one", "extra": {"s3.region": "south", "s3.secret-access-key": "key-hush"}}
CLOUD = {**DATABASE, "host": "two", "extra": {"s3.secret-access-key": "other-hush"}}
FILE_MIRROR = "mirror: {catalog: {name: b, type: sql, uri: 'sqlite:///b.db'}, location: %s}\n"


class Airflow:
    """Knows some connections, and remembers what it was asked for."""

    def __init__(self, **known: dict[str, Any]) -> None:
        self.known = known
        self.asked: list[str] = []

    def __call__(self, conn_id: str) -> Connection:
        self.asked.append(conn_id)
        return Connection.of(conn_id, self.known[conn_id])


def opened(files: Files, text: str, **known: dict[str, Any]) -> Sides:
    return connect(files.load(text), Airflow(**known))


def refusal(files: Files, text: str, **known: dict[str, Any]) -> str:
    config = files.load(text)
    with pytest.raises(UsageError) as caught:
        connect(config, Airflow(**known))
    assert caught.value.__cause__ is None
    assert "hush" not in str(caught.value)
    return str(caught.value).replace(f"{files.folder}/", "")


def test_a_connection_fills_in_what_the_file_does_not_say(files: Files) -> None:
    sides = opened(files, BOTH, lake=LAKE, cloud=CLOUD)
    assert sides.source is not None
    assert (sides.source.catalog.conn_id, sides.mirror.catalog.conn_id) == (None, None)
    assert sides.source.catalog.properties == {
        "s3.region": "north",
        "uri": "postgresql+psycopg2://ada:pw-hush@one/cat",  # pragma: allowlist secret
        "s3.secret-access-key": "key-hush",
    }
    assert sides.mirror.catalog.properties == {
        "uri": "postgresql+psycopg2://ada:pw-hush@two/cat",  # pragma: allowlist secret
        "s3.secret-access-key": "other-hush",
    }
    assert sides.mirror.location == "s3://mirror/lake"


def test_the_address_in_the_file_wins(files: Files) -> None:
    text = "mirror: {catalog: {name: b, type: sql, uri: 'sqlite:///b.db', conn_id: c}, location: m}"
    sides = opened(files, text, c=CLOUD)
    assert sides.mirror.catalog.properties == {
        "uri": f"sqlite:///{files.folder}/b.db",
        "s3.secret-access-key": "other-hush",
    }


def test_without_a_connection_nobody_is_asked(files: Files) -> None:
    config = files.load_with("")
    airflow = Airflow()
    sides = connect(config, airflow)
    assert (sides.source, sides.mirror) == (None, config.mirror)
    assert (airflow.asked, connection_ids(config)) == ([], ())


def test_each_connection_is_asked_for_once(files: Files) -> None:
    both = """\
        source:
          catalog: {name: a, type: sql, uri: 'sqlite:///a.db', conn_id: shared}
        mirror: {catalog: {name: b, type: sql, uri: 'sqlite:///b.db', conn_id: shared}, location: m}
        """
    airflow = Airflow(shared={"extra": {"s3.region": "x"}})
    connect(files.load(both), airflow)
    assert airflow.asked == ["shared"]
    assert connection_ids(files.load(BOTH)) == ("cloud", "lake")


def test_reading_a_file_asks_for_no_connection(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(conn_id: str) -> Connection:
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr("lakemirror.config.connections.environment_connection", refuse)
    assert files.check(BOTH) == []
    explained = files.load(BOTH).explain()
    assert explained["source.catalog.conn_id"] == {"value": "lake", "from": f"{files.path}:2"}
    assert explained["mirror.catalog.conn_id"] == {"value": "cloud", "from": f"{files.path}:4"}
    assert "source.catalog.uri" not in explained


def test_what_came_from_a_connection_is_secret(files: Files) -> None:
    sides = opened(files, BOTH, lake=LAKE, cloud=CLOUD)
    assert sides.source is not None
    for value in (sides, sides.source, sides.source.catalog, pickle.loads(pickle.dumps(sides)), sides.mirror.catalog):
        assert "hush" not in f"{value!r} {value}"
    assert repr(sides.source.catalog) == (
        "SourceCatalogConfig(name='onprem', type='sql', conn_id=None, "
        "properties={'s3.region': 'north', 'uri': '***', 's3.secret-access-key': '***'})"
    )


def test_what_came_from_the_environment_stays_secret(files: Files) -> None:
    text = "mirror: {catalog: {name: b, type: sql, conn_id: '${ID}', s3.access-key-id: '${KEY}'}, location: m}"
    config = files.load(text, {"ID": "id-hush", "KEY": "key-hush"})
    assert config.explain()["mirror.catalog.conn_id"]["value"] == "***"
    assert "hush" not in repr(config)
    sides = connect(config, lambda conn_id: Connection.of(conn_id, {**DATABASE, "host": "h"}))
    assert "hush" not in repr(sides)
    assert sides.mirror.catalog.properties["s3.access-key-id"] == "key-hush"


def test_what_the_resolver_says_is_what_the_caller_hears(files: Files) -> None:
    def deny(conn_id: str) -> Connection:
        raise PermanentError("read connection", conn_id, "denied")

    with pytest.raises(PermanentError, match="read connection cloud: denied"):
        connect(files.load(BOTH), deny)


MIRROR_ONLY = "mirror: {catalog: {name: b, type: %s, conn_id: c}, location: s3://m/x}"


@pytest.mark.parametrize("kind", ["sql", "rest"])
def test_an_address_must_come_from_somewhere(files: Files, kind: str) -> None:
    assert files.check(MIRROR_ONLY % kind) == []
    assert refusal(files, MIRROR_ONLY % kind, c={"extra": {"s3.region": "x"}}) == (
        f"use connection lake.yaml: `mirror.catalog.uri` is required for type {kind}; "
        "say it in the file, or in the connection (c)"
    )


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"uri": "hush"}, "its `uri` is not an address with a scheme; a SQLite file is written sqlite:///path"),
        (
            {"uri": "sqlite:///hush.db"},
            "its `uri` is a relative path; a connection lies in no folder: write the path from the root",
        ),
        (
            {"uri": "sqlite://"},
            "its `uri` is not a SQLite file like sqlite:///relative.db or sqlite:////absolute.db; "
            "memory is gone with the process",
        ),
        (
            {"uri": "sqlite:////x.db", "warehouse": "hush"},
            "its `warehouse` is a relative path; a connection lies in no folder: write the path from the root",
        ),
        (
            {"uri": "sqlite:////x.db", "warehouse": "ftp://hush"},
            "its `warehouse` is not a location like s3://bucket/path, gs://bucket/path, file:///path or a plain path",
        ),
    ],
)
def test_places_are_checked_as_in_a_file(files: Files, properties: dict[str, str], message: str) -> None:
    assert refusal(files, MIRROR_ONLY % "sql", c={"extra": properties}) == f"use connection c: {message}"


def test_places_are_spelt_as_in_a_file(files: Files) -> None:
    extra = {"uri": "sqlite:////a/../x.db", "warehouse": "/wh/./a/"}
    properties = opened(files, MIRROR_ONLY % "sql", c={"extra": extra}).mirror.catalog.properties
    assert properties == {"uri": "sqlite:////x.db", "warehouse": "file:///wh/a"}
    named = {"uri": "https://h", "warehouse": "a-name"}
    assert opened(files, MIRROR_ONLY % "rest", c={"extra": named}).mirror.catalog.properties == named


SAME = "`mirror.catalog` is the source's catalog: the mirror would be committed over the source"
ONE_NAME = """\
source: {catalog: {name: lake, type: sql, conn_id: one}}
mirror: {catalog: {name: lake, type: sql, conn_id: two}, location: s3://m/x}
"""


@pytest.mark.parametrize(
    ("one", "two", "is_same"),
    [
        ({**DATABASE, "host": "a"}, {**DATABASE, "host": "b"}, False),
        ({**DATABASE, "host": "a"}, {**DATABASE, "host": "a", "schema": "other"}, False),
        ({**DATABASE, "host": "a"}, {**DATABASE, "host": "a"}, True),
        ({**DATABASE, "host": "a"}, {**DATABASE, "host": "A", "port": 5432, "login": "eve", "password": "x"}, True),
        ({"extra": {"uri": "postgresql://a/cat?x=1"}}, {**DATABASE, "host": "a"}, True),
        ({"extra": {"uri": "sqlite:////a.db"}}, {"extra": {"uri": "sqlite:////x/../a.db"}}, True),
    ],
)
def test_the_mirror_never_commits_to_the_sources_catalog(
    files: Files, one: dict[str, Any], two: dict[str, Any], is_same: bool
) -> None:
    assert files.check(ONE_NAME) == []
    if is_same:
        hint = "give the mirror a catalog of its own"
        assert refusal(files, ONE_NAME, one=one, two=two) == f"use connection lake.yaml: {SAME}; {hint}"
    else:
        opened(files, ONE_NAME, one=one, two=two)


def test_what_the_file_alone_decides_is_told_at_once(files: Files) -> None:
    one = "{name: a, type: sql, uri: 'sqlite:///x.db', conn_id: c}"
    problem = f"lake.yaml:2: {SAME}; give the mirror a catalog of its own"
    assert files.check(f"source: {{catalog: {one}}}\nmirror: {{catalog: {one}, location: m}}\n") == [problem]


@pytest.mark.parametrize(
    ("warehouse", "location", "is_apart"),
    [
        ("/lake", "/mirror", True),
        ("/lake", "/lake/m", False),
        ("s3://b/x", "s3://b", False),
        ("s3://b", "gs://b", True),
    ],
)
def test_a_mirror_is_never_laid_over_a_warehouse_that_a_connection_names(
    files: Files, warehouse: str, location: str, is_apart: bool
) -> None:
    text = "source: {catalog: {name: a, type: sql, conn_id: c}}\n" + FILE_MIRROR % location
    known = {"extra": {"uri": "sqlite:////a.db", "warehouse": warehouse}}
    assert files.check(text) == []
    if is_apart:
        opened(files, text, c=known)
    else:
        assert "the mirror would write into its own source" in refusal(files, text, c=known)


@pytest.mark.parametrize(("endpoint", "is_apart"), [("http://one", True), (None, False)])
def test_equal_buckets_may_be_two_places_by_what_a_connection_says(
    files: Files, endpoint: str | None, is_apart: bool
) -> None:
    source = "source: {catalog: {name: a, type: sql, conn_id: c, warehouse: s3://b/lake}}\n"
    text = source + FILE_MIRROR % "s3://b/lake"
    known = {"extra": {"uri": "sqlite:////a.db", **({"s3.endpoint": endpoint} if endpoint else {})}}
    assert files.check(text) == []
    if is_apart:
        opened(files, text, c=known)
    else:
        assert "the mirror would write into its own source" in refusal(files, text, c=known)
