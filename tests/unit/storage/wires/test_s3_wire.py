"""The S3 wire seen from the server: what it sends, and what it makes of answers that are wrong."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

import pytest

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.abilities import AMAZON, Abilities
from lakemirror.storage.checksum import as_base64, crc32c_of
from lakemirror.storage.port import ConditionFailed, ConflictError, DamagedError, ObjectNotFound, ThrottledError
from lakemirror.storage.wire import Part, Wire, open_wire
from tests.contract.s3_double import S3Double, s3_double

T = TypeVar("T")
URI = "s3://bucket/x"
DATA = b"0123456789"
SUM = crc32c_of(DATA)


@pytest.fixture
def double() -> Iterator[S3Double]:
    with s3_double() as running:
        yield running


def run(
    double: S3Double,
    work: Callable[[Wire], Awaitable[T]],
    abilities: Abilities | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
) -> T:
    async def opened() -> T:
        wire = open_wire({**double.properties, **more}, abilities=abilities)
        try:
            return await work(wire)
        finally:
            await wire.close()

    return asyncio.run(opened())


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "BadDigest", DamagedError),
        (400, "ExpiredToken", TransientError),
        (403, "ExpiredToken", TransientError),
        (403, "RequestExpired", TransientError),
        (400, "TokenRefreshRequired", TransientError),
        (403, "InvalidToken", PermanentError),
        (400, "RequestTimeout", TransientError),
        (400, "InvalidPart", ObjectNotFound),
        (301, "PermanentRedirect", PermanentError),
        (401, "", PermanentError),
        (403, "AccessDenied", PermanentError),
        (404, "NoSuchBucket", ObjectNotFound),
        (409, "ConditionalRequestConflict", ConflictError),
        (412, "PreconditionFailed", ConditionFailed),
        (429, "", ThrottledError),
        (500, "InternalError", TransientError),
        (501, "NotImplemented", PermanentError),
        (503, "SlowDown", ThrottledError),
        (400, "SlowDown", ThrottledError),
    ],
)
def test_errors_are_told_apart_and_nothing_is_tried_again(
    double: S3Double, status: int, code: str, kind: type[TransientError] | type[PermanentError]
) -> None:
    double.forced["x"] = status
    double.answers["x"] = f"<Error><Code>{code}</Code></Error>".encode() if code else b""
    with pytest.raises(kind) as raised:
        run(double, lambda wire: wire.create(URI, DATA, SUM))
    assert type(raised.value) is kind
    assert (raised.value.op, raised.value.subject, bool(raised.value.hint)) == ("create", URI, True)
    assert len(double.requests) == 1


@pytest.mark.parametrize(("status", "code"), [(401, ""), (400, "InvalidToken"), (403, "RequestExpired")])
def test_credentials_that_were_good_before_have_expired(double: S3Double, status: int, code: str) -> None:
    async def work(wire: Wire) -> None:
        await wire.create(URI, DATA, SUM)
        double.forced["x"] = status
        double.answers["x"] = f"<Error><Code>{code}</Code></Error>".encode()
        await wire.read(URI, 0, len(DATA), size_bytes=len(DATA))

    with pytest.raises(TransientError, match="the credentials have expired") as raised:
        run(double, work)
    assert raised.value.hint == "renew them; the next run takes the new ones"


@pytest.mark.parametrize(("said", "seconds"), [("7", 7.0), ("Fri, 31 Dec 1999 23:59:59 GMT", None), ("", None)])
def test_the_wish_for_a_pause_is_passed_on(double: S3Double, said: str, seconds: float | None) -> None:
    double.forced["x"] = 503
    double.said["retry_after"] = said
    with pytest.raises(ThrottledError) as raised:
        run(double, lambda wire: wire.create(URI, DATA, SUM))
    assert raised.value.retry_after_s == seconds


def test_a_failure_may_come_after_200(double: S3Double) -> None:
    double.answers["x"] = b"  <?xml version='1.0'?>\n<Error><Code>InternalError</Code></Error>"
    with pytest.raises(TransientError, match="InternalError"):
        run(double, lambda wire: wire.finish(URI, "upload", [Part(1, 10, SUM, '"t"')], SUM))


def test_another_checksum_in_the_answer_is_damage(double: S3Double) -> None:
    double.answers["x"] = b""
    double.said["x_amz_checksum_crc32c"] = as_base64(SUM ^ 1)
    with pytest.raises(TransientError, match="damaged on the way"):
        run(double, lambda wire: wire.create(URI, DATA, SUM))
    with pytest.raises(TransientError, match="damaged on the way"):
        run(double, lambda wire: wire.put_part(URI, "upload", 1, DATA, SUM))


def test_what_is_sent(double: S3Double) -> None:
    async def work(wire: Wire) -> None:
        await wire.create(URI, DATA, SUM)
        upload = await wire.begin("s3://bucket/y")
        part = await wire.put_part("s3://bucket/y", upload, 1, DATA, SUM)
        await wire.finish("s3://bucket/y", upload, [part], SUM)

    run(double, work, more={"s3.session-token": "a-token"})
    put, begin, part, finish = double.requests
    for request in double.requests:
        assert request.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=testing/")
        assert request.headers["x-amz-security-token"] == "a-token"
    assert (put.headers["x-amz-checksum-crc32c"], put.headers["if-none-match"]) == (as_base64(SUM), "*")
    assert begin.headers["x-amz-checksum-algorithm"] == "CRC32C"
    assert (part.headers["x-amz-checksum-crc32c"], part.headers.get("if-none-match")) == (as_base64(SUM), None)
    assert (finish.headers["x-amz-checksum-crc32c"], finish.headers["if-none-match"]) == (as_base64(SUM), "*")
    assert finish.headers["x-amz-mp-object-size"] == "10"


def test_a_store_that_does_not_check_crc32c_gets_md5(double: S3Double) -> None:
    run(double, lambda wire: wire.create(URI, DATA, SUM), replace(AMAZON, checks_crc32c=False))
    assert double.requests[0].headers["content-md5"] == "eB5eJF1ptWaXm4bijSPyxw=="
    assert "x-amz-checksum-crc32c" not in double.requests[0].headers


def test_a_store_that_does_not_check_crc32c_of_parts_gets_their_md5(double: S3Double) -> None:
    """And the SHA-256 of each, in its signature; no upload is said to be of CRC32Cs."""

    async def work(wire: Wire) -> None:
        upload = await wire.begin(URI)
        await wire.finish(URI, upload, [await wire.put_part(URI, upload, 1, DATA, SUM)], SUM)

    run(double, work, replace(AMAZON, checks_part_crc32c=False))
    begin, part, finish = double.requests
    assert part.headers["content-md5"] == "eB5eJF1ptWaXm4bijSPyxw=="
    assert part.headers["x-amz-content-sha256"] == hashlib.sha256(DATA).hexdigest()
    for request in (begin, part, finish):
        assert not [name for name in request.headers if name.startswith("x-amz-checksum")]


def test_anonymous_requests_are_not_signed(double: S3Double) -> None:
    run(double, lambda wire: wire.create(URI, DATA, SUM), more={"s3.anonymous": "true"})
    assert "authorization" not in double.requests[0].headers


@pytest.mark.parametrize("cut", [0, 4])
def test_a_body_cut_short_is_transient(double: S3Double, cut: int) -> None:
    double.objects["x"] = DATA
    double.cut["x"] = cut

    with pytest.raises(TransientError):
        run(double, lambda wire: wire.read(URI, 0, 10))


def test_an_address_that_does_not_answer_is_transient() -> None:
    properties = {"s3.endpoint": "http://127.0.0.1:1", "s3.access-key-id": "a", "s3.secret-access-key": "b"}

    async def work() -> None:
        wire = open_wire(properties)
        try:
            await wire.head(URI)
        finally:
            await wire.close()

    with pytest.raises(TransientError):
        asyncio.run(work())


def test_an_endpoint_that_is_no_address_is_named() -> None:
    with pytest.raises(PermanentError, match=r"s3\.endpoint is no address"):
        open_wire({"s3.endpoint": "localhost:9000"}).capabilities(URI)


def test_a_token_that_ends_in_the_middle_is_no_reason_to_stop_for_ever(double: S3Double) -> None:
    async def work(wire: Wire) -> None:
        await wire.create(URI, DATA, SUM)
        double.forced["x"] = 401
        with pytest.raises(TransientError):
            await wire.head(URI)

    run(double, work)


def test_an_answer_with_a_doctype_is_refused(double: S3Double) -> None:
    double.answers["x"] = b"<!DOCTYPE a [<!ENTITY b 'c'>]><a/>"
    with pytest.raises(PermanentError, match="doctype"):
        run(double, lambda wire: wire.begin(URI))


def test_a_copy_without_conditions_goes_by_parts(double: S3Double) -> None:
    double.objects["x"] = DATA
    run(double, lambda wire: wire.copy_within(URI, "s3://bucket/y"), replace(AMAZON, conditional_copy=False))
    assert double.objects["y"] == DATA
    assert [request.method for request in double.requests] == ["HEAD", "POST", "PUT", "POST", "HEAD"]
    refused = replace(AMAZON, conditional_copy=False, conditional_finish=False)
    with pytest.raises(PermanentError, match="stream it across"):
        run(double, lambda wire: wire.copy_within(URI, "s3://bucket/z"), refused)
