"""A body of any size, piece by piece: what is written, how large the parts are, what is left when it breaks off."""

import asyncio
from collections.abc import Iterator

import pytest

from lakemirror.errors import TransientError
from lakemirror.storage.clients import MemoryBuckets
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import CHUNK_BYTES, ConditionFailed
from lakemirror.storage.streaming import _upload, create_streamed, run, temporary_beside
from lakemirror.storage.wires.local import memory_wire
from tests.contract.s3_double import S3Double, s3_double
from tests.wires import Act, FaultyWire, WireFault

URI = "s3://bucket/large"


@pytest.fixture
def double() -> Iterator[S3Double]:
    with s3_double() as running:
        yield running


def created(double: S3Double, pieces: Iterator[bytes], beside: str | None = None) -> None:
    create_streamed(double.properties, None, URI, pieces, beside)


def test_pieces_of_any_size_become_parts_that_stores_take(double: S3Double) -> None:
    pieces = [b"a" * 5, b"b" * (CHUNK_BYTES - 1), b"c" * (2 * CHUNK_BYTES), b"d"]

    created(double, iter(pieces))

    assert double.objects["large"] == b"".join(pieces)
    sent = [request.size_bytes for request in double.requests if "partNumber" in request.target]
    assert sorted(sent) == [1, CHUNK_BYTES + 4, 2 * CHUNK_BYTES], "none but the last is smaller than a chunk"
    assert double.uploads == {}


def test_what_breaks_off_is_dropped_and_told_as_it_was(double: S3Double) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * CHUNK_BYTES
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        created(double, broken())

    assert (double.objects, double.uploads) == ({}, {})


def test_what_is_there_already_stays_and_the_upload_is_dropped(double: S3Double) -> None:
    double.objects["large"] = b"first"

    with pytest.raises(ConditionFailed):
        created(double, iter([b"second"]))

    assert (double.objects, double.uploads) == ({"large": b"first"}, {})


def test_by_way_of_another_name_the_copy_decides(double: S3Double) -> None:
    beside = temporary_beside(URI)
    created(double, iter([b"body"]), beside)

    assert double.objects == {"large": b"body", beside.removeprefix("s3://bucket/"): b"body"}
    with pytest.raises(ConditionFailed):
        created(double, iter([b"other"]), temporary_beside(URI))
    assert double.objects["large"] == b"body"
    assert temporary_beside(URI) != beside, "two writers never share one"


def test_it_works_where_a_loop_is_running_and_errors_pass() -> None:
    async def answer() -> int:
        return 7

    async def failing() -> int:
        raise ValueError("as it is")

    async def outer() -> int:
        with pytest.raises(ValueError, match="as it is"):
            run(failing())
        return run(answer())

    assert run(answer()) == asyncio.run(outer()) == 7


def test_the_double_is_what_the_port_reads(double: S3Double) -> None:
    created(double, iter([b"body"]))

    assert ObstoreStore(double.properties).get(URI).data == b"body"


def test_an_upload_that_an_object_may_be_made_of_is_not_aborted() -> None:
    """Some servers delete the bytes of that object along with it."""
    wire = FaultyWire(memory_wire(MemoryBuckets()), [WireFault("finish", Act.FAIL_AFTER)])

    with pytest.raises(TransientError):
        asyncio.run(_upload(wire, "memory://bucket/large", iter([b"body"])))

    assert wire.count("abort") == 0
