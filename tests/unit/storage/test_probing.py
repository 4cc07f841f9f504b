"""The probe's findings: only what a store says is one; an answer that was lost, or a race without a winner, is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import pytest

from lakemirror.errors import PermanentError, TransientError
from lakemirror.storage.checksum import crc32c_of
from lakemirror.storage.clients import MemoryBuckets
from lakemirror.storage.port import ConditionFailed, ConflictError, DamagedError, ObjectNotFound, ThrottledError
from lakemirror.storage.probing import Probe
from lakemirror.storage.wire import Part, Stored, Wire
from lakemirror.storage.wires.local import LocalWire, memory_wire
from tests.wires import md5_tag

FOLDER = "memory://bucket/_probe"
RESET = TransientError("create", "x", "connection reset by peer", "run again")
REFUSED = PermanentError("create", "x", "the store refuses this (400 InvalidRequest)", "")


class TrickyWire(LocalWire):
    """A wire in memory whose creates may fail: `before` is raised instead of one, `after` once it is done.

    `of_part` is raised instead of sending a part with this CRC32C; without `checks_parts` any CRC32C is taken.
    `of_begin` is raised instead of beginning an upload.
    """

    def __init__(self) -> None:
        self.memory = MemoryBuckets()
        whole = memory_wire(self.memory)
        super().__init__(whole._store, whole._shelf, in_threads=False)
        self.before: Callable[[str], Exception | None] = lambda uri: None
        self.after: Callable[[str], Exception | None] = lambda uri: None
        self.checks_md5 = self.checks_parts = True
        self.of_part: Callable[[int], Exception | None] = lambda crc32c: None
        self.of_begin: Exception | None = None

    async def begin(self, uri: str) -> str:
        if self.of_begin is not None:
            raise self.of_begin
        return await super().begin(uri)

    async def create(self, uri: str, data: bytes, crc32c: int, *, md5: bytes | None = None) -> Stored:
        if (err := self.before(uri)) is not None:
            raise err
        try:
            stored = await super().create(uri, data, crc32c, md5=md5 if self.checks_md5 else None)
        finally:
            await asyncio.sleep(0)
        if (err := self.after(uri)) is not None:
            raise err
        return stored

    async def put_part(self, uri: str, upload: str, number: int, data: bytes, crc32c: int) -> Part:
        if (err := self.of_part(crc32c)) is not None:
            raise err
        return await super().put_part(uri, upload, number, data, crc32c if self.checks_parts else crc32c_of(data))


@dataclass
class MemoryDialect:
    """As much of a dialect as creates need."""

    tricky: TrickyWire = field(default_factory=TrickyWire)
    has_md5: bool = True
    has_tags: bool = False

    @property
    def uploads(self) -> int:
        """That were begun and left."""
        return len(self.tricky.memory.uploads)

    @property
    def wire(self) -> Wire:
        return self.tricky

    @wire.setter
    def wire(self, wire: Wire) -> None:
        raise NotImplementedError

    async def put(self, uri: str, data: bytes, e_tag: str | None = None) -> str | None:
        try:
            await self.tricky.head(uri)
        except ObjectNotFound:
            await LocalWire.create(self.tricky, uri, data, crc32c_of(data))
        return None

    async def delete(self, uri: str, e_tag: str) -> None:
        raise NotImplementedError

    async def keeps_tags(self, uri: str) -> bool:
        return False

    async def close(self) -> None:
        await self.tricky.close()


def asked(question: Callable[[Probe], Awaitable[bool]], dialect: MemoryDialect) -> bool:
    async def ask() -> bool:
        await dialect.put(f"{FOLDER}/plain", b"old")
        return await question(Probe(dialect, FOLDER, None))

    return asyncio.run(ask())


def checks(probe: Probe) -> Awaitable[bool]:
    return probe._checks_crc32c()


def hashes(probe: Probe) -> Awaitable[bool]:
    return probe._checks_md5()


def test_another_md5_that_is_refused_shows_that_it_is_checked() -> None:
    assert asked(hashes, MemoryDialect())


def test_a_store_that_takes_any_md5_does_not_check_it() -> None:
    dialect = MemoryDialect()
    dialect.tricky.checks_md5 = False
    assert not asked(hashes, dialect)


def test_a_store_that_wants_one_sum_only_is_sent_no_md5() -> None:
    dialect = MemoryDialect()
    dialect.tricky.before = lambda uri: REFUSED
    assert not asked(hashes, dialect)


def creates(probe: Probe) -> Awaitable[bool]:
    return probe._conditional_create()


@pytest.mark.parametrize("refusal", [DamagedError("create", "x", "400 BadDigest", ""), REFUSED])
def test_damaged_bytes_that_are_refused_show_that_sums_are_checked(refusal: Exception) -> None:
    dialect = MemoryDialect()
    dialect.tricky.before = lambda uri: refusal
    assert asked(checks, dialect)


@pytest.mark.parametrize("err", [RESET, ThrottledError("create", "x", "503 SlowDown", "")])
def test_a_reset_is_no_refusal_of_damaged_bytes(err: TransientError) -> None:
    dialect = MemoryDialect()
    dialect.tricky.before = lambda uri: err
    with pytest.raises(TransientError) as raised:
        asked(checks, dialect)
    assert raised.value is err


def checks_parts(probe: Probe) -> Awaitable[bool]:
    return probe._checks_part_crc32c()


@pytest.mark.parametrize("refusal", [DamagedError("put_part", "x", "400 BadDigest", ""), REFUSED])
def test_a_damaged_part_that_is_refused_shows_that_sums_of_parts_are_checked(refusal: Exception) -> None:
    dialect = MemoryDialect()
    dialect.tricky.of_part = lambda crc32c: None if crc32c == crc32c_of(b"new") else refusal
    assert asked(checks_parts, dialect)
    assert dialect.uploads == 0


def test_a_store_that_takes_parts_with_any_sum_does_not_check_them() -> None:
    """Whatever it does of whole objects."""
    dialect = MemoryDialect()
    dialect.tricky.checks_parts = False
    assert (asked(checks, dialect), asked(checks_parts, dialect)) == (True, False)
    assert dialect.uploads == 0


def test_a_store_that_refuses_sums_of_parts_altogether_is_sent_none() -> None:
    dialect = MemoryDialect()
    dialect.tricky.of_part = lambda crc32c: REFUSED
    assert not asked(checks_parts, dialect)
    assert dialect.uploads == 0


def test_a_reset_is_no_refusal_of_a_damaged_part() -> None:
    dialect = MemoryDialect()
    dialect.tricky.of_part = lambda crc32c: None if crc32c == crc32c_of(b"new") else RESET
    with pytest.raises(TransientError, match="reset"):
        asked(checks_parts, dialect)
    assert dialect.uploads == 0


def tags_parts(probe: Probe) -> Awaitable[bool]:
    return probe._tags_parts_md5()


@pytest.mark.parametrize("question", [checks_parts, tags_parts])
def test_a_store_that_takes_no_uploads_in_parts_has_none_of_their_abilities(
    question: Callable[[Probe], Awaitable[bool]],
) -> None:
    dialect = MemoryDialect()
    dialect.tricky.of_begin = REFUSED
    assert not asked(question, dialect)
    dialect.tricky.of_begin = RESET
    with pytest.raises(TransientError, match="reset"):
        asked(question, dialect)


@pytest.mark.parametrize(
    ("tag", "want"),
    [(md5_tag(b"new"), True), (md5_tag(b"old"), False), (f'{md5_tag(b"new")[:-1]}-1"', False), ("", False)],
)
def test_parts_whose_tag_is_their_md5_are_found(tag: str, want: bool) -> None:
    class Tagging(TrickyWire):
        async def put_part(self, uri: str, upload: str, number: int, data: bytes, crc32c: int) -> Part:
            return replace(await super().put_part(uri, upload, number, data, crc32c), tag=tag)

    dialect = MemoryDialect(Tagging())
    assert (asked(tags_parts, dialect), dialect.uploads) == (want, 0)
    dialect.has_md5 = False
    assert not asked(tags_parts, dialect)


def test_one_winner_of_many_is_found() -> None:
    assert asked(creates, MemoryDialect())


def lost_once(round_name: str) -> Callable[[str], Exception | None]:
    """The answer of the winner of this round is lost."""
    return lambda uri: RESET if uri.endswith(round_name) else None


def test_a_race_whose_winner_was_not_heard_of_is_run_again() -> None:
    dialect = MemoryDialect()
    dialect.tricky.after = lost_once("race-0-0")
    assert asked(creates, dialect)


def test_a_race_whose_winners_are_never_heard_of_is_no_finding() -> None:
    dialect = MemoryDialect()
    dialect.tricky.after = lambda uri: RESET if "race" in uri else None
    with pytest.raises(TransientError, match="reset"):
        asked(creates, dialect)


@pytest.mark.parametrize("loser", [ConditionFailed("create", "x", "", ""), ConflictError("create", "x", "409", "")])
def test_a_race_that_nobody_wins_is_no_finding(loser: Exception) -> None:
    dialect = MemoryDialect()
    dialect.tricky.before = lambda uri: loser if "race" in uri else None
    with pytest.raises(TransientError, match="nobody won"):
        asked(creates, dialect)


def test_two_winners_are_a_finding_whatever_became_of_the_others() -> None:
    class Careless(TrickyWire):
        async def create(self, uri: str, data: bytes, crc32c: int) -> Stored:
            if "race" not in uri:
                return await super().create(uri, data, crc32c)
            if data == b"racer 7":
                raise RESET
            return Stored(len(data), crc32c, None)

    assert not asked(creates, MemoryDialect(Careless()))


def copies(probe: Probe) -> Awaitable[bool]:
    return probe._conditional_copy()


def test_a_conditional_copy_that_one_of_many_wins_is_found() -> None:
    assert asked(copies, MemoryDialect())


def test_copies_of_which_several_win_are_not_conditional() -> None:
    """One after the other they are refused: the server looks and writes in two steps."""

    class InTwoSteps(TrickyWire):
        async def copy_within(self, source_uri: str, target_uri: str, *, e_tag: str | None = None) -> Stored:
            if "copying" in target_uri:
                return Stored(3, crc32c_of(b"new"), None)
            return await super().copy_within(source_uri, target_uri, e_tag=e_tag)

    assert not asked(copies, MemoryDialect(InTwoSteps()))
