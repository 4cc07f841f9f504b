"""How long a server's own metadata file becomes: told before a commit, with room that is left for its logs."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakemirror.catalogs.dialect import room_for_logs, size_after
from lakemirror.catalogs.updates import Inexpressible, commit_of
from tests.published_tables import STEPS, Table
from tests.rest_interpreter import Refused, take

Json = dict[str, Any]
HEAD_MOVES = ("append", "append", "roll_back", "tag", "drop_ref", "publish", "publish", "publish")
HISTORY = st.lists(st.tuples(st.sampled_from(HEAD_MOVES), st.integers(0, 99)), min_size=10, max_size=60)
PLACE = f"s3://m/t/metadata/00007-{'0' * 36}.metadata.json"


def length(metadata: Json) -> int:
    return len(json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode())


def _kept(detail: int, snapshot_id: int) -> bool:
    return bool(snapshot_id % 4 or detail % 2)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=HISTORY, kept_files=st.sampled_from([None, "0", "1", "3"]))
def test_a_server_has_room_for_its_logs(history: list[tuple[str, int]], kept_files: str | None) -> None:
    table = Table("s3://m/t", 2)
    table.properties |= {} if kept_files is None else {"write.metadata.previous-versions-max": kept_files}
    shown: Json | None = None
    for step, detail in [*history, ("publish", 0)]:
        if step != "publish":
            STEPS[step](table, detail)
            continue
        new = table.publish(partial(_kept, detail))
        new["snapshot-log"] = new["snapshot-log"][-1:]  # all that ours may have
        noted = Counter(entry["snapshot-id"] for entry in table.log)
        heads = sum(max(1, noted[one["snapshot-id"]]) for one in new["snapshots"])
        at_most = length(new) + room_for_logs(new, heads, table.published_count)
        told = size_after(PLACE, shown, new)
        try:
            made = commit_of(shown, new)
            shown = take(shown, list(made.requirements), list(made.updates), None if shown is None else PLACE)
        except (Inexpressible, Refused):
            return
        logs = {key: shown.get(key, []) for key in ("snapshot-log", "metadata-log")}
        assert length({**new, **logs}) <= told <= at_most


@pytest.mark.parametrize(("said", "kept"), [("0", 1), ("7", 7), ("many", 100), ("-1", 100), ("9" * 400, 100)])
def test_how_many_files_a_server_lists(said: str, kept: int) -> None:
    new = {"location": "s3://m/t", "properties": {"write.metadata.previous-versions-max": said}}
    assert room_for_logs(new, 0, 10**9) == kept * room_for_logs(new, 0, 1) > 0
    assert room_for_logs(new, 0, 0) == 0


def test_a_place_of_its_own_for_metadata_counts() -> None:
    near, far = ({"location": "s3://m/t", "properties": {"write.metadata.path": "s" * n}} for n in (1, 500))
    assert room_for_logs(far, 0, 1) - room_for_logs(near, 0, 1) == 500 - len("s3://m/t/metadata")
