"""Going back is told from going on, from being replaced and from being expired."""

from __future__ import annotations

from typing import Any

import pytest

from lakemirror.replicate.rollback import Mirrored, went_back

Parents = dict[int, int | None]
LINE: Parents = {1: None, 2: 1, 3: 2, 4: 3}
TURNED: Parents = {1: None, 2: 1, 3: 1, 4: 3}  # 2 was taken back, and written to since


def table(parents: Parents, *, numbered: bool, log: tuple[int, ...] = ()) -> dict[str, Any]:
    """Snapshots whose ids are also their times and, in format version 2, their sequence numbers."""
    made = []
    for one, parent in parents.items():
        fields = {"snapshot-id": one, "timestamp-ms": one * 1000}
        fields |= {"sequence-number": one} if numbered else {}
        made.append(fields if parent is None else {**fields, "parent-snapshot-id": parent})
    return {"snapshots": made, "snapshot-log": [{"snapshot-id": one, "timestamp-ms": 0} for one in log]}


def only(parents: Parents, *kept: int) -> Parents:
    return {one: parents[one] for one in kept}


CASES = [
    pytest.param(LINE, 2, 2, None, id="the same"),
    pytest.param(LINE, 4, 2, None, id="goes on"),
    pytest.param(LINE, 1, 2, "to snapshot 1", id="back"),
    pytest.param(LINE, None, 2, "to no snapshot at all", id="back to nothing"),
    pytest.param(TURNED, 3, 2, "to snapshot 1, and written to since", id="back, and written to"),
    pytest.param(TURNED, 4, 2, "to snapshot 1, and written to since", id="back, and written to twice"),
    pytest.param(
        only(TURNED, 1, 3, 4), 4, 2, "to snapshot 1, and written to since", id="what was taken back is expired"
    ),
    pytest.param({1: None, 2: 1, 3: None}, 3, 2, None, id="replaced"),
    pytest.param({3: None}, 3, 2, None, id="replaced, and all before expired"),
    pytest.param({1: None, 2: 1, 3: None}, 2, 3, "to snapshot 2", id="back from a replacement"),
    pytest.param(only(LINE, 4), 4, 2, None, id="expired, cut after it"),
    pytest.param(only(LINE, 3, 4), 4, 2, None, id="expired, named by its child"),
    pytest.param(only(LINE, 1, 4), 4, 2, None, id="expired but for a tagged one that is older"),
    pytest.param(only(LINE, 2, 4), 4, 2, None, id="tagged, and what followed is expired"),
    pytest.param(only(TURNED, 2, 4), 4, 2, None, id="back, but expiry has left nothing that tells"),
    pytest.param(LINE, 4, None, None, id="nothing was mirrored"),
    pytest.param({1: 2, 2: 1, 3: 3}, 1, 3, "to snapshot 1", id="parents in a circle"),
]


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize(("parents", "head", "mirrored", "want"), CASES)
def test_went_back(parents: Parents, head: int | None, mirrored: int | None, want: str | None, numbered: bool) -> None:
    number = mirrored if mirrored is not None and numbered else 0
    shown = Mirrored(mirrored, number, (mirrored or 0) * 1000 + 500)
    assert went_back(table(parents, numbered=numbered), head, shown) == want


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize(
    ("log", "want"), [((1, 2, 1, 5), "to snapshot 1, and written to since"), ((1, 2, 5), None), ((1, 2, 1, 2, 5), None)]
)
def test_where_the_line_is_cut_the_log_tells(log: tuple[int, ...], want: str | None, numbered: bool) -> None:
    """Of two snapshots that were one transaction the log has the last; the first, 4, has expired."""
    metadata = table({1: None, 2: 1, 5: 4}, numbered=numbered, log=log)
    assert went_back(metadata, 5, Mirrored(2, 2 if numbered else 0, 2000)) == want


def test_a_snapshot_of_format_version_1_is_older_than_any_that_has_a_number() -> None:
    upgraded = table({1: None, 2: 1, 3: 1}, numbered=True)
    for one in upgraded["snapshots"][:1]:
        del one["sequence-number"]
    assert went_back(upgraded, 3, Mirrored(2, 2, 2000)) == "to snapshot 1, and written to since"
    assert went_back(upgraded, 3, Mirrored(1, 0, 1000)) is None


def test_what_is_fast_forwarded_to_is_not_older_because_it_lay_on_a_branch_before() -> None:
    """4 lay on a branch when 2 was mirrored; 2 and 3 have expired since."""
    assert went_back(table(only(LINE, 4), numbered=False), 4, Mirrored(2, 0, 9000)) is None
