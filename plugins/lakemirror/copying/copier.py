"""Copies one file: read, summed on the way, written create-only, its sum compared with the store's answer.

- A small file is one read and one create; a larger one goes in parts, several at once, read while others are sent.
- Bytes are read once. A write that fails is tried again with the bytes at hand.
- Bytes that were damaged when they were read are read again: small files by the wire's word, larger ones if their parts
  are not those of the sum that the source's store keeps of the whole (proving.py); then their upload is dropped.
- A key that is taken is compared by size and CRC32C: our own earlier write is adopted, anything else is a stop. Two
  sums that differ are both taken again: one turned bit is no stop.
- An upload in parts that cannot be finished is aborted, unless an object may have been made of it: some servers delete
  the bytes of that object along with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from lakemirror.copying import bins
from lakemirror.copying.bins import PartPlan
from lakemirror.copying.ends import ForeignError, MirrorEnd, MisreadError, SourceEnd, changing, foreign, vanishing
from lakemirror.copying.gate import Gate
from lakemirror.copying.memory import ByteLimit
from lakemirror.copying.model import CopiedItem, CopyItem, CopySettings
from lakemirror.copying.pace import Pace
from lakemirror.copying.proving import AT_ONCE, InOrder, Proof, summed
from lakemirror.copying.retry import Patience, RetryBudget, Retrying, Sleep
from lakemirror.copying.together import all_within
from lakemirror.errors import LakemirrorError, PermanentError, TransientError, VerificationError
from lakemirror.storage.checksum import combined, crc32c_of
from lakemirror.storage.md5_tags import fits
from lakemirror.storage.port import ConditionFailed, DamagedError, ObjectNotFound
from lakemirror.storage.wire import Part, Stored, WholeRead, Wire

ABORT_S = 30.0
MAX_READS = 3
"""Of a file in parts whose sum is not that of its source, and of two files whose sums differ."""


class Copier:
    """The copies of one task; all of them share memory, gates, retry budget and pace."""

    def __init__(
        self,
        source: Wire,
        mirror: Wire,
        settings: CopySettings,
        pace: Pace,
        *,
        random: Callable[[], float],
        clock: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
        is_one_store: bool = False,
    ) -> None:
        self.settings = settings
        self.memory = ByteLimit(settings.held_bytes)
        self._budget = RetryBudget(settings.retry_budget)
        self._proof = Proof()

        def retrying() -> Retrying:
            gate = Gate(settings.concurrency)
            return Retrying(gate, pace, self._budget, settings.attempts, random, clock, sleep)

        chunk_bytes = min(settings.part_bytes, settings.held_bytes)
        self.source = SourceEnd(source, retrying(), self.memory, chunk_bytes)
        self.mirror = MirrorEnd(mirror, retrying(), self.memory, chunk_bytes)
        self._is_one_store = is_one_store
        self._trusts_tags = True
        """Of the mirror's parts, where they are MD5s: until those of a file were not what its source says."""
        self._unheard: set[str] = set()
        """Uploads that were to be finished without an answer: an object may have been made of them."""

    async def copy(self, item: CopyItem, *, looks_first: bool = False) -> CopiedItem:
        """The mirror has the file whole afterwards, or an error is raised."""
        patience = self.patience(item)
        if looks_first and await self.mirror.has(item.target, patience):
            return await self._adopted(item, await self.source.sum(item, patience), patience)
        if self._is_one_store and self.mirror.wire.capabilities(item.target).copies_within:
            return await self._within(item, patience)
        if item.size_bytes <= self._most_at_once(item):
            return await self._at_once(item, patience)
        return await self._in_parts(item)

    def patience(self, item: CopyItem) -> Patience:
        return Patience(item.source, self.settings.object_deadline_s)

    def part_bytes(self, item: CopyItem) -> int:
        powers = self.mirror.wire.capabilities(item.target)
        wanted = max(self.settings.part_bytes, powers.min_part_bytes)
        return bins.part_bytes_for(item.size_bytes, wanted, self.memory.capacity_bytes, item.target, powers.max_parts)

    def source_part_bytes(self, item: CopyItem, seen: Stored) -> int | None:
        """The size of the source's own parts, if ours may be the same and their MD5s come from the mirror's store."""
        tag, powers = seen.md5, self.mirror.wire.capabilities(item.target)
        if not self._has_md5_tags(item) or tag is None or tag.part_bytes is None:
            return None
        if seen.crc32c is not None or seen.crc32 is not None or tag.parts > powers.max_parts:
            return None
        is_possible = powers.min_part_bytes <= tag.part_bytes <= self.memory.capacity_bytes // AT_ONCE
        return tag.part_bytes if is_possible else None

    def _has_md5_tags(self, item: CopyItem) -> bool:
        return self._trusts_tags and self.mirror.wire.capabilities(item.target).tags_parts_md5

    def _most_at_once(self, item: CopyItem) -> int:
        powers = self.mirror.wire.capabilities(item.target)
        return min(max(self.settings.most_whole_bytes, powers.min_part_bytes), powers.max_create_bytes)

    async def _at_once(self, item: CopyItem, patience: Patience) -> CopiedItem:
        async with self.memory.hold(item.size_bytes):
            crc32c, stored = await self._created(item, patience)
        if stored is None:  # comparing may read the copy, into memory of its own: ours is given back by then
            return await self._adopted(item, crc32c, patience)
        return _copied(item, crc32c, stored)

    async def _created(self, item: CopyItem, patience: Patience) -> tuple[int, Stored | None]:
        """The sum of the file and what the mirror keeps of it; None if the key is taken.

        Where nothing but the MD5 in its ETag tells that it was read as it is, the mirror's store compares that, which
        hashes what it is sent anyway. Bytes that it refuses for it are read again, and hashed here.
        """
        leaves_md5 = self.mirror.wire.capabilities(item.target).checks_md5
        read = await self.source.whole(item, patience, leaves_md5=leaves_md5)
        crc32c = crc32c_of(read.data)
        try:
            stored = await self._sent(item, read, crc32c, patience)
            if read.left is not None:
                read.matched()
            return crc32c, stored
        except ConditionFailed:
            if await _is_as_read(read):
                return crc32c, None
        except _NotAsReadError:
            pass
        del read  # two of them would be more memory than was set aside
        read = await self.source.whole(item, patience)
        crc32c = crc32c_of(read.data)
        try:
            return crc32c, await self._sent(item, read, crc32c, patience)
        except ConditionFailed:
            return crc32c, None

    async def _sent(self, item: CopyItem, read: WholeRead, crc32c: int, patience: Patience) -> Stored:
        create = partial(self._create, item, read, crc32c)
        return await self.mirror.retrying(create, patience, again_bytes=item.size_bytes)

    async def _create(self, item: CopyItem, read: WholeRead, crc32c: int) -> Stored:
        md5 = None if read.left is None else read.left.md5
        try:
            return await self.mirror.wire.create(item.target, read.data, crc32c, md5=md5)
        except DamagedError as err:
            if await _is_as_read(read):
                raise  # on its way to the mirror: it is sent again
            raise _NotAsReadError from err

    async def _in_parts(self, item: CopyItem) -> CopiedItem:
        reads = 1
        while True:
            try:
                return await self._in_parts_once(item)
            except MisreadError as err:
                if reads >= MAX_READS or not self._budget.take():
                    err.add_note(f"gave up after {reads} reads of the whole file")
                    raise
                reads += 1

    async def _in_parts_once(self, item: CopyItem) -> CopiedItem:
        seen = self._proof.trusted(await self.source.look(item, self.patience(item)))
        same_bytes = self.source_part_bytes(item, seen)
        plans = bins.parts_of(item.size_bytes, same_bytes or self.part_bytes(item))
        in_order = None if seen.md5 is None or same_bytes is not None else InOrder(seen.md5)
        upload = await self.begin(item)
        try:
            parts = await self.send(item, upload, seen, plans, in_order=in_order)
            copied = await self.finish(item, upload, parts, seen, in_order)
            if copied.adopted:
                await self.abort(item, upload, looks=upload in self._unheard)
            return copied
        except (LakemirrorError, asyncio.CancelledError) as err:
            await self.abort_after(err, item, upload)
            raise

    async def begin(self, item: CopyItem) -> str:
        return await self.mirror.retrying(lambda: self.mirror.wire.begin(item.target), self.patience(item))

    async def send(
        self,
        item: CopyItem,
        upload: str,
        seen: Stored,
        plans: Iterable[PartPlan],
        on_part: Callable[[Part], Awaitable[None]] | None = None,
        in_order: InOrder | None = None,
    ) -> list[Part]:
        """Parts of a file as it was `seen` into an upload, as many at once as memory allows; in the order of `plans`.

        Each is told to `on_part` when the mirror has it.
        """

        async def send(plan: PartPlan) -> Part:
            part = await self._send_part(item, upload, seen, plan, in_order)
            if on_part is not None:
                await on_part(part)
            return part

        return await all_within(self.memory, ((plan.length, partial(send, plan)) for plan in plans))

    async def _send_part(
        self, item: CopyItem, upload: str, seen: Stored, plan: PartPlan, in_order: InOrder | None
    ) -> Part:
        patience = self.patience(item)
        data = await self.source.part(item, plan.start, plan.length, seen.e_tag, patience)
        crc32c = crc32c_of(data)
        put = partial(self.mirror.wire.put_part, item.target, upload, plan.number, data, crc32c)
        part = await self.mirror.retrying(put, patience, again_bytes=plan.length)
        return await summed(part, data, seen, in_order, trusts_tags=self._has_md5_tags(item))

    async def finish(
        self, item: CopyItem, upload: str, parts: Sequence[Part], seen: Stored, in_order: InOrder | None = None
    ) -> CopiedItem:
        """Make the object of its parts. Doing it again is fine: what is there then is compared, and the upload left.

        MisreadError, and nothing made, if they are not what was `seen` of the source file.
        """
        patience = self.patience(item)
        crc32c = combined((part.crc32c, part.size_bytes) for part in parts)
        try:
            self._proof.check(item, crc32c, parts, seen, in_order)
        except MisreadError:
            self._trusts_tags = False  # the next time they are hashed here
            raise
        try:
            stored = await self.mirror.retrying(partial(self._finish, item, upload, parts, crc32c), patience)
        except ConditionFailed:
            return await self._adopted(item, crc32c, patience)
        except ObjectNotFound as err:  # an earlier try, or a twin of this task, has finished it; or it was dropped
            if not await self.mirror.has(item.target, patience):
                raise upload_gone(item) from err
            return await self._adopted(item, crc32c, patience)
        self._unheard.discard(upload)
        return _copied(item, crc32c, stored)

    async def _finish(self, item: CopyItem, upload: str, parts: Sequence[Part], crc32c: int) -> Stored:
        was_heard = upload not in self._unheard
        self._unheard.add(upload)
        try:
            return await self.mirror.wire.finish(item.target, upload, parts, crc32c)
        except PermanentError:  # refused: by this try nothing was made
            if was_heard:
                self._unheard.discard(upload)
            raise

    async def abort(self, item: CopyItem, upload: str, *, looks: bool) -> bool:
        """Whether the upload was dropped. With `looks` it is left, and costs room, where the key has an object.

        SeaweedFS up to 4.47 may keep a finished upload, and deletes with it what its object is made of; which server
        speaks S3 nobody tells for sure. Where it is Amazon or Google, no look is needed.
        """
        patience = Patience(item.target, ABORT_S)
        if (
            looks
            and not self.mirror.wire.capabilities(item.target).aborts_safely
            and await self.mirror.has(item.target, patience)
        ):
            return False
        await self.mirror.retrying(lambda: self.mirror.wire.abort(item.target, upload), patience)
        return True

    async def _within(self, item: CopyItem, patience: Patience) -> CopiedItem:
        """On the store's side; its size and version are looked at before, its size and sum after.

        Nothing is read: where the store tells the sum neither of the file nor of its copy, there is none.
        """
        seen = await self.source.look(item, patience)
        copy = self.mirror.wire.copy_within
        with vanishing(item):
            try:
                stored = await self.mirror.retrying(lambda: copy(item.source, item.target, e_tag=seen.e_tag), patience)
            except ConditionFailed as err:
                if err.subject == item.source:
                    with changing(item):
                        raise
                return await self._adopted(item, await self.source.sum(item, patience), patience)
        _check_kept(item, seen.crc32c, stored)
        crc32c = seen.crc32c if stored.crc32c is None else stored.crc32c
        return CopiedItem(item, crc32c, stored.e_tag, adopted=False)

    async def _adopted(self, item: CopyItem, crc32c: int, patience: Patience) -> CopiedItem:
        """What lies under the key already, if it is to the byte what belongs there.

        Sums that were read over an unguarded line may be wrong on either side: a stop needs the same two twice.
        """
        met: set[tuple[int, int]] = set()
        for _ in range(MAX_READS):
            there, got = await self.mirror.there(item, crc32c, patience)
            if got == crc32c:
                return CopiedItem(item, crc32c, there.e_tag, adopted=True)
            if (crc32c, got) in met:
                raise foreign(item, crc32c, f"{there.size_bytes} with {got:08x}")
            met.add((crc32c, got))
            crc32c = await self.source.sum(item, patience)
        text = f"it reads differently each time (crc32c {', '.join(f'{got:08x}' for _, got in sorted(met))})"
        raise TransientError("copy", item.target, text, "run again; if it is always so, look at the line to this store")

    async def abort_after(self, err: BaseException, item: CopyItem, upload: str) -> None:
        """An upload left behind costs room, not correctness: the error that led here is the one to tell."""
        looks = upload in self._unheard and not isinstance(err, ForeignError)
        try:
            async with asyncio.timeout(ABORT_S):
                await self.abort(item, upload, looks=looks)
        except (LakemirrorError, TimeoutError) as late:
            err.add_note(f"the upload {upload} of {item.target} could not be aborted ({late})")


class _NotAsReadError(Exception):
    """The bytes do not have the MD5 that the ETag of their object may be."""


async def _is_as_read(read: WholeRead) -> bool:
    return read.left is None or await asyncio.to_thread(fits, read.left, read.data)


class UploadGoneError(TransientError):
    """An upload in parts, or one of its parts, is no more, and nothing came of it."""


def upload_gone(item: CopyItem) -> UploadGoneError:
    return UploadGoneError(
        "copy", item.target, "its upload was dropped before it was finished", "run again: it begins anew"
    )


def _copied(item: CopyItem, crc32c: int, stored: Stored) -> CopiedItem:
    """The wire has compared what the store answered; this is for one that forgets to."""
    _check_kept(item, crc32c, stored)
    return CopiedItem(item, crc32c, stored.e_tag, adopted=False)


def _check_kept(item: CopyItem, crc32c: int | None, stored: Stored) -> None:
    """VerificationError if the mirror's store tells of another size, or of another sum where both are known."""
    is_other = None not in (crc32c, stored.crc32c) and crc32c != stored.crc32c
    if is_other or stored.size_bytes != item.size_bytes:
        raise VerificationError(
            "copy",
            item.target,
            f"the store keeps something else (want {item.size_bytes} bytes with crc32c {crc32c or 0:08x}, "
            f"got {stored.size_bytes} with {stored.crc32c or 0:08x})",
            "delete it and run again",
        )
