"""Whether the bytes of a whole object are those that S3 keeps: by a sum that the same answer names.

- A full-object checksum in the answer decides: other bytes are a TransientError. Sums of sums (COMPOSITE, `…-3`) and
  kinds that cannot be computed here (CRC64NVME) are passed over.
- Without one, an ETag of the shape of an MD5 is compared, where the answer does not say that it is something else
  (KMS, keys of the customer's). That of an upload of one part, `…-1`, is the MD5 of the part's MD5: pyarrow writes all
  its smaller files so. Of more parts the store is asked where they meet, and the tag passed over if it does not say.
  MD5 costs more than all other sums, so it is computed only where no TLS guards the line.
- Stores may make ETags that look like an MD5 and are none. So other bytes are read once more: the same bytes twice are
  what the store has, and the ETag is odd. As soon as odd ETags outnumber the matching ones, none is compared any more.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from lakemirror.errors import TransientError
from lakemirror.storage.checksum import crc32c_of, from_base64
from lakemirror.storage.md5_tags import Md5Tag, fits
from lakemirror.storage.wire import WholeRead

T = TypeVar("T")
ASK: Final = {"x-amz-checksum-mode": "ENABLED"}
CRC32C: Final = "x-amz-checksum-crc32c"
CRC32: Final = "x-amz-checksum-crc32"
Read = Callable[[], Awaitable[tuple[bytes, Mapping[str, str]]]]
PartBytes = Callable[[Md5Tag], Awaitable[int | None]]
_KMS: Final = frozenset({"aws:kms", "aws:kms:dsse"})
_AT_ONCE_BYTES: Final = 1 << 20  # more is hashed beside the event loop
_KINDS: Final[dict[str, tuple[int, Callable[[bytes], bytes]]]] = {  # with their size, the cheapest first
    CRC32C: (4, lambda data: crc32c_of(data).to_bytes(4, "big")),
    CRC32: (4, lambda data: zlib.crc32(data).to_bytes(4, "big")),
    "x-amz-checksum-sha1": (20, lambda data: hashlib.sha1(data, usedforsecurity=False).digest()),
    "x-amz-checksum-sha256": (32, lambda data: hashlib.sha256(data).digest()),
}


class WholeReads:
    """The comparison for one wire, with what it has learned of its store's ETags."""

    def __init__(self) -> None:
        self._matching = self._odd = 0

    @property
    def trusts_tags(self) -> bool:
        return self._odd <= self._matching

    async def __call__(self, uri: str, read: Read, part_bytes: PartBytes, *, has_tls: bool) -> bytes:
        """What `read` reads, by one call of it if all is well; `part_bytes` asks where the parts of a tag meet."""
        found = await self.leaving(uri, read, part_bytes, has_tls=has_tls)
        if found.left is None or await self._matches(found.data, found.left):
            return found.data
        first = crc32c_of(found.data)
        del found  # two of them would be more memory than the caller has set aside
        return await self._read_again(uri, read, part_bytes, first)

    async def leaving(self, uri: str, read: Read, part_bytes: PartBytes, *, has_tls: bool) -> WholeRead:
        """The same, but an ETag that would be the MD5 of the bytes as they are is left to the caller."""
        data, headers = await read()
        if (kept := _kept_sum(headers)) is not None:
            await _check_sum(uri, data, *kept)
            return WholeRead(data)
        want = None if has_tls or not self.trusts_tags else await tag_in(headers, part_bytes)
        if want is not None and want.parts == 0:
            return WholeRead(data, want, self._note_match)
        if want is None or await self._matches(data, want):
            return WholeRead(data)
        first = crc32c_of(data)
        del data  # two of them would be more memory than the caller has set aside
        return WholeRead(await self._read_again(uri, read, part_bytes, first))

    async def _read_again(self, uri: str, read: Read, part_bytes: PartBytes, first: int) -> bytes:
        """The second reading decides: `first` is the CRC32C of the first."""
        again, headers = await read()
        want = await tag_in(headers, part_bytes)
        if want is not None and await self._matches(again, want):
            return again
        if crc32c_of(again) != first:
            raise misread(uri, "two reads gave two contents, neither of them that of its ETag")
        self._odd += 1
        return again

    async def _matches(self, data: bytes, want: Md5Tag) -> bool:
        is_equal = await _beside(partial(fits, want), data)
        self._matching += is_equal
        return is_equal

    def _note_match(self) -> None:
        self._matching += 1


def full_sum(headers: Mapping[str, str], name: str) -> int | None:
    """The CRC32C or CRC32 of a whole object that an answer names."""
    return None if _is_composite(headers) else from_base64(headers.get(name, ""))


async def tag_in(headers: Mapping[str, str], part_bytes: PartBytes) -> Md5Tag | None:
    """The MD5 that the ETag may be, if it can be compared."""
    if headers.get("x-amz-server-side-encryption", "") in _KMS:
        return None
    if "x-amz-server-side-encryption-customer-algorithm" in headers:
        return None
    tag = Md5Tag.of(headers.get("etag"))
    if tag is not None and not tag.is_comparable:
        tag = replace(tag, part_bytes=await part_bytes(tag))
    return tag if tag is not None and tag.is_comparable else None


def check_read(uri: str, data: bytes, want: int | None) -> None:
    """TransientError if a store names another CRC32C than that of the bytes that came."""
    if want is not None and (got := crc32c_of(data)) != want:
        raise misread(uri, f"want CRC32C {want:08x}, got {got:08x}")


def misread(uri: str, why: str) -> TransientError:
    return TransientError("read", uri, f"damaged on the way ({why})", "read it again")


def _is_composite(headers: Mapping[str, str]) -> bool:
    return headers.get("x-amz-checksum-type", "").upper() == "COMPOSITE"


def _kept_sum(headers: Mapping[str, str]) -> tuple[str, bytes] | None:
    if _is_composite(headers):
        return None
    for name, (size_bytes, _) in _KINDS.items():
        try:
            want = base64.b64decode(headers.get(name, ""), validate=True)
        except ValueError:
            continue  # a sum of sums
        if len(want) == size_bytes:
            return name, want
    return None


async def _check_sum(uri: str, data: bytes, name: str, want: bytes) -> None:
    got = await _beside(_KINDS[name][1], data)
    if got != want:
        raise misread(uri, f"want {name.rpartition('-')[2].upper()} {want.hex()}, got {got.hex()}")


async def _beside(work: Callable[[bytes], T], data: bytes) -> T:
    return work(data) if len(data) <= _AT_ONCE_BYTES else await asyncio.to_thread(work, data)
