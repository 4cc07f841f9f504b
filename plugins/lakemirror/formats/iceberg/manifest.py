"""Manifests: the live files they name, and the same manifest with every path mapped.

Reading gives live entries only; a DELETED entry stays in the manifest and its file is never opened. Rewriting changes
paths, the sizes and path bounds of rewritten position deletes, comments in its header that name the source, and nothing
else; of those deletes it leaves out the sizes of columns and the places of row groups, which were the source's. It is a
pure function of the source manifest, the prefix map and the facts of those delete files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from lakemirror.errors import PermanentError
from lakemirror.formats.iceberg import avro, plain_manifest
from lakemirror.formats.iceberg.avro_walk import Engine, Ranges, Walker, splice
from lakemirror.formats.iceberg.manifest_entry import (
    DELETE_FILE_PATH,
    DeleteFileFacts,
    DeletionVector,
    Kind,
    LiveEntry,
    check_roots,
    check_shapes,
    is_deleted,
    live_entry,
    named,
)
from lakemirror.formats.iceberg.manifest_entry import edits as edits_of
from lakemirror.formats.iceberg.manifest_fields import (
    TO_READ_DATA,
    TO_READ_DELETES,
    TO_REWRITE_DATA,
    TO_REWRITE_DELETES,
)
from lakemirror.formats.iceberg.path_free import header_entries
from lakemirror.formats.iceberg.plain_manifest import Columns, PlainRules
from lakemirror.model.paths import PrefixMap

__all__ = [
    "DELETE_FILE_PATH",
    "Columns",
    "DeleteFileFacts",
    "DeletionVector",
    "Kind",
    "LiveEntry",
    "check_length",
    "check_length_of",
    "is_same",
    "live_entries",
    "live_parts",
    "rewrite",
    "rewritten",
]


def check_length(data: bytes, uri: str, want: int) -> None:
    """A manifest that is cut between two blocks is whole as Avro: only its length in the manifest list tells."""
    _check_length(len(data), uri, want)


def check_length_of(pieces: Iterable[bytes], uri: str, want: int) -> Iterator[bytes]:
    """The same for a manifest that comes in pieces; the error comes after the last of them."""
    got = 0
    for piece in pieces:
        got += len(piece)
        yield piece
    _check_length(got, uri, want)


def _check_length(got: int, uri: str, want: int) -> None:
    if got < want:
        raise PermanentError(
            "read manifest",
            uri,
            f"it is cut (want {want} bytes, got {got})",
            "the file is damaged, or its manifest list is wrong: then rewrite the manifests on the source",
        )


def live_entries(
    data: bytes | Iterable[bytes],
    uri: str,
    paths: PrefixMap | None = None,
    *,
    entries: int | None = None,
    engine: Engine | None = None,
) -> Iterator[LiveEntry]:
    """Every live entry of a manifest; any damage is an error, never an empty answer.

    With `paths` every path that `rewrite` will map, of deleted entries too, must lie under a known root. `entries` as
    for `live_parts`.
    """
    for part in live_parts(data, uri, paths, PlainRules(()), entries=entries, engine=engine):
        if not isinstance(part, Columns):
            yield from part


def live_parts(
    data: bytes | Iterable[bytes],
    uri: str,
    paths: PrefixMap | None,
    rules: PlainRules,
    *,
    entries: int | None = None,
    engine: Engine | None = None,
) -> Iterator[Columns | list[LiveEntry]]:
    """The live entries of a manifest in order, some at a time: as columns where all of them are plain data files.

    With the walker in Python, and for what `rules` do not map beyond doubt, they come as objects. `paths` as above.
    `entries` is how many its list says that it has, deleted ones too: fewer mean that it is cut, and of more a file of
    a few kilobytes can unpack to billions.
    """
    stream = _open(data, uri)
    holds_deletes = _holds_deletes(stream.header)
    walker = _walker(stream.header, uri, TO_READ_DELETES if holds_deletes else TO_READ_DATA, engine)
    for block in _counted(stream.blocks(), uri, entries):
        for ranges in _ranges_of(walker, block, uri):
            columns = None if holds_deletes else plain_manifest.columns(walker, ranges, rules)
            yield columns or _entries(ranges, uri, paths, holds_deletes=holds_deletes)


def _counted(blocks: Iterable[avro.Block], uri: str, want: int | None) -> Iterator[avro.Block]:
    """The same blocks, which together must have so many entries, if that is known."""
    got = 0
    for block in blocks:
        got += block.count
        if want is not None and got > want:
            raise _other_count(uri, "more", want, got)
        yield block
    if want is not None and got < want:
        raise _other_count(uri, "fewer", want, got)


def _other_count(uri: str, how: str, want: int, got: int) -> PermanentError:
    return PermanentError(
        "read manifest",
        uri,
        f"it holds {how} entries than its manifest list says (want {want}, got {got})",
        "the file is damaged, or its writer counts wrongly: then rewrite the manifests on the source",
    )


def _entries(ranges: Ranges, uri: str, paths: PrefixMap | None, *, holds_deletes: bool) -> list[LiveEntry]:
    found = []
    with named(uri):
        for record in ranges.records():
            if paths is not None:
                check_roots(record, uri, paths)
            if not is_deleted(record, uri):
                found.append(live_entry(record, uri, holds_deletes=holds_deletes))
    return found


def rewrite(
    data: bytes,
    uri: str,
    paths: PrefixMap,
    deletes: Mapping[str, DeleteFileFacts],
    *,
    engine: Engine | None = None,
) -> bytes:
    """The manifest for the mirror; `deletes` has the facts of its live position deletes by mirror path."""
    return b"".join(rewritten(data, uri, paths, deletes, engine=engine))


def rewritten(
    data: bytes | Iterable[bytes],
    uri: str,
    paths: PrefixMap,
    deletes: Mapping[str, DeleteFileFacts],
    *,
    entries: int | None = None,
    engine: Engine | None = None,
) -> Iterator[bytes]:
    """The same in pieces, block by block: a manifest of any length in the memory of one block.

    `entries` as for `live_parts`; that there are fewer is told after the last of them.
    """
    stream = _open(data, uri)
    holds_deletes = _holds_deletes(stream.header)
    walker = _walker(stream.header, uri, TO_REWRITE_DELETES if holds_deletes else TO_REWRITE_DATA, engine)
    rules = PlainRules(()) if holds_deletes else PlainRules.mapping(paths)
    if holds_deletes:
        check_shapes(walker.program, uri)

    def block_of(block: avro.Block) -> avro.Block:
        parts = []
        for ranges in _ranges_of(walker, block, uri):
            new = plain_manifest.rewrite(walker, ranges, rules)
            parts.append(_spliced(ranges, uri, paths, deletes, holds_deletes=holds_deletes) if new is None else new)
        return avro.Block(block.count, parts[0] if len(parts) == 1 else b"".join(parts))

    return avro.assembled(_path_free(stream.header, uri, paths), map(block_of, _counted(stream.blocks(), uri, entries)))


def is_same(left: bytes | Iterable[bytes], right: bytes | Iterable[bytes], uri: str, paths: PrefixMap) -> bool:
    """True if two manifests hold the same entries under the same header, comments that name the source apart.

    Which comments those are follows from all roots, and roots may be added while a version is on its way.
    """
    return avro.same_records(left, right, uri, lambda entries: header_entries(entries, paths) or entries)


def _path_free(header: avro.Header, uri: str, paths: PrefixMap) -> avro.Header:
    with named(uri):
        entries = header_entries(header.metadata, paths)
    return header if entries is None else replace(header, raw=avro.encode_header(entries, header.sync))


def _spliced(
    ranges: Ranges, uri: str, paths: PrefixMap, deletes: Mapping[str, DeleteFileFacts], *, holds_deletes: bool
) -> bytes:
    edits: list[tuple[int, int, bytes]] = []
    with named(uri):
        for record in ranges.records():
            edits += sorted(edits_of(record, uri, paths, deletes, holds_deletes=holds_deletes))
    return splice(ranges.data, edits)


def _open(data: bytes | Iterable[bytes], uri: str) -> avro.AvroStream:
    return avro.AvroStream([data] if isinstance(data, bytes) else data, uri)


def _walker(header: avro.Header, uri: str, wanted: tuple[int, ...], engine: Engine | None) -> Walker:
    with named(uri):
        return Walker(header.metadata["avro.schema"], wanted, engine)


def _ranges_of(walker: Walker, block: avro.Block, uri: str) -> Iterator[Ranges]:
    with named(uri):
        yield from walker.ranges(block.data, block.count)


def _holds_deletes(header: avro.Header) -> bool:
    return header.metadata.get("content") == b"deletes"
