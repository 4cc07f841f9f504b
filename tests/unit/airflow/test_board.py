"""Who watches what: a table is looked at when its watcher joins, and no longer when the last one has left."""

from __future__ import annotations

import asyncio

from lakemirror.airflow.board import Board, board_of


def test_a_table_is_watched_until_the_last_watcher_leaves() -> None:
    board = Board()
    with board.joined("b"), board.joined("a"):
        with board.joined("a"):
            assert board.tables == ("a", "b")
        assert board.tables == ("a", "b")
    assert board.tables == ()


def test_who_joins_is_fresh_once_also_if_others_watch_the_same() -> None:
    board = Board()
    with board.joined("a"):
        assert board.take_fresh() == ("a",)
        assert board.take_fresh() == ()
        with board.joined("a"):
            assert board.take_fresh() == ("a",)


def test_who_has_left_is_not_fresh() -> None:
    board = Board()
    with board.joined("a"):
        pass
    assert board.take_fresh() == ()


def test_the_bell_rings_for_who_joins_and_for_who_has_joined_before() -> None:
    async def work() -> None:
        board = Board()
        bell = board.bell()
        assert not bell.done()
        with board.joined("a"), board.joined("b"):  # the second finds it ringing
            assert bell.done()
            assert board.bell().done(), "nobody has looked yet"
            board.take_fresh()
            assert not board.bell().done()

    asyncio.run(work())


def test_a_bell_of_a_loop_that_is_gone_harms_nobody() -> None:
    board = Board()

    async def wait_for_it() -> bool:
        return board.bell().done()

    assert not asyncio.run(wait_for_it())
    with board.joined("a"):
        assert asyncio.run(wait_for_it())


def test_one_board_for_each_stream() -> None:
    assert board_of(("x", 1)) is board_of(("x", 1))
    assert board_of(("x", 1)) is not board_of(("x", 2))
