"""One wire for all schemes: who serves what, and what crosses no border."""

import asyncio
from pathlib import Path

import pytest

from lakemirror.errors import PermanentError
from lakemirror.storage.checksum import crc32c_of
from lakemirror.storage.clients import MemoryBuckets
from lakemirror.storage.wires.serving import SchemeWire

BODY = b"body"


def test_each_scheme_is_served_by_its_own_store(tmp_path: Path) -> None:
    async def work() -> list[bytes]:
        wire = SchemeWire({}, MemoryBuckets())
        uris = (f"file://{tmp_path}/a", "memory://bucket/a")
        try:
            for uri in uris:
                await wire.create(uri, BODY, crc32c_of(BODY))
            return [await wire.read(uri, 0, len(BODY)) for uri in uris]
        finally:
            await wire.close()

    assert asyncio.run(work()) == [BODY, BODY]
    assert (tmp_path / "a").read_bytes() == BODY


def test_a_copy_within_stays_within(tmp_path: Path) -> None:
    async def work() -> None:
        wire = SchemeWire({}, MemoryBuckets())
        await wire.create("memory://bucket/a", BODY, crc32c_of(BODY))
        with pytest.raises(PermanentError, match="not in the store of memory://bucket/a"):
            await wire.copy_within("memory://bucket/a", f"file://{tmp_path}/a")
        await wire.copy_within("memory://bucket/a", "memory://bucket/b")
        assert await wire.read("memory://bucket/b", 0, len(BODY)) == BODY

    asyncio.run(work())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("uri", ["ftp://host/a", "memory://bucket/a//b", "memory://bucket/"])
def test_keys_that_nobody_holds_are_refused_before_anything_opens(uri: str) -> None:
    with pytest.raises(PermanentError):
        asyncio.run(SchemeWire({}).head(uri))


def test_a_wire_that_was_closed_opens_again(tmp_path: Path) -> None:
    async def work() -> int:
        wire = SchemeWire({})
        await wire.create(f"file://{tmp_path}/a", BODY, crc32c_of(BODY))
        await wire.close()
        return (await wire.head(f"file://{tmp_path}/a")).size_bytes

    assert asyncio.run(work()) == len(BODY)
