"""One file: whole or not at all, once, checksummed; every fault on the way meets the right word or the right retry."""

from __future__ import annotations

import asyncio
import hashlib
import random
import zlib
from dataclasses import replace
from typing import Any

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemirror.copying.model import CopiedItem, CopyItem
from lakemirror.copying.pace import OwnPace, Rates
from lakemirror.errors import PermanentError, SourceVanishedError, TransientError, VerificationError
from lakemirror.storage.md5_tags import Md5Tag
from lakemirror.storage.port import ObjectNotFound, Overwrite
from lakemirror.storage.wire import Stored
from tests.unit.copying.conftest import Buckets, run
from tests.wires import Act, FaultyWire, WireFault, md5_tag

SMALL = b"12345678"
LARGE = bytes(range(95))
BODIES = [SMALL, LARGE]


def told(copied: CopiedItem) -> tuple[int | None, bool]:
    return copied.crc32c, copied.adopted


def crc(data: bytes) -> int:
    return int(google_crc32c.value(data))


@pytest.mark.parametrize("body", [b"", *BODIES])
def test_copies_and_tells_the_checksum(buckets: Buckets, body: bytes) -> None:
    item = buckets.put("a ü=%+,.parquet", body)
    copier, _, _ = buckets.copier()
    assert told(run(copier.copy(item))) == (crc(body), False)
    assert buckets.mirrored() == {"a ü=%+,.parquet": body}


def test_a_small_file_is_one_read_and_one_create(buckets: Buckets) -> None:
    item = buckets.put("f", SMALL)
    copier, source, mirror = buckets.copier()
    run(copier.copy(item))
    assert source.calls == [("read", item.source)]
    assert mirror.calls == [("create", item.target)]


@pytest.mark.parametrize("looks_first", [False, True])
@pytest.mark.parametrize("body", [b"", *BODIES])
def test_adopts_what_is_there_only_with_size_and_checksum(buckets: Buckets, looks_first: bool, body: bytes) -> None:
    item = buckets.put("f", body)
    buckets.put("f", body, "mirror")
    copier, _, _ = buckets.copier()
    assert told(run(copier.copy(item, looks_first=looks_first))) == (crc(body), True)
    assert buckets.uploads() == 0


@pytest.mark.parametrize("looks_first", [False, True])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("is_as_large", [False, True])
def test_a_foreign_object_is_a_stop_and_stays(
    buckets: Buckets, looks_first: bool, body: bytes, is_as_large: bool
) -> None:
    item = buckets.put("f", body)
    foreign = b"x" * (len(body) if is_as_large else 3)
    buckets.put("f", foreign, "mirror")
    copier, _, _ = buckets.copier()
    with pytest.raises(PermanentError, match="another object lies under this key") as caught:
        run(copier.copy(item, looks_first=looks_first))
    assert caught.value.subject == item.target
    assert buckets.mirrored() == {"f": foreign}
    assert buckets.uploads() == 0


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("more", [-1, 1])
def test_a_size_that_is_not_the_manifests_is_a_stop_and_writes_nothing(
    buckets: Buckets, body: bytes, more: int
) -> None:
    buckets.put("f", body)
    copier, _, _ = buckets.copier()
    with pytest.raises(PermanentError, match=rf"want {len(body) + more}, got {len(body)}") as caught:
        run(copier.copy(buckets.item("f", len(body) + more)))
    assert caught.value.subject == "memory://source/f"
    assert (buckets.mirrored(), buckets.uploads()) == ({}, 0)


@pytest.mark.parametrize("looks_first", [False, True])
@pytest.mark.parametrize("size", [0, len(SMALL), len(LARGE)])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_source_file_that_is_gone_is_transient(
    buckets: Buckets, looks_first: bool, size: int, is_there: bool
) -> None:
    if is_there:
        buckets.put("f", b"x" * size, "mirror")
    copier, _, _ = buckets.copier()
    with pytest.raises(SourceVanishedError) as caught:
        run(copier.copy(buckets.item("f", size), looks_first=looks_first))
    assert (caught.value.kind, caught.value.subject) == ("transient", "memory://source/f")


def test_a_source_file_that_changes_between_its_parts_is_a_stop(buckets: Buckets) -> None:
    item = buckets.put("f", LARGE)
    copier, source, _ = buckets.copier(memory_bytes=20)
    read, seen = source.read, 0

    async def altering(*args: object, **options: object) -> bytes:
        nonlocal seen
        seen += 1
        if seen == 3:
            buckets.store.put(item.source, LARGE[::-1], Overwrite())
        return await read(*args, **options)  # type: ignore[arg-type]

    source.read = altering  # type: ignore[method-assign]
    with pytest.raises(PermanentError, match="the source file has changed under its name"):
        run(copier.copy(item))
    assert (buckets.mirrored(), buckets.uploads()) == ({}, 0)


WRITES = {"create": SMALL, "begin": LARGE, "put_part": LARGE, "finish": LARGE}
FAULTS = [
    *(("source", "read", act, body) for act in (Act.FAIL, Act.THROTTLE) for body in BODIES),
    ("source", "stored", Act.FAIL, LARGE),
    *(("mirror", verb, act, body) for verb, body in WRITES.items() for act in (Act.FAIL, Act.THROTTLE, Act.FAIL_AFTER)),
    *(("mirror", verb, Act.FLIP, WRITES[verb]) for verb in ("create", "put_part")),
]


@pytest.mark.parametrize(("side", "verb", "act", "body"), FAULTS)
def test_one_fault_anywhere_is_passed(buckets: Buckets, side: str, verb: str, act: Act, body: bytes) -> None:
    """A cut, a storm, an answer that got lost, a bit that turned: tried again, and the bytes are right."""
    item = buckets.put("f", body)
    fault = WireFault(verb, act, 1, 2)
    copier, source, mirror = buckets.copier(**{side: [fault]})  # type: ignore[arg-type]
    assert run(copier.copy(item)).crc32c == crc(body)
    assert buckets.mirrored() == {"f": body}
    assert (source if side == "source" else mirror).count(verb) >= 2


@pytest.mark.parametrize(("side", "verb", "act", "body"), FAULTS)
def test_a_fault_that_stays_ends_transient_with_nothing_half(
    buckets: Buckets, side: str, verb: str, act: Act, body: bytes
) -> None:
    item = buckets.put("f", body)
    copier, _, _ = buckets.copier(**{side: [WireFault(verb, act, 1, 1000)]})  # type: ignore[arg-type]
    if act is Act.FAIL_AFTER and verb in ("create", "finish"):
        assert run(copier.copy(item)).adopted  # it was done, and is found to be so
        assert buckets.mirrored() == {"f": body}
        return
    with pytest.raises(TransientError):
        run(copier.copy(item))
    assert buckets.mirrored() == {}
    assert buckets.uploads() == (8 if act is Act.FAIL_AFTER and verb == "begin" else 0)


def test_bytes_that_are_at_hand_are_not_read_again(buckets: Buckets) -> None:
    item = buckets.put("f", LARGE)
    copier, source, _ = buckets.copier(mirror=[WireFault("put_part", Act.FLIP, 2, 4), WireFault("finish", Act.FAIL)])
    run(copier.copy(item))
    assert source.count("read") == 10


@pytest.mark.parametrize("left", [1, 2])
def test_parts_that_were_wrong_when_they_were_read_are_copied_again(buckets: Buckets, left: int) -> None:
    """The whole tells it, where the source keeps its sum; the bad upload is dropped before anything is made of it."""
    item = buckets.put("f", LARGE)
    flips = [WireFault("read", Act.FLIP, nth, nth) for nth in (3, 13)[:left]]
    copier, source, mirror = buckets.copier(source=flips)
    source.crc32cs[item.source] = crc(LARGE)
    assert told(run(copier.copy(item))) == (crc(LARGE), False)
    assert (buckets.mirrored(), buckets.uploads()) == ({"f": LARGE}, 0)
    assert (source.count("read"), source.count("stored")) == (10 * (left + 1), left + 1)
    assert (mirror.count("abort"), mirror.count("finish")) == (left, 1)


def md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def md5_in_parts(data: bytes, part_bytes: int) -> Md5Tag:
    """As a store makes it of an upload in parts of this size."""
    digests = [md5(data[start : start + part_bytes]) for start in range(0, len(data), part_bytes)]
    return Md5Tag(md5(b"".join(digests)), len(digests), part_bytes)


OTHER_SUMS: dict[str, dict[str, Any]] = {
    "crc32": {"crc32": zlib.crc32(LARGE)},
    "one put": {"md5": Md5Tag(md5(LARGE), 0)},
    "one part": {"md5": Md5Tag(md5(md5(LARGE)), 1)},
    **{f"parts of {size}": {"md5": md5_in_parts(LARGE, size)} for size in (4, 10, 19, 25, 94, 95)},
}


@pytest.mark.parametrize("kind", OTHER_SUMS)
@pytest.mark.parametrize("flipped", [1, 6, 10])
def test_other_sums_of_the_whole_tell_it_too(buckets: Buckets, kind: str, flipped: int) -> None:
    """Wherever the parts of the source's writer met, and in whatever order ours are read."""
    item = buckets.put("f", LARGE)
    copier, source, mirror = buckets.copier(source=[WireFault("read", Act.FLIP, flipped, flipped)])
    source.sums[item.source] = OTHER_SUMS[kind]
    assert told(run(copier.copy(item))) == (crc(LARGE), False)
    assert (buckets.mirrored(), buckets.uploads()) == ({"f": LARGE}, 0)
    assert (source.count("read"), mirror.count("abort"), mirror.count("finish")) == (20, 1, 1)


@pytest.mark.parametrize("kind", OTHER_SUMS)
def test_parts_that_are_right_are_read_once(buckets: Buckets, kind: str) -> None:
    item = buckets.put("f", LARGE)
    copier, source, mirror = buckets.copier(source=[WireFault("read", Act.FAIL, 1, 3)])
    source.sums[item.source] = OTHER_SUMS[kind]
    run(copier.copy(item))
    assert (source.count("read"), mirror.count("begin")) == (13, 1)


@pytest.fixture
def no_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    def hashes(*_: object) -> None:
        raise AssertionError("hashed here")

    monkeypatch.setattr("lakemirror.copying.proving.md5s_of", hashes)
    monkeypatch.setattr("lakemirror.copying.proving.Md5Sum.add", hashes)


@pytest.mark.parametrize("part_bytes", [4, 10, 19])
@pytest.mark.usefixtures("no_hashing")
def test_where_the_mirror_hashes_parts_and_they_are_the_sources_nobody_else_does(
    buckets: Buckets, part_bytes: int
) -> None:
    item = buckets.put("f", LARGE)
    faults = [WireFault("put_part", Act.FLIP, 2, 2)]  # refused by its CRC32C, and sent again
    copier, source, mirror = buckets.copier(mirror=faults)
    source.sums[item.source], mirror.part_tag = {"md5": md5_in_parts(LARGE, part_bytes)}, md5_tag
    assert told(run(copier.copy(item))) == (crc(LARGE), False)
    assert (buckets.mirrored(), source.count("read")) == ({"f": LARGE}, -(-len(LARGE) // part_bytes))


@pytest.mark.parametrize("part_bytes", [25, 94])
def test_parts_of_the_source_that_are_too_large_for_memory_are_hashed_here(buckets: Buckets, part_bytes: int) -> None:
    item = buckets.put("f", LARGE)
    copier, source, mirror = buckets.copier()
    source.sums[item.source], mirror.part_tag = {"md5": md5_in_parts(LARGE, part_bytes)}, md5_tag
    run(copier.copy(item))
    assert (buckets.mirrored(), source.count("read"), mirror.count("begin")) == ({"f": LARGE}, 10, 1)


@pytest.mark.parametrize("flipped", [1, 3, 5])
def test_a_bit_that_turned_on_the_way_here_is_told_by_the_mirrors_hashes(buckets: Buckets, flipped: int) -> None:
    """Before an object is made of it; then the parts are read again, and hashed here."""
    item = buckets.put("f", LARGE)
    copier, source, mirror = buckets.copier(source=[WireFault("read", Act.FLIP, flipped, flipped)])
    source.sums[item.source], mirror.part_tag = {"md5": md5_in_parts(LARGE, 19)}, md5_tag
    assert told(run(copier.copy(item))) == (crc(LARGE), False)
    assert (buckets.mirrored(), buckets.uploads()) == ({"f": LARGE}, 0)
    assert (source.count("read"), mirror.count("abort"), mirror.count("finish")) == (5 + 10, 1, 1)


def test_tags_that_are_not_the_mirrors_md5s_are_learned_by_one_second_read(buckets: Buckets) -> None:
    """As under a key of KMS: what is read then is hashed here, and was right."""
    items = [buckets.put(name, LARGE) for name in ("f", "g")]
    copier, source, mirror = buckets.copier()
    source.sums = {item.source: {"md5": md5_in_parts(LARGE, 19)} for item in items}
    mirror.part_tag = lambda data: md5_tag(data + b"key")

    async def all_of_them() -> None:
        for item in items:
            await copier.copy(item)

    run(all_of_them())
    assert buckets.mirrored() == dict.fromkeys(("f", "g"), LARGE)
    assert (source.count("read"), mirror.count("abort")) == (5 + 10 + 10, 1)


@pytest.mark.parametrize("tag", ["", '"0123"', f'"{"0" * 32}-1"'])
def test_a_part_whose_tag_looks_like_no_md5_is_hashed_here(buckets: Buckets, tag: str) -> None:
    item = buckets.put("f", LARGE)
    copier, source, mirror = buckets.copier()
    source.sums[item.source], mirror.part_tag = {"md5": md5_in_parts(LARGE, 19)}, lambda data: tag
    run(copier.copy(item))
    assert (buckets.mirrored(), source.count("read"), mirror.count("begin")) == ({"f": LARGE}, 5, 1)


def test_an_odd_etag_is_taken_after_a_second_read_whoever_hashed(buckets: Buckets) -> None:
    item = buckets.put("f", LARGE)
    copier, source, mirror = buckets.copier()
    source.sums[item.source], mirror.part_tag = {"md5": md5_in_parts(LARGE[::-1], 19)}, md5_tag
    run(copier.copy(item))
    assert (buckets.mirrored(), source.count("read")) == ({"f": LARGE}, 5 + 10)


def test_a_tag_that_is_no_md5_is_learned_by_one_second_read(buckets: Buckets) -> None:
    items = [buckets.put(name, LARGE) for name in ("f", "g", "h")]
    copier, source, _ = buckets.copier()
    source.sums = {item.source: {"md5": Md5Tag(bytes(16), 0)} for item in items}

    async def all_of_them() -> None:
        for item in items:
            await copier.copy(item)

    run(all_of_them())
    assert buckets.mirrored() == dict.fromkeys(("f", "g", "h"), LARGE)
    assert source.count("read") == 40


@pytest.mark.parametrize(("retry_budget", "reads"), [(100, 30), (1, 20), (0, 10)])
def test_parts_that_are_always_wrong_end_transient(buckets: Buckets, retry_budget: int, reads: int) -> None:
    item = buckets.put("f", LARGE)
    copier, source, mirror = buckets.copier(source=[WireFault("read", Act.FLIP, 1, 1000)], retry_budget=retry_budget)
    source.crc32cs[item.source] = crc(LARGE)
    with pytest.raises(TransientError, match=rf"damaged on the way \(want crc32c {crc(LARGE):08x}, got") as caught:
        run(copier.copy(item))
    assert caught.value.subject == item.source
    assert (buckets.mirrored(), buckets.uploads()) == ({}, 0)
    assert (source.count("read"), mirror.count("finish")) == (reads, 0)


def test_a_small_object_that_is_read_for_its_sum_is_read_as_a_whole(buckets: Buckets) -> None:
    """So that the wire can compare it with what the store says of it."""
    item = buckets.put("f", SMALL)
    buckets.put("f", SMALL, "mirror")
    copier, source, mirror = buckets.copier()
    asked: list[object] = []
    for wire in (source, mirror):

        async def noting(*args: object, _read: object = wire.read, **options: object) -> bytes:
            asked.append(options["size_bytes"])
            return await _read(*args, **options)  # type: ignore[operator,no-any-return]

        wire.read = noting  # type: ignore[method-assign]
    assert run(copier.copy(item, looks_first=True)).adopted
    assert asked == [len(SMALL)] * 2


@pytest.mark.parametrize("looks_first", [False, True])
def test_a_large_file_that_is_there_has_the_time_of_its_pieces(buckets: Buckets, looks_first: bool) -> None:
    """Both are read for their sums; a deadline for all of it would refuse for ever what is large enough."""
    item = buckets.put("f", LARGE)
    buckets.put("f", LARGE, "mirror")
    copier, *wires = buckets.copier(memory_bytes=20, object_deadline_s=3)
    for wire in wires:

        async def slow(*args: object, _read: object = wire.read, **options: object) -> bytes:
            buckets.time.now += 1
            return await _read(*args, **options)  # type: ignore[operator,no-any-return]

        wire.read = slow  # type: ignore[method-assign]
    assert run(copier.copy(item, looks_first=looks_first)).adopted
    assert buckets.time.now == 20


def test_the_pieces_of_a_file_that_is_there_are_read_side_by_side(buckets: Buckets) -> None:
    item = buckets.put("f", LARGE)
    buckets.put("f", LARGE, "mirror")
    copier, source, mirror = buckets.copier(memory_bytes=60)
    assert told(run(copier.copy(item, looks_first=True))) == (crc(LARGE), True)
    assert (source.most_at_once, mirror.most_at_once) == (4, 4)
    assert (copier.memory.peak_bytes, copier.memory.held_bytes) == (40, 0)


def test_a_stall_ends_with_the_deadline_and_drops_the_upload(buckets: Buckets) -> None:
    item = buckets.put("f", LARGE)
    copier, _, _ = buckets.copier(mirror=[WireFault("put_part", Act.STALL, 3, 3)], object_deadline_s=0.05)
    with pytest.raises(TransientError, match=r"took longer than 0\.05 s"):
        run(copier.copy(item))
    assert (buckets.mirrored(), buckets.uploads()) == ({}, 0)


def test_a_copy_that_is_cancelled_drops_its_upload(buckets: Buckets) -> None:
    item = buckets.put("f", LARGE)
    copier, _, _ = buckets.copier(mirror=[WireFault("put_part", Act.STALL, 3, 3)])

    async def work() -> None:
        task = asyncio.create_task(copier.copy(item))
        for _ in range(50):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    run(work())
    assert (buckets.uploads(), copier.memory.held_bytes) == (0, 0)


def test_an_upload_that_cannot_be_dropped_is_told_with_the_error(buckets: Buckets) -> None:
    item = buckets.put("f", LARGE)
    faults = [WireFault("put_part", Act.FAIL, 1, 1000), WireFault("abort", Act.FAIL, 1, 1000)]
    copier, _, _ = buckets.copier(mirror=faults)
    with pytest.raises(TransientError) as caught:
        run(copier.copy(item))
    assert any("could not be aborted" in note for note in caught.value.__notes__)


def test_the_store_copies_by_itself_where_both_sides_are_one(buckets: Buckets) -> None:
    item = buckets.put("f", LARGE)
    copier, source, mirror = buckets.copier(is_one_store=True)
    assert told(run(copier.copy(item))) == (crc(LARGE), False)
    assert (source.count("read"), mirror.calls) == (0, [("copy_within", item.target)])
    assert buckets.mirrored() == {"f": LARGE}
    assert run(copier.copy(item)).adopted


@pytest.mark.parametrize("of_copy", [None, crc(LARGE)])
@pytest.mark.parametrize("of_source", [None, crc(LARGE)])
def test_what_the_store_copies_by_itself_is_not_read_for_its_sum(
    buckets: Buckets, of_source: int | None, of_copy: int | None
) -> None:
    """It would be compared with nothing; the sum is the one that the store keeps of the file or of its copy."""
    item = buckets.put("f", LARGE)
    copier, source, mirror = buckets.copier(is_one_store=True)
    if of_source is not None:
        source.crc32cs[item.source] = of_source
    telling(mirror, of_copy)
    assert told(run(copier.copy(item))) == (of_copy or of_source, False)
    assert (source.count("read"), mirror.count("read")) == (0, 0)


def test_a_copy_whose_sum_is_not_that_of_its_source_is_told(buckets: Buckets) -> None:
    item = buckets.put("f", LARGE)
    copier, source, mirror = buckets.copier(is_one_store=True)
    source.crc32cs[item.source] = crc(LARGE)
    telling(mirror, crc(SMALL))
    with pytest.raises(
        VerificationError, match=f"want 95 bytes with crc32c {crc(LARGE):08x}, got 95 with {crc(SMALL):08x}"
    ):
        run(copier.copy(item))


def telling(wire: FaultyWire, crc32c: int | None) -> None:
    """Let the store tell this sum of what it copies."""
    copy = wire.copy_within

    async def copy_within(source_uri: str, target_uri: str, *, e_tag: str | None = None) -> Stored:
        return replace(await copy(source_uri, target_uri, e_tag=e_tag), crc32c=crc32c)

    wire.copy_within = copy_within  # type: ignore[method-assign]


def test_what_the_store_would_copy_itself_is_compared_too(buckets: Buckets) -> None:
    item = buckets.put("f", SMALL)
    buckets.put("f", b"87654321", "mirror")
    copier, _, _ = buckets.copier(is_one_store=True)
    with pytest.raises(PermanentError, match="another object"):
        run(copier.copy(item))
    with pytest.raises(SourceVanishedError):
        run(copier.copy(CopyItem("memory://source/gone", "memory://mirror/gone", 3)))
    with pytest.raises(PermanentError, match="its manifest says"):
        run(copier.copy(CopyItem(item.source, "memory://mirror/new", 3)))
    assert buckets.mirrored() == {"f": b"87654321"}


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=30), st.integers(20, 120))
def test_memory_stays_within_its_bound_whatever_the_sizes(sizes: list[int], memory_bytes: int) -> None:
    buckets = Buckets()
    items = [buckets.put(f"f{number}", bytes([number]) * size) for number, size in enumerate(sizes)]
    copier, source, mirror = buckets.copier(memory_bytes=memory_bytes, concurrency=5)

    async def work() -> None:
        await asyncio.gather(*(copier.copy(item) for item in items))

    run(work())
    assert copier.memory.peak_bytes <= copier.settings.held_bytes < memory_bytes
    assert copier.memory.held_bytes == 0
    assert max(source.most_at_once, mirror.most_at_once) <= 5
    assert {name: len(data) for name, data in buckets.mirrored().items()} == {
        f"f{number}": size for number, size in enumerate(sizes)
    }


@pytest.mark.parametrize("seed", range(20))
def test_copies_that_fail_side_by_side_give_all_their_memory_back(buckets: Buckets, seed: int) -> None:
    """Also that of parts which are cancelled before they begin; the others would wait for it for ever."""
    items = [buckets.put(f"f{number}", LARGE) for number in range(6)]
    copier, source, _ = buckets.copier(memory_bytes=60)
    chance = random.Random(seed)

    async def fails(*args: object, **options: object) -> bytes:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if chance.random() < 0.5:
            raise ObjectNotFound("read", items[0].source, "there is no such object")
        return b"0123456789"

    source.read = fails  # type: ignore[method-assign]

    async def work() -> None:
        copies = (copier.copy(item) for item in items)
        await asyncio.wait_for(asyncio.gather(*copies, return_exceptions=True), 5)

    run(work())
    assert copier.memory.held_bytes == 0


@pytest.mark.parametrize("memory_bytes", [2 * 8, 2 * 30])
def test_files_that_are_all_there_already_do_not_wait_for_each_others_memory(
    buckets: Buckets, memory_bytes: int
) -> None:
    """Their copies are read back in a memory that is full of files: whoever compares must hold none himself."""
    items = [buckets.put(f"f{number}", SMALL) for number in range(9)]
    for item in items:
        buckets.store.put(item.target, SMALL)
    copier, _, _ = buckets.copier(memory_bytes=memory_bytes, concurrency=9)

    async def work() -> list[CopiedItem]:
        return await asyncio.wait_for(asyncio.gather(*(copier.copy(item) for item in items)), 5)

    assert [told(copied) for copied in run(work())] == [(crc(SMALL), True)] * 9
    assert (copier.memory.held_bytes, copier.memory.peak_bytes <= copier.settings.held_bytes) == (0, True)


def test_the_rate_holds_also_for_what_is_read_twice(buckets: Buckets) -> None:
    item = buckets.put("f", LARGE)
    pace = OwnPace(Rates(bytes_per_s=10.0), buckets.time.clock, buckets.time.sleep)
    copier, source, _ = buckets.copier(source=[WireFault("read", Act.FAIL, 2, 4)], pace=pace)
    run(copier.copy(item))
    assert source.count("read") == 13
    assert buckets.time.now >= (95 + 3 * 10) / 10


@pytest.mark.parametrize("act", [Act.FAIL, Act.THROTTLE, Act.FLIP])
@pytest.mark.parametrize(("verb", "body"), [("create", SMALL), ("put_part", LARGE)])
def test_the_rate_holds_on_the_line_to_a_mirror_that_fails_half_of_what_it_is_sent(
    buckets: Buckets, verb: str, body: bytes, act: Act
) -> None:
    """By every second request; only those that carry bytes count."""
    items = [buckets.put(f"f{number}", body) for number in range(10)]
    pace = OwnPace(Rates(bytes_per_s=1.0), buckets.time.clock, buckets.time.sleep)
    faults = [WireFault(verb, act, nth, nth) for nth in range(1, 1000, 2)]
    copier, _, mirror = buckets.copier(mirror=faults, pace=pace, memory_bytes=20)  # one at a time: the clock is of one

    async def work() -> None:
        for item in items:
            await copier.copy(item)

    run(work())
    sent_bytes = 2 * len(items) * len(body)
    assert mirror.count(verb) == 2 * len(items) * -(-len(body) // 10)
    assert sent_bytes <= 1.1 * buckets.time.now
    assert buckets.time.now <= 1.1 * sent_bytes


@pytest.mark.parametrize("looks_first", [False, True])
def test_the_rate_holds_for_what_is_read_back_from_the_mirror(buckets: Buckets, looks_first: bool) -> None:
    item = buckets.put("f", LARGE)
    buckets.put("f", LARGE, "mirror")
    pace = OwnPace(Rates(bytes_per_s=1.0), buckets.time.clock, buckets.time.sleep)
    copier, _, mirror = buckets.copier(pace=pace, memory_bytes=20)
    assert run(copier.copy(item, looks_first=looks_first)).adopted
    assert mirror.count("read") == 10
    assert buckets.time.now >= 2 * len(LARGE)


def test_requests_keep_their_rate_too(buckets: Buckets) -> None:
    items = [buckets.put(f"f{number}", SMALL) for number in range(10)]
    pace = OwnPace(Rates(requests_per_s=2.0), buckets.time.clock, buckets.time.sleep)
    copier, _, _ = buckets.copier(pace=pace)

    async def work() -> None:
        for item in items:
            await copier.copy(item)

    run(work())
    assert buckets.time.now == pytest.approx(10.0)


@pytest.mark.parametrize("side", ["source", "mirror"])
def test_a_bit_that_turns_while_what_is_there_is_compared_is_no_stop(buckets: Buckets, side: str) -> None:
    """Nobody but the line says that they differ: both are read again."""
    item = buckets.put("f", LARGE)
    buckets.put("f", LARGE, "mirror")
    copier, _, _ = buckets.copier(**{side: [WireFault("read", Act.FLIP, 3, 3)]})  # type: ignore[arg-type]
    assert told(run(copier.copy(item, looks_first=True))) == (crc(LARGE), True)


def test_what_reads_differently_each_time_is_transient(buckets: Buckets) -> None:
    item = buckets.put("f", LARGE)
    buckets.put("f", LARGE, "mirror")
    flips = [WireFault("read", Act.FLIP, first, first) for first in (1, 12, 23)]
    copier, _, _ = buckets.copier(mirror=flips)
    with pytest.raises(TransientError, match="reads differently each time"):
        run(copier.copy(item, looks_first=True))
