"""The proof of parts by themselves: sums that are combined, ETags that want the bytes in their order."""

from __future__ import annotations

import asyncio
import hashlib
import zlib

import pytest

from lakemirror.copying.ends import MisreadError
from lakemirror.copying.model import CopyItem
from lakemirror.copying.proving import InOrder, Proof
from lakemirror.storage.checksum import crc32c_of
from lakemirror.storage.md5_tags import Md5Tag
from lakemirror.storage.wire import Part, Stored

PIECES = [b"first", b"second", b"third"]
WHOLE = b"".join(PIECES)
ITEM = CopyItem("s3://a/x", "s3://b/x", len(WHOLE))


def tag_of(data: bytes) -> Md5Tag:
    found = Md5Tag.of(hashlib.md5(data, usedforsecurity=False).hexdigest())
    assert found is not None
    return found


def hashed(tag: Md5Tag, order: list[int]) -> InOrder:
    """Parts that arrive in this order."""

    async def work() -> InOrder:
        found = InOrder(tag)
        await asyncio.wait_for(asyncio.gather(*(found.add(at + 1, PIECES[at]) for at in order)), 10)
        return found

    return asyncio.run(work())


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_parts_are_hashed_in_their_order_whenever_they_come(order: list[int]) -> None:
    assert hashed(tag_of(WHOLE), order).fits
    assert not hashed(tag_of(WHOLE + b"!"), order).fits


def test_an_odd_etag_is_believed_once_then_the_same_bytes_twice_are_taken() -> None:
    proof, seen = Proof(), Stored(len(WHOLE), None, '"e"', md5=tag_of(b"other"))
    odd = hashed(tag_of(b"other"), [0, 1, 2])
    with pytest.raises(MisreadError, match="ETag"):
        proof.check(ITEM, crc32c_of(WHOLE), (), seen, odd)
    with pytest.raises(MisreadError, match="ETag"):
        proof.check(ITEM, crc32c_of(b"yet another"), (), seen, odd)
    proof.check(ITEM, crc32c_of(b"yet another"), (), seen, odd)
    assert proof.trusted(seen).md5 is None  # more were odd than right


@pytest.mark.parametrize("is_right", [True, False])
def test_crc32_is_combined_from_the_parts(is_right: bool) -> None:
    parts = [Part(at, len(one), crc32c_of(one), "t", crc32=zlib.crc32(one)) for at, one in enumerate(PIECES, 1)]
    seen = Stored(len(WHOLE), None, '"e"', crc32=zlib.crc32(WHOLE) ^ (not is_right))
    if is_right:
        Proof().check(ITEM, crc32c_of(WHOLE), parts, seen)
        return
    with pytest.raises(MisreadError, match="crc32"):
        Proof().check(ITEM, crc32c_of(WHOLE), parts, seen)
