"""What is aborted, and what never is: some servers delete, with an upload, the bytes of the object made of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

import pytest

from lakemirror.copying.copier import Copier
from lakemirror.copying.crew import Job, work_off
from lakemirror.copying.model import CopyItem
from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.port import ConditionFailed, ObjectNotFound
from lakemirror.storage.wire import Part, Stored
from tests.unit.copying.conftest import Buckets, run
from tests.wires import Act, FaultyWire, WireFault

LARGE = bytes(range(95))


def test_an_upload_that_the_object_may_be_made_of_is_not_aborted(buckets: Buckets) -> None:
    """The answer to finishing was lost; what the next try finds there is its own work."""
    item = buckets.put("f", LARGE)
    copier, _, mirror = buckets.copier(mirror=[WireFault("finish", Act.FAIL_AFTER)])
    mirror.aborts_safely = False
    looks_at_the_key_first(mirror)
    assert run(copier.copy(item)).adopted
    assert mirror.count("abort") == 0


def test_the_upload_of_who_came_second_is_aborted(buckets: Buckets) -> None:
    item = buckets.put("f", LARGE)
    buckets.put("f", LARGE, "mirror")
    copier, _, mirror = buckets.copier()
    assert run(copier.copy(item)).adopted
    assert (mirror.count("abort"), buckets.uploads()) == (1, 0)


def test_where_aborting_is_safe_nothing_is_looked_at(buckets: Buckets) -> None:
    item = buckets.put("f", LARGE)
    copier, _, mirror = buckets.copier(mirror=[WireFault("finish", Act.FAIL, 1, 1000)])
    with pytest.raises(TransientError):
        run(copier.copy(item))
    assert (mirror.count("head"), mirror.count("abort"), buckets.uploads()) == (0, 1, 0)


def test_an_upload_that_was_never_finished_is_aborted_after_a_look(buckets: Buckets) -> None:
    item = buckets.put("f", LARGE)
    copier, _, mirror = buckets.copier(mirror=[WireFault("finish", Act.FAIL, 1, 1000)])
    mirror.aborts_safely = False
    with pytest.raises(TransientError):
        run(copier.copy(item))
    assert (mirror.count("head"), mirror.count("abort"), buckets.uploads()) == (1, 1, 0)


def test_somebody_elses_object_is_not_made_of_our_upload(buckets: Buckets) -> None:
    item = buckets.put("f", LARGE)
    buckets.put("f", b"x" * len(LARGE), "mirror")
    copier, _, mirror = buckets.copier(mirror=[WireFault("finish", Act.FAIL)])
    with pytest.raises(PermanentError, match="another object lies under this key"):
        run(copier.copy(item))
    assert (mirror.count("abort"), buckets.uploads()) == (1, 0)


def test_the_deadline_waits_until_all_workers_have_aborted(buckets: Buckets) -> None:
    """The wires are closed right after it: what is still under way then is left over."""
    items = [buckets.put(name, LARGE) for name in "abcd"]
    copier, _, mirror = buckets.copier(mirror=[WireFault("put_part", Act.STALL, 1, 1000)], memory_bytes=1000)

    async def cancelled() -> None:
        work = asyncio.create_task(work_off(jobs(copier, items), len(items)))
        while mirror.count("put_part") < len(items):
            await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert buckets.uploads() == 0

    slow_aborts(mirror)
    run(cancelled())


async def jobs(copier: Copier, items: list[CopyItem]) -> AsyncIterator[Job]:
    async def copy(item: CopyItem) -> None:
        await copier.copy(item)

    for item in items:
        yield partial(copy, item)


def looks_at_the_key_first(mirror: FaultyWire) -> None:
    """As S3 does: that something is there is said before that the upload is no more."""
    finish = mirror.finish

    async def refusing(uri: str, upload: str, parts: Sequence[Part], crc32c: int) -> Stored:
        try:
            await mirror.head(uri)
        except ObjectNotFound:
            return await finish(uri, upload, parts, crc32c)
        raise ConditionFailed("finish", uri, "the object exists already", "read it, and decide")

    mirror.finish = refusing  # type: ignore[method-assign]


def slow_aborts(mirror: FaultyWire) -> None:
    """The second takes longer than the first, and so on."""
    abort, turns = mirror.abort, iter(range(10, 1000, 50))

    async def slow(uri: str, upload: str) -> None:
        for _ in range(next(turns)):
            await asyncio.sleep(0)
        await abort(uri, upload)

    mirror.abort = slow  # type: ignore[method-assign]
