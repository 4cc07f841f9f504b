"""Whole reads over an open line: damage is found by the ETag, odd ETags are found out, and one read is enough."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from lakemirror.errors import TransientError
from lakemirror.storage.port import Blob, ObjectInfo
from lakemirror.storage.tagged_reads import TaggedReads

GOOD = b"what the store keeps"
MD5 = hashlib.md5(GOOD, usedforsecurity=False).digest()
IN_PARTS = hashlib.md5(MD5, usedforsecurity=False).hexdigest() + "-1"
ODD = "0" * 32


class Reads:
    """Bodies one after the other, the last for ever."""

    def __init__(self, e_tag: str | None, *bodies: bytes) -> None:
        self.e_tag, self._bodies, self.count = e_tag, bodies, 0

    def body(self) -> bytes:
        self.count += 1
        return self._bodies[min(self.count, len(self._bodies)) - 1]

    def blob(self) -> Blob:
        data = self.body()
        return Blob(ObjectInfo("s3://b/k", len(data), self.e_tag, datetime.now(UTC)), data)

    def pieces(self) -> Iterator[bytes]:
        data = self.body()
        return iter([data[:5], data[5:]])


def by_blob(reads: Reads, tagged: TaggedReads) -> bytes:
    return tagged.blob(reads.blob).data


def by_stream(reads: Reads, tagged: TaggedReads) -> bytes:
    return b"".join(tagged.pieces("s3://b/k", reads.e_tag, reads.pieces(), reads.pieces))


BOTH = pytest.mark.parametrize("read", [by_blob, by_stream])
Read = Callable[[Reads, TaggedReads], bytes]


@BOTH
@pytest.mark.parametrize(
    "e_tag", [MD5.hex(), f'"{MD5.hex()}"', MD5.hex().upper(), IN_PARTS, "opaque", "a" * 32 + "-7", None]
)
def test_good_bytes_are_read_once(read: Read, e_tag: str | None) -> None:
    reads = Reads(e_tag, GOOD)
    assert read(reads, TaggedReads()) == GOOD
    assert reads.count == 1


@pytest.mark.parametrize("bad", [b"what the store keept", GOOD[:7], b""])
def test_damage_is_read_again(bad: bytes) -> None:
    reads = Reads(MD5.hex(), bad, GOOD)
    assert by_blob(reads, TaggedReads()) == GOOD
    assert reads.count == 2


@BOTH
def test_damage_of_a_stream_or_twice_is_transient(read: Read) -> None:
    reads = Reads(MD5.hex(), b"one thing here", b"another thing")
    with pytest.raises(TransientError, match="damaged on the way"):
        read(reads, TaggedReads())


@BOTH
def test_odd_e_tags_are_found_out_once(read: Read) -> None:
    tagged, reads = TaggedReads(), Reads(ODD, GOOD)
    assert [read(reads, tagged) for _ in range(4)] == [GOOD] * 4
    assert reads.count == 5


@BOTH
def test_one_odd_tag_among_good_ones_changes_nothing(read: Read) -> None:
    tagged = TaggedReads()
    for _ in range(3):
        read(Reads(MD5.hex(), GOOD), tagged)
    read(Reads(ODD, GOOD), tagged)
    with pytest.raises(TransientError):
        read(Reads(MD5.hex(), b"one thing here", b"another thing"), tagged)
