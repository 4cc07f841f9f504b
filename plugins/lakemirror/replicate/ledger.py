"""The ledger of a plan: what was copied, with its CRC32C, so that a killed run goes on where it was.

One folder for each segment of the plan, to which every try adds objects named by their content; each is written whole
or not at all. Whoever reads takes them all together, or those of one try that did everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from lakemirror.copying.model import CopiedItem
from lakemirror.copying.together import all_told
from lakemirror.errors import LakemirrorError, TransientError
from lakemirror.replicate import segments
from lakemirror.storage.port import ObjectNotFound, ObjectStore

LEDGER = pa.schema(
    [
        pa.field("source", pa.string()),
        pa.field("target", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("crc32c", pa.uint32()),
        pa.field("e_tag", pa.string()),
        pa.field("adopted", pa.bool_()),
    ]
)
# what is asked of a ledger again, whether files were copied or rewritten
DONE = pa.schema(
    [
        LEDGER.field("target").with_nullable(False),
        LEDGER.field("size").with_nullable(False),
        pa.field("crc32c", pa.int64()),  # none of a file that its store copied by itself, telling no sum
    ]
)
FLUSH_BYTES: Final = 1 << 30  # large files are written down sooner than a count of them would
Item = dict[str, Any]
Ledgers = Mapping[str, Sequence[str]]  # the objects of a segment's ledger, by the segment


def ledger_folder(ledger_uri: str, segment_uri: str) -> str:
    return f"{ledger_uri}/{segment_uri.rsplit('/', 1)[-1].removesuffix('.parquet')}"


def read_ledger(
    store: ObjectStore, folder: str, schema: pa.Schema = DONE, parts: Sequence[str] | None = None
) -> Iterator[Item]:
    """What was done for one segment, by whichever try: target, size and, if it is known, CRC32C of each file.

    `parts` are its objects, where that is known; otherwise they are listed.
    """
    found = parts or [info.uri for info in store.list(folder) if info.uri.endswith(".parquet")]
    for uri in found:
        try:
            yield from segments.read(store, uri, schema).to_pylist()
        except ObjectNotFound as err:
            raise TransientError("read ledger", uri, "it was written but is gone", "run again") from err


@dataclass
class LedgerWriter:
    """Writes rows down every few of them; for the jobs of one event loop, which go on meanwhile."""

    store: ObjectStore
    folder: str
    schema: pa.Schema
    flush_rows: int
    prefix: str = "part"
    written: list[str] = field(default_factory=list)
    _rows: list[Item] = field(default_factory=list)
    _bytes: int = 0

    async def add(self, row: Item) -> None:
        self._rows.append(row)
        self._bytes += row["size"]
        if len(self._rows) >= self.flush_rows or self._bytes >= FLUSH_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Rows that could not be written, or whose writing was cut off, are kept for the next time."""
        rows, self._rows, self._bytes = self._rows, [], 0
        if rows:
            table = pa.Table.from_pylist(sorted(rows, key=str), self.schema)
            try:
                uri = await asyncio.to_thread(segments.write, self.store, self.folder, self.prefix, table)
            except BaseException:
                self._rows += rows
                raise
            self.written.append(uri)


@asynccontextmanager
async def flushed(ledger: LedgerWriter) -> AsyncIterator[None]:
    """What was added meanwhile is written down, also if it ends by a failure: that is told, unless this is worse."""
    try:
        yield
    except BaseException as err:
        try:
            await ledger.flush()
        except LakemirrorError as late:
            raise all_told([err, late]) from None
        raise
    await ledger.flush()


def row_of(copied: CopiedItem, kind: str) -> Item:
    item = copied.item
    return {
        "source": item.source,
        "target": item.target,
        "size": item.size_bytes,
        "kind": kind,
        "crc32c": copied.crc32c,
        "e_tag": copied.e_tag,
        "adopted": copied.adopted,
    }
