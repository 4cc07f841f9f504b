"""What the library looks at in metadata has the type it must have, or the file is refused by name of the field."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from lakemirror.errors import LakemirrorError, PermanentError
from lakemirror.formats.iceberg import metadata_json
from lakemirror.model.paths import PrefixMap

URI = "s3://src/wh/t/metadata/v1.metadata.json"
SNAPSHOT = {
    "snapshot-id": 1,
    "timestamp-ms": 1,
    "sequence-number": 1,
    "parent-snapshot-id": None,
    "manifest-list": "s3://src/wh/t/metadata/snap-1.avro",
    "summary": {"operation": "append"},
}
STATISTICS = {"snapshot-id": 1, "statistics-path": "s3://src/wh/t/metadata/x.stats", "file-size-in-bytes": 3}
METADATA: dict[str, Any] = {
    "format-version": 2,
    "table-uuid": "7c0d-1",
    "location": "s3://src/wh/t",
    "last-updated-ms": 1,
    "current-snapshot-id": 1,
    "snapshots": [SNAPSHOT],
    "snapshot-log": [{"snapshot-id": 1, "timestamp-ms": 1}],
    "refs": {"main": {"snapshot-id": 1, "type": "branch"}},
    "statistics": [STATISTICS],
    "partition-statistics": [STATISTICS],
    "properties": {"a": "b"},
    "schemas": [{"fields": []}],
}
PATHS = PrefixMap.of({"s3://src/wh/t": "gs://cloud/t"})
WRONG: tuple[Any, ...] = (None, True, 0.5, "x", [], {}, [[]], [None], [{}], {"a": 1}, {"a": {}}, -1, 2**63, 10**30)


def use(metadata: Any) -> None:
    found = metadata_json.parse(json.dumps(metadata).encode(), URI)
    metadata_json.refuse_unsupported(found, URI)
    kept = metadata_json.snapshots(found)
    metadata_json.statistics_files(found, kept)
    head = metadata_json.current_snapshot_id(found)
    if head is None or head in kept:
        metadata_json.for_mirror(found, PATHS, 1, head, kept, location="gs://cloud/t")
    metadata_json.at(found["last-updated-ms"])


def test_the_example_is_fine() -> None:
    use(METADATA)


@pytest.mark.parametrize("value", WRONG, ids=str)
@pytest.mark.parametrize("name", METADATA)
def test_any_field_of_any_type(name: str, value: Any) -> None:
    """Taken or refused, never anything else."""
    try:
        use({**METADATA, name: value})
    except LakemirrorError as err:
        assert err.hint  # noqa: PT017


@pytest.mark.parametrize("value", WRONG, ids=str)
@pytest.mark.parametrize(
    ("part", "name"),
    [
        *(("snapshots", name) for name in SNAPSHOT),
        *(("statistics", name) for name in STATISTICS),
        *(("snapshot-log", name) for name in ("snapshot-id", "timestamp-ms")),
    ],
)
def test_any_part_of_any_type(part: str, name: str, value: Any) -> None:
    for changed in ({**METADATA[part][0], name: value}, {k: v for k, v in METADATA[part][0].items() if k != name}):
        try:
            use({**METADATA, part: [changed]})
        except LakemirrorError as err:
            assert err.hint  # noqa: PT017


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"snapshots": [SNAPSHOT, SNAPSHOT]}, "two snapshots have one id"),
        ({"current-snapshot-id": 1.5}, "current-snapshot-id is 1.5 of the wrong type"),
        ({"current-snapshot-id": True}, "current-snapshot-id is True of the wrong type"),
        ({"last-updated-ms": 10**18}, "last-updated-ms is 1000000000000000000"),
        ({"table-uuid": "a\nb"}, "table-uuid is"),
        ({"refs": {"x": {"snapshot-id": "1"}}}, "the ref 'x' names no snapshot"),
        ({"statistics": [{**STATISTICS, "file-size-in-bytes": -1}]}, r"statistics\[0\]\.file-size-in-bytes is -1"),
        ({"snapshots": [{"snapshot-id": 1}]}, r"snapshots\[0\]\.timestamp-ms is missing"),
        ({"properties": {"write.data.path": 7}}, "properties is of the wrong type"),
        ({"format-version": True}, "format version True"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(PermanentError, match=says):
        use({**METADATA, **change})


def test_a_damaged_gzip_file() -> None:
    """Every single flip, since the reader of the standard library has errors of three kinds."""
    data = gzip.compress(json.dumps(METADATA).encode(), mtime=0)
    for position in range(10, len(data)):
        for bit in (1, 16):
            broken = bytearray(data)
            broken[position] ^= bit
            try:
                metadata_json.parse(bytes(broken), URI)
            except PermanentError as err:
                assert err.subject == URI  # noqa: PT017


def test_no_statistics_at_all() -> None:
    use({**METADATA, "statistics": None, "partition-statistics": None, "refs": None, "snapshot-log": None})
