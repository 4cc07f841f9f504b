"""Bytes that turn on their way from the source: each sum that a store may name, and what is made of it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import zlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pytest

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.checksum import as_base64, crc32c_of
from lakemirror.storage.md5_tags import Md5Tag
from lakemirror.storage.port import ConditionFailed
from lakemirror.storage.wire import Wire, open_wire
from lakemirror.storage.wires.sums import WholeReads
from tests.contract.s3_double import S3Double, s3_double
from tests.unit.storage.wires.gcs_double import Asked, GcsDouble, gcs_double

T = TypeVar("T")
DATA = b"0123456789" * 7
WRONG = b"1" + DATA[1:]
OTHER = b"2" + DATA[1:]
URI = "s3://bucket/x"


def base64_of(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def md5_of(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


SUMS = {
    "crc32c": as_base64(crc32c_of(DATA)),
    "crc32": base64_of(zlib.crc32(DATA).to_bytes(4, "big")),
    "sha1": base64_of(hashlib.sha1(DATA, usedforsecurity=False).digest()),
    "sha256": base64_of(hashlib.sha256(DATA).digest()),
}
ONE_PART = f'"{hashlib.md5(hashlib.md5(DATA).digest()).hexdigest()}-1"'
NOT_MD5 = '"' + "0" * 32 + '"'


@pytest.fixture
def double() -> Iterator[S3Double]:
    with s3_double() as running:
        running.objects["x"] = DATA
        yield running


def run(double: S3Double, work: Callable[[Wire], Awaitable[T]]) -> T:
    async def opened() -> T:
        wire = open_wire(double.properties)
        try:
            return await work(wire)
        finally:
            await wire.close()

    return asyncio.run(opened())


def test_an_md5_may_be_left_to_the_caller(double: S3Double) -> None:
    """Until more ETags were odd than right: what the caller found right counts, too."""
    double.bodies["x"] = [WRONG]

    async def read(wire: Wire) -> None:
        left = await wire.read_whole(URI, len(DATA))
        assert (left.data, left.left) == (WRONG, Md5Tag.of(md5_of(DATA)))
        left.matched()
        double.said["etag"] = NOT_MD5
        assert await whole(wire) == DATA
        assert (await wire.read_whole(URI, len(DATA))).left == Md5Tag.of(NOT_MD5)
        assert await whole(wire) == DATA
        assert (await wire.read_whole(URI, len(DATA))).left is None

    run(double, read)


@pytest.mark.parametrize("said", [{"x_amz_checksum_crc32c": SUMS["crc32c"]}, {"etag": ONE_PART}])
def test_every_other_sum_is_compared_at_once(double: S3Double, said: dict[str, str]) -> None:
    double.said = said
    read = run(double, lambda wire: wire.read_whole(URI, len(DATA)))
    assert (read.data, read.left) == (DATA, None)


def whole(wire: Wire, e_tag: str | None = None) -> Awaitable[bytes]:
    return wire.read(URI, 0, len(DATA), size_bytes=len(DATA), e_tag=e_tag)


def test_a_whole_object_is_one_request_that_asks_for_its_sum(double: S3Double) -> None:
    assert run(double, whole) == DATA
    (asked,) = double.requests
    assert (asked.method, asked.headers["x-amz-checksum-mode"], "range" in asked.headers) == ("GET", "ENABLED", False)


@pytest.mark.parametrize("kind", SUMS)
def test_bytes_that_are_not_those_of_the_sum_are_damaged(double: S3Double, kind: str) -> None:
    double.said = {f"x_amz_checksum_{kind}": SUMS[kind], "etag": NOT_MD5}
    double.bodies["x"] = [DATA, WRONG]
    assert run(double, whole) == DATA
    with pytest.raises(TransientError, match=rf"damaged on the way \(want {kind.upper()} [0-9a-f]+, got") as caught:
        run(double, whole)
    assert (caught.value.op, caught.value.subject, caught.value.hint) == ("read", URI, "read it again")
    assert len(double.requests) == 2


@pytest.mark.parametrize(
    "said",
    [
        {"x_amz_checksum_crc32c": f"{SUMS['crc32c']}-2"},
        {"x_amz_checksum_crc32c": SUMS["crc32c"], "x_amz_checksum_type": "COMPOSITE"},
        {"x_amz_checksum_crc64nvme": base64_of(bytes(8))},
        {"x_amz_checksum_sha256": base64_of(bytes(4))},
    ],
)
def test_sums_of_sums_and_unknown_ones_decide_nothing(double: S3Double, said: dict[str, str]) -> None:
    double.said = {**said, "etag": '"0123-2"'}
    double.bodies["x"] = [WRONG]
    assert run(double, whole) == WRONG
    assert len(double.requests) == 1


@pytest.mark.parametrize("e_tag", [md5_of(DATA), md5_of(DATA).strip('"'), ONE_PART])
def test_without_a_sum_the_md5_in_the_e_tag_tells_damage_and_the_next_read_heals(double: S3Double, e_tag: str) -> None:
    double.said = {"etag": e_tag}
    double.bodies["x"] = [WRONG, DATA]
    assert run(double, whole) == DATA
    assert len(double.requests) == 2


def in_parts(data: bytes, part_bytes: int) -> str:
    """The ETag of an upload in parts of this size."""
    digests = [hashlib.md5(data[at : at + part_bytes]).digest() for at in range(0, len(data), part_bytes)]
    return f'"{hashlib.md5(b"".join(digests)).hexdigest()}-{len(digests)}"'


@pytest.mark.parametrize("part_bytes", [20, 35, 69])
def test_a_store_that_says_where_its_parts_meet_is_believed(double: S3Double, part_bytes: int) -> None:
    double.part_bytes["x"] = part_bytes
    double.said = {"etag": in_parts(DATA, part_bytes)}
    double.bodies["x"] = [WRONG, DATA]
    assert run(double, whole) == DATA
    assert [asked.method for asked in double.requests] == ["GET", "HEAD", "GET", "HEAD"]


@pytest.mark.parametrize("part_bytes", [None, 10])
def test_where_it_does_not_say_so_or_contradicts_itself_nothing_is_compared(
    double: S3Double, part_bytes: int | None
) -> None:
    if part_bytes is not None:
        double.part_bytes["x"] = part_bytes
    double.said = {"etag": in_parts(DATA, 30)}
    double.bodies["x"] = [WRONG]
    assert run(double, whole) == WRONG
    assert [asked.method for asked in double.requests] == ["GET", "HEAD"]


def test_what_is_said_of_an_object_that_is_read_in_parts(double: S3Double) -> None:
    """One sum: a CRC of the whole if there is one, otherwise the MD5 of its ETag, if that can be compared."""

    def stored(**said: str) -> tuple[int | None, int | None, Md5Tag | None]:
        double.said = said
        found = run(double, lambda wire: wire.stored(URI))
        return found.crc32c, found.crc32, found.md5

    composite = {"x_amz_checksum_crc32": f"{SUMS['crc32']}-2", "x_amz_checksum_type": "COMPOSITE"}
    whole_md5 = Md5Tag(hashlib.md5(DATA).digest(), 0)
    assert stored(x_amz_checksum_crc32c=SUMS["crc32c"]) == (crc32c_of(DATA), None, None)
    assert stored(x_amz_checksum_crc32=SUMS["crc32"]) == (None, zlib.crc32(DATA), None)
    assert stored() == (None, None, whole_md5)
    assert stored(**composite) == (None, None, whole_md5)
    assert stored(etag=md5_of(DATA), x_amz_server_side_encryption="aws:kms") == (None, None, None)
    assert stored(etag=in_parts(DATA, 30)) == (None, None, None)
    double.part_bytes["x"] = 30
    tag = in_parts(DATA, 30)
    assert stored(etag=tag) == (None, None, Md5Tag(bytes.fromhex(tag[1:33]), 3, 30))


def test_two_wrong_reads_are_damage(double: S3Double) -> None:
    double.said = {"etag": md5_of(DATA)}
    double.bodies["x"] = [WRONG, OTHER]
    with pytest.raises(TransientError, match="damaged on the way"):
        run(double, whole)
    assert len(double.requests) == 2


def test_e_tags_that_are_not_the_md5_are_learned_by_one_second_read(double: S3Double) -> None:
    double.said = {"etag": NOT_MD5}

    async def three(wire: Wire) -> list[bytes]:
        return [await whole(wire) for _ in range(3)]

    assert run(double, three) == [DATA] * 3
    assert len(double.requests) == 4


def test_one_odd_e_tag_among_good_ones_does_not_end_the_comparing(double: S3Double) -> None:
    async def work(wire: Wire) -> list[bytes]:
        double.said = {"etag": md5_of(DATA)}
        read = [await whole(wire)]
        double.said = {"etag": NOT_MD5}
        read.append(await whole(wire))
        double.said = {"etag": md5_of(DATA)}
        double.bodies["x"] = [WRONG, DATA]
        return [*read, await whole(wire)]

    assert run(double, work) == [DATA] * 3
    assert len(double.requests) == 5


@pytest.mark.parametrize(
    "said",
    [
        {"etag": '"0123"'},
        {"etag": NOT_MD5, "x_amz_server_side_encryption": "aws:kms"},
        {"etag": NOT_MD5, "x_amz_server_side_encryption": "aws:kms:dsse"},
        {"etag": NOT_MD5, "x_amz_server_side_encryption_customer_algorithm": "AES256"},
    ],
)
def test_e_tags_that_are_no_md5_are_not_compared(double: S3Double, said: dict[str, str]) -> None:
    double.said = said
    assert run(double, whole) == DATA
    assert len(double.requests) == 1


def test_the_stores_own_encryption_keeps_the_md5(double: S3Double) -> None:
    double.said = {"etag": md5_of(DATA), "x_amz_server_side_encryption": "AES256"}
    double.bodies["x"] = [WRONG, DATA]
    assert run(double, whole) == DATA


@pytest.mark.parametrize(("has_tls", "reads"), [(False, 2), (True, 1)])
def test_over_tls_the_md5_is_not_computed(has_tls: bool, reads: int) -> None:
    done = 0

    async def read() -> tuple[bytes, dict[str, str]]:
        nonlocal done
        done += 1
        return DATA, {"etag": NOT_MD5}

    async def unknown(tag: Md5Tag) -> None:
        raise AssertionError("it has no parts")

    assert asyncio.run(WholeReads()(URI, read, unknown, has_tls=has_tls)) == DATA
    assert done == reads


def test_large_bodies_are_compared_too(double: S3Double) -> None:
    large = bytes(3 << 20)
    double.objects["x"] = large
    double.said = {"etag": md5_of(large)}
    double.bodies["x"] = [b"1" + large[1:], large]
    assert run(double, lambda wire: wire.read(URI, 0, len(large), size_bytes=len(large))) == large
    assert len(double.requests) == 2


@pytest.mark.parametrize("size", [len(DATA) - 1, len(DATA) + 1])
def test_another_size_is_told_before_the_bytes_are_read(double: S3Double, size: int) -> None:
    with pytest.raises(PermanentError, match=rf"want {size}, got {len(DATA)}") as caught:
        run(double, lambda wire: wire.read(URI, 0, size, size_bytes=size))
    assert (type(caught.value), caught.value.subject) == (PermanentError, URI)


def test_an_answer_that_says_it_is_shorter_than_the_object_is_cut_short(double: S3Double) -> None:
    double.bodies["x"] = [DATA[:10]]
    with pytest.raises(TransientError, match=rf"cut short \(want {len(DATA)} bytes, got 10\)"):
        run(double, whole)


def test_a_whole_read_that_names_its_version(double: S3Double) -> None:
    assert run(double, lambda wire: whole(wire, md5_of(DATA))) == DATA
    assert double.requests[0].headers["if-match"] == md5_of(DATA)
    double.forced["x"] = 412
    with pytest.raises(ConditionFailed):
        run(double, lambda wire: whole(wire, md5_of(WRONG)))


def gcs_read(body: bytes, said: dict[str, str], start: int = 0, length: int = len(DATA)) -> tuple[bytes, GcsDouble]:
    def answer(asked: Asked) -> tuple[int, dict[str, str], bytes]:
        where = f"bytes {start}-{start + length - 1}/{len(DATA)}"
        return 206, {"content-range": where, "x-goog-generation": "7", **said}, body

    async def read(endpoint: str) -> bytes:
        wire = open_wire({"gcs.service.host": endpoint})
        try:
            return await wire.read("gs://bucket/x", start, length, size_bytes=len(DATA))
        finally:
            await wire.close()

    with gcs_double(answer) as double:
        return asyncio.run(read(double.endpoint)), replace(double)


def test_gcs_names_the_sum_of_whole_objects() -> None:
    said = {"x-goog-hash": f"crc32c={SUMS['crc32c']},md5=AAAA"}
    data, double = gcs_read(DATA, said)
    assert (data, len(double.asked)) == (DATA, 1)
    with pytest.raises(TransientError, match="damaged on the way") as caught:
        gcs_read(WRONG, said)
    assert (caught.value.op, caught.value.subject) == ("read", "gs://bucket/x")
    assert gcs_read(WRONG, {})[0] == WRONG
    assert gcs_read(DATA[:5], said, length=5)[0] == DATA[:5]  # the sum is that of the whole
