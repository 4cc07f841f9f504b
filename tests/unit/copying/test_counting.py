"""Counting: by the verbs that results use, and as many as were sent."""

from __future__ import annotations

import pytest

from lakemirror.copying.counting import CountingWire
from lakemirror.errors import TransientError
from lakemirror.storage.checksum import crc32c_of
from lakemirror.storage.clients import MemoryBuckets
from lakemirror.storage.metering import mark
from lakemirror.storage.port import ConditionFailed
from lakemirror.storage.wire import Stored
from lakemirror.storage.wires.local import LocalWire, memory_wire
from tests.unit.copying.conftest import run
from tests.wires import Act, FaultyWire, WireFault

A, B, C = (f"memory://bucket/{name}" for name in "abc")


def test_every_request_counts_under_the_verb_that_results_use() -> None:
    async def work() -> dict[str, int]:
        wire = CountingWire(memory_wire(MemoryBuckets()))
        await wire.create(A, b"x", crc32c_of(b"x"))
        upload = await wire.begin(B)
        part = await wire.put_part(B, upload, 1, b"y", crc32c_of(b"y"))
        await wire.finish(B, upload, [part], crc32c_of(b"y"))
        await wire.abort(C, await wire.begin(C))
        await wire.copy_within(A, C)
        await wire.head(A)
        await wire.stored(A)
        await wire.read(A, 0, 1)
        assert [upload async for upload in wire.uploads("memory://bucket")] == []
        await wire.close()
        return wire.counts

    assert run(work()) == {"get": 1, "head": 2, "list": 1, "put": 5, "copy": 1, "delete": 1}


def test_a_request_that_fails_counts_too() -> None:
    async def work() -> dict[str, int]:
        wire = CountingWire(FaultyWire(memory_wire(MemoryBuckets()), [WireFault("create", Act.FAIL)]))
        with pytest.raises(TransientError):
            await wire.create(A, b"x", crc32c_of(b"x"))
        await wire.create(A, b"x", crc32c_of(b"x"))
        return wire.counts

    assert run(work())["put"] == 2


class ChattyWire(LocalWire):
    """Makes several requests for some calls, and says so."""

    def __init__(self) -> None:
        whole = memory_wire(MemoryBuckets())
        super().__init__(whole._store, whole._shelf, in_threads=False)

    async def copy_within(self, source_uri: str, target_uri: str, *, e_tag: str | None = None) -> Stored:
        for verb in ("head", "copy", "head"):
            mark(verb)
        return await super().copy_within(source_uri, target_uri, e_tag=e_tag)


def test_a_call_counts_as_the_requests_that_it_makes() -> None:
    async def work() -> dict[str, int]:
        wire = CountingWire(ChattyWire())
        await wire.create(A, b"x", crc32c_of(b"x"))
        await wire.copy_within(A, C)
        with pytest.raises(ConditionFailed):
            await wire.copy_within(A, C)
        return wire.counts

    assert run(work()) == {"get": 0, "head": 4, "list": 0, "put": 1, "copy": 2, "delete": 0}
