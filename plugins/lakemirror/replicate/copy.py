"""Copy: segments of files from source to mirror, checksummed on the way, each file once.

A file is copied by a create-only put while its CRC32C is computed; a name alone proves nothing, so an object that is
there already is adopted only if size and checksum fit, and is a stop if they do not. What was done is written to the
ledger every few files, so that a killed run goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakemirror.errors import PermanentError, SourceVanishedError, TransientError
from lakemirror.model.paths import PrefixMap
from lakemirror.replicate import control, segments
from lakemirror.replicate.plan import ITEM
from lakemirror.replicate.stage import Counted, StageContext
from lakemirror.storage.checksum import checksum_of
from lakemirror.storage.port import ConditionFailed, Create, ObjectNotFound, ObjectStore

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
DONE = pa.schema([LEDGER.field("target"), LEDGER.field("size"), pa.field("crc32c", pa.int64())])
COPIED = pa.schema(
    [
        pa.field("uri", pa.string()),
        pa.field("files", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("skipped", pa.int64()),
        pa.field("requests", pa.string()),
    ]
)
ATTEMPTS = 3  # a stream that is cut cannot be resumed by the store's own retries: the file starts anew
Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CopySegments:
    """Segments of the plan → copied files and their ledger. `resumes`: an earlier try may have left files."""

    context: StageContext
    resumes: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield self._copy_segment(row["uri"])

    def _copy_segment(self, uri: str) -> pa.RecordBatch:
        stores = Counted(self.context)
        items = read_items(stores.mirror, uri, self.context.paths)
        folder = ledger_folder(self.context.ledger_uri, uri)
        done = {row["target"] for row in read_ledger(stores.mirror, folder)} if self.resumes else set()
        todo = [item for item in items if item["target"] not in done]
        for item in items:
            if item["target"] in done:
                self._tell(item)
        copied = adopted = weight = 0
        for start in range(0, len(todo), self.context.ledger_flush_files):
            part = todo[start : start + self.context.ledger_flush_files]
            rows, failure = self._copy_all(stores, part)
            if rows:
                segments.write(stores.mirror, folder, "part", pa.Table.from_pylist(rows, LEDGER))
            if failure is not None:
                raise failure
            adopted += sum(row["adopted"] for row in rows)
            copied += sum(not row["adopted"] for row in rows)
            weight += sum(row["size"] for row in rows if not row["adopted"])
        result = {"uri": uri, "files": copied, "bytes": weight, "skipped": len(done) + adopted}
        return pa.RecordBatch.from_pylist([{**result, "requests": stores.requests}], COPIED)

    def _copy_all(self, stores: Counted, items: list[Item]) -> tuple[list[Item], BaseException | None]:
        """Copy side by side; what succeeded is told even if something failed, so that the ledger has it."""
        rows: list[Item] = []
        failure: BaseException | None = None
        with ThreadPoolExecutor(max_workers=min(self.context.concurrency, len(items))) as pool:
            futures = [pool.submit(self._copy_file, stores, item) for item in items]
            for future in futures:
                error = future.exception()
                if error is None:
                    rows.append(future.result())
                elif failure is None or isinstance(error, PermanentError):
                    failure = error
        return rows, failure

    def _copy_file(self, stores: Counted, item: Item) -> Item:
        row = copy_file(stores.source, stores.mirror, item, looks_first=self.resumes)
        self._tell(item)
        return row

    def _tell(self, item: Item) -> None:
        if self.context.on_file is not None:
            self.context.on_file(item["size"])


def read_items(store: ObjectStore, uri: str, paths: PrefixMap) -> list[Item]:
    """The files of a segment; each goes where the map puts it and nowhere else, whoever wrote the segment."""
    items: list[Item] = segments.read(store, uri, ITEM, ("source", "target", "size", "kind")).to_pylist()
    for item in items:
        if item["size"] < 0 or paths.map(item["source"]) != item["target"]:
            raise control.altered(uri, f"{item['source']} goes to {item['target']}")
    return items


def copy_file(source: ObjectStore, mirror: ObjectStore, item: Item, *, looks_first: bool = False) -> Item:
    """Copy one file and tell the ledger's row for it; the mirror has it whole afterwards, or an error is raised."""
    if looks_first and _is_there(mirror, item["target"]):
        return _adopt(source, mirror, item)
    for attempt in range(1, ATTEMPTS + 1):
        with _vanishing(item["source"]):
            chunks = source.stream(item["source"])
        try:
            written = mirror.put(item["target"], _exactly(chunks, item), Create())
        except ConditionFailed:
            return _adopt(source, mirror, item)
        except TransientError:
            if attempt == ATTEMPTS:
                raise
        else:
            return {**item, "crc32c": written.crc32c, "e_tag": written.e_tag, "adopted": False}
    raise AssertionError("the last attempt returns or raises")


@contextmanager
def _vanishing(uri: str) -> Iterator[None]:
    try:
        yield
    except ObjectNotFound as err:
        raise SourceVanishedError(
            "copy", uri, "the source file is gone", "run again: it plans anew from the source's head"
        ) from err


def _exactly(chunks: Iterator[bytes], item: Item) -> Iterator[bytes]:
    """Pass the bytes on; fail before the last one is accepted if they are not as many as the manifest says."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > item["size"]:
            break
        yield chunk
    if size != item["size"]:
        raise PermanentError(
            "copy",
            item["source"],
            f"its size is not what its manifest says (want {item['size']}, got {size})",
            "look at it",
        )


def _is_there(store: ObjectStore, uri: str) -> bool:
    try:
        store.head(uri)
    except ObjectNotFound:
        return False
    return True


def _adopt(source: ObjectStore, mirror: ObjectStore, item: Item) -> Item:
    """Take what lies under the key already, if it is to the byte what the source holds."""
    with _vanishing(item["source"]):
        want = checksum_of(source, item["source"])
    got = checksum_of(mirror, item["target"])
    if (want.size_bytes, want.crc32c) != (got.size_bytes, got.crc32c) or want.size_bytes != item["size"]:
        raise PermanentError(
            "copy",
            item["target"],
            f"another object lies under this key (want {want.size_bytes} bytes with crc32c {want.crc32c:08x}, "
            f"got {got.size_bytes} with {got.crc32c:08x})",
            "find out who wrote it; move it away and run again",
        )
    return {**item, "crc32c": got.crc32c, "e_tag": mirror.head(item["target"]).e_tag, "adopted": True}


def ledger_folder(ledger_uri: str, segment_uri: str) -> str:
    return f"{ledger_uri}/{segment_uri.rsplit('/', 1)[-1].removesuffix('.parquet')}"


def read_ledger(store: ObjectStore, folder: str) -> Iterator[Item]:
    """What was done for one segment, by whichever try: target, size and CRC32C of each file."""
    for info in store.list(folder):
        if info.uri.endswith(".parquet"):
            try:
                yield from segments.read(store, info.uri, DONE, DONE.names).to_pylist()
            except ObjectNotFound as err:
                raise TransientError("read ledger", info.uri, "it was listed but is gone", "run again") from err
