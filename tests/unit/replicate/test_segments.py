"""Segments: small Parquet objects named by their content."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakemirror.errors import PermanentError
from lakemirror.replicate import segments
from tests.unit.replicate.conftest import Bench

TABLE = pa.table({"target": ["a ü", "b"], "size": [1, 2]})


def test_round_trip(bench: Bench) -> None:
    uri = segments.write(bench.store, bench.layout.plan("p"), "copy", TABLE)
    assert segments.read(bench.store, uri, TABLE.schema).equals(TABLE)


def test_the_same_work_is_one_object(bench: Bench) -> None:
    folder = bench.layout.plan("p")
    first = segments.write(bench.store, folder, "copy", TABLE)
    assert segments.write(bench.store, folder, "copy", TABLE) == first
    assert segments.write(bench.store, folder, "copy", TABLE.slice(1)) != first
    assert len(bench.objects()) == 2


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"garbage" * 10, segments.encode(TABLE)[:-1], segments.encode(TABLE)[5:]]
)
def test_damage_is_named(bench: Bench, data: bytes) -> None:
    with pytest.raises(PermanentError, match="not readable") as caught:
        segments.decode(data, "gs://m/segment", TABLE.schema)
    assert caught.value.subject == "gs://m/segment"


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (TABLE.select(["size"]), "target"),
        (TABLE.set_column(1, "size", [["x", "y"]]), "Failed to parse"),
        (TABLE.set_column(0, "target", [["x", None]]), "a row has no target"),
        (
            TABLE.set_column(0, "target", pa.chunked_array([pa.array([b"\xff", b""]).cast(pa.string(), safe=False)])),
            "UTF8",
        ),
    ],
)
def test_other_columns_than_were_asked_for(table: pa.Table, says: str) -> None:
    with pytest.raises(PermanentError, match=says):
        segments.decode(segments.encode(table), "gs://m/segment", TABLE.schema, ("target",))


def test_more_rows_than_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MAX_ROWS", 1)
    with pytest.raises(PermanentError, match="2 rows of"):
        segments.decode(segments.encode(TABLE), "gs://m/segment", TABLE.schema)
