"""HTTP of the wires against servers that misbehave."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import pytest

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.abilities import AMAZON, Abilities
from lakemirror.storage.checksum import crc32c_of
from lakemirror.storage.metering import metered
from lakemirror.storage.port import ConditionFailed, ObjectNotFound, ThrottledError
from lakemirror.storage.wire import Part, Stored, Wire
from tests.unit.storage.wires.line import Line, run_against

URI = "s3://bucket/x"
BY_PARTS = replace(AMAZON, conditional_copy=False)


@pytest.mark.parametrize("size_bytes", [500 << 10, 32 << 20])
def test_a_server_that_stops_taking_the_body_does_not_hold_us_for_ever(size_bytes: int) -> None:
    data = bytes(size_bytes)

    async def serve(line: Line) -> None:
        line.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    with pytest.raises(TransientError):
        run_against(serve, lambda wire: wire.create(URI, data, crc32c_of(data)), request_timeout="0.2")


def test_a_server_that_takes_the_body_slowly_is_waited_for() -> None:
    """Longer than a request may be silent, while something moves."""
    data = bytes(32 << 20)
    steps = 4

    async def serve(line: Line) -> None:
        asked = await line.head()
        for _ in range(steps):
            await line.reader.readexactly(asked.length // steps)
            await asyncio.sleep(0.3)
        await line.answer(200, etag='"e"')

    async def work(wire: Wire) -> Stored:
        return await wire.create(URI, data, crc32c_of(data))

    assert run_against(serve, work, request_timeout="1").size_bytes == len(data)


def error(code: str) -> bytes:
    return f"<?xml version='1.0'?>\n<Error><Code>{code}</Code></Error>".encode()


@pytest.mark.parametrize("status", [400, 401, 403])
@pytest.mark.parametrize("call", [lambda wire: wire.head(URI), lambda wire: wire.stored(URI)])
def test_credentials_that_a_head_meets_expired(status: int, call: Callable[[Wire], Awaitable[object]]) -> None:
    """A HEAD has no body that could say why; a read of one byte has."""
    asked: list[str] = []

    async def serve(line: Line) -> None:
        while True:
            request = await line.request()
            asked.append(request.method)
            if request.method == "HEAD":
                await line.answer(status, content_length="100")
            else:
                assert request.headers["range"] == "bytes=0-0"
                await line.answer(status, error("ExpiredToken"))

    with pytest.raises(TransientError, match="expired"):
        run_against(serve, call)
    assert asked == ["HEAD", "GET"]


@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (404, "NoSuchKey"), (206, ""), (416, "")])
def test_what_may_not_be_looked_at_stays_forbidden(status: int, code: str) -> None:
    async def serve(line: Line) -> None:
        while True:
            request = await line.request()
            if request.method == "HEAD":
                await line.answer(403, content_length="100")
            else:
                await line.answer(status, error(code), content_range="bytes 0-0/9")

    with pytest.raises(PermanentError, match="access denied") as raised:
        run_against(serve, lambda wire: wire.head(URI))
    assert (raised.value.op, raised.value.subject) == ("head", URI)


LATE = [
    ("SlowDown", ThrottledError),
    ("InternalError", TransientError),
    ("PreconditionFailed", ConditionFailed),
    ("InvalidRequest", PermanentError),
]


@pytest.mark.parametrize(("code", "kind"), [*LATE, ("NoSuchUpload", ObjectNotFound), ("InvalidPart", ObjectNotFound)])
def test_an_error_in_the_body_of_a_finish_that_began_well(code: str, kind: type[Exception]) -> None:
    async def serve(line: Line) -> None:
        await line.request()
        await line.answer(200, error(code))

    part = Part(1, 1, crc32c_of(b"x"), '"t"')
    with pytest.raises(kind, match=code if kind is not ConditionFailed else "exists already") as raised:
        run_against(serve, lambda wire: wire.finish(URI, "upload", [part], part.crc32c))
    assert type(raised.value) is kind


class Copying:
    """A server that has a source and answers the requests of a copy as told."""

    def __init__(self, answers: Mapping[str, tuple[int, bytes]], *, has_source: bool = True) -> None:
        self._answers, self._has_source = answers, has_source

    async def __call__(self, line: Line) -> None:
        while True:
            request = await line.request()
            is_source = "/source" in request.target
            status, body = self._answers.get(request.method, (404, error("NoSuchKey")))
            if request.method == "HEAD" and is_source and self._has_source:
                modified = "Mon, 16 Nov 2026 10:00:00 GMT"
                await line.answer(200, content_length="5", etag='"e"', last_modified=modified)
            else:
                await line.answer(
                    404 if request.method == "HEAD" else status, b"" if request.method == "HEAD" else body
                )


def copied(serve: Copying, abilities: Abilities = AMAZON) -> Stored:
    return run_against(serve, lambda wire: wire.copy_within("s3://bucket/source", URI), abilities=abilities)


@pytest.mark.parametrize(("code", "kind"), LATE)
def test_an_error_in_the_body_of_a_copy_that_began_well(code: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as raised:
        copied(Copying({"PUT": (200, error(code))}))
    assert type(raised.value) is kind
    assert raised.value.subject == URI  # type: ignore[attr-defined]


def test_an_error_in_the_body_of_a_part_that_is_copied() -> None:
    begun = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
    with pytest.raises(ThrottledError):
        copied(Copying({"POST": (200, begun), "PUT": (200, error("SlowDown"))}), BY_PARTS)


def test_a_copy_whose_source_is_there_never_says_that_it_is_gone() -> None:
    begun = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
    missing = (404, error("NoSuchBucket"))
    for serve, abilities, kind, words in (
        (Copying({"PUT": missing}), AMAZON, PermanentError, "no place for it"),
        (Copying({"POST": missing}), BY_PARTS, PermanentError, "no place for it"),
        (Copying({"POST": (200, begun), "PUT": (404, error("NoSuchUpload"))}), BY_PARTS, TransientError, "dropped"),
        (Copying({"PUT": (200, b"<CopyObjectResult/>")}), AMAZON, TransientError, "a moment ago"),
    ):
        with pytest.raises(kind, match=words) as raised:
            copied(serve, abilities)
        assert type(raised.value) is kind
        assert raised.value.subject == URI


def test_a_copy_whose_source_is_gone_says_so() -> None:
    with pytest.raises(ObjectNotFound) as raised:
        copied(Copying({"PUT": (404, error("NoSuchKey"))}, has_source=False))
    assert raised.value.subject == "s3://bucket/source"


def test_every_request_is_marked_by_its_verb() -> None:
    async def serve(line: Line) -> None:
        await Copying({"PUT": (200, b"<CopyObjectResult/>")})(line)

    async def work(wire: Wire) -> Counter[str]:
        with metered() as made, pytest.raises(TransientError, match="a moment ago"):
            await wire.copy_within("s3://bucket/source", URI)
        return made

    assert run_against(serve, work) == {"head": 2, "copy": 1}


def test_a_request_goes_out_once_even_on_a_connection_that_was_closed_meanwhile() -> None:
    """aiohttp would send it again by itself: nobody would count it, nor know that the first may have done its work."""
    lines: list[int] = []

    async def serve(line: Line) -> None:
        lines.append(line.number)
        await line.request()
        await line.answer(200, etag='"e"')
        await line.head()  # of the second request, which finds the connection closed

    async def work(wire: Wire) -> None:
        await wire.create(URI, b"x", crc32c_of(b"x"))
        await wire.create(URI, b"x", crc32c_of(b"x"))

    with pytest.raises(TransientError):
        run_against(serve, work)
    assert lines == [0]
