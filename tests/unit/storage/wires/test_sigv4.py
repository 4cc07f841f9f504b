"""Signatures, against those of botocore."""

from __future__ import annotations

import asyncio
import hashlib
import traceback
from datetime import UTC, datetime
from unittest.mock import patch

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from botocore.exceptions import ClientError, ConnectTimeoutError, CredentialRetrievalError

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.wires import sigv4
from lakemirror.storage.wires.http import encoded, encoded_query
from lakemirror.storage.wires.sigv4 import Credential, Credentials, Signer

THEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEYS = ["plain", "a=b/c d+e%25/ü,/x", "~!$&'()@:;|\"<>{}^`\\/*[]#?", "雪/😀"]


def theirs(method: str, url: str, headers: dict[str, str], token: str | None) -> str:
    request = AWSRequest(method, url, headers=dict(headers))
    signer = botocore.auth.S3SigV4Auth(BotoCredentials("key", "secret", token), "s3", "eu-test-1")
    with patch.object(botocore.auth, "get_current_datetime", return_value=THEN.replace(tzinfo=None)):
        signer.add_auth(request)
    return str(request.headers["Authorization"])


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("token", [None, "a token"])
def test_signatures_are_those_of_botocore(key: str, token: str | None) -> None:
    path = f"/bucket/{encoded(key)}"
    query = encoded_query({"uploadId": "a/b+c=", "partNumber": "3", "prefix": key})
    headers = {"x-amz-checksum-crc32c": "yZRlqg==", "if-none-match": "*"}
    nothing = hashlib.sha256(b"").hexdigest()
    ours = Signer("eu-test-1", clock=THEN.timestamp).sign(
        Credential("key", "secret", token), "PUT", "host:9000", path, query, headers, nothing
    )
    assert ours["authorization"] == theirs("PUT", f"https://host:9000{path}?{query}", headers, token)


def test_the_environment_gives_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "env-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "env-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "env-token")
    assert asyncio.run(Credentials(None).now()) == Credential("env-key", "env-secret", "env-token")


def test_given_credentials_are_not_mixed_with_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "env-token")
    given = Credentials({"access_key_id": "a", "secret_access_key": "b", "token": None, "expires_at": None})
    assert asyncio.run(given.now()) == Credential("a", "b", None)


def test_no_credentials_at_all_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(PermanentError, match="no credentials"):
        asyncio.run(Credentials(None).now())


class Failing:
    """A chain whose renewal fails."""

    def __init__(self, err: Exception) -> None:
        self._err = err

    def refresh_needed(self) -> bool:
        return True

    def get_frozen_credentials(self) -> object:
        raise self._err


DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "AssumeRoleWithWebIdentity")


@pytest.mark.parametrize(
    "err",
    [
        CredentialRetrievalError(provider="custom-process", error_msg="it is away"),
        ConnectTimeoutError(endpoint_url="https://sts"),
        DENIED,
        OSError("no such token file"),
    ],
)
def test_credentials_that_cannot_be_renewed_now_are_transient(err: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sigv4, "_chain", lambda: Failing(err))
    with pytest.raises(TransientError, match="no credentials now") as raised:
        asyncio.run(Credentials(None).now())
    assert (raised.value.op, raised.value.subject) == ("open", "s3")
    assert type(err).__name__ in raised.value.message
    assert str(err) not in "".join(traceback.format_exception(raised.value)), "it may quote an answer with a secret"


@pytest.mark.parametrize("variable", ["AWS_PROFILE", "AWS_ACCESS_KEY_ID"])
def test_credentials_that_are_set_up_wrongly_are_permanent(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv(variable, "half")
    with pytest.raises(PermanentError, match="credentials are not complete"):
        asyncio.run(Credentials(None).now())
