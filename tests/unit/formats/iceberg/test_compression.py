"""Blocks of Avro and ORC files, unpacked into bounded memory; held against other implementations if there are any."""

from __future__ import annotations

import io
import random
import tracemalloc
import zlib
from pathlib import Path
from typing import get_args

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakemirror.formats.iceberg import compression
from lakemirror.formats.iceberg.avro_walk import Malformed

CODECS: tuple[compression.Codec, ...] = get_args(compression.Codec)
ROOM = 1 << 24
NOISE = random.Random(7).randbytes(70_000)
TEXTS = [b"", b"a", b"abcd" * 5, b"path/" * 10_000, NOISE, NOISE[:300] * 200, bytes(1_000_000)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("plain", TEXTS, ids=lambda plain: f"{len(plain)} bytes")
def test_there_and_back(codec: compression.Codec, plain: bytes) -> None:
    packed = compression.pack(codec, plain)
    assert compression.pack(codec, plain) == packed
    assert compression.unpack(codec, packed, ROOM) == plain
    assert compression.unpack(codec, packed, len(plain)) == plain


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=100, deadline=None)
@given(plain=st.binary(max_size=3000), times=st.integers(1, 40))
@example(plain=b"x" * 19, times=1)
def test_there_and_back_whatever_it_is(codec: compression.Codec, plain: bytes, times: int) -> None:
    assert compression.unpack(codec, compression.pack(codec, plain * times), ROOM) == plain * times


def test_what_others_packed() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    assert compression.unpack("deflate", packer.compress(NOISE) + packer.flush(), ROOM) == NOISE
    out = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(out, closefd=False) as writer:  # such a frame does not say its size
        writer.write(NOISE)
    assert compression.unpack("zstd", out.getvalue(), ROOM) == NOISE
    snappy = b"\x0a" + b"\x00a" + b"\x15\x01"  # "a", then nine times the byte before
    assert compression.unpack("snappy", snappy, ROOM) == b"a" * 10
    lz4 = b"\x1fa\x01\x00\x00" + b"\x50bcdef"  # "a", then 19 times the byte before, then "bcdef"
    assert compression.unpack("lz4", lz4, ROOM) == b"a" * 20 + b"bcdef"


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_not_unpacked(codec: compression.Codec) -> None:
    packed = compression.pack(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="more than 1000000 bytes"):
            compression.unpack(codec, packed, 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("plain", TEXTS[1:5], ids=lambda plain: f"{len(plain)} bytes")
def test_cut_blocks(codec: compression.Codec, plain: bytes) -> None:
    packed = compression.pack(codec, plain)
    for size in {0, 1, len(packed) // 2, len(packed) - 1} - {len(packed)}:
        try:
            assert compression.unpack(codec, packed[:size], ROOM) != plain
        except Malformed as err:
            assert str(err)  # noqa: PT017 - a cut block may be a whole shorter one; any other exception is not fine


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=200, deadline=None)
@given(choices=st.data())
def test_flipped_bytes(codec: compression.Codec, choices: st.DataObject) -> None:
    broken = bytearray(compression.pack(codec, NOISE[:300] * 4))
    for _ in range(choices.draw(st.integers(1, 3))):
        broken[choices.draw(st.integers(0, len(broken) - 1))] = choices.draw(st.integers(0, 255))
    try:
        assert len(compression.unpack(codec, bytes(broken), 1 << 20)) <= 1 << 20
    except Malformed as err:
        assert str(err)  # noqa: PT017


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=200, deadline=None)
@given(packed=st.binary(max_size=60))
def test_anything_at_all(codec: compression.Codec, packed: bytes) -> None:
    try:
        assert len(compression.unpack(codec, packed, 1 << 20)) <= 1 << 20
    except Malformed as err:
        assert str(err)  # noqa: PT017


def test_damage_costs_no_memory() -> None:
    """Arrow's plain `read` keeps the memory that it asked for when it fails."""
    broken = compression.pack("zstd", NOISE)[:-3]
    sizes = []
    for _ in range(3):
        for _ in range(300):
            with pytest.raises(Malformed):
                compression.unpack("zstd", broken, ROOM)
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        sizes.append(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmSize")))
    assert sizes[-1] - sizes[0] < 100_000  # kB; with `read` it would be 600 MB
