"""Manifest lists: what they name, and the same list with the mirror's paths and exact lengths."""

from __future__ import annotations

from typing import Any

import pytest

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg.avro_walk import RECORDS_AT_ONCE
from lakemirror.formats.iceberg.manifest_list import ManifestRef, MirroredManifest, Seen, read, rewrite
from tests.avro_bytes import container, header_size, records
from tests.iceberg_files import list_entry, list_schema

URI = "s3://src/wh/t/metadata/snap-1.avro"
ENTRIES = [
    list_entry("s3://src/wh/t/metadata/ü m1.avro", 1000, added_files_count=2, existing_files_count=3),
    list_entry("s3://src/wh/t/metadata/m2.avro", 70, content=1, sequence_number=7),
]
MIRRORED = {
    ENTRIES[0]["manifest_path"]: MirroredManifest("gs://cloud/t/metadata/ü m1.avro", 1 << 40),
    ENTRIES[1]["manifest_path"]: MirroredManifest("gs://cloud/t/metadata/m2.avro", 1),
}


def test_read_tells_what_the_list_says() -> None:
    assert read(container(list_schema(), [ENTRIES]), URI) == (
        ManifestRef("s3://src/wh/t/metadata/ü m1.avro", 1000, False, 2, 3, 0, 1),
        ManifestRef("s3://src/wh/t/metadata/m2.avro", 70, True, 1, 0, 0, 7),
    )


def test_old_lists_leave_counts_and_content_out() -> None:
    fields = [field for field in list_schema()["fields"] if field["name"] in ("manifest_path", "manifest_length")]
    data = container({**list_schema(), "fields": fields}, [ENTRIES])
    assert read(data, URI)[1] == ManifestRef("s3://src/wh/t/metadata/m2.avro", 70, False, None, None, None)


def test_an_empty_list_is_empty() -> None:
    assert read(container(list_schema(), []), URI) == ()
    assert read(container(list_schema(), [[]]), URI) == ()


@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize("negative_counts", [False, True])
def test_rewriting_changes_paths_and_lengths_only(codec: str, negative_counts: bool) -> None:
    data = container(
        list_schema(),
        [ENTRIES[:1], ENTRIES[1:]],
        codec=codec,
        negative_counts=negative_counts,
        meta={"snapshot-id": "1"},
    )
    new = rewrite(data, URI, MIRRORED)
    assert records(new) == [
        {**ENTRIES[0], "manifest_path": "gs://cloud/t/metadata/ü m1.avro", "manifest_length": 1 << 40},
        {**ENTRIES[1], "manifest_path": "gs://cloud/t/metadata/m2.avro", "manifest_length": 1},
    ]
    assert new[: header_size(new)] == data[: header_size(data)]
    assert rewrite(data, URI, MIRRORED) == new


def test_one_block_of_very_many_manifests() -> None:
    """More than are walked at once."""
    count = RECORDS_AT_ONCE + 3
    entries = [list_entry(f"s3://src/{number}.avro", number) for number in range(count)]
    data = container(list_schema(), [entries])
    assert [(ref.path, ref.length) for ref in read(data, URI)] == [(f"s3://src/{n}.avro", n) for n in range(count)]
    known = {f"s3://src/{number}.avro": MirroredManifest(f"gs://m/{number}.avro", 7) for number in range(count)}
    new = records(rewrite(data, URI, known))
    assert [one["manifest_path"] for one in new] == [f"gs://m/{number}.avro" for number in range(count)]
    assert {one["manifest_length"] for one in new} == {7}


def test_lists_that_repeat_each_other() -> None:
    """What was made of a record serves for its equals under the same schema, and for no other."""
    refs, spliced = Seen[ManifestRef](), Seen[tuple[bytes, bytes]]()
    shorter = {**list_schema(), "fields": list_schema()["fields"][:2]}
    variants = [ENTRIES, ENTRIES[::-1], [{**ENTRIES[0], "content": 1}], [{**ENTRIES[0], "manifest_length": 999}]]
    for schema in (list_schema(), shorter):
        for entries in variants:
            data = container(schema, [entries])
            assert read(data, URI, refs) == read(data, URI)
            assert rewrite(data, URI, MIRRORED, spliced) == rewrite(data, URI, MIRRORED)
    with pytest.raises(UnsupportedError, match=r"m1\.avro is encrypted"):
        read(container(list_schema(), [[{**ENTRIES[0], "key_metadata": b"k"}]]), URI, refs)


def test_a_manifest_that_was_not_rewritten_is_a_stop() -> None:
    del (known := dict(MIRRORED))[ENTRIES[1]["manifest_path"]]
    with pytest.raises(PermanentError, match=r"m2\.avro was not rewritten"):
        rewrite(container(list_schema(), [ENTRIES]), URI, known)


def test_encrypted_manifests_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"m2\.avro is encrypted"):
        read(container(list_schema(), [[{**ENTRIES[1], "key_metadata": b"k"}]]), URI)


@pytest.mark.parametrize(
    "wrong", [{"manifest_length": -1}, {"content": 2}, {"added_files_count": -1}, {"existing_files_count": -7}], ids=str
)
def test_absurd_entries_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PermanentError, match="not readable") as caught:
        read(container(list_schema(), [[ENTRIES[0], {**ENTRIES[1], **wrong}]]), URI)
    assert caught.value.subject == URI


@pytest.mark.parametrize("name", ["manifest_path", "manifest_length"])
@pytest.mark.parametrize("kind", [["null", "string"], "bytes", "int", "boolean", None], ids=str)
def test_path_and_length_must_be_there_as_they_should(name: str, kind: Any) -> None:
    schema = list_schema()
    if kind is None:
        schema["fields"] = [field for field in schema["fields"] if field["name"] != name]
    for field in schema["fields"]:
        if field["name"] == name:
            field["type"] = kind
    value = {"bytes": b"", "int": 5, "boolean": True}.get(str(kind))
    data = container(schema, [[{**ENTRIES[0], name: value}]])
    if (name, kind) == ("manifest_length", "int"):
        assert read(data, URI)[0].length == 5
        return
    for use in (lambda: read(data, URI), lambda: rewrite(data, URI, MIRRORED)):
        with pytest.raises(PermanentError, match="not readable"):
            use()
