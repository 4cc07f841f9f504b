"""Position delete files (ORC): the same stripes with the texts of the path column replaced, other streams copied raw.

Ids and attributes of columns, user metadata, other columns with their indexes, and the rows' order stay as they are;
attributes and user metadata that name the source are left out.
Statistics of the path column follow its paths. Should mapping leave rows unsorted by path, which the specification
forbids, they are sorted and written anew (see `orc.resort`). A bloom filter of the path column is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg.avro_walk import Malformed
from lakemirror.formats.iceberg.delete_facts import MappedPaths, RewrittenDeletes, damaged
from lakemirror.formats.iceberg.manifest import DELETE_FILE_PATH
from lakemirror.formats.iceberg.orc import container, resort, rle, statistics
from lakemirror.formats.iceberg.orc.container import OrcFile, Stream, Stripe
from lakemirror.formats.iceberg.orc.wire import Message, parse
from lakemirror.formats.iceberg.path_free import header_entries
from lakemirror.model.paths import PrefixMap

MAX_ROWS = 1 << 26  # of one stripe
MAX_PATHS = 1 << 22  # of one stripe: entries of its dictionary, or rows if it has none
_PRESENT, _DATA, _LENGTH, _DICTIONARY_DATA, _ROW_INDEX, _BLOOM_FILTERS = 0, 1, 2, 3, 6, (7, 8)
_DIRECT_V2, _DICTIONARY_V2 = 2, 3
_ENCODING_KIND, _DICTIONARY_SIZE = 1, 2
_INDEX_ENTRIES, _ENTRY_POSITIONS, _ENTRY_STATISTICS = 1, 1, 2
_STRIPE_STATISTICS, _COLUMN_STATISTICS = 1, 1
_DAMAGED = (ValueError, LookupError)  # Malformed and UnicodeError are ValueErrors


def rewrite(data: bytes, uri: str, paths: PrefixMap) -> RewrittenDeletes:
    """The delete file for the mirror with the facts its manifest entry needs."""
    try:
        return _rewrite(data, uri, MappedPaths(paths))
    except _DAMAGED as err:
        raise damaged(uri, f"not a readable ORC file ({err})") from err


def is_same(left: bytes, right: bytes, paths: PrefixMap | None = None) -> bool:
    """True if two delete files hold the same rows in the same order, however they were compressed."""
    try:
        one, other = (container.parse_file(data, "") for data in (left, right))
        return _schema(one, paths) == _schema(other, paths) and all(
            ours == theirs for ours, theirs in zip(_contents(one), _contents(other), strict=True)
        )
    except (*_DAMAGED, PermanentError):  # what is not whole, or has more streams, is not the same
        return False


def _schema(file: OrcFile, paths: PrefixMap | None) -> tuple[list[bytes], list[bytes], int]:
    footer = file.footer if paths is None else _path_free(file.footer, paths)
    return (
        footer.parts(container.FOOTER_TYPES),
        footer.parts(container.FOOTER_METADATA),
        footer.number(container.FOOTER_ROWS),
    )


def _contents(file: OrcFile) -> Iterator[tuple[int, list[bytes], int, int, bytes]]:
    """Everything that makes rows, one stream at a time; positions in indexes depend on how chunks were packed."""
    for stripe in file.stripes:
        encodings = stripe.footer.parts(container.ENCODINGS)
        for stream in stripe.streams:
            if not stream.is_index:
                plain = file.packing.unpack(stream.data, container.MAX_STREAM_BYTES)
                yield stripe.rows, encodings, stream.kind, stream.column, plain


def _rewrite(data: bytes, uri: str, mapped: MappedPaths) -> RewrittenDeletes:
    file = container.parse_file(data, uri)
    file = replace(file, footer=_path_free(file.footer, mapped.paths))
    column = _path_column(file, uri)
    for stripe in file.stripes:
        for path in _PathColumn(file, stripe, column, uri).paths():
            mapped.map(path, uri)
    if mapped.must_sort:
        return mapped.rewritten(resort.by_path(data, file, column, mapped, uri), uri)
    change = statistics.Change.of(mapped)
    stripes = [_PathColumn(file, stripe, column, uri).rewritten(mapped, change) for stripe in file.stripes]
    growths = [
        _data_bytes(new, column) - _data_bytes(old, column) for new, old in zip(stripes, file.stripes, strict=True)
    ]
    footer = change.apply_to(file.footer, container.FOOTER_STATISTICS, column, sum(growths))
    metadata = file.metadata and _mapped_metadata(file.metadata, change, column, growths)
    return mapped.rewritten(container.assemble(file, stripes, footer, metadata), uri)


def _path_free(footer: Message, paths: PrefixMap) -> Message:
    """Without user metadata and attributes of columns that name the source."""
    types = footer.parts(container.FOOTER_TYPES)
    free = [_without_mentions(parse(one), container.TYPE_ATTRIBUTES, paths) for one in types]
    if any(one is not None for one in free):
        new = [old if one is None else one.encode() for old, one in zip(types, free, strict=True)]
        footer = footer.with_parts(container.FOOTER_TYPES, new)
    return _without_mentions(footer, container.FOOTER_METADATA, paths) or footer


def _without_mentions(message: Message, field: int, paths: PrefixMap) -> Message | None:
    """The message with the pairs of this field freed of what names the source; None if nothing does."""
    pairs = message.parts(field)
    kept = [_pair_without_mentions(pair, paths) for pair in pairs]
    return None if kept == pairs else message.with_parts(field, [pair for pair in kept if pair is not None])


def _pair_without_mentions(data: bytes, paths: PrefixMap) -> bytes | None:
    pair = parse(data)
    names, values = pair.parts(container.PAIR_NAME), pair.parts(container.PAIR_VALUE)
    if len(names) > 1 or len(values) > 1:
        raise Malformed("a name or a value of its user metadata stands there twice")
    name = b"".join(names).decode(errors="replace")
    free = header_entries({name: b"".join(values)}, paths)
    if free is None:
        return data
    return pair.with_parts(container.PAIR_VALUE, [free[name]]).encode() if free else None


def _path_column(file: OrcFile, uri: str) -> int:
    found = file.columns_with_id(DELETE_FILE_PATH)
    types = file.footer.messages(container.FOOTER_TYPES)
    if len(found) != 1 or types[found[0]].number(container.TYPE_KIND) != container.STRING:
        raise damaged(uri, f"no column of text with field id {DELETE_FILE_PATH}")
    return found[0]


def _data_bytes(stripe: Stripe, column: int) -> int:
    return sum(len(one.data) for one in stripe.streams if one.column == column and not one.is_index)


def _mapped_metadata(metadata: Message, change: statistics.Change, column: int, growths: list[int]) -> Message:
    stripes = metadata.messages(_STRIPE_STATISTICS)
    if len(stripes) != len(growths):
        raise Malformed(f"statistics of {len(stripes)} stripes where there should be {len(growths)}")
    new = [
        change.apply_to(stripe, _COLUMN_STATISTICS, column, growth).encode()
        for stripe, growth in zip(stripes, growths, strict=True)
    ]
    return metadata.with_parts(_STRIPE_STATISTICS, new)


@dataclass(frozen=True, slots=True)
class _PathColumn:
    """The path column of one stripe."""

    file: OrcFile
    stripe: Stripe
    column: int
    uri: str

    def paths(self) -> list[str]:
        """The texts that the stripe holds: of its dictionary, or else of every row."""
        if self.stripe.rows > MAX_ROWS:
            raise UnsupportedError(
                "read position deletes", self.uri, f"a stripe of {self.stripe.rows} rows", f"want {MAX_ROWS} or fewer"
            )
        if self._stream(_PRESENT) is not None and not rle.is_all_set(self._unpacked(_PRESENT), self.stripe.rows):
            raise damaged(self.uri, "a row has no path")
        count = self._encoding.number(_DICTIONARY_SIZE) if self._has_dictionary else self.stripe.rows
        if count > MAX_PATHS:
            raise UnsupportedError(
                "read position deletes", self.uri, f"a stripe of {count} paths", f"want {MAX_PATHS} or fewer"
            )
        lengths = rle.read_lengths(self._unpacked(_LENGTH), count)
        texts = self._unpacked(_DICTIONARY_DATA if self._has_dictionary else _DATA)
        if sum(lengths) != len(texts):
            raise Malformed(f"texts of {len(texts)} bytes where there should be {sum(lengths)}")
        ends = accumulate(lengths, initial=0)
        return [texts[start:end].decode() for start, end in pairwise(ends)]

    def rewritten(self, mapped: MappedPaths, change: statistics.Change) -> Stripe:
        targets = [mapped.map(path, self.uri).encode() for path in self.paths()]
        stride = self.file.footer.number(container.FOOTER_STRIDE)
        step = max(1, len(targets)) if self._has_dictionary or not stride else stride
        groups = [targets[start : start + step] for start in range(0, len(targets), step)]
        # Each row group starts a chunk and a run of its own, so that its place in both is the start of a chunk.
        texts, text_places = self._packed(b"".join(group) for group in groups)
        lengths, length_places = self._packed(rle.write_lengths([*map(len, group)]) for group in groups)
        new = {_DICTIONARY_DATA if self._has_dictionary else _DATA: texts, _LENGTH: lengths}
        places = None if self._has_dictionary else [*zip(text_places, length_places, strict=True)]
        if self._stream(_ROW_INDEX) is not None:
            new[_ROW_INDEX] = self.file.packing.pack(self._mapped_index(change, places).encode())
        streams = tuple(
            replace(stream, data=new.get(stream.kind, stream.data)) if stream.column == self.column else stream
            for stream in self.stripe.streams
            if stream.column != self.column or stream.kind not in _BLOOM_FILTERS
        )
        return replace(self.stripe, streams=streams)

    def _mapped_index(self, change: statistics.Change, places: list[tuple[int, int]] | None) -> Message:
        index = self.file.packing.message(self._found(_ROW_INDEX).data)
        entries = index.messages(_INDEX_ENTRIES)
        if places is not None and len(entries) != len(places):
            raise Malformed(f"an index of {len(entries)} row groups where there should be {len(places)}")
        new = []
        for number, entry in enumerate(entries):
            entry = change.apply_to(entry, _ENTRY_STATISTICS, 0, 0)
            new.append((entry if places is None else self._moved(entry, *places[number])).encode())
        return index.with_parts(_INDEX_ENTRIES, new)

    def _moved(self, entry: Message, text_place: int, length_place: int) -> Message:
        """Places in the text and length streams come last: of a chunk, in the chunk, and for lengths in the run."""
        ours = [text_place, 0, length_place, 0, 0] if self.file.packing.codec else [text_place, length_place, 0]
        positions = entry.numbers(_ENTRY_POSITIONS)
        if len(positions) < len(ours):
            raise Malformed(f"an index entry with {len(positions)} positions")
        return entry.with_packed(_ENTRY_POSITIONS, [*positions[: -len(ours)], *ours])

    def _packed(self, groups: Iterable[bytes]) -> tuple[bytes, list[int]]:
        parts = [self.file.packing.pack(group) for group in groups]
        return b"".join(parts), [*accumulate((len(part) for part in parts), initial=0)][:-1]

    @property
    def _encoding(self) -> Message:
        return self.stripe.footer.messages(container.ENCODINGS)[self.column]

    @property
    def _has_dictionary(self) -> bool:
        kind = self._encoding.number(_ENCODING_KIND)
        if kind not in (_DIRECT_V2, _DICTIONARY_V2):
            raise UnsupportedError(
                "read position deletes", self.uri, f"a path column of encoding {kind}", "want ORC of version 0.12"
            )
        return kind == _DICTIONARY_V2

    def _stream(self, kind: int) -> Stream | None:
        found = [one for one in self.stripe.streams if (one.column, one.kind) == (self.column, kind)]
        if len(found) > 1:
            raise Malformed(f"two streams of kind {kind} for one column")
        return found[0] if found else None

    def _found(self, kind: int) -> Stream:
        stream = self._stream(kind)
        if stream is None:
            raise Malformed(f"no stream of kind {kind} for the path column")
        return stream

    def _unpacked(self, kind: int) -> bytes:
        return self.file.packing.unpack(self._found(kind).data, container.MAX_STREAM_BYTES)
