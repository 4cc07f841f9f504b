"""Copy: segments of the plan, on one event loop for each task, each file once, written down as it is done.

A row of work is a segment of whole files, a range of a file that several tasks share, or the finishing of such a file.
What was done is in the ledger, so a killed run goes on where it was; what lies under a key without being in the ledger
is adopted only if size and checksum fit.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from lakemirror.copying.bins import FILE_COST_BYTES, Range
from lakemirror.copying.copier import Copier
from lakemirror.copying.crew import Job, run_loop, work_off
from lakemirror.copying.model import CopyItem
from lakemirror.copying.pace import Pace
from lakemirror.copying.ports import Opened, opened
from lakemirror.copying.together import all_told
from lakemirror.errors import LakemirrorError, TransientError
from lakemirror.model.paths import PrefixMap
from lakemirror.replicate import control, segments
from lakemirror.replicate.ledger import LEDGER, Item, LedgerWriter, ledger_folder, read_ledger, row_of
from lakemirror.replicate.plan import ITEM
from lakemirror.replicate.split import SplitFile
from lakemirror.replicate.stage import Counted, LocalEngine, StageContext
from lakemirror.storage.port import ObjectStore
from lakemirror.storage.wrappers.limit import paid_by

WORK = pa.schema(
    [
        pa.field("uri", pa.string()),
        pa.field("step", pa.string()),  # files: a segment's · range: of a split file · finish: a split file
        pa.field("first_part", pa.int64()),
        pa.field("parts", pa.int64()),
        pa.field("part_bytes", pa.int64()),
        pa.field("weight", pa.int64()),  # of its bytes and requests, for whoever deals rows to tasks
    ]
)
COPIED = pa.schema(
    [
        pa.field("uri", pa.string()),
        pa.field("files", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("skipped", pa.int64()),
        pa.field("ledger", pa.list_(pa.string())),  # all objects of its ledger, if one try did it
        pa.field("requests", pa.string()),  # by the stores of the context
        pa.field("wire_requests", pa.string()),  # by the copier's own wires
        pa.field("begun", pa.int64()),  # uploads in parts
    ]
)


@dataclass
class _Work:
    """A row of work under way, and what came of it."""

    row: Item
    stores: Counted
    ledger: LedgerWriter
    files: int = 0
    bytes: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class CopySegments:
    """Rows of work → copied files and their ledger.

    `resumes`: an earlier run may have left files. `is_repeated`: asked where the work is done, whether an earlier
    attempt of this run may have.
    """

    context: StageContext
    resumes: bool
    is_repeated: Callable[[], bool] = LocalEngine.is_repeated

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [row for batch in batches for row in batch.to_pylist()]
        if rows:
            is_repeated = self.is_repeated()
            here = replace(self, resumes=self.resumes or is_repeated)
            yield run_loop(here._run(rows, is_repeated=is_repeated))

    async def _run(self, rows: list[Item], *, is_repeated: bool) -> pa.RecordBatch:
        works: list[_Work] = []
        task = "+".join(f"{row['uri'].rsplit('/', 1)[-1]}:{row['first_part'] or 0}" for row in rows)[:1000]
        copying = self.context.copying
        async with opened(copying, task, is_repeated=is_repeated) as made, _one_line(made.pace):
            settings = made.copier.settings
            left_s = None if settings.deadline_at is None else max(0.0, settings.deadline_at - copying.now())
            try:
                async with asyncio.timeout(left_s):
                    failure = await work_off(self._jobs(made, rows, works), settings.concurrency)
            except asyncio.CancelledError as err:
                await _flushed(works, err)
                raise
            except TimeoutError as err:
                text = "the copy is not done when it should be (copy_deadline_seconds)"
                failure = TransientError("copy", self.context.plan_uri, text, "run again: it goes on from here")
                failure.__cause__ = err
            if failure is None or isinstance(failure, LakemirrorError):
                failure = await _flushed(works, failure)
            if failure is not None:
                raise failure
            await made.pace.leave(is_done=True)
            return self._told(works, made)

    async def _jobs(self, made: Opened, rows: list[Item], works: list[_Work]) -> AsyncIterator[Job]:
        for row in rows:
            stores = Counted(self.context)
            folder = ledger_folder(self.context.ledger_uri, row["uri"])
            ledger = LedgerWriter(stores.mirror, folder, LEDGER, self.context.ledger_flush_files)
            items, done = await asyncio.to_thread(self._read, stores.mirror, row["uri"], folder)
            work = _Work(row, stores, ledger)
            works.append(work)
            items.reverse()
            while items:  # each is handed out and kept no longer: a task may have very many
                found = items.pop()
                item, kind = CopyItem(found["source"], found["target"], found["size"]), found["kind"]
                if row["step"] == "range":
                    if item.target not in done:
                        yield partial(self._copy_range, made, work, item)
                elif item.target in done:
                    work.skipped += 1
                    self._tell(made, 1, item.size_bytes if row["step"] == "files" else 0)
                else:
                    step = self._copy_file if row["step"] == "files" else self._finish
                    yield partial(step, made, work, item, kind)
            del items, done

    def _read(self, store: ObjectStore, uri: str, folder: str) -> tuple[list[Item], set[str]]:
        items = read_items(store, uri, self.context.paths)
        return items, {row["target"] for row in read_ledger(store, folder)} if self.resumes else set()

    async def _copy_file(self, made: Opened, work: _Work, item: CopyItem, kind: str) -> None:
        copied = await made.copier.copy(item, looks_first=self.resumes)
        work.files += not copied.adopted
        work.bytes += 0 if copied.adopted else item.size_bytes
        work.skipped += copied.adopted
        self._tell(made, 1, item.size_bytes)
        await work.ledger.add(row_of(copied, kind))

    async def _copy_range(self, made: Opened, work: _Work, item: CopyItem) -> None:
        chosen = Range(work.row["first_part"], work.row["parts"])
        split = self._split(made.copier, work, item)
        work.bytes += await split.copy_range(chosen, lambda size: self._tell(made, 0, size), looks_first=self.resumes)

    async def _finish(self, made: Opened, work: _Work, item: CopyItem, kind: str) -> None:
        copied, sent = await self._split(made.copier, work, item).finish()
        work.files += not copied.adopted
        work.bytes += sent
        work.skipped += copied.adopted
        self._tell(made, 1, sent)
        await work.ledger.add(row_of(copied, kind))

    def _split(self, copier: Copier, work: _Work, item: CopyItem) -> SplitFile:
        folder = ranges_folder(self.context.ledger_uri, work.row["uri"])
        return SplitFile(copier, work.stores.mirror, folder, item, work.row["part_bytes"])

    def _tell(self, made: Opened, files: int, size_bytes: int) -> None:
        made.pace.tell(files, size_bytes)
        if self.context.on_file is not None:
            self.context.on_file(files, size_bytes)

    def _told(self, works: list[_Work], made: Opened) -> pa.RecordBatch:
        counts, begun = made.counts.take(), made.counts.begun
        rows = []
        for work in works:
            rows.append(
                {
                    "uri": work.row["uri"],
                    "files": work.files,
                    "bytes": work.bytes,
                    "skipped": work.skipped,
                    "ledger": None if self.resumes else work.ledger.written,
                    "requests": work.stores.requests,
                    "wire_requests": json.dumps(counts),
                    "begun": begun,
                }
            )
            counts, begun = {}, 0
        return pa.RecordBatch.from_pylist(rows, COPIED)


@asynccontextmanager
async def _one_line(pace: Pace) -> AsyncIterator[None]:
    """Requests of stores, from threads, for segments, ledgers and records, go at the pace of the copies."""
    loop = asyncio.get_running_loop()

    def pay(requests: int) -> None:
        asyncio.run_coroutine_threadsafe(pace.take(0, requests), loop).result()

    with paid_by(pay):
        yield


async def _flushed(works: list[_Work], failure: BaseException | None) -> BaseException | None:
    """The failure to tell once all ledgers are written, or were tried to be; after one, without waiting in line."""
    failures = [] if failure is None else [failure]
    with nullcontext() if failure is None else paid_by(lambda requests: None):
        for work in works:
            try:
                await work.ledger.flush()
            except LakemirrorError as err:
                failures.append(err)
    return all_told(failures) if failures else None


def read_items(store: ObjectStore, uri: str, paths: PrefixMap) -> list[Item]:
    """The files of a segment; each goes where the map puts it and nowhere else, whoever wrote the segment."""
    items: list[Item] = segments.read(store, uri, ITEM, ("source", "target", "size", "kind")).to_pylist()
    for item in items:
        if item["size"] < 0 or paths.map(item["source"]) != item["target"]:
            raise control.altered(uri, f"{item['source']} goes to {item['target']}")
    return items


def ranges_folder(ledger_uri: str, segment_uri: str) -> str:
    """Where the upload of a split file and its parts are written down: apart from the ledger of finished files."""
    name = segment_uri.rsplit("/", 1)[-1].removesuffix(".parquet")
    return f"{ledger_uri}/_ranges/{name}"


def work_of(row: Any, step: str, part_bytes: int, chosen: Range | None = None) -> Item:
    """A row of work; finishing weighs what the file does: it may be that one task must copy it."""
    size_bytes = row.bytes if chosen is None else min(row.bytes, chosen.parts * part_bytes)
    return {
        "uri": row.uri,
        "step": step,
        "first_part": None if chosen is None else chosen.first_part,
        "parts": None if chosen is None else chosen.parts,
        "part_bytes": part_bytes,
        "weight": size_bytes + row.files * FILE_COST_BYTES,
    }
