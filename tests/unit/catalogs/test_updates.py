"""From the catalog's metadata to ours: the updates, applied one by one, give what was published."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from lakemirror.catalogs.comparison import differing
from lakemirror.catalogs.updates import Commit, Inexpressible, commit_of
from tests.published_tables import STEPS, Table, comparable
from tests.rest_interpreter import Refused, take

Json = dict[str, Any]
HISTORY = st.lists(
    st.tuples(st.sampled_from([*STEPS, "append", "publish", "publish"]), st.integers(0, 99)), max_size=40
)


def _kept(detail: int, snapshot_id: int) -> bool:
    return snapshot_id % 2 == detail % 2


def apply(shown: Json | None, made: Commit) -> Json:
    return take(shown, list(made.requirements), list(made.updates))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(version=st.integers(1, 3), history=HISTORY)
def test_updates_give_what_was_published(version: int, history: list[tuple[str, int]]) -> None:
    table = Table("s3://m/t", version)
    shown: Json | None = None
    taken: list[Commit] = []
    for step, detail in [*history, ("publish", 0)]:
        if step != "publish":
            STEPS[step](table, detail)
            continue
        published = table.publish(partial(_kept, detail))
        try:
            made = commit_of(shown, published)
        except Inexpressible as err:
            event(f"inexpressible: {str(err)[:20]}")
            continue
        got = apply(shown, made)
        for earlier in taken:  # what was taken once is never taken again, whatever the table has come to since
            with pytest.raises(Refused):
                take(got, list(earlier.requirements), [])
        taken.append(made)
        orders = got["sort-orders"]
        assert differing(published, got) == ()
        assert [one for one in published["sort-orders"] if one not in orders and one["order-id"]] == []
        want = comparable(published)
        if shown is not None:
            for key in ("last-column-id", "last-partition-id"):  # a recreated table counts anew, a catalog never
                least = shown[key] + (made.is_guarded and key == "last-column-id")
                want[key] = max(want[key], least)
        assert comparable({**got, "sort-orders": published["sort-orders"]}) == want
        if any("first-row-id" in one.get("snapshot", ()) for one in made.updates):  # nothing else moves the counter
            assert got["next-row-id"] == published["next-row-id"]
        shown = got
