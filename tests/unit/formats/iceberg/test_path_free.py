"""Files' own key-values: comments that name the source go, in whichever spelling; what is data stays."""

from __future__ import annotations

import io
import json

import pyarrow.parquet as pq
import pytest

from lakemirror.formats.iceberg import manifest, position_deletes
from lakemirror.formats.iceberg.avro_walk import Malformed
from lakemirror.formats.iceberg.path_free import header_entries
from lakemirror.model.paths import PrefixMap
from tests.iceberg_files import entry
from tests.iceberg_files import manifest as made
from tests.iceberg_files import position_deletes as made_deletes

HOME = "s3://src/wh/t"
PATHS = PrefixMap.of({HOME: "gs://cloud/t"}, private=["file:///lake"])
FIELD = {"id": 1, "name": "a", "type": "string", "initial-default": f"{HOME}/x"}


def schema(doc: str) -> bytes:
    return json.dumps({"type": "struct", "fields": [{**FIELD, "doc": doc}]}).encode()


@pytest.mark.parametrize("text", [schema(f"see {HOME}"), schema("see /lake/x").replace(b"/", b"\\/")])
@pytest.mark.parametrize("key", ["schema", "iceberg.schema", "avro.schema"])
def test_comments_go_and_default_values_stay(key: str, text: bytes) -> None:
    kept = header_entries({"first": b"1", key: text, "last": b"2"}, PATHS)
    assert kept is not None
    assert list(kept) == ["first", key, "last"]
    assert json.loads(kept[key]) == {"type": "struct", "fields": [FIELD]}


def test_other_entries_that_name_the_source_go() -> None:
    assert header_entries({"a": b"s3a://src/x", "b": b"kept"}, PATHS) == {"b": b"kept"}
    assert header_entries({f"{HOME}/x": b"1", "b": b"kept"}, PATHS) == {"b": b"kept"}


def test_what_names_nothing_stays_to_the_byte() -> None:
    assert header_entries({"schema": schema("harmless"), "b": b"x"}, PATHS) is None


def test_a_schema_that_is_not_json_is_damage() -> None:
    with pytest.raises(Malformed, match="schema in its header is not readable"):
        header_entries({"schema": b'{"doc"'}, PATHS)


def test_key_values_of_position_deletes() -> None:
    file = pq.ParquetFile(io.BytesIO(made_deletes([(f"{HOME}/a", 1)])))
    out = io.BytesIO()
    table = file.read().replace_schema_metadata(
        {"iceberg.schema": schema(f"see {HOME}"), "by": b"/lake/job", "k": b"v"}
    )
    pq.write_table(table, out)
    new = position_deletes.rewrite(out.getvalue(), "u", PATHS)
    kept = pq.ParquetFile(io.BytesIO(new.data)).metadata.metadata
    assert (kept[b"k"], b"by" in kept) == (b"v", False)
    assert json.loads(kept[b"iceberg.schema"]) == {"type": "struct", "fields": [FIELD]}


def test_a_manifest_written_before_a_root_was_added_is_the_same_manifest() -> None:
    """A run that was killed left it there with a comment that names the new root; its entries are what counts."""
    data = made([entry(f"{HOME}/a")], meta={"schema": schema("see gs://new/x").decode(), "format-version": "2"})
    before, after = PATHS, PrefixMap.of({HOME: "gs://cloud/t", "gs://new": "gs://cloud/t/_roots/new"})
    left, right = (manifest.rewrite(data, "u", paths, {}) for paths in (before, after))
    assert left != right
    assert manifest.is_same(left, right, "u", after)
    other = made([entry(f"{HOME}/b")], meta={"schema": schema("see gs://new/x").decode(), "format-version": "2"})
    assert not manifest.is_same(left, manifest.rewrite(other, "u", after, {}), "u", after)
