"""Bitmaps of deletion vectors: counted as CRoaring counts them, refused when they are not whole."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from lakemirror.formats.iceberg.avro_walk import Malformed
from lakemirror.formats.iceberg.roaring import cardinality
from tests.puffin_bytes import bitmap

SPARSE = range(0, 400_000, 7)  # arrays
DENSE = [number for number in range(200_000) if number % 3]  # bitsets
LONG = [*range(10, 70_000), *range(100_000, 300_000)]  # runs
FAR = [1, 1 << 32, (5 << 32) + 7, (1 << 62) + 1]  # several bitmaps of 32 bits


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("positions", [[], [0], SPARSE, DENSE, LONG, FAR, [*LONG, *FAR]], ids=lambda all_: len(all_))
def test_counts(positions: list[int], runs: bool) -> None:
    assert cardinality(bitmap(positions, runs=runs)) == len({*positions})


@settings(max_examples=200, deadline=None)
@given(
    starts=st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(1, 6000), st.integers(1, 20)), max_size=8),
    runs=st.booleans(),
)
def test_counts_whatever_the_containers(starts: list[tuple[int, int, int]], runs: bool) -> None:
    positions = BitMap64()
    for start, count, step in starts:
        positions |= BitMap64(range(start, start + count * step, step))
    assert cardinality(bitmap(positions, runs=runs)) == len(positions)


@pytest.mark.parametrize("positions", [[3], SPARSE, [*range(10, 70_000), *FAR]], ids=lambda all_: len(all_))
def test_cut_anywhere(positions: list[int]) -> None:
    data = bitmap(positions, runs=True)
    for size in range(0, len(data), max(1, len(data) // 500)):
        with pytest.raises(Malformed):
            cardinality(data[:size])
    with pytest.raises(Malformed, match="1 bytes follow"):
        cardinality(data + b"\0")


ARRAY = struct.pack("<QIIIHHI", 1, 0, 12346, 1, 0, 2, 16)  # one bitmap, one array container of three values
RUNS = struct.pack("<QIIBHH", 1, 0, 12347, 1, 0, 9)  # one bitmap, one run container of ten values


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (struct.pack("<Q", 1 << 63), "cut"),
        (struct.pack("<QII", 1, 0, 99), "no roaring cookie"),
        (struct.pack("<QIII", 1, 0, 12346, 1 << 31), "claims 2147483648 containers"),
        (struct.pack("<QIIIIII", 2, 7, 12346, 0, 7, 12346, 0), "order of their keys"),
        (struct.pack("<QIII", 1, 1 << 31, 12346, 0), "negative"),
        (struct.pack("<QIIIHHHHII3H", 1, 0, 12346, 2, 5, 0, 5, 0, 24, 26, 1, 2, 3), "order of their keys"),
        (ARRAY + struct.pack("<3H", 1, 3, 2), "not sorted"),
        (ARRAY + struct.pack("<3H", 1, 2, 2), "not sorted"),
        (ARRAY[:-4] + struct.pack("<I3H", 17, 1, 2, 3), "table of offsets"),
        (RUNS + struct.pack("<H4H", 2, 0, 4, 4, 4), "overlap"),
        (RUNS + struct.pack("<H2H", 1, 65530, 9), "overlap or leave"),
        (RUNS + struct.pack("<H2H", 1, 0, 8), "the 10 values"),
        (struct.pack("<QIIIHHI", 1, 0, 12346, 1, 0, 4999, 16) + bytes(8192), "the 5000 values"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        cardinality(data)


def test_the_hand_made_ones_are_right_but_for_the_one_thing() -> None:
    assert cardinality(ARRAY + struct.pack("<3H", 1, 2, 3)) == 3
    assert cardinality(RUNS + struct.pack("<H4H", 2, 0, 4, 5, 4)) == 10


@settings(max_examples=500, deadline=None)
@given(choices=st.data())
def test_flipped_bytes(choices: st.DataObject) -> None:
    broken = bytearray(bitmap([*range(100), 70_000, 1 << 33], runs=True))
    for _ in range(choices.draw(st.integers(1, 3))):
        broken[choices.draw(st.integers(0, len(broken) - 1))] = choices.draw(st.integers(0, 255))
    try:
        cardinality(bytes(broken))
    except Malformed as err:
        assert str(err)  # noqa: PT017 - an answer is fine as well; any other exception is not
