"""How files are spread: every file once, bins of bounded count, none much heavier than another, ranges without gaps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemirror.copying.bins import FILE_COST_BYTES, deal, pack, part_bytes_for, parts_of, ranges_of
from lakemirror.errors import PermanentError

SIZES = st.lists(st.integers(0, 3 * 10**9), max_size=200)


@given(SIZES, st.integers(1, 50), st.integers(1, 2 * 10**9))
def test_every_file_is_in_exactly_one_bin_of_bounded_count(sizes: list[int], files: int, size_bytes: int) -> None:
    bins = pack(sizes, files, size_bytes)
    assert sorted(position for chosen in bins for position in chosen) == list(range(len(sizes)))
    assert all(1 <= len(chosen) <= files for chosen in bins)


@given(SIZES, st.integers(1, 50), st.integers(1, 2 * 10**9))
def test_a_bin_exceeds_its_bytes_by_one_file_at_most(sizes: list[int], files: int, size_bytes: int) -> None:
    for chosen in pack(sizes, files, size_bytes):
        weights = sorted(sizes[position] for position in chosen)
        cost = FILE_COST_BYTES * len(chosen)
        assert len(chosen) == 1 or sum(weights[1:]) <= size_bytes + cost + max(weights)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=200), st.integers(1, 10**7))
def test_bins_weigh_the_same_but_for_one_file(sizes: list[int], size_bytes: int) -> None:
    weights = [
        sum(sizes[position] + FILE_COST_BYTES for position in chosen)
        for chosen in pack(sizes, len(sizes), size_bytes)
        if sizes[chosen[0]] < size_bytes
    ]
    if weights and len(weights) * size_bytes >= sum(size for size in sizes if size < size_bytes):
        heaviest = max(size for size in sizes if size < size_bytes) + FILE_COST_BYTES
        assert max(weights) - min(weights) <= heaviest


@given(st.permutations([5, 4, 3, 2, 1, 0]))
def test_the_order_of_the_list_does_not_matter(sizes: list[int]) -> None:
    bins = pack(sizes, 2, 100)
    assert sorted(sorted(sizes[position] for position in chosen) for chosen in bins) == [[0, 5], [1, 4], [2, 3]]


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 10**13), st.integers(1, 10**9), st.integers(1, 10**10))
def test_ranges_and_parts_cover_the_file_without_gaps(size: int, wanted: int, range_bytes: int) -> None:
    part_bytes = part_bytes_for(size, wanted, 10**13, "s3://b/k")
    parts = parts_of(size, part_bytes)
    assert len(parts) <= 10_000
    assert [part.number for part in parts] == list(range(1, len(parts) + 1))
    position = 0
    for part in parts:
        assert part.start == position
        assert 0 < part.length <= part_bytes
        position += part.length
    assert position == size
    ranges = ranges_of(size, part_bytes, range_bytes)
    assert [part for chosen in ranges for part in parts_of(size, part_bytes, chosen)] == parts
    assert max(chosen.parts for chosen in ranges) - min(chosen.parts for chosen in ranges) <= 1


def test_parts_that_memory_cannot_hold_are_refused_by_name() -> None:
    with pytest.raises(PermanentError, match="raise copy_memory_bytes"):
        part_bytes_for(10**13, 1 << 24, 256 * 10**6, "s3://b/huge")


@pytest.mark.parametrize(
    ("weights", "tasks", "want"),
    [
        ([], 2, [[], []]),
        ([1, 1, 1, 1, 1], 2, [[0, 2, 4], [1, 3]]),
        ([0, 0, 0], 3, [[0], [1], [2]]),
        ([1, 9, 2, 8], 2, [[1, 0], [3, 2]]),
        ([10, 1, 1, 1], 2, [[0], [1, 2, 3]]),
    ],
)
def test_rows_are_dealt_by_weight(weights: list[int], tasks: int, want: list[list[int]]) -> None:
    assert deal(weights, tasks) == want
