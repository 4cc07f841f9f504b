"""What stages leave for each other, altered by whoever can write to the bucket: refused, and led nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakemirror.errors import LakemirrorError, PermanentError
from lakemirror.replicate import segments
from lakemirror.replicate.plan import ITEM
from lakemirror.replicate.stage import LocalEngine
from tests.fuzz.memory_lake import ROOT, TABLE, MemoryLake

ELSEWHERE = (
    "file:///etc/passwd",
    f"{ROOT}/../other/x",
    "gs://mirror/lake/db/other/x",
    "http://x/y",
    "",
    "s3://other/x",
)


def planned() -> tuple[MemoryLake, str]:
    lake = MemoryLake("v2", "planned")
    assert lake.detected is not None
    return lake, lake.detected[0]


def fails(lake: MemoryLake, says: str) -> None:
    with pytest.raises(PermanentError, match=says):
        lake.run()
    assert lake.mirror_catalog.moves == []


def edit_json(lake: MemoryLake, uri: str, change: Callable[[Any], Any]) -> None:
    document = json.loads(lake.mirror.objects[uri])
    lake.mirror.objects[uri] = json.dumps(change(document) or document).encode()


def test_what_is_not_altered_is_fine() -> None:
    lake, _ = planned()
    lake.run()
    assert len(lake.mirror_catalog.moves) == 1


@pytest.mark.parametrize("uri", ELSEWHERE)
def test_a_plan_with_segments_elsewhere(uri: str) -> None:
    lake, plan = planned()
    edit_json(lake, f"{plan}/plan.json", lambda document: document["segments"][0].update(uri=uri))
    fails(lake, "uri is")


@pytest.mark.parametrize(
    "change",
    [
        lambda document: [7],
        lambda document: document.pop("segments") and None,
        lambda document: document.update(more=1),
        lambda document: document.update(segments=[7]),
        lambda document: document["segments"][0].update(role="shell"),
        lambda document: document["segments"][0].update(files=-1),
        lambda document: document["segments"][0].update(bytes=2**70),
    ],
)
def test_a_plan_of_another_shape(change: Callable[[Any], Any]) -> None:
    lake, plan = planned()
    edit_json(lake, f"{plan}/plan.json", change)
    fails(lake, "not as it was written|not a JSON object")


@pytest.mark.parametrize("role", ["copy", "delete"])
@pytest.mark.parametrize("field", ["source", "target"])
@pytest.mark.parametrize("uri", ELSEWHERE)
def test_a_segment_that_reads_or_writes_elsewhere(role: str, field: str, uri: str) -> None:
    lake, plan = planned()
    (segment,) = [one for one in lake.mirror.objects if one.startswith(f"{plan}/{role}-")]
    rows = segments.read(lake.mirror, segment, ITEM).to_pylist()
    rows[0][field] = uri
    lake.mirror.objects[segment] = segments.encode(pa.Table.from_pylist(rows, ITEM))
    lake.mirror.calls.clear()
    fails(lake, "goes to|no known root|climbs|is relative")


def _altered(lake: MemoryLake, plan: str, **changes: Any) -> None:
    uri = f"{plan}/change.parquet"
    import io

    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(lake.mirror.objects[uri]))
    document = {**json.loads(table.schema.metadata[b"lakemirror.change"]), **changes}
    table = table.replace_schema_metadata({b"lakemirror.change": json.dumps(document).encode()})
    lake.mirror.objects[uri] = segments.encode(table)


@pytest.mark.parametrize(
    "changes",
    [
        {"rules": [["file:///etc", ROOT]]},
        {"source_metadata_location": "file:///etc/passwd"},
        {"version": 77},
        {"epoch": "x"},
        {"table": "db.other"},
        {"private": ["s3://x"]},
        {"plan_id": "0" * 20},
    ],
    ids=str,
)
def test_a_change_is_bound_to_the_name_of_its_plan(changes: dict[str, Any]) -> None:
    """Where it reads and writes is hashed into the plan's name, which the scheduler hands over by another way."""
    lake, plan = planned()
    _altered(lake, plan, **changes)
    fails(lake, "it is of plan")


@pytest.mark.parametrize(
    "changes",
    [{"head": "x"}, {"retained": None}, {"new_lists": [[1]]}, {"lane": 7}, {"more": 1}, {"rules": [[1, 2]]}],
    ids=str,
)
def test_a_change_of_another_shape(changes: dict[str, Any]) -> None:
    lake, plan = planned()
    _altered(lake, plan, **changes)
    fails(lake, "not as it was written")


@pytest.mark.parametrize("uri", ELSEWHERE)
@pytest.mark.parametrize("field", ["new_lists", "statistics"])
def test_a_change_that_reads_elsewhere(field: str, uri: str) -> None:
    """What the name does not bind is still held by the map of places; statistics were planned before."""
    lake, plan = planned()
    _altered(lake, plan, **{field: [[5, uri] if field == "new_lists" else [uri, 5]]})
    try:
        lake.run()
    except LakemirrorError:
        assert lake.mirror_catalog.moves == []
    assert uri not in {asked for _, asked in (*lake.source.calls, *lake.mirror.calls)}


@pytest.mark.parametrize("name", ["metadata_uri", "index_uri", "manifest_list_uri", "lists"])
@pytest.mark.parametrize("uri", ELSEWHERE)
def test_an_assembled_version_elsewhere(name: str, uri: str) -> None:
    lake, plan = planned()
    app, engine = lake.app(), LocalEngine(1)
    app.copy_objects(TABLE, plan, engine)
    app.rewrite_metadata(TABLE, plan, engine)
    edit_json(
        lake, f"{plan}/assembled.json", lambda document: {**document, name: [[uri, 1, 1]] if name == "lists" else uri}
    )
    with pytest.raises(PermanentError, match=f"{name} is"):
        app.publish(TABLE, plan)


def test_a_plan_of_another_table(tmp_path: Path) -> None:
    lake, _ = planned()
    with pytest.raises(PermanentError, match="it lies outside"):
        lake.app().copy_objects(TABLE, "gs://mirror/lake/db/other/_plan/x", LocalEngine(1))
