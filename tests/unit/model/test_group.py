"""The watermark of a group: the least of its tables, never back in silence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.model.group import KEPT_MOVES, GroupWatermark, MoveBack, Reached

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
URI = "file:///m/_groups/g.json"


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def group(**tables: Reached | None) -> GroupWatermark:
    return GroupWatermark("g", tables)


def test_the_watermark_is_that_of_the_slowest_table() -> None:
    found = group(a=Reached(3, at(5)), b=Reached(1, at(2)))
    assert (found.watermark, found.slowest) == (at(2), "b")


def test_there_is_none_while_a_member_shows_nothing() -> None:
    found = group(a=Reached(3, at(5))).advanced(["a", "b"], "a", Reached(4, at(9)), at(10))
    assert (found.watermark, found.slowest) == (None, "b")


def test_it_goes_on_as_tables_do() -> None:
    found = group(a=Reached(3, at(5)), b=Reached(1, at(2))).advanced(["a", "b"], "b", Reached(2, at(7)), at(8))
    assert found.watermark == at(5)
    assert found.moves_back == ()


def test_an_older_note_of_the_same_version_takes_nothing_back() -> None:
    found = group(a=Reached(3, at(5))).advanced(["a"], "a", Reached(3, at(4)), at(8))
    assert found.watermark == at(5)


def test_a_mirror_that_was_put_back_moves_it_back_and_says_so() -> None:
    found = group(a=Reached(3, at(5)), b=Reached(2, at(6))).advanced(["a", "b"], "a", Reached(2, at(1)), at(8))
    assert found.watermark == at(1)
    assert found.moves_back == (MoveBack(at(8), at(5), at(1), "a"),)


def test_a_newer_version_takes_nothing_back_unless_it_shows_a_snapshot_that_was_chosen() -> None:
    """The clock of a source that commits may be behind that of the replicator which looked before."""
    before = group(a=Reached(3, at(5)), b=Reached(2, at(6)))
    found = before.advanced(["a", "b"], "a", Reached(4, at(1)), at(8))
    assert (found.tables["a"], found.moves_back) == (Reached(4, at(5)), ())
    found = before.advanced(["a", "b"], "a", Reached(4, at(1), is_older=True), at(8))
    assert (found.tables["a"], found.watermark) == (Reached(4, at(1)), at(1))
    assert found.moves_back == (MoveBack(at(8), at(5), at(1), "a"),)
    again = found.advanced(["a", "b"], "a", Reached(4, at(1), is_older=True), at(9))
    assert again == found
    assert GroupWatermark.from_bytes(found.to_bytes(), URI) == found


def test_a_table_that_joins_moves_it_back_and_says_so() -> None:
    joined = group(a=Reached(3, at(5))).advanced(["a", "b"], "a", Reached(4, at(6)), at(8))
    assert joined.moves_back == (MoveBack(at(8), at(5), None, "b"),)
    late = joined.advanced(["a", "b"], "b", Reached(1, at(2)), at(9))
    assert late.watermark == at(2)
    assert late.moves_back == joined.moves_back  # from none to some is no move back


def test_a_configuration_that_names_fewer_tables_takes_nobody_out() -> None:
    before = group(a=Reached(3, at(5)), b=Reached(1, at(2)))
    found = before.advanced(["c"], "c", Reached(1, at(300)), at(301))
    assert found.tables == {**before.tables, "c": Reached(1, at(300))}
    assert (found.watermark, found.moves_back) == (at(2), ())


def test_a_table_that_is_forgotten_no_longer_counts() -> None:
    found = group(a=Reached(3, at(5)), b=Reached(1, at(2))).forgotten("b", at(8))
    assert (found.tables, found.watermark, found.moves_back) == ({"a": Reached(3, at(5))}, at(5), ())
    last = found.forgotten("a", at(9))
    assert (last.watermark, last.moves_back) == (None, (MoveBack(at(9), at(5), None, "a"),))


def test_a_table_that_is_shown_no_more_takes_the_watermark_away_and_says_so() -> None:
    before = group(a=Reached(3, at(5)), b=Reached(1, at(2)))
    found = before.without_view_of("a", at(8))
    assert found.tables == {"a": None, "b": Reached(1, at(2))}
    assert (found.watermark, found.moves_back) == (None, (MoveBack(at(8), at(2), None, "a"),))
    assert found.without_view_of("a", at(9)) == found
    assert before.without_view_of("nobody", at(9)) == before


def test_only_the_last_moves_are_kept() -> None:
    found = group(a=Reached(1000, at(0)))
    for number in range(KEPT_MOVES + 5):
        found = found.advanced(["a"], "a", Reached(999 - number, at(-number - 1)), at(number))
    assert len(found.moves_back) == KEPT_MOVES
    assert found.moves_back[-1].now == at(-KEPT_MOVES - 5)


def test_it_reads_what_it_wrote() -> None:
    found = GroupWatermark("g", {"a": Reached(3, at(5)), "b": None}, (MoveBack(at(8), at(5), None, "b"),))
    assert GroupWatermark.from_bytes(found.to_bytes(), URI) == found


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"group": "g", "tables": {}, "moves_back": []}',
        b'{"format": 1, "group": "g", "tables": {"a": {"version": 0, "through": "2026-05-01T12Z"}}, "moves_back": []}',
        b'{"format": 1, "group": "g", "tables": {"a": {"version": 1, "through": "2026-05-01T12"}}, "moves_back": []}',
        b'{"format": 1, "group": "g", "tables": [], "moves_back": []}',
        b'{"format": 1, "group": 7, "tables": {}, "moves_back": []}',
        b'{"format": 1, "group": "g", "tables": {}, "moves_back": [{}]}',
    ],
)
def test_anything_else_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(PermanentError, match="not a watermark"):
        GroupWatermark.from_bytes(data, URI)


@pytest.mark.parametrize(
    "data",
    [
        b'{"format": 2, "group": "g", "tables": {}, "moves_back": []}',
        b'{"format": 2, "group": 7, "tables": ["a"], "moves_back": {"all": []}, "coming": 1}',
        b'{"format": 2}',
        b'{"format": "2.0"}',
        b'{"format": true}',
    ],
)
def test_one_of_a_newer_format_is_not_to_be_deleted(data: bytes) -> None:
    """What was told of moves back would be lost, and nobody makes that anew."""
    with pytest.raises(UnsupportedError, match=r"it is of format .*, and this version reads format 1") as caught:
        GroupWatermark.from_bytes(data, URI)
    assert (caught.value.op, caught.value.subject) == ("read watermark", URI)
    assert caught.value.hint.startswith("upgrade Lakemirror on this side")
    assert "delete" not in str(caught.value)
