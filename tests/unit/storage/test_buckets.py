"""The S3 and GCS sides of the adapter, seen from the wire; what all stores share is in tests/contract."""

from __future__ import annotations

import base64
import gc
import hashlib
import pickle
from collections.abc import Iterator

import pytest

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.checksum import as_base64, crc32c_of
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import CHUNK_BYTES, CREATE, ConditionFailed, IfMatch, ObjectNotFound, Overwrite
from tests.contract.s3_double import GENERATION, S3Double, s3_double
from tests.faults.proxy import FaultProxy
from tests.faults.rules import Rule, Stall

URI = "s3://bucket/x"


@pytest.fixture
def double() -> Iterator[S3Double]:
    with s3_double() as running:
        yield running


@pytest.fixture
def store(double: S3Double) -> ObstoreStore:
    return ObstoreStore(double.properties)


def sent(double: S3Double) -> list[tuple[str, str]]:
    return [(request.method, request.target) for request in double.requests]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, TransientError),
        (401, PermanentError),
        (403, PermanentError),
        (404, ObjectNotFound),
        (409, ConditionFailed),
        (412, ConditionFailed),
        (429, TransientError),
        (500, TransientError),
        (503, TransientError),
    ],
)
def test_errors_are_told_apart(
    double: S3Double, store: ObstoreStore, status: int, kind: type[TransientError] | type[PermanentError]
) -> None:
    double.forced["x"] = status
    with pytest.raises(kind) as raised:
        store.put(URI, b"data")
    assert type(raised.value) is kind
    assert (raised.value.op, raised.value.subject) == ("put", URI)
    assert raised.value.hint
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("status", [400, 403])
@pytest.mark.parametrize("code", ["ExpiredToken", "RequestExpired"])
def test_credentials_that_have_expired_pass(double: S3Double, store: ObstoreStore, status: int, code: str) -> None:
    double.forced["x"] = status
    double.answers["x"] = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()
    for op, call in (("put", lambda: store.put(URI, b"data")), ("get", lambda: store.get(URI))):
        with pytest.raises(TransientError, match=rf"the credentials have expired \({code}\)") as raised:
            call()
        assert (raised.value.op, raised.value.subject) == (op, URI)
        assert raised.value.hint == "renew them; the next run takes the new ones"


@pytest.mark.parametrize("bucket", ["s3://bucket", "gs://bucket"])
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "AccessDenied", PermanentError),
        (403, "InvalidAccessKeyId", PermanentError),
        (403, "SignatureDoesNotMatch", PermanentError),
        (403, "ExpiredToken", TransientError),
        (403, "RequestTimeTooSkewed", TransientError),
        (503, "SlowDown", TransientError),
    ],
)
def test_listings_that_are_refused_are_told_apart(
    double: S3Double, bucket: str, status: int, code: str, kind: type[Exception]
) -> None:
    """obstore has one type for all of them."""
    double.forced[""] = status
    double.answers[""] = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()
    store = ObstoreStore({**double.properties, "gcs.service.host": double.endpoint})
    with pytest.raises(kind) as raised:
        list(store.list(f"{bucket}/x"))
    assert type(raised.value) is kind
    assert "\n" not in str(raised.value)
    assert ("access denied" in str(raised.value)) is (kind is PermanentError)


def test_a_conditional_write_is_tried_once_and_others_again(double: S3Double, store: ObstoreStore) -> None:
    double.forced["x"] = 500
    with pytest.raises(TransientError):
        store.put(URI, b"data")
    assert len(double.requests) == 1
    with pytest.raises(TransientError):
        store.put(URI, b"data", Overwrite())
    assert len(double.requests) > 2


@pytest.mark.parametrize("cut", [0, 2])
def test_a_body_cut_short_again_and_again_is_transient(double: S3Double, store: ObstoreStore, cut: int) -> None:
    store.put(URI, b"0123456789")
    double.cut["x"] = cut
    with pytest.raises(TransientError) as raised:
        list(store.stream(URI))
    assert (raised.value.op, raised.value.subject) == ("stream", URI)
    with pytest.raises(TransientError):
        store.get(URI)


def test_a_body_cut_short_once_is_read_on_from_there(double: S3Double, store: ObstoreStore) -> None:
    store.put(URI, b"0123456789")
    double.cut["x"] = 5
    assert b"".join(store.stream(URI)) == b"0123456789"
    first, second = double.requests[1:]
    assert (first.headers.get("range"), second.headers.get("range")) == (None, "bytes=5-9")


def test_a_body_cut_short_is_not_read_on_in_other_content(double: S3Double, store: ObstoreStore) -> None:
    store.put(URI, b"0123456789")
    double.cut["x"] = 5
    double.swap["x"] = b"abcdefghij"
    with pytest.raises(TransientError):
        list(store.stream(URI))


def test_keys_are_literal_and_encoded_once_on_the_wire_with_the_bucket_in_the_path(
    double: S3Double, store: ObstoreStore
) -> None:
    store.put("s3a://bucket/a=b/c d+e%25/ü", b"")
    assert list(double.objects) == ["a=b/c d+e%25/ü"]
    assert sent(double) == [("PUT", "/bucket/a%3Db/c%20d%2Be%2525/%C3%BC")]


def test_answers_keep_the_scheme_they_were_asked_in(store: ObstoreStore) -> None:
    assert store.put("s3a://bucket/a/x", b"").uri == "s3a://bucket/a/x"
    for scheme in ("s3", "s3a", "s3n"):
        assert [info.uri for info in store.list(f"{scheme}://bucket/a")] == [f"{scheme}://bucket/a/x"]


def test_a_small_stream_is_one_conditional_request(double: S3Double, store: ObstoreStore) -> None:
    store.put(URI, iter([b"x"] * 100))
    assert [(request.method, request.headers["if-none-match"]) for request in double.requests] == [("PUT", "*")]


def test_a_large_stream_looks_first_and_goes_in_parts(double: S3Double, store: ObstoreStore) -> None:
    piece = b"x" * 1024 * 1024
    store.put(URI, (piece for _ in range(20)))
    assert sent(double)[:2] == [("HEAD", "/bucket/x"), ("POST", "/bucket/x?uploads=")]
    parts = [request.size_bytes for request in double.requests if "partNumber" in request.target]
    assert sorted(parts) == [4 * len(piece), CHUNK_BYTES, CHUNK_BYTES]
    assert len(double.objects["x"]) == 20 * len(piece)


def test_a_large_stream_that_breaks_off_is_aborted(double: S3Double, store: ObstoreStore) -> None:
    def breaking() -> Iterator[bytes]:
        yield from (b"x" * CHUNK_BYTES for _ in range(3))
        raise TransientError("stream", "s3://source/y", "cut short")

    with pytest.raises(TransientError, match="s3://source/y"):
        store.put(URI, breaking())
    assert ("DELETE", "/bucket/x?uploadId=upload-0") in sent(double)
    assert double.objects == {}


def test_bodies_carry_a_sum_and_copies_do_not(double: S3Double, store: ObstoreStore) -> None:
    for condition in (CREATE, Overwrite()):
        store.put(URI, b"body", condition)
    want = base64.b64encode(hashlib.sha256(b"body").digest()).decode()
    assert [request.headers["x-amz-checksum-sha256"] for request in double.requests] == [want, want]
    double.requests.clear()
    store.copy(URI, "s3://bucket/y")
    assert not any("x-amz-checksum-algorithm" in request.headers for request in double.requests)


def test_listings_are_paged(double: S3Double, store: ObstoreStore) -> None:
    for number in range(8):
        store.put(f"s3://bucket/t/{number}", b"")
    double.requests.clear()
    assert len(list(store.list("s3://bucket/t"))) == 8
    assert len(double.requests) == 3


def test_deletes_of_one_bucket_are_one_request(double: S3Double, store: ObstoreStore) -> None:
    for number in range(5):
        store.put(f"s3://bucket/{number}", b"")
    double.requests.clear()
    store.delete([f"s3://bucket/{number}" for number in range(5)])
    assert (len(double.requests), double.objects) == (1, {})


def test_given_keys_are_not_mixed_with_the_environment(double: S3Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "stray")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "stray")
    ObstoreStore(double.properties).put(URI, b"")
    ObstoreStore({**double.properties, "s3.session-token": "own"}).put(URI, b"", Overwrite())
    assert [request.headers.get("x-amz-security-token") for request in double.requests] == [None, "own"]
    assert all("Credential=testing/" in request.headers["authorization"] for request in double.requests)
    assert all("/eu-test-1/" in request.headers["authorization"] for request in double.requests)


def test_anonymous_requests_are_not_signed(double: S3Double) -> None:
    ObstoreStore({"s3.endpoint": double.endpoint, "s3.anonymous": "true"}).put(URI, b"")
    assert "authorization" not in double.requests[0].headers


class TestGcs:
    @pytest.fixture
    def store(self, double: S3Double) -> ObstoreStore:
        return ObstoreStore({"gcs.service.host": double.endpoint})

    def test_conditions_are_on_generations_which_listings_lack(self, double: S3Double, store: ObstoreStore) -> None:
        uri = "gs://bucket/a b%/ü"
        assert store.put(uri, b"1").e_tag == GENERATION
        assert store.put(uri, b"2", IfMatch(GENERATION)).e_tag == GENERATION
        assert [request.headers["x-goog-if-generation-match"] for request in double.requests] == ["0", GENERATION]
        sums = [f"crc32c={as_base64(crc32c_of(body))}" for body in (b"1", b"2")]
        assert [request.headers["x-goog-hash"] for request in double.requests] == sums
        assert store.head(uri).e_tag == store.get(uri).info.e_tag == GENERATION
        assert [(info.uri, info.e_tag) for info in store.list("gs://bucket/a b%")] == [(uri, None)]

    def test_a_failed_condition(self, double: S3Double, store: ObstoreStore) -> None:
        double.forced["x"] = 412
        with pytest.raises(ConditionFailed):
            store.put("gs://bucket/x", b"1", IfMatch("1"))

    def test_a_store_that_was_pickled_writes_over_connections_of_its_own(self, store: ObstoreStore) -> None:
        store.put("gs://bucket/x", b"1")
        again = pickle.loads(pickle.dumps(store))
        del store
        gc.collect()
        assert again.put("gs://bucket/x", b"2", Overwrite()).e_tag == GENERATION

    def test_a_write_whose_answer_does_not_end_is_transient(self, double: S3Double) -> None:
        patience = {"gcs.answer-timeout": "0.2", "gcs.request-timeout": "5"}
        with FaultProxy(double.endpoint) as proxy:
            proxy.rules.append(Rule(Stall(3)))
            store = ObstoreStore({"gcs.service.host": proxy.url, **patience})
            with pytest.raises(TransientError, match=r"the answer was not whole after 0\.2 s"):
                store.put("gs://bucket/x", b"1")

    def test_deleting_does_not_stop_at_what_is_gone(self, double: S3Double, store: ObstoreStore) -> None:
        double.forced["gone"] = 404
        for name in ("a", "b", "c"):
            store.put(f"gs://bucket/{name}", b"")
        store.delete([f"gs://bucket/{name}" for name in ("gone", "a", "b", "c")])
        assert double.objects == {}


@pytest.mark.parametrize("status", [400, 401, 403])
def test_credentials_that_a_head_meets_expired(double: S3Double, status: int) -> None:
    double.forced["x"] = status
    double.answers["x"] = b"<Error><Code>ExpiredToken</Code></Error>"
    store = ObstoreStore(double.properties)
    with pytest.raises(TransientError) as raised:
        store.head("s3://bucket/x")
    assert (raised.value.op, raised.value.subject) == ("head", "s3://bucket/x")


def test_what_may_not_be_looked_at_stays_forbidden(double: S3Double) -> None:
    double.forced["x"] = 403
    store = ObstoreStore(double.properties)
    with pytest.raises(PermanentError, match="access denied"):
        store.head("s3://bucket/x")
