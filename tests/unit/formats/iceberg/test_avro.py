"""Object files are taken apart and put together to the byte; whatever is not whole is a PermanentError."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

import pytest

from lakemirror.errors import PermanentError, TransientError, UnsupportedError
from lakemirror.formats.iceberg import avro
from tests.avro_bytes import (
    CODECS,
    MAGIC,
    SYNC,
    block_bodies,
    container,
    header_of,
    header_size,
    long,
    raw_container,
    sized,
)

SCHEMA = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long", "field-id": 1}]}
BLOCKS = [[{"a": 1}, {"a": 2}], [{"a": 3}]]
URI = "file:///m.avro"


@pytest.mark.parametrize("codec", [*CODECS, None])
def test_parse_gives_header_and_plain_blocks(codec: str | None) -> None:
    data = container(SCHEMA, BLOCKS, codec=codec, meta={"key": "value"})
    file = avro.parse(data, URI)
    assert file == avro.AvroFile(
        header=data[: header_size(data)],
        metadata={key: value.encode() for key, value in header_of(data).items()},
        codec=codec or "null",
        blocks=(avro.Block(2, long(1) + long(2)), avro.Block(1, long(3))),
    )
    assert (file.schema, file.sync) == (SCHEMA, SYNC)


def test_header_may_have_negative_counts() -> None:
    data = container(SCHEMA, BLOCKS, codec="null", negative_counts=True)
    assert [block.count for block in avro.parse(data, URI).blocks] == [2, 1]


def test_trailing_bytes_of_a_deflate_stream_are_left_out() -> None:
    """Python's writers cut the zlib wrapper off by [2:-1] and leave three bytes of its checksum behind."""
    packed = zlib.compress(long(7))[2:-1]
    data = MAGIC + long(2) + sized(b"avro.schema") + sized(json.dumps(SCHEMA).encode())
    data += sized(b"avro.codec") + sized(b"deflate") + long(0) + SYNC + long(1) + sized(packed) + SYNC
    assert avro.parse(data, URI).blocks == (avro.Block(1, long(7)),)


@pytest.mark.parametrize("codec", CODECS)
def test_assemble_of_what_was_parsed_keeps_header_and_records(codec: str) -> None:
    data = container(SCHEMA, BLOCKS, codec=codec)
    file = avro.parse(data, URI)
    again = avro.assemble(file, file.blocks)
    assert again[: header_size(data)] == data[: header_size(data)]
    assert block_bodies(again) == block_bodies(data)
    assert avro.assemble(file, file.blocks) == again


def test_null_codec_comes_back_to_the_byte() -> None:
    data = container(SCHEMA, BLOCKS, codec="null")
    file = avro.parse(data, URI)
    assert avro.assemble(file, file.blocks) == data


@pytest.mark.parametrize("codec", ["xz", "lz4", "gzip", ""])
def test_unknown_codec_is_refused_by_name(codec: str) -> None:
    with pytest.raises(UnsupportedError, match=f"codec '{codec}' is not supported") as caught:
        avro.parse(container(SCHEMA, BLOCKS, codec=codec), URI)
    assert caught.value.subject == URI


@pytest.mark.parametrize("codec", CODECS)
def test_cut_anywhere_but_between_blocks_is_refused(codec: str) -> None:
    data = container(SCHEMA, BLOCKS, codec=codec)
    whole = {header_size(data), len(data) - len(container(SCHEMA, BLOCKS[1:], codec=codec)) + header_size(data)}
    for size in set(range(len(data))) - whole:
        with pytest.raises(PermanentError, match=r"^read avro file:///m.avro: not a whole Avro file"):
            avro.parse(data[:size], URI)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04",
        MAGIC + long(1) + sized(b"avro.codec") + sized(b"null") + long(0) + SYNC,  # no schema
        raw_container({"avro.schema": "{"}, []),
        raw_container({"avro.schema": "[" * 100_000}, []),
        raw_container({"avro.schema": "1" * 5_000}, []),
        MAGIC + long(1 << 40),
        MAGIC + long(1) + long(-5),
        MAGIC + b"\xff" * 30,
        MAGIC + long(1) + sized(b"\xff\xfe") + sized(b"x") + long(0) + SYNC,
        container(SCHEMA, BLOCKS) + b"\x00",
        container(SCHEMA, []) + long(-1) + long(0) + SYNC,
        container(SCHEMA, []) + long(1) + long(-1) + SYNC,
        container(SCHEMA, []) + long(1) + long(1 << 62) + SYNC,
        container(SCHEMA, [], codec="deflate") + long(1) + sized(b"\xff\xff\xff\xff") + SYNC,
        container(SCHEMA, BLOCKS)[:-1] + b"\xff",  # other sync marker
    ],
    ids=lambda data: f"{len(data)} bytes",
)
def test_damage_is_a_permanent_error_that_names_the_file(data: bytes) -> None:
    with pytest.raises(PermanentError) as caught:
        avro.parse(data, URI)
    assert (caught.value.op, caught.value.subject) == ("read avro", URI)
    assert caught.value.hint


@pytest.mark.parametrize("codec", CODECS[1:])
def test_bomb_in_one_block_is_bounded(monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    monkeypatch.setattr(avro, "MAX_PLAIN_BYTES", 1000)
    bomb = raw_container({"avro.schema": json.dumps(SCHEMA), "avro.codec": codec}, [(1, b"\x00" * 100_000)])
    with pytest.raises(PermanentError, match="more than 1000 bytes"):
        avro.parse(bomb, URI)


@pytest.mark.parametrize("codec", CODECS)
def test_bomb_spread_over_blocks_is_bounded(monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    """Many blocks, each within bounds, may not fill the memory together either."""
    monkeypatch.setattr(avro, "MAX_PLAIN_BYTES", 1000)
    bomb = raw_container({"avro.schema": json.dumps(SCHEMA), "avro.codec": codec}, [(1, b"\x00" * 900)] * 3)
    with pytest.raises(PermanentError, match="more than 1000 bytes"):
        avro.parse(bomb, URI)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 2, 7, 16, 10_000])
def test_pieces_of_any_size_give_the_same_header_and_blocks(codec: str, size: int) -> None:
    data = container(SCHEMA, BLOCKS, codec=codec, meta={"key": "value" * 50})
    stream = avro.AvroStream((data[at : at + size] for at in range(0, len(data), size)), URI)
    whole = avro.parse(data, URI)
    assert (stream.header.raw, stream.header.metadata, stream.header.codec) == (whole.header, whole.metadata, codec)
    assert tuple(stream.blocks()) == whole.blocks
    assert b"".join(avro.assembled(stream.header, whole.blocks)) == avro.assemble(whole, whole.blocks)


def test_blocks_are_taken_one_at_a_time() -> None:
    """The second block is not asked for before the first was given out."""
    data = container(SCHEMA, BLOCKS, codec="null")
    asked: list[int] = []

    def pieces() -> Iterator[bytes]:
        for at in range(len(data)):
            asked.append(at)
            yield data[at : at + 1]

    stream = avro.AvroStream(pieces(), URI)
    blocks = stream.blocks()
    assert next(blocks) == avro.Block(2, long(1) + long(2))
    assert asked[-1] < len(data) - 18


@pytest.mark.parametrize("codec", CODECS)
def test_a_block_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    monkeypatch.setattr(avro, "MAX_BLOCK_BYTES", 1000)
    header = {"avro.schema": json.dumps(SCHEMA), "avro.codec": codec}
    fine = avro.AvroStream([raw_container(header, [(1, b"\x00" * 1000)])], URI)
    assert len(next(fine.blocks()).data) == 1000
    stream = avro.AvroStream([raw_container(header, [(1, b"\x00" * 1001)])], URI)
    with pytest.raises(PermanentError, match=r"does not fit|more than 1000 bytes"):
        list(stream.blocks())


@pytest.mark.parametrize("codec", CODECS)
def test_a_stream_of_blocks_ends_at_a_bound_too(monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    monkeypatch.setattr(avro, "MAX_STREAM_BYTES", 1000)
    header = {"avro.schema": json.dumps(SCHEMA), "avro.codec": codec}
    stream = avro.AvroStream([raw_container(header, [(1, b"\x00" * 600)] * 2)], URI)
    with pytest.raises(PermanentError, match="the file to more than 1000 bytes"):
        list(stream.blocks())


def test_a_header_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "MAX_HEADER_BYTES", 1000)
    many = raw_container({"avro.schema": json.dumps(SCHEMA), **{f"k{n}": "" for n in range(300)}}, [])
    for data in (many, container(SCHEMA, [], meta={"k": "v" * 1001})):
        with pytest.raises(PermanentError, match="the header is longer than 1000 bytes"):
            avro.AvroStream([data], URI)


def test_errors_of_the_pieces_pass_through() -> None:
    data = container(SCHEMA, BLOCKS)

    def pieces() -> Iterator[bytes]:
        yield data[:-3]
        raise TransientError("stream", URI, "cut short", "read it again")

    stream = avro.AvroStream(pieces(), URI)
    with pytest.raises(TransientError):
        list(stream.blocks())
    with pytest.raises(TransientError):
        avro.same_records(pieces(), data, URI)


def test_same_records_of_streams_cut_anywhere() -> None:
    """Empty blocks and borders do not matter; one byte or one record more does."""
    one = container(SCHEMA, [[{"a": 1}], [], [{"a": 2}, {"a": 300}]])
    other = container(SCHEMA, [[{"a": 1}, {"a": 2}], [{"a": 300}], []], codec="deflate", level=0)
    for size in (1, 5, 1000):
        parts = [iter([data[at : at + size] for at in range(0, len(data), size)]) for data in (one, other)]
        assert avro.same_records(parts[0], parts[1], URI)
    schema = {**SCHEMA, "fields": []}
    assert not avro.same_records(container(schema, [[{}]]), container(schema, [[{}, {}]]), URI)


def test_same_records_ignores_compression_and_block_borders_only() -> None:
    one = container(SCHEMA, BLOCKS, level=1)
    assert avro.same_records(one, container(SCHEMA, BLOCKS, level=0), URI)
    assert avro.same_records(one, container(SCHEMA, [[{"a": 1}], [{"a": 2}, {"a": 3}]]), URI)
    assert not avro.same_records(one, container(SCHEMA, BLOCKS, meta={"key": "value"}), URI)
    assert not avro.same_records(one, container(SCHEMA, [[{"a": 1}, {"a": 2}]]), URI)
    assert not avro.same_records(one, container(SCHEMA, [[{"a": 1}, {"a": 2}], [{"a": 4}]]), URI)


def test_what_is_not_avro_is_not_the_same() -> None:
    assert not avro.same_records(b"garbage", container(SCHEMA, BLOCKS), URI)
