"""Hosts and paths of S3 objects, by the properties that users know."""

import pytest

from lakemirror.errors import PermanentError
from lakemirror.storage.keys import check_key, check_prefix
from lakemirror.storage.wires.s3_place import S3Places

OBJECT = check_key("s3://lake/a b/ü=1%/x", "test")


@pytest.fixture(autouse=True)
def no_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


def of(**properties: str) -> tuple[str, str]:
    place, path = S3Places({name.replace("_", "."): value for name, value in properties.items()}).of(OBJECT)
    return place.origin, path


def test_the_bucket_is_in_the_path_unless_the_host_is_asked_for() -> None:
    path = "/a%20b/%C3%BC%3D1%25/x"

    assert of(s3_endpoint="http://127.0.0.1:9000") == ("http://127.0.0.1:9000", f"/lake{path}")
    virtual = S3Places({"s3.endpoint": "https://store.example", "s3.force-virtual-addressing": "TRUE"})
    assert virtual.of(OBJECT)[0].origin == "https://lake.store.example"
    assert virtual.of(OBJECT)[1] == path
    assert virtual.of(check_prefix("s3://lake", "test"))[1] == "/"


def test_an_endpoint_may_have_a_path_of_its_own() -> None:
    assert of(s3_endpoint="http://gateway/s3/")[1].startswith("/s3/lake/")


def test_without_an_endpoint_it_is_the_clouds_in_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of(client_region="eu-west-3")[0] == "https://s3.eu-west-3.amazonaws.com"
    assert of()[0] == "https://s3.us-east-1.amazonaws.com"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    assert of()[0] == "https://s3.eu-north-1.amazonaws.com"
    monkeypatch.setenv("AWS_REGION", "eu-south-2")
    assert of()[0] == "https://s3.eu-south-2.amazonaws.com"
    assert of(s3_region="us-west-2", client_region="eu-west-3")[0] == "https://s3.us-west-2.amazonaws.com"


@pytest.mark.parametrize("endpoint", ["store:9000", "ftp://store", "http://", "http://store?x=1"])
def test_what_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(PermanentError, match=r"s3\.endpoint is no address"):
        S3Places({"s3.endpoint": endpoint})


def test_who_is_anonymous_signs_nothing() -> None:
    keys = {"s3.access-key-id": "a", "s3.secret-access-key": "b"}  # pragma: allowlist secret

    assert S3Places({**keys, "s3.anonymous": "true"}).credential is None
    assert S3Places(keys).credential is not None
    assert S3Places({"s3.endpoint": "https://store"}).has_tls
    assert not S3Places({"s3.endpoint": "http://store"}).has_tls


@pytest.mark.parametrize(
    ("endpoint", "is_amazon"),
    [
        (None, True),
        ("https://s3.eu-west-1.amazonaws.com", True),
        ("https://bucket.vpce-1.s3.eu-west-1.vpce.amazonaws.com:443", True),
        ("https://s3.cn-north-1.amazonaws.com.cn", True),
        ("http://127.0.0.1:8333", False),
        ("https://amazonaws.com.example.org", False),
    ],
)
def test_amazon_is_known_by_its_name(endpoint: str | None, is_amazon: bool) -> None:
    assert S3Places({} if endpoint is None else {"s3.endpoint": endpoint}).is_amazon is is_amazon


def test_a_place_is_made_once_for_each_bucket() -> None:
    places = S3Places({"s3.endpoint": "http://store", "s3.proxy-uri": "http://proxy:1"})
    first, again = places.of(OBJECT)[0], places.of(check_key("s3://lake/other", "test"))[0]

    assert first is again
    assert first.proxy == "http://proxy:1"
