"""ORC files taken apart into stripes and streams and put together again; streams that nobody touches are copied raw.

Every offset and length is checked before it is believed. Refused by name: encrypted files, codecs that Iceberg's users
do not meet (LZO, Brotli).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakemirror.errors import UnsupportedError
from lakemirror.formats.iceberg import compression
from lakemirror.formats.iceberg.avro_walk import Malformed
from lakemirror.formats.iceberg.orc.wire import Message, parse

MAGIC = b"ORC"
MAX_TAIL_BYTES = 16 << 20  # of a footer, the stripe statistics or a row index, unpacked
MAX_STREAM_BYTES = 256 << 20  # of one stream, unpacked; writers end a stripe long before
_CODECS: dict[int, compression.Codec | None] = {0: None, 1: "deflate", 2: "snappy", 4: "lz4", 5: "zstd"}
_CODEC_NAMES = {3: "LZO", 6: "Brotli"}
MAX_STREAMS = 1 << 20  # and encodings, of all stripes
_MAX_CHUNKS = 1 << 20  # of one stream
_CHUNK_HEADER_BYTES = 3
_MAX_CHUNK_BYTES = 256 << 10
_MAX_BLOCK_BYTES = (1 << 23) - 1

# the numbers of the fields that are looked at, by message
PS_FOOTER_LENGTH, PS_COMPRESSION, PS_BLOCK_SIZE, PS_METADATA_LENGTH, PS_MAGIC = 1, 2, 3, 5, 8000
FOOTER_CONTENT_LENGTH, FOOTER_STRIPES, FOOTER_TYPES, FOOTER_METADATA, FOOTER_ROWS = 2, 3, 4, 5, 6
FOOTER_STATISTICS, FOOTER_STRIDE, FOOTER_ENCRYPTION = 7, 8, 10
STRIPE_OFFSET, STRIPE_INDEX_LENGTH, STRIPE_DATA_LENGTH, STRIPE_FOOTER_LENGTH, STRIPE_ROWS = 1, 2, 3, 4, 5
STREAMS, ENCODINGS, STRIPE_ENCRYPTION = 1, 2, 4
STREAM_KIND, STREAM_COLUMN, STREAM_LENGTH = 1, 2, 3
TYPE_KIND, TYPE_SUBTYPES, TYPE_ATTRIBUTES = 1, 2, 7
STRING, STRUCT = 7, 12  # kinds of types
PAIR_NAME, PAIR_VALUE = 1, 2  # of user metadata, and of a type's attributes


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as it lies in the file, packed."""

    message: Message
    is_index: bool
    data: bytes

    @property
    def kind(self) -> int:
        return self.message.number(STREAM_KIND)

    @property
    def column(self) -> int:
        return self.message.number(STREAM_COLUMN)


@dataclass(frozen=True, slots=True)
class Stripe:
    info: Message
    footer: Message
    streams: tuple[Stream, ...]

    @property
    def rows(self) -> int:
        return self.info.number(STRIPE_ROWS)


@dataclass(frozen=True, slots=True)
class Packing:
    """How streams and messages of a file are compressed: chunks of a codec, or not at all."""

    codec: compression.Codec | None
    block_bytes: int

    def unpack(self, data: bytes, room: int) -> bytes:
        if self.codec is None:
            if len(data) > room:
                raise Malformed(f"a stream has more than {room} bytes")
            return data
        parts: list[bytes] = []
        at = 0
        while at < len(data):
            header = int.from_bytes(data[at : at + _CHUNK_HEADER_BYTES], "little")
            at += _CHUNK_HEADER_BYTES
            size, is_plain = header >> 1, header & 1
            if not 0 < size <= len(data) - at or len(parts) >= _MAX_CHUNKS:
                raise Malformed("a chunk is empty or cut, or there are too many")
            chunk = data[at : at + size]
            parts.append(chunk if is_plain else compression.unpack(self.codec, chunk, self.block_bytes))
            at += size
            room -= len(parts[-1])
            if room < 0:
                raise Malformed("a stream unpacks to more than it may")
        return b"".join(parts)

    def pack(self, data: bytes) -> bytes:
        if self.codec is None:
            return data
        out, step = [], min(self.block_bytes, _MAX_CHUNK_BYTES)
        for at in range(0, len(data), step):
            plain = data[at : at + step]
            packed = compression.pack(self.codec, plain)
            is_plain = len(packed) >= len(plain)
            body = plain if is_plain else packed
            out += [(len(body) << 1 | is_plain).to_bytes(_CHUNK_HEADER_BYTES, "little"), body]
        return b"".join(out)

    def message(self, data: bytes) -> Message:
        return parse(self.unpack(data, MAX_TAIL_BYTES))


@dataclass(frozen=True, slots=True)
class OrcFile:
    packing: Packing
    postscript: Message
    footer: Message
    metadata: Message | None  # statistics of the stripes
    stripes: tuple[Stripe, ...]

    def columns_with_id(self, field_id: int) -> list[int]:
        """Columns of the top level, by their number among all types, that have this Iceberg field id."""
        types = self.footer.messages(FOOTER_TYPES)
        top = types[0].numbers(TYPE_SUBTYPES) if types and types[0].number(TYPE_KIND) == STRUCT else []
        want = ([b"iceberg.id"], [str(field_id).encode()])
        found = []
        for column in top:
            if column >= len(types):
                raise Malformed(f"no type {column}")
            pairs = types[column].messages(TYPE_ATTRIBUTES)
            found += [column for pair in pairs if (pair.parts(PAIR_NAME), pair.parts(PAIR_VALUE)) == want]
        return found


def parse_file(data: bytes, uri: str) -> OrcFile:
    """Take a file apart; damage is Malformed."""
    end = len(data) - 1 - data[-1] if data else 0
    if end < len(MAGIC) or not data.startswith(MAGIC):
        raise Malformed("no ORC magic at its start, or a postscript that does not fit")
    postscript = parse(data[end:-1])
    if postscript.parts(PS_MAGIC) != [MAGIC]:
        raise Malformed("no ORC magic in its postscript")
    packing = _packing(postscript, uri)
    footer_start = end - postscript.number(PS_FOOTER_LENGTH)
    body_end = footer_start - postscript.number(PS_METADATA_LENGTH)
    if body_end < len(MAGIC):
        raise Malformed("its footer does not fit")
    footer = packing.message(data[footer_start:end])
    metadata = packing.message(data[body_end:footer_start]) if body_end < footer_start else None
    if footer.has(FOOTER_ENCRYPTION):
        raise UnsupportedError("read orc", uri, "the file is encrypted", "encrypted tables are not mirrored")
    stripes = tuple(_stripes(data[:body_end], footer, packing, uri))
    if sum(stripe.rows for stripe in stripes) != footer.number(FOOTER_ROWS):
        raise Malformed("its stripes do not hold the rows that its footer says")
    return OrcFile(packing, postscript, footer, metadata, stripes)


def _packing(postscript: Message, uri: str) -> Packing:
    number = postscript.number(PS_COMPRESSION)
    if number not in _CODECS:
        name = _CODEC_NAMES.get(number, f"number {number}")
        raise UnsupportedError(
            "read orc", uri, f"codec {name} is not supported", "want none, zlib, snappy, lz4 or zstd"
        )
    codec, block_bytes = _CODECS[number], postscript.number(PS_BLOCK_SIZE, _MAX_CHUNK_BYTES)
    if codec is not None and not 0 < block_bytes <= _MAX_BLOCK_BYTES:
        raise Malformed(f"blocks of {block_bytes} bytes")
    return Packing(codec, block_bytes)


def _stripes(body: bytes, footer: Message, packing: Packing, uri: str) -> Iterator[Stripe]:
    free, left = len(MAGIC), MAX_STREAMS
    for info in footer.messages(FOOTER_STRIPES):
        start = info.number(STRIPE_OFFSET)
        index_end = start + info.number(STRIPE_INDEX_LENGTH)
        data_end = index_end + info.number(STRIPE_DATA_LENGTH)
        end = data_end + info.number(STRIPE_FOOTER_LENGTH)
        if start < free or end > len(body):
            raise Malformed(f"a stripe at {start} does not fit, or overlaps another")
        free = end
        stripe_footer = packing.message(body[data_end:end])
        left -= len(stripe_footer.fields)
        if left < 0:
            raise Malformed(f"more than {MAX_STREAMS} streams")
        if stripe_footer.has(STRIPE_ENCRYPTION):
            raise UnsupportedError("read orc", uri, "a stripe is encrypted", "encrypted tables are not mirrored")
        streams, at = [], start
        for message in stripe_footer.messages(STREAMS):
            size = message.number(STREAM_LENGTH)
            if size > data_end - at:
                raise Malformed("a stream does not fit into its stripe")
            streams.append(Stream(message, at < index_end, body[at : at + size]))
            at += size
        if at != data_end:
            raise Malformed("the streams of a stripe do not fill it")
        yield Stripe(info, stripe_footer, tuple(streams))


def assemble(file: OrcFile, stripes: Sequence[Stripe], footer: Message, metadata: Message | None) -> bytes:
    """A file of these stripes, back to back; offsets and lengths are set, all else is as it is given."""
    packing = file.packing
    parts, infos, at = [MAGIC], [], len(MAGIC)
    for stripe in stripes:
        streams = [one.message.with_number(STREAM_LENGTH, len(one.data)).encode() for one in stripe.streams]
        stripe_footer = packing.pack(stripe.footer.with_parts(STREAMS, streams).encode())
        index_length = sum(len(one.data) for one in stripe.streams if one.is_index)
        data_length = sum(len(one.data) for one in stripe.streams if not one.is_index)
        info = stripe.info.with_number(STRIPE_OFFSET, at).with_number(STRIPE_INDEX_LENGTH, index_length)
        info = info.with_number(STRIPE_DATA_LENGTH, data_length)
        infos.append(info.with_number(STRIPE_FOOTER_LENGTH, len(stripe_footer)).encode())
        parts += [*(one.data for one in stripe.streams), stripe_footer]
        at += index_length + data_length + len(stripe_footer)
    footer = footer.with_parts(FOOTER_STRIPES, infos).with_number(FOOTER_CONTENT_LENGTH, at)
    packed_metadata = b"" if metadata is None else packing.pack(metadata.encode())
    packed_footer = packing.pack(footer.encode())
    postscript = file.postscript.with_number(PS_FOOTER_LENGTH, len(packed_footer))
    postscript = postscript.with_number(PS_METADATA_LENGTH, len(packed_metadata))
    tail = postscript.encode()
    if len(tail) > 255:
        raise Malformed(f"a postscript of {len(tail)} bytes")
    return b"".join([*parts, packed_metadata, packed_footer, tail, bytes([len(tail)])])
