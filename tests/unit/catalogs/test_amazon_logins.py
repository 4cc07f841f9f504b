"""Logins of Amazon's chain, as Glue, SigV4 and the store over S3 need them: what passes, and what is never told."""

from __future__ import annotations

import asyncio
import io
import logging
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from lakemirror.catalogs.glue import GlueCatalog
from lakemirror.catalogs.rest import RestCatalog
from lakemirror.catalogs.rest_login import SigV4
from lakemirror.cli.commands import bug
from lakemirror.errors import LakemirrorError, PermanentError, TransientError
from lakemirror.model.table import TableRef
from lakemirror.storage.wires.sigv4 import Credentials
from tests.serving import answering

T = TableRef.parse("shop.orders")
NOBODY = "http://127.0.0.1:1"  # logging in comes first
CUT = (
    b"<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
    b"<AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>hush-hush</SecretAccessKey>"
)
EMPTY = b"<AssumeRoleWithWebIdentityResponse><a>hush-hush</a></AssumeRoleWithWebIdentityResponse>"
DENIED = (
    b"<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>hush-hush</Message></Error>"
    b"<RequestId>1</RequestId></ErrorResponse>"
)
Ask = Callable[[], object]


def _glue() -> object:
    return GlueCatalog("g", {"glue.region": "eu-central-1", "glue.endpoint": NOBODY}).head(T)


def _rest() -> object:
    given = {"rest.sigv4-enabled": "true", "rest.signing-region": "eu-central-1", "rest.retries": "0"}
    return RestCatalog("cloud", {"uri": NOBODY, **given}).head(T)


def _store() -> object:
    return asyncio.run(Credentials(None).now())


@pytest.fixture(params=[_glue, _rest, _store], ids=["glue", "sigv4", "store"])
def ask(request: pytest.FixtureRequest) -> Ask:
    made: Ask = request.param
    return made


@pytest.fixture(autouse=True)
def chain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A role that is taken with the token in this file, as on a cluster."""
    file = tmp_path / "token-of-hush-hush"
    file.write_text("a-web-token")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/r")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(file))
    return file


def met(ask: Ask) -> LakemirrorError:
    """What it ends with; neither it nor its traceback tells the secret."""
    with pytest.raises((TransientError, PermanentError)) as caught:
        ask()
    assert "hush-hush" not in "".join(traceback.format_exception(caught.value))
    stderr = io.StringIO()
    bug(caught.value, "a.b", stderr)
    assert "hush-hush" not in stderr.getvalue()
    return caught.value


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, CUT), (200, EMPTY), (200, b""), (502, b"<!DOCTYPE html><p>bad"), (502, b"[]"), (503, b"")],
    ids=str,
)
@pytest.mark.usefixtures("token")
def test_an_sts_that_cannot_be_understood_passes_and_is_not_quoted(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int, body: bytes
) -> None:
    with answering(status, body) as uri, caplog.at_level(logging.INFO):
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", uri)
        assert isinstance(met(ask), TransientError)
    assert "hush-hush" not in caplog.text


@pytest.mark.usefixtures("token")
def test_what_refreshing_failed_of_is_logged_by_its_type_alone(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with answering(200, CUT) as uri:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", uri)
        met(ask)
    warned = [record for record in caplog.records if record.name == "botocore.credentials"]
    assert [record.getMessage() for record in warned] == [
        "Refreshing temporary credentials failed during mandatory refresh period. (ResponseParserError)"
    ]
    assert [(record.exc_info, record.exc_text) for record in warned] == [(None, None)]


@pytest.mark.usefixtures("token")
def test_what_sts_refuses_is_told_by_its_code_alone(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(403, DENIED) as uri:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", uri)
        assert "AccessDenied" in met(ask).message


@pytest.mark.parametrize("ask", [_glue, _rest], indirect=True, ids=["glue", "sigv4"])
@pytest.mark.usefixtures("token")
def test_what_sts_refuses_is_permanent(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(403, DENIED) as uri:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", uri)
        assert isinstance(met(ask), PermanentError)


def test_a_token_that_is_missing_is_waited_for(ask: Ask, token: Path) -> None:
    """As by the queues: others write that file, and the path is not told."""
    token.unlink()
    error = met(ask)
    assert isinstance(error, TransientError)
    assert "FileNotFoundError: No such file or directory" in error.message


def test_nothing_is_unclear_about_a_request_that_cannot_be_signed(token: Path) -> None:
    """OSError is what an unknown outcome is told by: this one comes before anything is sent."""
    token.unlink()
    request = requests.Request("POST", NOBODY, data=b"a commit").prepare()
    with pytest.raises(TransientError) as caught:
        SigV4({"rest.signing-region": "eu-central-1"})(request)
    assert type(caught.value) is TransientError


@pytest.mark.parametrize(
    ("status", "body"), [(500, b"hush-hush"), (200, b"hush-hush"), (200, b"[]"), (200, b"{}"), (502, b"\xe9")], ids=str
)
def test_a_container_that_has_no_credentials_now(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes
) -> None:
    with answering(status, body) as uri:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{uri}/creds")
        assert isinstance(met(ask), TransientError)


@pytest.mark.parametrize("ask", [_glue, _rest], indirect=True, ids=["glue", "sigv4"])
def test_a_process_that_fails_is_permanent_and_not_quoted(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text("[default]\ncredential_process = sh -c 'echo hush-hush >&2; exit 1'\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    error = met(ask)
    assert isinstance(error, PermanentError)
    assert "CredentialRetrievalError" in error.message


@pytest.mark.parametrize("ask", [_glue, _rest], indirect=True, ids=["glue", "sigv4"])
def test_a_container_that_is_no_address_is_permanent(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.com/creds")
    assert isinstance(met(ask), PermanentError)


def test_an_endpoint_of_glue_that_is_no_address_is_permanent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")  # pragma: allowlist secret
    with pytest.raises(PermanentError, match="cannot be asked"):
        GlueCatalog("g", {"glue.region": "eu-central-1", "glue.endpoint": "no address"}).head(T)
