"""Run-length encodings of ORC: the examples of its specification, what pyarrow writes, and what is damaged."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemirror.formats.iceberg.avro_walk import Malformed
from lakemirror.formats.iceberg.orc import container
from lakemirror.formats.iceberg.orc.rle import is_all_set, read_lengths, write_lengths
from tests.orc_files import DIRECT, orc_deletes

PATCHED = "8e13 2b21 07d0 1e00 1470 2832 3c46 505a 646e 7882 8c96 a0aa b4be fce8"
EXAMPLES = {
    "short repeat": ("0a2710", [10000] * 5),
    "direct": ("5e03 5ca1 ab1e dead beef", [23713, 43806, 57005, 48879]),
    "patched base": (PATCHED, [2030, 2000, 2020, 1000000, *range(2040, 2200, 10)]),
    "delta": ("c609 0202 2242 4246", [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]),
    "falling delta": ("c609 1d0b 4242 4221", [29, 23, 19, 17, 13, 11, 7, 5, 3, 2]),
    "fixed delta": ("c0090a02", [*range(10, 20)]),
    "falling by one": ("c0090a01", [*range(10, 0, -1)]),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    data, values = EXAMPLES[name]
    assert read_lengths(bytes.fromhex(data), len(values)) == values


@settings(max_examples=200)
@given(values=st.lists(st.integers(0, (1 << 32) - 1), max_size=1500))
def test_there_and_back(values: list[int]) -> None:
    assert read_lengths(write_lengths(values), len(values)) == values


def test_lengths_that_no_text_has_are_not_written() -> None:
    with pytest.raises(Malformed, match="a text of 4294967296 bytes"):
        write_lengths([1 << 32])


def lengths_written_by_pyarrow(lengths: list[int]) -> bytes:
    data = orc_deletes(
        [("x" * size, 0) for size in lengths], compression="uncompressed", dictionary_key_size_threshold=DIRECT
    )
    (stripe,) = container.parse_file(data, "").stripes
    (stream,) = (one for one in stripe.streams if (one.column, one.kind) == (1, 2))
    return stream.data


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    parts=st.lists(st.tuples(st.sampled_from("rcduo"), st.integers(1, 700)), min_size=1, max_size=5),
)
def test_what_pyarrow_writes(seed: int, parts: list[tuple[str, int]]) -> None:
    """Repeats, counts up and down, noise, and noise with a few large ones, which make patched runs."""
    chance, lengths = random.Random(seed), list[int]()
    for kind, count in parts:
        lengths += {
            "r": [chance.randrange(300)] * count,
            "c": [*range(count)],
            "d": [*range(count, 0, -1)],
            "u": [chance.randrange(200) for _ in range(count)],
            "o": [chance.randrange(16) if chance.random() < 0.97 else 20_000 for _ in range(count)],
        }[kind]
    assert read_lengths(lengths_written_by_pyarrow(lengths), len(lengths)) == lengths


def test_pyarrow_writes_every_kind_of_run() -> None:
    noise = random.Random(1)
    kinds = set()
    for lengths in (
        [7] * 5,
        [noise.randrange(200) for _ in range(300)],
        [*range(300)],
        [noise.randrange(16) if n % 50 else 20_000 for n in range(1, 400)],
    ):
        kinds.add(lengths_written_by_pyarrow(lengths)[0] >> 6)
    assert kinds == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("data", "count", "words"),
    [
        ("", 1, "0 values where there should be 1"),
        ("0a2710", 6, "5 values where there should be 6"),
        ("0a2710", 4, "more than the 4 values"),
        ("0a271000", 5, "more than the 5 values"),
        ("0a27", 5, "a run is cut"),
        ("5e", 4, "a run is cut"),
        ("5e03 5ca1 ab", 4, "a run is cut"),
        (PATCHED[:-2], 20, "a run is cut"),
        ("8e13 2bff 07d0 1e", 20, "a run is cut"),
        ("8e13 2b21 87d0" + PATCHED[14:], 20, "negative"),
        ("c0090a15", 10, "negative or too large"),
        ("c1ff" + "ff" * 9 + "01" + "00", 512, "negative or too large"),
        ("c0ff", 10, "cut or too long"),
        ("c609 0202 2242", 10, "a run is cut"),
    ],
)
def test_damage(data: str, count: int, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        read_lengths(bytes.fromhex(data), count)


def test_patches_that_do_not_fit() -> None:
    with pytest.raises(Malformed, match="a patch lies behind its run"):
        read_lengths(bytes.fromhex("8e01 2b21 07d0 1e00 fce8"), 2)
    wide = bytes.fromhex("8e131fe1" + "00" * 40)
    with pytest.raises(Malformed, match="wider than 64 bits"):
        read_lengths(wide, 20)


@settings(max_examples=500, deadline=None)
@given(data=st.binary(max_size=60), count=st.integers(0, 2000))
def test_anything_at_all(data: bytes, count: int) -> None:
    try:
        assert len(read_lengths(data, count)) == count
    except Malformed as err:
        assert str(err)  # noqa: PT017


@pytest.mark.parametrize(
    ("data", "count", "want"),
    [
        ("", 0, True),
        ("ff80", 1, True),
        ("ff00", 1, False),
        ("ffff", 8, True),
        ("fffe", 8, False),
        ("fffe", 7, True),
        ("00ff", 24, True),
        ("00fe", 24, False),
        ("00fe", 23, False),
        ("61ff", 800, True),
        ("feff7f", 16, False),
        ("feff80", 9, True),
        ("fdffffff00ff", 48, True),
    ],
)
def test_booleans(data: str, count: int, want: bool) -> None:
    assert is_all_set(bytes.fromhex(data), count) is want


@pytest.mark.parametrize(("data", "count"), [("", 1), ("00", 8), ("fdffff", 9), ("ffff", 9), ("ffff", 1 << 62)])
def test_cut_booleans(data: str, count: int) -> None:
    with pytest.raises(Malformed, match="a run is cut"):
        is_all_set(bytes.fromhex(data), count)
