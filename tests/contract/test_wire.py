"""What every wire must do, whatever is behind it: one suite over all adapters."""

from __future__ import annotations

import asyncio
import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.checksum import crc32c_of
from lakemirror.storage.md5_tags import fits
from lakemirror.storage.port import ConditionFailed, DamagedError, ObjectNotFound
from lakemirror.storage.wire import Part, Stored, Upload, Wire
from tests.contract.test_object_store import STRANGE_KEYS
from tests.contract.wire_homes import WireHome, create, put_part

RACERS = 16


def body(size_bytes: int, seed: int = 0) -> bytes:
    """Bytes of which no two blocks are equal."""
    blocks = (f"{seed}:{number};".encode().ljust(16, b".") for number in range(size_bytes // 16 + 1))
    return b"".join(blocks)[:size_bytes]


def part_bytes(wire: Wire, uri: str) -> int:
    return max(wire.capabilities(uri).min_part_bytes, 1000)


async def upload_in(wire: Wire, uri: str, datas: list[bytes]) -> tuple[str, list[Part]]:
    upload = await wire.begin(uri)
    sent = [put_part(wire, uri, upload, number, data) for number, data in enumerate(datas, 1)]
    return upload, list(await asyncio.gather(*sent))


class TestReading:
    def test_exactly_the_bytes_asked_for(self, wire_home: WireHome) -> None:
        uri, data = wire_home.uri("a/b"), body(100_000)
        wire_home.store.put(uri, data)

        async def work(wire: Wire) -> None:
            info = await wire.head(uri)
            assert (info.uri, info.size_bytes) == (uri, 100_000)
            for e_tag in (None, info.e_tag):
                assert await wire.read(uri, 0, 100_000, e_tag=e_tag) == data
                assert await wire.read(uri, 99_999, 1, e_tag=e_tag) == data[-1:]
                assert await wire.read(uri, 17, 40_000, e_tag=e_tag) == data[17:40_017]
                assert await wire.read(uri, 5, 0, e_tag=e_tag) == b""

        wire_home.run(work)

    def test_an_empty_object_reads_as_nothing(self, wire_home: WireHome) -> None:
        uri = wire_home.uri("empty")

        async def work(wire: Wire) -> None:
            stored = await create(wire, uri, b"")
            assert stored.size_bytes == 0
            assert await wire.read(uri, 0, 0) == b""
            assert (await wire.head(uri)).size_bytes == 0

        wire_home.run(work)

    @pytest.mark.parametrize(("start", "length"), [(0, 11), (5, 6), (10, 1), (99, 1), (-1, 2), (0, -1)])
    def test_a_range_outside_the_object_is_permanent(self, wire_home: WireHome, start: int, length: int) -> None:
        uri = wire_home.uri("digits")
        wire_home.store.put(uri, b"0123456789")

        async def read(wire: Wire) -> None:
            with pytest.raises(PermanentError) as raised:
                await wire.read(uri, start, length)
            assert raised.value.subject == uri

        wire_home.run(read)

    def test_a_missing_object_is_named(self, wire_home: WireHome) -> None:
        uri = wire_home.uri("none")

        async def work(wire: Wire) -> None:
            for attempt in (wire.head(uri), wire.read(uri, 0, 1)):
                with pytest.raises(ObjectNotFound) as raised:
                    await attempt
                assert raised.value.subject == uri

        wire_home.run(work)

    def test_an_object_that_has_changed_is_not_read(self, wire_home: WireHome) -> None:
        uri = wire_home.uri("x")
        before = wire_home.store.put(uri, b"before").e_tag
        assert before is not None
        wire_home.store.delete([uri])
        wire_home.store.put(uri, b"after!")

        async def work(wire: Wire) -> None:
            with pytest.raises(ConditionFailed) as raised:
                await wire.read(uri, 0, 6, e_tag=before)
            assert raised.value.subject == uri

        wire_home.run(work)


class TestCreating:
    @pytest.mark.parametrize("size_bytes", [0, 1, 65_536, 3_000_000])
    def test_the_answer_tells_what_is_there(self, wire_home: WireHome, size_bytes: int) -> None:
        uri, data = wire_home.uri("a/b"), body(size_bytes)

        async def work(wire: Wire) -> Stored:
            return await create(wire, uri, data)

        stored = wire_home.run(work)
        assert stored.size_bytes == size_bytes
        assert stored.crc32c in (None, crc32c_of(data))
        assert stored.e_tag == wire_home.store.head(uri).e_tag
        assert b"".join(wire_home.store.stream(uri)) == data
        there = wire_home.run(lambda wire: wire.stored(uri))
        assert there in (stored, Stored(size_bytes, None, stored.e_tag))

    def test_what_is_there_stays(self, wire_home: WireHome) -> None:
        uri = wire_home.uri("x")
        wire_home.store.put(uri, b"first")

        async def work(wire: Wire) -> None:
            with pytest.raises(ConditionFailed) as raised:
                await create(wire, uri, b"second")
            assert raised.value.subject == uri

        wire_home.run(work)
        assert wire_home.store.get(uri).data == b"first"

    def test_damaged_bytes_are_refused_and_may_be_sent_again(self, wire_home: WireHome) -> None:
        uri, data = wire_home.uri("x"), body(1000)

        async def work(wire: Wire) -> None:
            if not wire_home.abilities.checks_crc32c:
                return
            with pytest.raises(TransientError):
                await wire.create(uri, data, crc32c_of(data) ^ 1)
            with pytest.raises(ObjectNotFound):
                await wire.head(uri)
            await create(wire, uri, data)

        wire_home.run(work)

    def test_bytes_without_the_md5_that_is_said_of_them_are_refused(self, wire_home: WireHome) -> None:
        """With the right CRC32C, too: it is that of what was read, and the MD5 that of what lies in the source."""
        uri, data = wire_home.uri("x"), body(1000)
        right, wrong = (hashlib.md5(one, usedforsecurity=False).digest() for one in (data, b"other"))

        async def work(wire: Wire) -> None:
            if wire.capabilities(uri).checks_md5 != wire_home.abilities.checks_md5:
                raise AssertionError("a wire must tell what was probed")
            if uri.startswith("s3:") and not wire_home.abilities.checks_md5:
                return
            with pytest.raises(DamagedError):
                await wire.create(uri, data, crc32c_of(data), md5=wrong)
            with pytest.raises(ObjectNotFound):
                await wire.head(uri)
            await wire.create(uri, data, crc32c_of(data), md5=right)

        wire_home.run(work)

    def test_a_whole_object_is_read(self, wire_home: WireHome) -> None:
        uri, data = wire_home.uri("x"), body(1000)
        wire_home.store.put(uri, data)

        async def work(wire: Wire) -> None:
            read = await wire.read_whole(uri, len(data))
            assert read.data == data
            assert read.left is None or fits(read.left, data)
            with pytest.raises(PermanentError):
                await wire.read_whole(uri, len(data) + 1)

        wire_home.run(work)

    def test_one_of_many_wins(self, wire_home: WireHome) -> None:
        async def race(wire: Wire) -> None:
            for round_number in range(3):
                uri = wire_home.uri(f"race/{round_number}")
                outcomes = await asyncio.gather(
                    *(create(wire, uri, body(1000, racer)) for racer in range(RACERS)), return_exceptions=True
                )
                won = [racer for racer, outcome in enumerate(outcomes) if isinstance(outcome, Stored)]
                assert len(won) == 1
                assert all(isinstance(one, Stored | ConditionFailed) for one in outcomes)
                assert await wire.read(uri, 0, 1000) == body(1000, won[0])

        wire_home.run(race)

    @pytest.mark.parametrize("key", [*STRANGE_KEYS, *"! # $ & ' ( ) * + , ; = : @ [ ] ~ ^ ` { } | < > \" \\".split()])
    def test_strange_keys_are_kept_literally(self, wire_home: WireHome, key: str) -> None:
        if key == "#" and wire_home.root.startswith("file:"):
            return  # refused by name; tests/unit/storage/test_keys.py
        uri, target = wire_home.uri(f"k/{key}"), wire_home.uri(f"c/{key}")
        if any(character in key for character in wire_home.abilities.spoiled):
            wire_home.run(lambda wire: _refused_by_name(wire, uri))
            return

        async def work(wire: Wire) -> None:
            await create(wire, uri, key.encode())
            assert await wire.read(uri, 0, len(key.encode())) == key.encode()
            assert (await wire.head(uri)).uri == uri
            if wire.capabilities(uri).copies_within:
                await wire.copy_within(uri, target)

        wire_home.run(work)
        assert wire_home.store.get(uri).data == key.encode()
        assert f"k/{key}" in wire_home.listed()


class TestParts:
    def test_parts_sent_in_any_order_by_several_processes_become_one_object(self, wire_home: WireHome) -> None:
        uri = wire_home.uri("large")

        size_bytes = wire_home.run(lambda wire: _value(part_bytes(wire, uri)))
        datas = [body(size_bytes, 1), body(size_bytes + 1, 2), body(10, 3)]
        upload = wire_home.run(lambda wire: wire.begin(uri))

        def send(number: int) -> Part:
            return wire_home.run(lambda wire: put_part(wire, uri, upload, number, datas[number - 1]))

        with ThreadPoolExecutor(3) as pool:
            parts = list(pool.map(send, [3, 1, 2]))
        assert wire_home.listed() == []
        in_order = sorted(parts, key=lambda part: part.number)
        whole = b"".join(datas)
        stored = wire_home.run(lambda wire: wire.finish(uri, upload, in_order, crc32c_of(whole)))
        assert stored.size_bytes == len(whole)
        assert stored.crc32c in (None, crc32c_of(whole))
        assert stored.e_tag == wire_home.store.head(uri).e_tag
        assert b"".join(wire_home.store.stream(uri)) == whole

    def test_a_part_sent_twice_counts_once(self, wire_home: WireHome) -> None:
        uri = wire_home.uri("large")

        async def work(wire: Wire) -> None:
            first = body(part_bytes(wire, uri), 1)
            upload = await wire.begin(uri)
            await put_part(wire, uri, upload, 1, first)
            part = await put_part(wire, uri, upload, 1, first)
            last = await put_part(wire, uri, upload, 2, b"end")
            await wire.finish(uri, upload, [part, last], crc32c_of(first + b"end"))
            assert await wire.read(uri, len(first), 3) == b"end"

        wire_home.run(work)
        assert wire_home.store.head(uri).size_bytes == wire_home.run(lambda w: _value(part_bytes(w, uri))) + 3

    def test_damaged_parts_are_refused(self, wire_home: WireHome) -> None:
        uri = wire_home.uri("large")

        async def work(wire: Wire) -> None:
            if not wire_home.abilities.checks_part_crc32c:
                return
            upload = await wire.begin(uri)
            with pytest.raises(TransientError):
                await wire.put_part(uri, upload, 1, b"data", 7)
            await wire.abort(uri, upload)

        wire_home.run(work)
        assert wire_home.listed() == []

    def test_parts_that_do_not_sum_to_the_object_are_refused(self, wire_home: WireHome) -> None:
        uri = wire_home.uri("large")

        async def work(wire: Wire) -> None:
            upload, parts = await upload_in(wire, uri, [body(part_bytes(wire, uri)), b"end"])
            for wrong in ([], parts[1:], parts[::-1], [parts[0], parts[0]]):
                with pytest.raises(PermanentError):
                    await wire.finish(uri, upload, wrong, 0)
            with pytest.raises(PermanentError, match="want CRC32C 00000001"):
                await wire.finish(uri, upload, parts, 1)
            await wire.abort(uri, upload)

        wire_home.run(work)
        assert wire_home.listed() == []

    def test_what_is_there_stays(self, wire_home: WireHome) -> None:
        uri = wire_home.uri("large")
        wire_home.store.put(uri, b"first")

        async def work(wire: Wire) -> None:
            upload, parts = await upload_in(wire, uri, [b"second"])
            with pytest.raises(ConditionFailed) as raised:
                await wire.finish(uri, upload, parts, crc32c_of(b"second"))
            assert raised.value.subject == uri
            await wire.abort(uri, upload)

        wire_home.run(work)
        assert wire_home.store.get(uri).data == b"first"

    def test_one_of_many_wins(self, wire_home: WireHome) -> None:
        uri = wire_home.uri("large")

        async def race(wire: Wire) -> None:
            if not (wire_home.abilities.conditional_finish and wire_home.abilities.atomic_finish):
                return
            begun = [await upload_in(wire, uri, [body(1000, racer)]) for racer in range(RACERS)]
            outcomes = await asyncio.gather(
                *(wire.finish(uri, *begun[racer], crc32c_of(body(1000, racer))) for racer in range(RACERS)),
                return_exceptions=True,
            )
            won = [racer for racer, outcome in enumerate(outcomes) if isinstance(outcome, Stored)]
            assert all(isinstance(one, Stored | ConditionFailed) for one in outcomes), outcomes
            assert len(won) == 1
            assert await wire.read(uri, 0, 1000) == body(1000, won[0])
            for upload, _ in begun:
                await wire.abort(uri, upload)

        wire_home.run(race)

    def test_abort_leaves_nothing_and_may_be_repeated(self, wire_home: WireHome) -> None:
        uri = wire_home.uri("a/large")

        async def work(wire: Wire) -> None:
            upload, parts = await upload_in(wire, uri, [b"data"])
            assert [(one.uri, one.upload) for one in await _uploads(wire, wire_home.root)] == [(uri, upload)]
            assert await _uploads(wire, wire_home.uri("b")) == []
            await wire.abort(uri, upload)
            await wire.abort(uri, upload)
            assert await _uploads(wire, wire_home.root) == []
            with pytest.raises(PermanentError):
                await wire.finish(uri, upload, parts, crc32c_of(b"data"))
            with pytest.raises(ObjectNotFound):
                await put_part(wire, uri, upload, 1, b"data")

        wire_home.run(work)
        assert wire_home.listed() == []

    def test_a_finished_upload_is_no_longer_listed_and_abort_spares_the_object(self, wire_home: WireHome) -> None:
        uri = wire_home.uri("a/large")

        async def work(wire: Wire) -> None:
            upload, parts = await upload_in(wire, uri, [b"data"])
            await wire.finish(uri, upload, parts, crc32c_of(b"data"))
            assert await _uploads(wire, wire_home.root) == []
            assert [one async for one in wire.unnamed(wire_home.root)] == []
            await wire.abort(uri, upload)
            assert await wire.read(uri, 0, 4) == b"data"

        wire_home.run(work)

    def test_what_was_put_together_and_never_named_is_found_and_dropped(self, wire_home: WireHome) -> None:
        """Only GCS names an upload in a step of its own; elsewhere such a name is like any other."""
        uri = wire_home.uri("a/large")
        beside = f"{uri}._upload-0123456789abcdef"

        async def work(wire: Wire) -> None:
            await create(wire, beside, b"data")
            found = [one async for one in wire.unnamed(wire_home.root)]
            assert [one.uri for one in found] == ([uri] if uri.startswith("gs:") else [])
            for one in found:
                await wire.abort(one.uri, one.upload)
            assert [one async for one in wire.unnamed(wire_home.root)] == []

        wire_home.run(work)
        assert wire_home.listed() == ([] if uri.startswith("gs:") else ["a/large._upload-0123456789abcdef"])


class TestCopying:
    def test_a_copy_is_whole_and_create_only(self, wire_home: WireHome) -> None:
        source, target, data = wire_home.uri("from/ü x+%"), wire_home.uri("to/ü x+%"), body(100_000)

        async def work(wire: Wire) -> None:
            if not (wire_home.abilities.conditional_copy or wire_home.abilities.conditional_finish):
                with pytest.raises(PermanentError):
                    await wire.copy_within(source, target)
                return
            e_tag = (await create(wire, source, data)).e_tag
            stored = await wire.copy_within(source, target, e_tag=e_tag)
            assert (stored.size_bytes, stored.e_tag) == (100_000, (await wire.head(target)).e_tag)
            assert stored.crc32c in (None, crc32c_of(data))
            assert await wire.read(target, 0, 100_000) == data
            with pytest.raises(ConditionFailed) as raised:
                await wire.copy_within(source, target, e_tag=e_tag)
            assert raised.value.subject == target
            with pytest.raises(ConditionFailed) as raised:
                await wire.copy_within(
                    source, wire_home.uri("new"), e_tag=(await create(wire, wire_home.uri("o"), b"")).e_tag
                )
            assert raised.value.subject == source
            with pytest.raises(ObjectNotFound) as missing:
                await wire.copy_within(wire_home.uri("none"), wire_home.uri("new"))
            assert missing.value.subject == wire_home.uri("none")

        wire_home.run(work)
        assert "new" not in wire_home.listed()

    def test_another_store_is_refused(self, wire_home: WireHome) -> None:
        elsewhere = "file:///elsewhere/x" if not wire_home.root.startswith("file:") else "memory://elsewhere/x"

        async def work(wire: Wire) -> None:
            with pytest.raises(PermanentError, match="stream it across"):
                await wire.copy_within(wire_home.uri("x"), elsewhere)

        wire_home.run(work)


async def _refused_by_name(wire: Wire, uri: str) -> None:
    for attempt in (create(wire, uri, b"x"), wire.begin(uri), wire.copy_within(uri + "2", uri)):
        with pytest.raises(PermanentError, match="cannot hold this key") as raised:
            await attempt
        assert raised.value.subject == uri


async def _uploads(wire: Wire, prefix_uri: str) -> list[Upload]:
    return [upload async for upload in wire.uploads(prefix_uri)]


async def _value(value: int) -> int:
    return value
