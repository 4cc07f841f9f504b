"""`${NAME}`: filled in from the environment, secret from then on; secrets in plain text are refused."""

from __future__ import annotations

import pytest

from lakemirror.config.environment import substitute


def test_references_are_filled_in_everywhere() -> None:
    data = {"a": "${X}", "b": ["${X}-${Y}", {"c": "p${Y}q"}], "n": 5, "none": None, "plain": "$X {Y} $"}
    done = substitute(data, {"X": "1", "Y": "two"})
    assert done.data == {"a": "1", "b": ["1-two", {"c": "ptwoq"}], "n": 5, "none": None, "plain": "$X {Y} $"}
    assert done.secrets == {("a",), ("b", 0), ("b", 1, "c")}
    assert (done.findings, done.broken) == ([], set())


def test_a_value_is_not_looked_into_again() -> None:
    assert substitute({"a": "${X}"}, {"X": "${Y}", "Y": "no"}).data == {"a": "${Y}"}


def test_two_dollars_are_a_literal() -> None:
    done = substitute({"a": "$${spark.home}/x"}, {})
    assert done.data == {"a": "${spark.home}/x"}
    assert done.secrets == set()


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("${NOPE}", "`m.key`: the environment variable NOPE is not set", "export NOPE before you start"),
        ("x${NOPE}y", "`m.key`: the environment variable NOPE is not set", "export NOPE before you start"),
        ("${}", "`m.key`: `${}` is no reference to a variable", "write ${NAME}, or $${ for a literal ${"),
        ("${a.b}", "`m.key`: `${a.b}` is no reference to a variable", "write ${NAME}, or $${ for a literal ${"),
        ("${X:-y}", "`m.key`: `${X:-y}` is no reference to a variable", "write ${NAME}, or $${ for a literal ${"),
        ("${1X}", "`m.key`: `${1X}` is no reference to a variable", "write ${NAME}, or $${ for a literal ${"),
        ("${open", "`m.key`: `${open` is no reference to a variable", "write ${NAME}, or $${ for a literal ${"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named(text: str, message: str, hint: str) -> None:
    done = substitute({"m": {"key": text}}, {"X": "1"})
    assert [(f.path, f.message, f.hint) for f in done.findings] == [(("m", "key"), message, hint)]
    assert done.broken == {("m", "key")}


def test_a_variable_may_be_empty() -> None:
    done = substitute({"a": "${X}"}, {"X": ""})
    assert (done.data, done.findings) == ({"a": ""}, [])


@pytest.mark.parametrize(
    "key",
    [
        "token",
        "credential",
        "password",
        "s3.secret-access-key",
        "s3.session-token",
        "gcs.oauth2.token",
        "adls.account-key",
        "adls.client-secret",
        "adls.connection-string",
        "header.Authorization",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.ssl.keyPassword",
        "fs.azure.account.key.lake.dfs.core.windows.net",
    ],
)
@pytest.mark.parametrize("value", ["plain", 1234, "half-$${X}"])
def test_a_secret_in_plain_text_is_refused_by_the_name_of_its_key(key: str, value: object) -> None:
    done = substitute({"mirror": {key: value}}, {"X": "1"})
    [finding] = done.findings
    assert finding.path == ("mirror", key)
    assert finding.message == f"`mirror.{key}` holds a secret in plain text"
    assert finding.hint.startswith("write ${MIRROR_")
    assert "plain" not in finding.hint
    assert (done.secrets, done.broken) == ({("mirror", key)}, {("mirror", key)})


def test_the_hint_names_a_variable() -> None:
    [finding] = substitute({"mirror": {"catalog": {"s3.secret-access-key": "x"}}}, {}).findings
    assert finding.hint == "write ${MIRROR_CATALOG_S3_SECRET_ACCESS_KEY} and export that variable"
    [finding] = substitute({"state": {"uri": "postgresql://me:x@host/db"}}, {}).findings
    assert finding.hint == "write ${STATE_URI_PASSWORD} in its place and export that variable"


@pytest.mark.parametrize(
    "value",
    [
        "postgresql://me:hidden@host/db",  # pragma: allowlist secret
        "postgresql+psycopg2://:hidden@host:5432/db",
        "https://me:hid@den@host/x",  # pragma: allowlist secret
        "postgresql://host/db?user=me&password=hidden",
        "https://host/path?SIG=hidden",
        "postgresql://${ME}:hidden@host/db",
    ],
)
def test_a_password_in_an_address_is_refused(value: str) -> None:
    done = substitute({"uri": value}, {"ME": "me"})
    assert [f.message for f in done.findings] == ["`uri` holds a secret in plain text"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("token", "${X}"),
        ("token", "Bearer ${X}"),
        ("token", ""),
        ("token", None),
        ("credential", "${X}:${X}"),
        ("s3.access-key-id", "plain"),
        ("gcs.oauth2.token-expires-at", "123"),
        ("oauth2-server-uri", "https://host/token"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "some.Class"),
        ("uri", "postgresql://me:${X}@host/db"),
        ("uri", "postgresql://me@host:5432/db"),
        ("uri", "https://host:8080/a@b"),
        ("uri", "https://host/db?password=${X}"),
        ("location", "s3://bucket/a:b@c"),
        ("schedule", "*/5 * * * *"),
    ],
)
def test_what_is_no_secret_is_left_alone(key: str, value: object) -> None:
    assert substitute({key: value}, {"X": "1"}).findings == []
