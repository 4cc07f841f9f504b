"""A large file that several tasks copy, each a range of its parts, into one upload.

The upload is written down before the first part is sent: whoever comes to copy a range finds it, or begins it, and of
two who begin at once one wins and the other drops his. Parts are written down with their sums and the store's tags.
Finishing puts them together once all are there; doing it again finds the object and compares. An upload that was
dropped meanwhile is begun anew, and parts of the old one count no longer. Parts that together are not what the source's
store keeps are dropped, and the last step copies the file by itself.

Where the source's store names nothing but an ETag of MD5s, our parts are made of whole ones of its own, so that the MD5
of each can be computed by whoever reads it; or they are the same as its own, if the mirror's store names the MD5 of
what it got. Where that cannot be (the file was sent at once, its parts are too large),
nobody begins an upload, and the last step copies the file by itself, in order.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from lakemirror.copying import bins
from lakemirror.copying.bins import PartPlan, Range
from lakemirror.copying.copier import Copier, UploadGoneError, upload_gone
from lakemirror.copying.ends import ForeignError, MisreadError
from lakemirror.copying.model import MAX_PARTS, CopiedItem, CopyItem
from lakemirror.copying.proving import AT_ONCE, aligned
from lakemirror.errors import LakemirrorError, TransientError
from lakemirror.replicate import control
from lakemirror.replicate.ledger import LedgerWriter, flushed, read_ledger
from lakemirror.storage.md5_tags import Md5Tag
from lakemirror.storage.port import ConditionFailed, Create, IfMatch, ObjectNotFound, ObjectStore
from lakemirror.storage.wire import Part, Stored

PARTS = pa.schema(
    [
        pa.field("upload", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("crc32c", pa.int64(), nullable=False),
        pa.field("tag", pa.string(), nullable=False),
        pa.field("crc32", pa.int64()),
        pa.field("md5s", pa.binary(), nullable=False),
    ]
)
FLUSH_PARTS = 16
"""So many are written down together: what a killed task may have to send again, besides those under way."""
_RECORD: dict[str, control.Check] = {
    "upload": control.is_text,
    "source": control.is_text,
    "target": control.is_text,
    "size": control.is_count,
    "wanted_bytes": control.is_count,
    "part_bytes": control.is_count,
    "e_tag": control.or_none(control.is_text),
    "crc32c": control.or_none(control.is_count),
    "crc32": control.or_none(control.is_count),
    "md5_part_bytes": control.or_none(control.is_count),
}


@dataclass(frozen=True, slots=True)
class Begun:
    """An upload as it was written down, with the version of the source file that all its parts are of, and its sum.

    `wanted_bytes` is the size of parts that the configuration asks for, `part_bytes` what they have: no less, unless
    they are the source's own. With `md5_part_bytes` the e_tag is compared as that of parts of this size.
    """

    upload: str
    source: str
    target: str
    size: int
    wanted_bytes: int
    part_bytes: int
    e_tag: str | None
    crc32c: int | None
    crc32: int | None
    md5_part_bytes: int | None

    @property
    def seen(self) -> Stored:
        tag = None if self.md5_part_bytes is None else Md5Tag.of(self.e_tag)
        md5 = None if tag is None else replace(tag, part_bytes=self.md5_part_bytes)
        return Stored(self.size, self.crc32c, self.e_tag, self.crc32, md5)

    @property
    def plans(self) -> list[PartPlan]:
        return bins.parts_of(self.size, self.part_bytes)


class SplitFile:
    """One large file, as a task sees it; `folder` is where its upload and parts are written down."""

    def __init__(self, copier: Copier, store: ObjectStore, folder: str, item: CopyItem, part_bytes: int) -> None:
        self._copier, self._store = copier, store
        self._folder, self._item, self._part_bytes = folder, item, part_bytes
        self._record_uri = _record_uri(folder)

    async def copy_range(self, chosen: Range, tell: Callable[[int], None], *, looks_first: bool) -> int:
        """Send the parts of a range that are not there yet; the bytes that were sent."""
        item, copier = self._item, self._copier
        if looks_first and await copier.mirror.has(item.target, copier.patience(item)):
            return 0  # finished before, and not written down: finishing compares it
        begun = await self._begun()
        if begun is None:
            return 0  # finishing copies it
        start = (chosen.first_part - 1) * self._part_bytes
        end = start + chosen.parts * self._part_bytes
        plans = [plan for plan in begun.plans if start <= plan.start < end]
        done = await asyncio.to_thread(self._parts, begun) if looks_first else {}  # of a first try there are none
        todo = [plan for plan in plans if plan.number not in done]
        tell(sum(plan.length for plan in plans if plan.number in done))
        ledger = LedgerWriter(self._store, f"{self._folder}/parts", PARTS, FLUSH_PARTS, "range")

        async def on_part(part: Part) -> None:
            tell(part.size_bytes)
            await ledger.add(_row(begun.upload, part))

        async with flushed(ledger):
            try:
                sent = await copier.send(item, begun.upload, begun.seen, todo, on_part)
            except ObjectNotFound as err:
                await self._forget(begun)
                raise upload_gone(item) from err
        return sum(part.size_bytes for part in sent)

    async def finish(self) -> tuple[CopiedItem, int]:
        """The object, made of all its parts; and the bytes that were sent for it just now."""
        item, copier = self._item, self._copier
        record = await asyncio.to_thread(self._read)
        if record is None or not record[0].upload:  # every range found the object there; or no range may send it
            is_there = await copier.mirror.has(item.target, copier.patience(item))
            copied = await copier.copy(item, looks_first=is_there)
            return copied, 0 if copied.adopted else item.size_bytes
        self._check(record[0])
        return await self._finish(record[0]), 0

    async def _finish(self, begun: Begun) -> CopiedItem:
        item, copier = self._item, self._copier
        parts = await asyncio.to_thread(self._parts, begun)
        want = [plan.number for plan in begun.plans]
        if sorted(parts) != want:
            if await copier.mirror.has(item.target, copier.patience(item)):
                return await copier.copy(item, looks_first=True)
            text = f"parts are missing (want {len(want)}, got {len(parts)})"
            raise TransientError("copy", item.target, text, "run again: it sends the rest")
        try:
            return await copier.finish(item, begun.upload, [parts[number] for number in want], begun.seen)
        except UploadGoneError as err:  # or some of its parts are not those that were written down
            await copier.abort_after(err, item, begun.upload)
            await self._forget(begun)  # or every later run would find all parts sent, and fail here again
            raise
        except ForeignError as err:
            await copier.abort_after(err, item, begun.upload)
            raise
        except MisreadError as err:
            await copier.abort_after(err, item, begun.upload)
            await self._forget(begun)
            return await copier.copy(item)

    async def abort(self) -> None:
        """Drop the upload, if one is written down."""
        record = await asyncio.to_thread(self._read)
        if record is not None:
            if record[0].upload:
                await self._copier.abort(self._item, record[0].upload, looks=True)
            await asyncio.to_thread(self._store.delete, [self._record_uri])

    async def _begun(self) -> Begun | None:
        """The upload that is written down, or a new one; None if one task must read the file from end to end."""
        record = await asyncio.to_thread(self._read)
        if record is None:
            return await self._begin(None)
        begun, written = record
        self._check(begun)
        if begun.upload and begun.wanted_bytes != self._part_bytes:  # the configuration has changed since
            await self._copier.abort(self._item, begun.upload, looks=True)
            await self._forget(begun)
            record = await asyncio.to_thread(self._read)
            if record is None or not record[0].upload:
                return await self._begin(None if record is None else record[1])
            return record[0]  # another task was faster
        return begun if begun.upload else await self._begin(written)

    async def _begin(self, e_tag: str | None) -> Begun | None:
        item, wanted = self._item, self._part_bytes
        seen = await self._copier.source.look(item, self._copier.patience(item))
        part_bytes, md5 = wanted, seen.md5 if seen.crc32c is None and seen.crc32 is None else None
        if md5 is not None:
            most_bytes = self._copier.memory.capacity_bytes // AT_ONCE
            fitting = self._copier.source_part_bytes(item, seen) or aligned(md5, wanted, most_bytes)
            if fitting is None:
                return None
            part_bytes = fitting
        upload = await self._copier.begin(item)
        whole = (item.source, item.target, item.size_bytes, wanted, part_bytes)
        sums = (seen.e_tag, seen.crc32c, seen.crc32, None if md5 is None else md5.part_bytes)
        begun = Begun(upload, *whole, *sums)
        try:
            await asyncio.to_thread(self._write, begun, e_tag)
        except ConditionFailed as err:
            record = await asyncio.to_thread(self._read)
            if record is not None and record[0] == begun:
                return begun  # written by a try whose answer was lost
            await self._copier.abort(item, upload, looks=False)
            if record is None or not record[0].upload:
                raise upload_gone(item) from err
            self._check(record[0])
            return record[0]
        except (LakemirrorError, asyncio.CancelledError) as err:
            await self._copier.abort_after(err, item, upload)
            raise
        return begun

    async def _forget(self, begun: Begun) -> None:
        """Note that this upload is no more, unless another task has done so."""
        record = await asyncio.to_thread(self._read)
        if record is not None and record[0] == begun:
            try:
                await asyncio.to_thread(self._write, replace(begun, upload=""), record[1])
            except ConditionFailed:
                return  # a twin was faster

    def _check(self, begun: Begun) -> None:
        item = self._item
        if (begun.source, begun.target, begun.size) != (item.source, item.target, item.size_bytes):
            raise control.altered(self._record_uri, f"it is of {begun.target}")
        least_bytes = begun.wanted_bytes if begun.part_bytes != begun.md5_part_bytes else 1
        if not begun.size / MAX_PARTS <= begun.part_bytes >= least_bytes > 0:
            raise control.altered(self._record_uri, f"parts are of {begun.part_bytes} bytes")
        if begun.md5_part_bytes is not None and (not begun.md5_part_bytes or begun.part_bytes % begun.md5_part_bytes):
            raise control.altered(self._record_uri, f"the source's parts are of {begun.md5_part_bytes} bytes")

    def _read(self) -> tuple[Begun, str | None] | None:
        return _read(self._store, self._record_uri)

    def _write(self, begun: Begun, replaced: str | None) -> None:
        condition = Create() if replaced is None else IfMatch(replaced)
        self._store.put(self._record_uri, json.dumps(asdict(begun)).encode(), condition)

    def _parts(self, begun: Begun) -> dict[int, Part]:
        rows = read_ledger(self._store, f"{self._folder}/parts", PARTS)
        return {
            row["number"]: Part(row["number"], row["size"], row["crc32c"], row["tag"], row["crc32"], row["md5s"])
            for row in rows
            if row["upload"] == begun.upload
        }


def upload_written_down(store: ObjectStore, folder: str) -> str:
    """The upload that the next range of this file goes on with; empty: none."""
    record = _read(store, _record_uri(folder))
    return "" if record is None else record[0].upload


def _record_uri(folder: str) -> str:
    return f"{folder}/upload.json"


def _read(store: ObjectStore, uri: str) -> tuple[Begun, str | None] | None:
    try:
        blob = store.get(uri, max_bytes=control.MAX_BYTES)
    except ObjectNotFound:
        return None
    return Begun(**control.parse(blob.data, uri, _RECORD)), blob.info.e_tag


def _row(upload: str, part: Part) -> dict[str, object]:
    return {
        "upload": upload,
        "number": part.number,
        "size": part.size_bytes,
        "crc32c": part.crc32c,
        "tag": part.tag,
        "crc32": part.crc32,
        "md5s": part.md5s,
    }
