"""The mirror's metadata.json: a pure function of the source's, complete, safe to read, free of source paths."""

from __future__ import annotations

import gzip
import json
from copy import deepcopy
from typing import Any

import pytest

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg import metadata_json
from lakemirror.formats.iceberg.metadata_json import fingerprint_fields, for_mirror, parse, refuse_unsupported
from lakemirror.model.paths import PrefixMap

HOME, MIRROR = "s3://src/wh/t", "gs://cloud/t"
NOTHING_EXPIRES = {
    "gc.enabled": "false",
    "write.metadata.delete-after-commit.enabled": "false",
    "history.expire.max-snapshot-age-ms": "9223372036854775807",
    "history.expire.min-snapshots-to-keep": "2147483647",
    "history.expire.max-ref-age-ms": "9223372036854775807",
}
PATHS = PrefixMap.of({HOME: MIRROR, "s3://cold": f"{MIRROR}/_roots/cold"})
PRIVATE = PrefixMap.of({HOME: MIRROR}, private=["/lake/wh/"])


def snapshot(number: int, **more: Any) -> dict[str, Any]:
    return {
        "snapshot-id": number,
        "sequence-number": number,
        "timestamp-ms": 1000 * number,
        "manifest-list": f"{HOME}/metadata/snap-{number}.avro",
        "summary": {"operation": "append"},
        **({"parent-snapshot-id": number - 1} if number > 1 else {}),
        **more,
    }


def source(**more: Any) -> dict[str, Any]:
    return {
        "format-version": 2,
        "table-uuid": "u-1",
        "location": HOME,
        "last-updated-ms": 3000,
        "last-sequence-number": 3,
        "current-snapshot-id": 3,
        "snapshots": [snapshot(1), snapshot(2), snapshot(3)],
        "snapshot-log": [{"snapshot-id": n, "timestamp-ms": 1000 * n} for n in (1, 2, 3)],
        "metadata-log": [{"metadata-file": f"{HOME}/metadata/1.json", "timestamp-ms": 1}],
        "refs": {"main": {"snapshot-id": 3, "type": "branch"}},
        "schemas": [{"schema-id": 0}, {"schema-id": 1}],
        "properties": {"owner": "ada"},
        "unheard-of": {"kept": True},
        **more,
    }


def mirrored(metadata: dict[str, Any], *, head: int | None = 3, retained: tuple[int, ...] = (3,)) -> Any:
    made = for_mirror(metadata, PATHS, 7, head, retained, location=MIRROR)
    return json.loads(made.data), made


def test_the_whole_document() -> None:
    document, made = mirrored(source())
    assert document == {
        "format-version": 2,
        "table-uuid": "u-1",
        "location": MIRROR,
        "last-updated-ms": 3000,
        "last-sequence-number": 3,
        "current-snapshot-id": 3,
        "snapshots": [{**snapshot(3), "manifest-list": f"{MIRROR}/metadata/snap-3.avro"}],
        "snapshot-log": [{"snapshot-id": 3, "timestamp-ms": 3000}],
        "metadata-log": [],
        "refs": {"main": {"snapshot-id": 3, "type": "branch"}},
        "schemas": [{"schema-id": 0}, {"schema-id": 1}],
        "properties": {
            "owner": "ada",
            **NOTHING_EXPIRES,
            "lakemirror.version": "7",
            "lakemirror.source-snapshot-id": "3",
        },
        "unheard-of": {"kept": True},
    }
    assert made.left_out == ()


def test_the_highest_column_id_may_be_lifted() -> None:
    numbered = source(**{"last-column-id": 5})
    for lift in (0, 7):
        made = json.loads(for_mirror(numbered, PATHS, 7, 3, (3,), location=MIRROR, lift=lift).data)
        assert made == {**mirrored(numbered)[0], "last-column-id": 5 + lift}


@pytest.mark.parametrize("own", [2**31 - 3, 2**31 - 1])
def test_the_highest_column_id_is_never_lifted_beyond_what_engines_can_hold(own: int) -> None:
    numbered = source(**{"last-column-id": own})
    made = json.loads(for_mirror(numbered, PATHS, 7, 3, (3,), location=MIRROR, lift=16).data)
    assert made["last-column-id"] == 2**31 - 1
    with pytest.raises(PermanentError, match="last-column-id"):
        parse(json.dumps(source(**{"last-column-id": "5"})).encode(), "s3://src/v.metadata.json")


def test_same_input_same_bytes_and_name_other_input_other_name() -> None:
    one = for_mirror(source(), PATHS, 7, 3, (3,), location=MIRROR)
    shuffled = dict(reversed(source().items()))
    assert for_mirror(shuffled, PATHS, 7, 3, (3,), location=MIRROR) == one
    assert one.file_name.startswith("00007-")
    assert one.file_name.endswith(".metadata.json")
    others = [
        for_mirror(source(), PATHS, 8, 3, (3,), location=MIRROR),
        for_mirror(source(), PATHS, 7, 3, (2, 3), location=MIRROR),
    ]
    assert len({one.file_name, *(other.file_name for other in others)}) == 3


def test_the_source_document_is_not_touched() -> None:
    given = source(properties={"x": f"{HOME}/y"})
    before = deepcopy(given)
    mirrored(given)
    assert given == before


def test_retained_snapshots_and_their_log() -> None:
    document, _ = mirrored(source(), retained=(1, 3))
    assert [one["snapshot-id"] for one in document["snapshots"]] == [1, 3]
    assert [one["snapshot-id"] for one in document["snapshot-log"]] == [3]  # what lies before a gap is dropped
    document, _ = mirrored(source(), retained=(2, 3))
    assert [one["snapshot-id"] for one in document["snapshot-log"]] == [2, 3]


def test_log_ends_at_the_head_after_a_rollback() -> None:
    log = [{"snapshot-id": n, "timestamp-ms": t} for n, t in ((1, 1000), (2, 2000), (3, 3000), (2, 4000))]
    document, _ = mirrored(source(**{"snapshot-log": log, "current-snapshot-id": 2}), head=2, retained=(2, 3))
    assert [one["snapshot-id"] for one in document["snapshot-log"]] == [2, 3, 2]
    document, _ = mirrored(source(), head=1, retained=(1, 2))
    assert document["snapshot-log"] == [{"snapshot-id": 1, "timestamp-ms": 1000}]


def test_log_names_the_head_even_if_the_source_lost_it() -> None:
    document, _ = mirrored(source(**{"snapshot-log": []}))
    assert document["snapshot-log"] == [{"snapshot-id": 3, "timestamp-ms": 3000}]


def test_tags_and_branches_are_kept_pins_are_not() -> None:
    refs = {
        "main": {"snapshot-id": 3, "type": "branch", "max-ref-age-ms": 5},
        "audit": {"snapshot-id": 2, "type": "branch", "min-snapshots-to-keep": 4},
        "v1": {"snapshot-id": 1, "type": "tag"},
        "lakemirror-pin-9": {"snapshot-id": 1, "type": "tag"},
    }
    document, _ = mirrored(source(refs=refs), retained=(1, 2, 3))
    assert document["refs"] == {name: refs[name] for name in ("main", "audit", "v1")}


def test_refs_of_snapshots_that_are_not_mirrored_are_left_out() -> None:
    refs = {"main": {"snapshot-id": 3, "type": "branch"}, "old": {"snapshot-id": 1, "type": "tag"}}
    document, _ = mirrored(source(refs=refs))
    assert document["refs"] == {"main": {"snapshot-id": 3, "type": "branch"}}


def test_a_target_snapshot_becomes_main() -> None:
    document, _ = mirrored(source(), head=2, retained=(2,))
    assert document["current-snapshot-id"] == 2
    assert document["refs"] == {"main": {"snapshot-id": 2, "type": "branch"}}
    assert document["properties"]["lakemirror.source-snapshot-id"] == "2"


@pytest.mark.parametrize("current", [None, -1])
def test_table_without_a_snapshot(current: int | None) -> None:
    bare = source(**{"snapshots": [], "snapshot-log": [], "refs": {}, "current-snapshot-id": current})
    assert metadata_json.current_snapshot_id(bare) is None
    document, _ = mirrored(bare, head=None, retained=())
    assert (document["current-snapshot-id"], document["snapshots"], document["refs"]) == (-1, [], {})
    assert "lakemirror.source-snapshot-id" not in document["properties"]


def test_null_parent_is_kept_and_the_last_sequence_number_too() -> None:
    """A snapshot without a parent (replace) must not lower what the source counted."""
    metadata = source(snapshots=[snapshot(1), {**snapshot(3), "parent-snapshot-id": None}])
    document, _ = mirrored(metadata)
    assert document["snapshots"][0]["parent-snapshot-id"] is None
    assert document["last-sequence-number"] == 3


def test_nothing_of_the_source_lets_engines_delete_files_of_the_mirror() -> None:
    """Also a source that keeps next to nothing, and one that was written by Hive or Athena."""
    short = {
        "gc.enabled": "true",
        "write.metadata.delete-after-commit.enabled": "true",
        "history.expire.max-snapshot-age-ms": "1",
        "history.expire.min-snapshots-to-keep": "1",
        "history.expire.max-ref-age-ms": "1",
    }
    engines = {"external.table.purge": "TRUE", "vacuum_max_snapshot_age_seconds": "60"}
    more = {"vacuum_min_snapshots_to_keep": "1", "vacuum_max_metadata_files_to_keep": "1"}
    document, made = mirrored(source(properties={**short, **engines, **more}))
    assert document["properties"] == {
        **NOTHING_EXPIRES,
        "external.table.purge": "FALSE",
        "vacuum_max_snapshot_age_seconds": "2147483647",
        "vacuum_min_snapshots_to_keep": "2147483647",
        "vacuum_max_metadata_files_to_keep": "2147483647",
        "lakemirror.version": "7",
        "lakemirror.source-snapshot-id": "3",
    }
    assert made.left_out == ()


def test_path_properties_are_mapped_others_that_hold_a_path_are_left_out() -> None:
    properties = {
        "write.data.path": f"{HOME}/elsewhere",
        "write.metadata.path": "s3a://cold/meta",
        "write.object-storage.path": HOME,
        "custom.backup": "copy of s3n://src/wh/t/x",
        "comment": "harmless",
        "gc.enabled": "true",
    }
    document, made = mirrored(source(properties=properties))
    assert document["properties"] == {
        "write.data.path": f"{MIRROR}/elsewhere",
        "write.metadata.path": f"{MIRROR}/_roots/cold/meta",
        "write.object-storage.path": MIRROR,
        "comment": "harmless",
        **NOTHING_EXPIRES,
        "lakemirror.version": "7",
        "lakemirror.source-snapshot-id": "3",
    }
    assert made.left_out == ("property custom.backup: it holds a source path",)


def test_summary_values_that_hold_a_path_are_left_out() -> None:
    summary = {"operation": "append", "spark.staging": f"{HOME}/tmp", "added-files": "1"}
    document, made = mirrored(source(snapshots=[snapshot(3, summary=summary)]))
    assert document["snapshots"][0]["summary"] == {"operation": "append", "added-files": "1"}
    assert made.left_out == ("snapshot 3 summary spark.staging: it holds a source path",)


def test_every_place_of_the_source_is_left_out_wherever_it_is_named() -> None:
    """The warehouse, other tables of it and other keys of its bucket, in parts that nobody has heard of too."""
    metadata = source(
        snapshots=[snapshot(3, note="see s3a://src/wh/other")],
        refs={"main": {"snapshot-id": 3, "type": "branch", "from": "file:/lake/wh/x"}},
        statistics=[{"snapshot-id": 3, "statistics-path": f"{HOME}/s.puffin", "by": "S3N://SRC", "kept": [1]}],
        properties={"a": "/lake/wh", "b": "s3://src2/x", "c": "/lake/wh2", "d": "in /lake/wh."},
    )
    metadata["unheard-of"] = {"kept": "gs://else", "list": ["s3://src", {"deep": "s3://src/y", "n": 1}], "n": 2}
    document = json.loads((made := for_mirror(metadata, PRIVATE, 7, 3, (3,), location=MIRROR)).data)
    assert made.left_out == (
        "unheard-of list: it holds a source path",
        "unheard-of list deep: it holds a source path",
        "snapshot 3 note: it holds a source path",
        "refs main from: it holds a source path",
        "statistics of snapshot 3 by: it holds a source path",
        "property a: it holds a source path",
        "property d: it holds a source path",
    )
    assert document["unheard-of"] == {"kept": "gs://else", "list": [{"n": 1}], "n": 2}
    assert document["statistics"] == [{"snapshot-id": 3, "statistics-path": f"{MIRROR}/s.puffin", "kept": [1]}]
    assert {key: document["properties"][key] for key in "bc"} == {"b": "s3://src2/x", "c": "/lake/wh2"}


def test_a_name_that_holds_a_path_is_left_out_too() -> None:
    document, made = mirrored(source(properties={f"{HOME}/x": "y", "owner": "ada"}))
    assert made.left_out == ("a name in property: it holds a source path",)
    assert HOME not in json.dumps(document)


def test_names_and_default_values_are_data_and_stay() -> None:
    field = {"id": 1, "name": "s3://src/x", "type": "string", "initial-default": "s3://src/y", "doc": "s3://src/z"}
    spec = {"spec-id": 0, "fields": [{"name": "s3://src/x", "transform": "identity"}]}
    metadata = source(schemas=[{"schema-id": 0, "fields": [field]}], **{"partition-specs": [spec]})
    document, made = mirrored(metadata)
    assert document["schemas"] == [{"schema-id": 0, "fields": [{k: v for k, v in field.items() if k != "doc"}]}]
    assert document["partition-specs"] == [spec]
    assert made.left_out == ("comment of column s3://src/x: it holds a source path",)


def test_statistics_of_retained_snapshots_are_mapped() -> None:
    stats = [
        {"snapshot-id": n, "statistics-path": f"{HOME}/metadata/{n}.puffin", "file-size-in-bytes": n} for n in (2, 3)
    ]
    metadata = source(**{"statistics": stats, "partition-statistics": deepcopy(stats)})
    document, _ = mirrored(metadata)
    want = [{"snapshot-id": 3, "statistics-path": f"{MIRROR}/metadata/3.puffin", "file-size-in-bytes": 3}]
    assert (document["statistics"], document["partition-statistics"]) == (want, want)
    assert metadata_json.statistics_files(metadata, [3]) == [(f"{HOME}/metadata/3.puffin", 3)] * 2


def test_nothing_of_the_source_is_left() -> None:
    assert HOME not in for_mirror(source(), PATHS, 7, 3, (1, 2, 3), location=MIRROR).data.decode()


def test_unknown_roots_are_refused() -> None:
    with pytest.raises(PermanentError, match="no known root"):
        mirrored(source(properties={"write.data.path": "s3://other"}))


def test_gzip_is_unpacked_whatever_its_name() -> None:
    data = json.dumps(source()).encode()
    assert parse(gzip.compress(data), "x.metadata.json") == parse(data, "x.gz.metadata.json") == source()


def test_gzip_bomb_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_json, "MAX_METADATA_BYTES", 1000)
    for data in (gzip.compress(b" " * 100_000), b" " * 1001):
        with pytest.raises(PermanentError, match="more than 1000 bytes"):
            parse(data, "bomb")


def test_a_supported_table_passes() -> None:
    refuse_unsupported(source(), "ns.t")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"format-version": 0}, "format version 0 is not supported"),
        ({"format-version": "2"}, "format version '2' is not supported"),
        ({"format-version": 4}, "format version 4 is not supported"),
        ({"encryption-keys": [{"key-id": "k"}]}, "the table is encrypted"),
        ({"properties": {"encryption.key-id": "k"}}, "the table is encrypted"),
        ({"snapshots": [snapshot(1, **{"key-id": "k"})]}, "the table is encrypted"),
        ({"statistics": [{"snapshot-id": 3, "key-metadata": "AAA="}]}, "statistics of snapshot 3 are encrypted"),
        ({"partition-statistics": [{"snapshot-id": 3, "key-metadata": "AAA="}]}, "snapshot 3 are encrypted"),
        ({"snapshots": [{"snapshot-id": 3, "manifests": []}]}, "snapshot 3 has no manifest list"),
    ],
    ids=str,
)
def test_what_is_not_supported_is_named(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedError, match=says) as caught:
        refuse_unsupported(source(**wrong), "ns.t")
    assert (caught.value.subject, bool(caught.value.hint)) == ("ns.t", True)


def test_an_old_snapshot_without_a_manifest_list_is_nobodys_concern() -> None:
    refuse_unsupported(source(snapshots=[{"snapshot-id": 1, "manifests": []}, snapshot(3)]), "ns.t")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_format_versions(version: int) -> None:
    refuse_unsupported(source(**{"format-version": version}), "ns.t")
    if version == 1:
        with pytest.raises(UnsupportedError, match="catalog refuses tables of format version 1"):
            refuse_unsupported(source(**{"format-version": 1}), "ns.t", accepts_v1=False)


@pytest.mark.parametrize("key", ["table-uuid", "location", "last-updated-ms"])
def test_metadata_that_lacks_what_is_required(key: str) -> None:
    broken = source()
    del broken[key]
    with pytest.raises(PermanentError, match=f"its metadata has no {key}"):
        refuse_unsupported(broken, "ns.t")


def test_a_table_of_v1_without_a_uuid_is_refused_by_name() -> None:
    """It is not damaged: the specification has that field optional in v1."""
    old = source(**{"format-version": 1})
    del old["table-uuid"]
    with pytest.raises(UnsupportedError, match="format version 1 without a table-uuid") as caught:
        refuse_unsupported(old, "ns.t")
    assert "upgrade the table to v2" in str(caught.value)


def test_the_log_of_heads_counts_behind_the_last_snapshot_that_is_gone() -> None:
    """Once a snapshot is gone, the log before it tells nobody anything."""
    log = source()["snapshot-log"]
    gone = source(snapshots=[snapshot(1), snapshot(3)])
    shorter = {**gone, "snapshot-log": log[2:]}
    assert fingerprint_fields(gone, 3) == fingerprint_fields(shorter, 3)
    assert fingerprint_fields(source(), 2)["snapshot-log"] == [(1, 1000), (2, 2000)]
    assert fingerprint_fields(source(**{"snapshot-log": []}), None)["snapshot-log"] == []


def test_fingerprint_sees_what_readers_see_and_nothing_else() -> None:
    pin = {"lakemirror-pin-1": {"snapshot-id": 1, "type": "tag"}}
    went_back = [{"snapshot-id": 2, "timestamp-ms": 4000}, {"snapshot-id": 3, "timestamp-ms": 5000}]
    invisible = [
        source(**{"last-updated-ms": 9}),
        source(**{"metadata-log": []}),
        source(**{"snapshot-log": [{"snapshot-id": 9, "timestamp-ms": 900}, *source()["snapshot-log"]]}),
        source(refs={**source()["refs"], **pin}),
    ]
    visible = [
        source(properties={"owner": "eve"}),
        source(refs={**source()["refs"], "t": {"snapshot-id": 1, "type": "tag"}}),
        source(**{"current-schema-id": 1}),
        source(**{"unheard-of": 1}),
        source(**{"snapshot-log": source()["snapshot-log"][1:]}),
        source(**{"snapshot-log": [*source()["snapshot-log"], *went_back]}),
    ]
    same = fingerprint_fields(source(), 3)
    assert all(fingerprint_fields(one, 3) == same for one in invisible)
    assert all(fingerprint_fields(one, 3) != same for one in visible)
