from __future__ import annotations

import json
import os
import pickle
import time
from contextlib import suppress
from datetime import timedelta

import pytest
from obstore.store import GCSStore, MemoryStore, S3Store

from lakemirror.errors import LakemirrorError, PermanentError, TransientError, UnsupportedError
from lakemirror.storage.clients import Clients, MemoryBuckets
from lakemirror.storage.keys import check_key
from lakemirror.storage.objects import ObstoreStore
from tests.faults.proxy import deaf_url
from tests.serving import QuietHandler, serving

KEYS = {"s3.access-key-id": "AK", "s3.secret-access-key": "SK"}  # pragma: allowlist secret
S3 = check_key("s3://bucket/key")
GCS = check_key("gs://bucket/key")


def s3_client(properties: dict[str, str]) -> S3Store:
    client = Clients(properties, None).open(S3)
    assert isinstance(client, S3Store)
    return client


def gcs_client(properties: dict[str, str]) -> GCSStore:
    client = Clients(properties, None).open(GCS)
    assert isinstance(client, GCSStore)
    return client


class TestS3:
    def test_an_http_endpoint_is_allowed_and_addressed_by_path(self) -> None:
        client = s3_client({**KEYS, "s3.endpoint": "http://127.0.0.1:9000", "s3.region": "r"})
        assert client.config == {
            "bucket": "bucket",
            "copy_if_not_exists": "multipart",
            "endpoint": "http://127.0.0.1:9000",
            "region": "r",
        }
        assert str((client.client_options or {}).get("allow_http")).lower() == "true"

    def test_an_https_endpoint_stays_https(self) -> None:
        client = s3_client({**KEYS, "s3.endpoint": "https://s3.example.org", "client.region": "r"})
        assert client.config["region"] == "r"
        assert "allow_http" not in (client.client_options or {})

    def test_virtual_addressing_puts_the_bucket_into_the_host(self) -> None:
        client = s3_client({**KEYS, "s3.endpoint": "https://s3.example.org:9", "s3.force-virtual-addressing": "True"})
        assert client.config["endpoint"] == "https://bucket.s3.example.org:9"
        assert str(client.config["virtual_hosted_style_request"]).lower() == "true"

    def test_keys_go_to_a_provider_and_not_into_the_configuration(self) -> None:
        client = s3_client({**KEYS, "s3.session-token": "T"})
        assert client.credential_provider is not None
        assert client.credential_provider() == {
            "access_key_id": "AK",
            "secret_access_key": "SK",  # pragma: allowlist secret
            "token": "T",
            "expires_at": None,
        }
        assert "secret_access_key" not in client.config

    def test_keys_named_for_all_of_aws_count_as_well(self) -> None:
        properties = {f"client.{name}": name for name in ("access-key-id", "secret-access-key", "session-token")}
        provider = s3_client(properties).credential_provider
        assert provider is not None
        credential = provider()
        assert isinstance(credential, dict)
        assert credential["token"] == "session-token"

    def test_without_keys_the_environment_decides(self) -> None:
        assert s3_client({"s3.region": "r"}).credential_provider is None

    @pytest.mark.parametrize("name", KEYS)
    def test_half_a_key_pair_is_refused(self, name: str) -> None:
        with pytest.raises(PermanentError, match="only one of"):
            s3_client({name: "x"})

    @pytest.mark.parametrize("name", ["s3.profile-name", "client.role-arn", "s3.signer"])
    def test_other_credentials_are_refused_by_name(self, name: str) -> None:
        with pytest.raises(UnsupportedError, match=name):
            s3_client({name: "x"})
        s3_client({**KEYS, name: "x"})

    def test_timeouts(self) -> None:
        options = s3_client({**KEYS, "s3.connect-timeout": "3.0", "s3.request-timeout": "7"}).client_options or {}
        assert (seconds(options["connect_timeout"]), seconds(options["read_timeout"])) == (3, 7)

    @pytest.mark.timeout(20)
    def test_connecting_to_one_that_is_deaf_ends(self) -> None:
        with deaf_url() as url:
            store = ObstoreStore({**KEYS, "s3.endpoint": url, "s3.region": "r", "s3.connect-timeout": "0.3"})
            with pytest.raises(TransientError):
                store.get("s3://bucket/key")

    @pytest.mark.timeout(20)
    def test_an_answer_that_drips_ends(self) -> None:
        """No pause between its bytes is long enough for any other bound."""

        class Dripping(QuietHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                for name, value in (("Content-Length", "1000"), ("Last-Modified", "Mon, 16 Nov 2026 00:00:00 GMT")):
                    self.send_header(name, value)
                self.end_headers()
                with suppress(OSError):  # it was hung up
                    for _ in range(1000):
                        self.wfile.write(b"x")
                        time.sleep(0.1)

        with serving(Dripping) as port:
            short = {"s3.endpoint": f"http://127.0.0.1:{port}", "s3.region": "r", "s3.answer-timeout": "1"}
            store = ObstoreStore({**KEYS, **short})
            with pytest.raises(TransientError):
                store.get("s3://bucket/key")
            with pytest.raises(TransientError):
                list(store.stream("s3://bucket/key"))

    def test_retries_are_bounded_and_off_for_conditional_writes(self) -> None:
        clients = Clients(KEYS, None)
        for retries, expected in ((True, 3), (False, 0)):
            client = clients.open(S3, retries=retries)
            assert isinstance(client, S3Store)
            assert (client.retry_config or {}).get("max_retries") == expected


class TestGcs:
    def test_an_emulator_needs_no_account(self) -> None:
        client = gcs_client({"gcs.service.host": "http://127.0.0.1:4443"})
        account = json.loads(client.config["service_account_key"])
        assert (account["gcs_base_url"], account["disable_oauth"]) == ("http://127.0.0.1:4443", True)
        assert str((client.client_options or {}).get("allow_http")).lower() == "true"

    def test_a_token_is_used_as_it_is(self) -> None:
        assert gcs_client({"gcs.oauth2.token": "T"}).config == {"bucket": "bucket", "bearer_token": "T"}
        both = gcs_client({"gcs.oauth2.token": "T", "gcs.service.host": "https://g.example.org"})
        assert both.config == {"bucket": "bucket", "bearer_token": "T", "base_url": "https://g.example.org"}


def seconds(value: object) -> float:
    assert isinstance(value, str | timedelta)
    return value.total_seconds() if isinstance(value, timedelta) else float(value.split()[0].rstrip("s"))


def test_clients_are_made_once_per_bucket() -> None:
    clients = Clients(KEYS, None)
    assert clients.open(S3) is clients.open(check_key("s3a://bucket/other"))
    assert clients.open(S3) is not clients.open(check_key("s3://elsewhere/key"))


def test_memory_is_shared_by_those_given_the_same_buckets() -> None:
    shared = MemoryBuckets()
    address = check_key("memory://m/k")
    one, other, apart = Clients({}, shared), Clients({}, shared), Clients({}, None)
    assert isinstance(one.open(address), MemoryStore)
    assert one.open(address) is other.open(address)
    assert apart.open(address) is apart.open(address)
    assert apart.open(address) is not one.open(address)


def test_secrets_are_not_shown() -> None:
    shown = repr(
        Clients(
            {
                **KEYS,
                "s3.endpoint": "http://127.0.0.1:1",
                "gcs.oauth2.token": "hush",
                "gcs.service.host": "http://u:hush@h",  # pragma: allowlist secret
                "uri": "postgresql://u:hush@h/d",  # pragma: allowlist secret
                "s3.unknown-new-thing": "hush",
            },
            None,
        )
    )
    assert "s3.endpoint='http://127.0.0.1:1'" in shown
    assert "s3.secret-access-key=***" in shown
    assert not {"SK", "AK", "hush"} & set(shown.replace("'", " ").replace("=", " ").replace(",", " ").split())
    assert "hush" not in shown


def test_pickles_without_connections() -> None:
    clients = Clients(KEYS, None)
    first = clients.open(S3)
    copy: Clients = pickle.loads(pickle.dumps(clients))
    assert copy.open(S3) is not first
    assert repr(copy) == repr(clients)


def test_memory_does_not_pretend_to_pickle() -> None:
    with pytest.raises(PermanentError, match="one process only"):
        pickle.dumps(MemoryBuckets())


def test_a_process_forked_after_use_is_told_so_instead_of_hanging() -> None:
    clients = Clients(KEYS, None)
    clients.open(S3)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            clients.open(S3)
            said = "nothing"
        except LakemirrorError as err:
            said = str(err)
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        assert "forked" in answer.read()
    assert os.waitpid(child, 0)[1] == 0
