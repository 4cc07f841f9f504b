"""Facts of delete files are found by path in a sorted table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakemirror.formats.iceberg.manifest import DeleteFileFacts
from lakemirror.replicate.delete_facts import DeleteFacts
from lakemirror.replicate.plan import FACT


def test_each_is_found_and_no_other() -> None:
    targets = ["gs://b/ü", "gs://b/a", "gs://b/\U0001f600", "gs://b/\uffff", "gs://b/b"]
    rows = [{"target": target, "size": n, "lower": b"l", "upper": None} for n, target in enumerate(targets)]
    table = pa.concat_tables([pa.Table.from_pylist(rows[:2], FACT), pa.Table.from_pylist(rows[2:], FACT)])
    facts = DeleteFacts(table)
    assert (len(facts), set(facts)) == (5, set(targets))
    for number, target in enumerate(targets):
        assert facts[target] == DeleteFileFacts(number, b"l", None)  # type: ignore[arg-type]
    for other in ("", "gs://b", "gs://b/aa", "gs://c"):
        assert facts.get(other) is None
        with pytest.raises(KeyError):
            facts[other]


def test_no_facts_is_none() -> None:
    assert DeleteFacts(FACT.empty_table()).get("x") is None
