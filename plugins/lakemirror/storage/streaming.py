"""A body of any size into S3 or GCS, create-only, for the synchronous port: parts over the wire, named at one stroke.

obstore's own uploads in parts know no condition. Memory: a few parts at once. What breaks off is aborted.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextvars import copy_context
from typing import Any, Final, TypeVar

from lakemirror.errors import PermanentError
from lakemirror.storage.abilities import Abilities
from lakemirror.storage.checksum import combined, crc32c_of
from lakemirror.storage.port import CHUNK_BYTES
from lakemirror.storage.wire import Part, Stored, Wire, open_wire

T = TypeVar("T")
_AT_ONCE: Final = 4
_SMALL_PARTS: Final = 2000  # then larger ones: stores take 10,000 parts, and bodies have no bound here


def create_streamed(
    properties: Mapping[str, str],
    abilities: Abilities | None,
    uri: str,
    pieces: Iterator[bytes],
    beside: str | None = None,
) -> Stored:
    """Write all pieces as one new object; ConditionFailed if there is one already.

    With `beside`, under that URI first, and then by a conditional copy: for servers that let several uploads finish at
    once, but only one copy. The caller deletes it.
    """

    async def work() -> Stored:
        wire = open_wire(properties, abilities=abilities)
        try:
            stored = await _upload(wire, beside or uri, pieces)
            return stored if beside is None else await wire.copy_within(beside, uri, e_tag=stored.e_tag)
        finally:
            await wire.close()

    return run(work())


def temporary_beside(uri: str) -> str:
    return f"{uri}._upload-{secrets.token_hex(8)}"


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, on a loop of its own; in a thread of its own where a loop is running already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    results: list[T] = []
    failures: list[BaseException] = []

    def elsewhere() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as err:  # noqa: BLE001 - raised again by the caller's thread
            failures.append(err)

    context = copy_context()  # where requests are counted
    thread = threading.Thread(target=context.run, args=(elsewhere,), name="lakemirror-upload")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


async def _upload(wire: Wire, uri: str, pieces: Iterator[bytes]) -> Stored:
    upload = await wire.begin(uri)
    sending: set[asyncio.Task[Part]] = set()
    done: list[Part] = []
    try:
        number = 0
        while data := await asyncio.to_thread(_next_part, pieces, number):
            number += 1
            if len(sending) >= _AT_ONCE:
                finished, sending = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
                done += [task.result() for task in finished]
            sending.add(asyncio.create_task(wire.put_part(uri, upload, number, data, crc32c_of(data))))
        done += await asyncio.gather(*sending)
    except BaseException:
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        await wire.abort(uri, upload)
        raise
    done.sort(key=lambda part: part.number)
    try:
        return await wire.finish(uri, upload, done, combined((part.crc32c, part.size_bytes) for part in done))
    except PermanentError:  # refused; of what has no answer an object may have been made, whose bytes these are
        await wire.abort(uri, upload)
        raise


def _next_part(pieces: Iterator[bytes], number: int) -> bytes:
    """The bytes of the next part, at least so many but for the last; empty at the end."""
    want = CHUNK_BYTES if number < _SMALL_PARTS else 8 * CHUNK_BYTES
    return b"".join(_taken(pieces, want))


def _taken(pieces: Iterator[bytes], at_least_bytes: int) -> Iterator[bytes]:
    size_bytes = 0
    for piece in pieces:
        yield piece
        size_bytes += len(piece)
        if size_bytes >= at_least_bytes:
            return
