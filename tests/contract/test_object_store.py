"""What every object store must do, whatever is behind it: one suite over all adapters and transparent wrappers."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial

import google_crc32c
import pytest

from lakemirror.errors import LakemirrorError, PermanentError, TransientError
from lakemirror.storage.checksum import checksum_of
from lakemirror.storage.objects import capabilities
from lakemirror.storage.port import (
    CHUNK_BYTES,
    CREATE,
    Blob,
    Condition,
    ConditionFailed,
    IfMatch,
    ObjectNotFound,
    Overwrite,
    Written,
)
from tests.contract.conftest import Place

STRANGE_KEYS = [
    "region=EU/day=2026-01-01/x.parquet",
    "a=b/c d+e%25/ü,/x",
    "100%",
    "pct%2Fslash/%C3%BC",
    "plus+and space",
    "comma,semi;colon:at@",
    "ü/ñ/u\u0308/雪/😀",
    "quote'\"/back\\slash",
    "a&b<c>d|e^f`g{h}i[j]",
    "question?mark=1&x=2",
    ".hidden/..dots../...",
    "~tilde/$dollar/!bang/(paren)/*star",
]
BAD_KEYS = ["", "a/", "a//b", "/a", "a/./b", "a/../b", "..", "tab\tx", "nul\0x", "line\nx", "del\x7fx", "\udc80"]
VERBS: dict[str, Callable[[Place, str], object]] = {
    "get": lambda place, uri: place.store.get(uri),
    "stream": lambda place, uri: list(place.store.stream(uri)),
    "put": lambda place, uri: place.store.put(uri, b"x"),
    "head": lambda place, uri: place.store.head(uri),
    "delete": lambda place, uri: place.store.delete([place.uri("kept"), uri]),
    "copy": lambda place, uri: place.store.copy(place.uri("kept"), uri),
}


def pieces(total_bytes: int, piece_bytes: int = 1024 * 1024) -> Iterator[bytes]:
    """A body whose every piece differs, so that lost or swapped pieces change it."""
    for start in range(0, total_bytes, piece_bytes):
        size_bytes = min(piece_bytes, total_bytes - start)
        yield (start.to_bytes(8, "big") * (size_bytes // 8 + 1))[:size_bytes]


class TestReading:
    def test_get_returns_the_bytes_and_what_head_says(self, place: Place) -> None:
        uri = place.uri("a/b.bin")
        written = place.store.put(uri, b"hello")
        blob = place.store.get(uri)
        assert blob == Blob(place.store.head(uri), b"hello")
        assert (blob.info.uri, blob.info.size_bytes, blob.info.e_tag) == (uri, 5, written.e_tag)
        assert blob.info.modified_at.tzinfo is not None
        assert blob.info.modified_at <= datetime.now(UTC) + timedelta(hours=1)

    @pytest.mark.parametrize(("start", "length"), [(0, 1), (0, 10), (3, 4), (9, 1), (0, 0), (10, 0)])
    def test_get_of_a_range_returns_exactly_it(self, place: Place, start: int, length: int) -> None:
        uri = place.uri("digits")
        place.store.put(uri, b"0123456789")
        blob = place.store.get(uri, byte_range=(start, length))
        assert blob == Blob(place.store.head(uri), b"0123456789"[start : start + length])

    @pytest.mark.parametrize("byte_range", [(0, 11), (5, 6), (10, 1), (99, 1), (-1, 2), (0, -1), (11, 0)])
    def test_get_of_a_range_outside_the_object_is_permanent(self, place: Place, byte_range: tuple[int, int]) -> None:
        uri = place.uri("digits")
        place.store.put(uri, b"0123456789")
        with pytest.raises(PermanentError) as raised:
            place.store.get(uri, byte_range=byte_range)
        assert (raised.value.op, raised.value.subject) == ("get", uri)

    def test_get_of_more_than_the_caller_can_take_is_permanent(self, place: Place) -> None:
        uri = place.uri("digits")
        place.store.put(uri, b"0123456789")
        assert place.store.get(uri, max_bytes=10).data == b"0123456789"
        assert place.store.get(uri, byte_range=(3, 4), max_bytes=4).data == b"3456"
        with pytest.raises(PermanentError, match=r"want at most 9 bytes, got 10") as raised:
            place.store.get(uri, max_bytes=9)
        assert (raised.value.op, raised.value.subject) == ("get", uri)

    @pytest.mark.parametrize("size_bytes", [0, 1, 1000, 1001, 3000])
    def test_stream_gives_everything_in_bounded_pieces(self, place: Place, size_bytes: int) -> None:
        body = b"".join(pieces(size_bytes, 100))
        place.store.put(place.uri("x"), body)
        streamed = list(place.store.stream(place.uri("x"), chunk_bytes=1000))
        assert b"".join(streamed) == body
        assert all(0 < len(piece) <= 1000 for piece in streamed)

    @pytest.mark.parametrize("verb", ["get", "stream", "head"])
    def test_a_missing_object_is_named(self, place: Place, verb: str) -> None:
        uri = place.uri("none/such")
        with pytest.raises(ObjectNotFound) as raised:
            VERBS[verb](place, uri)
        assert (raised.value.op, raised.value.subject) == (verb, uri)
        assert raised.value.hint

    def test_a_missing_object_is_found_out_before_the_first_piece(self, place: Place) -> None:
        with pytest.raises(ObjectNotFound):
            place.store.stream(place.uri("none"))


class TestWriting:
    @pytest.mark.parametrize("size_bytes", [0, 1, 70_000, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 5])
    def test_a_streamed_body_arrives_whole_with_its_checksum(self, place: Place, size_bytes: int) -> None:
        uri = place.uri("streamed")
        written = place.store.put(uri, pieces(size_bytes))
        expected = b"".join(pieces(size_bytes))
        info = place.store.head(uri)
        assert written == Written(uri, size_bytes, google_crc32c.value(expected), info.e_tag, written.is_proven)
        assert b"".join(place.store.stream(uri)) == expected
        tally = checksum_of(place.store, uri)
        assert (tally.size_bytes, tally.crc32c) == (written.size_bytes, written.crc32c)

    @pytest.mark.parametrize("data", [b"", b"abc", bytes(70_000)])
    def test_a_whole_body_is_known_to_have_arrived_as_it_was_sent(self, place: Place, data: bytes) -> None:
        written = place.store.put(place.uri("whole"), data)
        assert written.is_proven
        assert written.e_tag == place.store.head(place.uri("whole")).e_tag

    def test_whole_and_streamed_bodies_give_the_same_answer(self, place: Place) -> None:
        whole = place.store.put(place.uri("whole"), b"abc")
        streamed = place.store.put(place.uri("streamed"), iter([b"a", b"", b"bc"]))
        assert (whole.size_bytes, whole.crc32c) == (streamed.size_bytes, streamed.crc32c)
        assert place.store.get(place.uri("streamed")).data == b"abc"

    @pytest.mark.parametrize("size_bytes", [10, CHUNK_BYTES + 10])
    def test_create_refuses_what_is_there_and_changes_nothing(self, place: Place, size_bytes: int) -> None:
        uri = place.uri("x")
        before = place.store.put(uri, b"first")
        for body in (b"second", pieces(size_bytes)):
            with pytest.raises(ConditionFailed) as raised:
                place.store.put(uri, body)
            assert (raised.value.op, raised.value.subject) == ("put", uri)
        assert place.store.get(uri).data == b"first"
        assert place.store.head(uri).e_tag == before.e_tag

    @pytest.mark.parametrize("size_bytes", [10, CHUNK_BYTES + 10])
    def test_overwrite_replaces_and_creates(self, place: Place, size_bytes: int) -> None:
        uri = place.uri("x")
        place.store.put(uri, b"first", Overwrite())
        written = place.store.put(uri, pieces(size_bytes), Overwrite())
        assert place.store.head(uri).e_tag == written.e_tag
        assert b"".join(place.store.stream(uri)) == b"".join(pieces(size_bytes))

    def test_if_match_replaces_only_the_content_seen(self, place: Place) -> None:
        uri = place.uri("lease")
        first = place.store.put(uri, b"one")
        assert first.e_tag is not None
        second = place.store.put(uri, b"two", IfMatch(first.e_tag))
        assert second.e_tag is not None
        assert second.e_tag != first.e_tag
        with pytest.raises(ConditionFailed) as raised:
            place.store.put(uri, b"too late", IfMatch(first.e_tag))
        assert (raised.value.op, raised.value.subject) == ("put", uri)
        assert place.store.get(uri).data == b"two"
        place.store.put(uri, iter([b"thr", b"ee"]), IfMatch(second.e_tag))
        assert place.store.get(uri).data == b"three"

    def test_if_match_never_creates(self, place: Place) -> None:
        e_tag = place.store.put(place.uri("other"), b"x").e_tag
        assert e_tag is not None
        with pytest.raises(ConditionFailed):
            place.store.put(place.uri("gone"), b"x", IfMatch(e_tag))
        assert place.keys() == ["other"]

    def test_if_match_with_a_large_stream_works_or_is_refused_as_announced(self, place: Place) -> None:
        uri = place.uri("large")
        e_tag = place.store.put(uri, b"x").e_tag
        assert e_tag is not None
        if capabilities(uri).if_match_streams:
            place.store.put(uri, pieces(CHUNK_BYTES + 1), IfMatch(e_tag))
            assert place.store.head(uri).size_bytes == CHUNK_BYTES + 1
        else:
            with pytest.raises(PermanentError, match="IfMatch"):
                place.store.put(uri, pieces(CHUNK_BYTES + 1), IfMatch(e_tag))
            assert place.store.get(uri).data == b"x"

    @pytest.mark.parametrize("size_bytes", [10, 2 * CHUNK_BYTES])
    @pytest.mark.parametrize(
        "error",
        [TransientError("stream", "s3://elsewhere/x", "cut short"), FileNotFoundError("mine"), ValueError("mine")],
        ids=["transient", "not-found", "value"],
    )
    def test_a_body_that_breaks_off_writes_nothing_and_passes_its_error(
        self, place: Place, size_bytes: int, error: Exception
    ) -> None:
        def breaking() -> Iterator[bytes]:
            yield from pieces(size_bytes)
            raise error

        with pytest.raises(type(error)) as raised:
            place.store.put(place.uri("x"), breaking())
        assert raised.value is error
        assert place.keys() == []
        place.store.put(place.uri("x"), b"now")


class TestRaces:
    def test_one_of_many_creators_wins_and_its_content_is_whole(self, place: Place) -> None:
        for round_number in range(4):
            uri = place.uri(f"race/{round_number}")
            winners = race(16, partial(write_own, place, uri, CREATE, 1000))
            assert len(winners) == 1
            assert place.store.get(uri).data == bytes(winners) * 1000

    def test_one_of_many_creators_of_a_large_stream_wins(self, place: Place) -> None:
        uri = place.uri("race/large")
        size_bytes = CHUNK_BYTES + 1000

        def stream_own(racer: int) -> None:
            place.store.put(uri, iter([bytes([racer]) * CHUNK_BYTES, bytes([racer]) * 1000]))

        winners = race(4, stream_own)
        assert len(winners) == 1
        assert set(place.store.get(uri).data) == set(winners)
        assert place.store.head(uri).size_bytes == size_bytes

    def test_one_of_many_replacers_wins(self, place: Place) -> None:
        uri = place.uri("cell")
        e_tag = place.store.put(uri, b"start").e_tag
        for round_number in range(5):
            assert e_tag is not None
            winners = race(8, partial(write_own, place, uri, IfMatch(e_tag), 1000 + round_number))
            assert len(winners) == 1
            blob = place.store.get(uri)
            assert blob.data == bytes(winners) * (1000 + round_number)
            e_tag = blob.info.e_tag


def write_own(place: Place, uri: str, condition: Condition, size_bytes: int, racer: int) -> None:
    place.store.put(uri, bytes([racer]) * size_bytes, condition)


def race(racers: int, attempt: Callable[[int], object]) -> list[int]:
    """Who succeeded of many that start together; the others must have met ConditionFailed."""
    start = threading.Barrier(racers)

    def run(number: int) -> bool:
        start.wait(timeout=30)
        try:
            attempt(number)
        except ConditionFailed:
            return False
        return True

    with ThreadPoolExecutor(racers) as pool:
        return [number for number, won in enumerate(pool.map(run, range(racers))) if won]


class TestKeys:
    @pytest.mark.parametrize("key", STRANGE_KEYS)
    def test_strange_keys_survive_every_verb_literally(self, place: Place, key: str) -> None:
        uri, copied = place.uri(key), place.uri(f"copy of/{key}")
        if any(character in key for character in place.spoiled):
            with pytest.raises(PermanentError, match="cannot hold this key"):
                place.store.put(uri, b"x")
            assert place.keys() == []
            return
        assert place.store.put(uri, key.encode()).uri == uri
        assert place.store.get(uri).info.uri == uri
        assert b"".join(place.store.stream(uri)) == key.encode()
        assert place.store.copy(uri, copied).uri == copied
        assert {info.uri for info in place.store.list(place.root)} == {uri, copied}
        folder = uri.rpartition("/")[0]
        if folder != place.root:
            assert [info.uri for info in place.store.list(folder)] == [uri]
        place.store.delete([uri, copied])
        assert place.keys() == []

    def test_keys_that_look_alike_are_different_objects(self, place: Place) -> None:
        alike = ["a b", "a%20b", "a+b", "a%2520b", "\u00fc", "u\u0308", "%C3%BC", "A B"]
        for key in alike:
            place.store.put(place.uri(key), key.encode())
        assert sorted(place.keys()) == sorted(alike)
        assert [place.store.get(place.uri(key)).data.decode() for key in alike] == alike

    @pytest.mark.parametrize("verb", VERBS)
    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_keys_that_no_store_can_hold_are_refused_before_anything_is_touched(
        self, place: Place, verb: str, key: str
    ) -> None:
        place.store.put(place.uri("kept"), b"x")
        with pytest.raises(PermanentError) as raised:
            VERBS[verb](place, place.uri(key))
        assert type(raised.value) is PermanentError
        assert raised.value.op == verb
        assert place.keys() == ["kept"]


class TestListing:
    def test_everything_below_a_prefix_in_key_order(self, place: Place) -> None:
        keys = ["t/a", "t/a-b", "t/a/x", "t/a/y/z", "t/ab", "t/b", "t/ü", "t/Z", "tt/a", "t.x", "s"]
        keys = [key for key in keys if key != "t/a"]  # files cannot hold both t/a and t/a/x
        for key in keys:
            place.store.put(place.uri(key), key.encode())
        below = sorted((key for key in keys if key.startswith("t/")), key=str.encode)
        for prefix in ("t", "t/"):
            listed = place.keys(prefix)
            assert (listed if place.lists_in_order else sorted(listed, key=str.encode)) == below
        assert sorted(place.keys(), key=str.encode) == sorted(keys, key=str.encode)

    def test_entries_say_what_head_says(self, place: Place) -> None:
        uris = [place.uri(f"n{number}") for number in range(7)]
        for uri in uris:
            place.store.put(uri, b"x" * len(uri))
        listed = list(place.store.list(place.root))
        if capabilities(place.root).e_tags_in_lists:
            assert listed == [place.store.head(uri) for uri in uris]
        assert [(info.uri, info.size_bytes) for info in listed] == [(uri, len(uri)) for uri in uris]

    def test_nothing_below_is_empty(self, place: Place) -> None:
        place.store.put(place.uri("object"), b"x")
        assert place.keys("none") == []
        assert place.keys("object") == []
        assert place.keys("obj") == []

    def test_a_bad_prefix_is_refused_by_the_call(self, place: Place) -> None:
        with pytest.raises(PermanentError, match=r"'\.\.'"):
            place.store.list(place.uri("a/../b"))


class TestDeleting:
    def test_deletes_what_is_there_and_does_not_mind_the_rest(self, place: Place) -> None:
        for key in ("a", "b", "c/d"):
            place.store.put(place.uri(key), b"x")
        place.store.delete([place.uri(key) for key in ("a", "none", "c/d", "c/none", "b/none")])
        assert place.keys() == ["b"]
        place.store.delete([place.uri("a")])
        place.store.delete([])
        assert place.keys() == ["b"]

    def test_a_deleted_key_can_be_created_again(self, place: Place) -> None:
        place.store.put(place.uri("a"), b"1")
        place.store.delete([place.uri("a")])
        place.store.put(place.uri("a"), b"2")
        assert place.store.get(place.uri("a")).data == b"2"


class TestCopying:
    def test_copies_within_the_store(self, place: Place) -> None:
        source, target = place.uri("a"), place.uri("deep/er/b")
        place.store.put(source, b"content")
        info = place.store.copy(source, target)
        assert info == place.store.head(target)
        assert place.store.get(target).data == b"content"

    def test_create_refuses_what_is_there(self, place: Place) -> None:
        place.store.put(place.uri("a"), b"new")
        place.store.put(place.uri("b"), b"old")
        with pytest.raises(ConditionFailed) as raised:
            place.store.copy(place.uri("a"), place.uri("b"))
        assert (raised.value.op, raised.value.subject) == ("copy", place.uri("b"))
        assert place.store.get(place.uri("b")).data == b"old"

    def test_overwrite_replaces(self, place: Place) -> None:
        place.store.put(place.uri("a"), b"new")
        place.store.put(place.uri("b"), b"old")
        place.store.copy(place.uri("a"), place.uri("b"), Overwrite())
        assert place.store.get(place.uri("b")).data == b"new"

    def test_if_match_is_refused(self, place: Place) -> None:
        e_tag = place.store.put(place.uri("a"), b"x").e_tag
        assert e_tag is not None
        with pytest.raises(PermanentError, match="e_tag"):
            place.store.copy(place.uri("a"), place.uri("b"), IfMatch(e_tag))
        assert place.keys() == ["a"]

    def test_a_missing_source_is_named(self, place: Place) -> None:
        with pytest.raises(ObjectNotFound) as raised:
            place.store.copy(place.uri("none"), place.uri("b"))
        assert (raised.value.op, raised.value.subject) == ("copy", place.uri("none"))
        assert place.keys() == []

    def test_another_store_is_refused(self, place: Place) -> None:
        place.store.put(place.uri("a"), b"x")
        for elsewhere in ("memory://elsewhere/b", "s3://elsewhere/b"):
            with pytest.raises(PermanentError, match="stream it across"):
                place.store.copy(place.uri("a"), elsewhere)


def test_errors_pickle(place: Place) -> None:
    with pytest.raises(ObjectNotFound) as raised:
        place.store.get(place.uri("none"))
    copy: LakemirrorError = pickle.loads(pickle.dumps(raised.value))
    assert (type(copy), str(copy)) == (ObjectNotFound, str(raised.value))


def test_threads_share_a_store(place: Place) -> None:
    def work(number: int) -> bytes:
        uri = place.uri(f"thread/{number}")
        place.store.put(uri, pieces(10_000 + number, 1000))
        return b"".join(place.store.stream(uri, chunk_bytes=700))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(40))) == [b"".join(pieces(10_000 + n, 1000)) for n in range(40)]
    assert len(place.keys()) == 40
