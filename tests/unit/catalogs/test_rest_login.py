"""Who is let in to a REST catalog: each login against a server that checks it, and what must never be seen of it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lakemirror.catalogs.ports import Published
from lakemirror.catalogs.rest import RestCatalog
from lakemirror.errors import PermanentError, TransientError, UnsupportedError, UsageError
from lakemirror.model.table import TableRef
from tests.published_tables import Table
from tests.rest_double import RestDouble, rest_double
from tests.serving import QuietHandler, serving
from tests.sigv4 import is_signed

T = TableRef.parse("a b.ü+%.orders")
KEYS = {"AKIA1": "signing-secret"}  # pragma: allowlist secret
AWS = {
    "rest.sigv4-enabled": "true",
    "rest.signing-region": "eu-west-1",
    "rest.signing-name": "glue",
    "client.access-key-id": "AKIA1",
    "client.secret-access-key": KEYS["AKIA1"],
}


def _as_sts(code: str) -> bytes:
    told = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{KEYS['AKIA1']}</Message></Error>"
    return f"<ErrorResponse>{told}<RequestId>1</RequestId></ErrorResponse>".encode()


@pytest.fixture
def double() -> Iterator[RestDouble]:
    with rest_double() as double:
        yield double


@pytest.fixture
def signed(double: RestDouble) -> RestDouble:
    def check(verb: str, target: str, data: bytes, headers: Any) -> bool:
        return is_signed(verb, target, data, headers, keys=KEYS, region="eu-west-1", service="glue")

    double.signer = check
    return double


def use(catalog: RestCatalog, double: RestDouble) -> None:
    """Every verb, with bodies, queries and names that have to be quoted."""
    made = Table("mem://m/t", 2)
    made.append(1)
    new = Published("mem://m/t/1.json", made.publish())
    double.files[new.metadata_uri] = new.metadata
    catalog.commit(T, None, new)
    assert catalog.head(T) == new.metadata_uri
    catalog.tables()
    head = catalog.load(T)
    assert head is not None
    made.append(2)
    catalog.commit(T, head, Published("mem://m/t/2.json", made.publish()))
    head = catalog.load(T)
    assert head is not None
    catalog.drop(T, head)
    assert catalog.load(T) is None


def test_sigv4(signed: RestDouble) -> None:
    use(RestCatalog("cloud", {"uri": signed.uri, **AWS}), signed)


def test_sigv4_travels_to_other_processes(signed: RestDouble) -> None:
    catalog = pickle.loads(pickle.dumps(RestCatalog("cloud", {"uri": signed.uri, **AWS})))
    assert catalog.head(T) is None


@pytest.mark.parametrize(
    "wrong",
    [{"client.secret-access-key": "other"}, {"rest.signing-region": "us-east-1"}, {"rest.signing-name": "s3tables"}],
    ids=str,
)
def test_a_wrong_signature_is_refused(signed: RestDouble, wrong: Mapping[str, str]) -> None:
    with pytest.raises(PermanentError, match="401") as caught:
        RestCatalog("cloud", {"uri": signed.uri, **AWS, **wrong}).head(T)
    assert KEYS["AKIA1"] not in str(caught.value.as_json())


def test_sigv4_without_a_region(signed: RestDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    given = {key: value for key, value in AWS.items() if key != "rest.signing-region"}
    with pytest.raises(PermanentError, match="no region to sign with"):
        RestCatalog("cloud", {"uri": signed.uri, **given}).head(T)


class TestRolesThatStsLends:
    """A profile that assumes a role: STS is asked before a request is signed."""

    @pytest.fixture(autouse=True)
    def profile(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config = tmp_path / "config"
        config.write_text(
            "[profile lent]\nrole_arn = arn:aws:iam::123456789012:role/mirror\nsource_profile = own\n"
            f"[profile own]\naws_access_key_id = AKIA1\naws_secret_access_key = {KEYS['AKIA1']}\n"
        )
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    def refusal(
        self, double: RestDouble, monkeypatch: pytest.MonkeyPatch, sts_uri: str
    ) -> TransientError | PermanentError:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts_uri)
        given = {key: value for key, value in AWS.items() if key.startswith("rest.")}
        properties = {"uri": double.uri, "rest.retries": "0", "client.profile-name": "lent", **given}
        with pytest.raises((TransientError, PermanentError), match=r"log in SigV4: no credentials of Amazon") as caught:
            RestCatalog("cloud", properties).head(T)
        assert not any(secret in str(caught.value.as_json()) for secret in KEYS.values())
        assert double.asked == []
        return caught.value

    def answered(
        self, double: RestDouble, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes
    ) -> TransientError | PermanentError:
        class Handler(QuietHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        with serving(Handler) as port:
            return self.refusal(double, monkeypatch, f"http://127.0.0.1:{port}")

    @pytest.mark.parametrize(
        ("status", "body"),
        [
            (400, _as_sts("Throttling")),
            (400, _as_sts("IDPCommunicationError")),
            (500, _as_sts("InternalFailure")),
            (503, b""),
            (502, b"<html><body>bad gateway</body></html>"),
            (502, b"<!DOCTYPE html><p>bad gateway"),
        ],
        ids=str,
    )
    def test_trouble_passes(
        self, double: RestDouble, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes
    ) -> None:
        assert isinstance(self.answered(double, monkeypatch, status, body), TransientError)

    @pytest.mark.parametrize("code", ["AccessDenied", "InvalidClientTokenId"])
    def test_a_plain_no_does_not(self, double: RestDouble, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
        met = self.answered(double, monkeypatch, 403, _as_sts(code))
        assert isinstance(met, PermanentError)
        assert code in met.message

    def test_nobody_listens(self, double: RestDouble, monkeypatch: pytest.MonkeyPatch) -> None:
        with serving(QuietHandler) as port:
            uri = f"http://127.0.0.1:{port}"
        assert isinstance(self.refusal(double, monkeypatch, uri), TransientError)

    def test_a_profile_that_is_not_there(self, double: RestDouble, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
        assert isinstance(self.refusal(double, monkeypatch, "http://127.0.0.1:1"), PermanentError)


def test_sigv4_and_a_token_contradict_each_other() -> None:
    with pytest.raises(UsageError, match=r"both rest\.sigv4-enabled and token"):
        RestCatalog("cloud", {"uri": "http://x", "token": "t", **AWS})


def test_the_check_of_signatures_itself(signed: RestDouble) -> None:
    """The example of Amazon's own documentation (GET, iam, 2015-08-30)."""
    headers = {
        "content-type": "application/x-www-form-urlencoded; charset=utf-8",
        "host": "iam.amazonaws.com",
        "x-amz-date": "20150830T123600Z",
        "Authorization": "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date, "
        "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
    }
    secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"  # pragma: allowlist secret
    check = partial(is_signed, keys={"AKIDEXAMPLE": secret}, region="us-east-1", service="iam")
    assert check("GET", "/?Action=ListUsers&Version=2010-05-08", b"", headers)
    assert not check("GET", "/?Action=ListUsers&Version=2010-05-09", b"", headers)
    assert not check("GET", "/?Action=ListUsers&Version=2010-05-08", b"x", headers)


@pytest.mark.parametrize("login", [{"token": "token-1"}, {"credential": "me:hush"}], ids=str)
def test_bearer_and_client_credentials(double: RestDouble, login: Mapping[str, str]) -> None:
    use(RestCatalog("cloud", {"uri": double.uri, **login}), double)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(408, TransientError), (429, TransientError), (503, TransientError), (400, PermanentError), (501, PermanentError)],
)
def test_what_the_oauth_server_answers(double: RestDouble, status: int, kind: type[Exception]) -> None:
    double.fault = lambda verb, path: status if path.endswith("oauth/tokens") else None
    with pytest.raises(kind, match=f"log in cloud: catalog cloud answered {status}") as caught:
        RestCatalog("cloud", {"uri": double.uri, "rest.retries": "0", "credential": "me:hush"}).head(T)
    assert "hush" not in str(caught.value)


def test_headers_of_ones_own_go_with_every_request(double: RestDouble) -> None:
    seen: list[str | None] = []

    def check(verb: str, target: str, data: bytes, headers: Any) -> bool:
        seen.append(headers.get("X-Team"))
        return True

    double.signer = check
    use(RestCatalog("cloud", {"uri": double.uri, "header.X-Team": "blue"}), double)
    assert set(seen) == {"blue"}


@pytest.mark.parametrize("key", ["auth.type", "signer"])
def test_what_it_cannot_do_is_refused_by_name(key: str) -> None:
    with pytest.raises(UnsupportedError, match=key.split(".type", maxsplit=1)[0]):
        RestCatalog("cloud", {"uri": "http://x", key: "true"})
