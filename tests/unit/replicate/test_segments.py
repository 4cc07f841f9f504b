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
    assert segments.read(bench.store, uri).equals(TABLE)


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
        segments.decode(data, "gs://m/segment")
    assert caught.value.subject == "gs://m/segment"
