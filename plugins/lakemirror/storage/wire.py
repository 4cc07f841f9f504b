"""The asynchronous port of the copy engine: bytes in and out of a store, each call one request or a few.

The rest of the library uses the synchronous `ObjectStore`; this port adds what moving data needs: checksums sent with
the bytes and compared with the store's answer, uploads in parts that any process may send, copies on the store's side.

- Every write is create-only and whole or not at all. An object that exists already is ConditionFailed.
- CRC32C is sent where the store takes it; whatever the store answers is compared. Bytes damaged on the way are a
  TransientError, and nothing was written.
- Nothing is retried here: the caller has the budget. After a TransientError of a write nobody knows whether it took
  effect; ConditionFailed on the retry then means: compare size and checksum.
- ThrottledError (a TransientError) is the store's wish for fewer requests.
- A wire belongs to the event loop that first used it. Properties and URIs pickle; each process opens wires anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from lakemirror.errors import PermanentError
from lakemirror.storage.checksum import combined
from lakemirror.storage.md5_tags import Md5Tag, fits
from lakemirror.storage.port import DamagedError, ObjectInfo

if TYPE_CHECKING:
    from lakemirror.storage.abilities import Abilities
    from lakemirror.storage.clients import MemoryBuckets


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store says of a whole object; `crc32c` is None if it does not say.

    Of an object that is there and has no CRC32C it may name another sum: a CRC-32, or else, where nothing but this sum
    would guard the line, an ETag that looks like an MD5.
    """

    size_bytes: int
    crc32c: int | None
    e_tag: str | None
    crc32: int | None = None
    md5: Md5Tag | None = None


def _nothing() -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class WholeRead:
    """All bytes of an object, compared with the sum that its store names, unless `left` is one.

    `left` is an ETag that looks like the MD5 of the bytes and was not compared: whoever sends them to a store that
    checks an MD5 need not compute it himself. He says `matched()` if it was theirs.
    """

    data: bytes
    left: Md5Tag | None = None
    matched: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class Part:
    """What `finish` needs of one part; `tag` is the store's own."""

    number: int
    size_bytes: int
    crc32c: int
    tag: str
    crc32: int | None = None
    """Of its bytes as they were read, where the source's store names that of the whole."""
    md5s: bytes = b""
    """Of the source's own parts that it holds, one after the other, where the source's store names the MD5 of those."""


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload that was begun and neither finished nor aborted."""

    uri: str
    upload: str
    begun_at: datetime


@dataclass(frozen=True, slots=True)
class WireCapabilities:
    """Powers in which stores differ, as data."""

    min_part_bytes: int
    """Of every part but the last."""
    max_parts: int
    max_create_bytes: int
    """Of one request: what is larger goes in parts."""
    copies_within: bool
    """`copy_within` works, create-only, between all buckets of these properties."""
    checks_md5: bool = False
    """`create` with an MD5 refuses bytes that do not have it."""
    tags_parts_md5: bool = False
    """The tag of a part is the MD5 of the bytes that came."""
    aborts_safely: bool = True
    """To abort an upload that was finished does nothing to the object that was made of it."""
    spoiled: str = ""
    """Characters that the store does not keep in keys: what is written under a key with one of them is refused."""


class Wire(Protocol):
    """Safe to use by many tasks of one event loop at once."""

    def capabilities(self, uri: str) -> WireCapabilities:
        """Of the store that this URI is in; nothing is asked for it."""
        ...

    async def head(self, uri: str) -> ObjectInfo: ...

    async def stored(self, uri: str) -> Stored:
        """What the store says of an object that is there, its CRC32C included if it keeps one of the whole."""
        ...

    async def read(
        self, uri: str, start: int, length: int, *, e_tag: str | None = None, size_bytes: int | None = None
    ) -> bytes:
        """Exactly these bytes, or an error; with `e_tag`, ConditionFailed if the object is no longer that one.

        With `size_bytes`, PermanentError if the whole object is not of that size; the same answer tells it.
        """
        ...

    async def read_whole(self, uri: str, size_bytes: int) -> WholeRead:
        """All of an object of this size, as by `read`, but a comparison by MD5 may be left to the caller."""
        ...

    async def create(self, uri: str, data: bytes, crc32c: int, *, md5: bytes | None = None) -> Stored:
        """One request, create-only. `md5` is for stores that check it: DamagedError if it is not that of the bytes."""
        ...

    async def begin(self, uri: str) -> str:
        """A new upload in parts; its id means something only together with the URI."""
        ...

    async def put_part(self, uri: str, upload: str, number: int, data: bytes, crc32c: int) -> Part:
        """Send part `number` (from 1); any process may, and the last one sent under a number counts."""
        ...

    async def finish(self, uri: str, upload: str, parts: Sequence[Part], crc32c: int) -> Stored:
        """Make the object of these parts (numbers 1, 2, …), create-only; `crc32c` is that of the whole.

        After ConditionFailed the parts are still there: `abort`.
        """
        ...

    async def abort(self, uri: str, upload: str) -> None:
        """Drop an upload and its parts; one that is gone, or was finished, is fine."""
        ...

    def uploads(self, prefix_uri: str) -> AsyncIterator[Upload]:
        """The unfinished uploads below `<prefix_uri>/`."""
        ...

    def unnamed(self, prefix_uri: str) -> AsyncIterator[Upload]:
        """Uploads below `<prefix_uri>/` that were put together, but whose writer died before they got their name.

        Only on stores where that is a step of its own; all objects are listed for it. `upload` is what the id of the
        upload began with.
        """
        ...

    async def copy_within(self, source_uri: str, target_uri: str, *, e_tag: str | None = None) -> Stored:
        """Copy on the store's side, create-only; with `e_tag`, ConditionFailed naming a source that has changed.

        The error's subject tells which condition failed: the source's URI or the target's. ObjectNotFound is always
        that of the source.
        """
        ...

    async def close(self) -> None: ...


def open_wire(
    properties: Mapping[str, str], memory: MemoryBuckets | None = None, abilities: Abilities | None = None
) -> Wire:
    """The wire to every supported scheme; `properties` are named as pyiceberg's, others are ignored.

    Cheap: nothing is imported or connected before the first call. `memory` as for ObstoreStore. `abilities` are those
    that were probed; without them Amazon's S3 is assumed behind `s3://`.
    """
    from lakemirror.storage.wires.serving import SchemeWire

    return SchemeWire(properties, memory, abilities)


async def no_uploads() -> AsyncIterator[Upload]:
    """What is `unnamed` in stores that name an object by finishing it."""
    none: tuple[Upload, ...] = ()
    for one in none:
        yield one


def check_parts(uri: str, parts: Sequence[Part], crc32c: int) -> int:
    """The size of the whole; PermanentError unless the parts are numbered 1, 2, … and sum to this CRC32C."""
    numbers = [part.number for part in parts]
    if not parts or numbers != list(range(1, len(parts) + 1)):
        raise PermanentError("finish", uri, f"parts are missing (got {_few(numbers)})", "send every part from 1 on")
    whole = combined((part.crc32c, part.size_bytes) for part in parts)
    if whole != crc32c:
        raise PermanentError(
            "finish",
            uri,
            f"the parts are not of this object (want CRC32C {crc32c:08x}, got {whole:08x})",
            "copy it anew",
        )
    return sum(part.size_bytes for part in parts)


def check_arrived(op: str, uri: str, want: int, got: int | None) -> None:
    """TransientError if the CRC32C that the store names is not that of the bytes sent."""
    if got is not None and got != want:
        raise damaged(op, uri, want, got)


def check_md5(uri: str, data: bytes, md5: bytes | None) -> None:
    """DamagedError if these bytes have another MD5 than the caller says; for stores that do not look themselves."""
    if md5 is not None and not fits(Md5Tag(md5, 0), data):
        raise DamagedError("create", uri, f"these are not the bytes of MD5 {md5.hex()}", "read them again")


def damaged(op: str, uri: str, want: int, got: int) -> DamagedError:
    """The error of bytes that changed on their way."""
    return DamagedError(op, uri, f"damaged on the way (want CRC32C {want:08x}, got {got:08x})", "send it again")


def check_size(uri: str, want: int | None, got: int) -> None:
    """PermanentError if the whole object is not of the size that the caller knows."""
    if want is not None and want != got:
        raise PermanentError(
            "read", uri, f"its size is not what it should be (want {want}, got {got})", "find out who wrote it"
        )


def check_slice(uri: str, start: int, length: int) -> None:
    if start < 0 or length < 0:
        raise PermanentError("read", uri, f"no range of an object: {length} bytes from {start}", "ask for bytes in it")


def _few(numbers: Sequence[int]) -> str:
    return f"{', '.join(map(str, numbers[:10]))}{', …' if len(numbers) > 10 else ''}" or "none"
