"""Small files that would become large in memory, or take long: each reader has a bound and says so."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg import (
    avro,
    delete_facts,
    delete_files,
    manifest,
    manifest_list,
    metadata_json,
    position_deletes_avro,
    position_deletes_orc,
    puffin,
)
from lakemirror.formats.iceberg.orc import container, wire
from lakemirror.formats.iceberg.path_free import MAX_TOLD
from lakemirror.formats.iceberg.plain_manifest import PlainRules
from lakemirror.model.paths import PrefixMap
from tests import avro_bytes
from tests.fuzz import hostile_files
from tests.iceberg_files import POSITION_DELETES, entry, list_entry, list_schema, manifest_schema, position_deletes
from tests.iceberg_files import manifest as made
from tests.orc_files import orc_deletes
from tests.puffin_bytes import deletion_vectors
from tests.walkers import ENGINES

URI = "s3://src/wh/t/metadata/file"
HOME = "s3://src/wh/t"
PATHS = PrefixMap.of({HOME: "gs://cloud/t"})
ROWS = [(f"{HOME}/a", 1), (f"{HOME}/b", 2)]


def avro_deletes() -> bytes:
    records = [{"file_path": path, "pos": position} for path, position in ROWS]
    return avro_bytes.container(hostile_files.DELETES_AVRO, [records])


def live(data: bytes, **options: Any) -> list[Any]:
    return list(manifest.live_parts(data, URI, PATHS, PlainRules.mapping(PATHS), **options))


@pytest.mark.parametrize("count", [avro.MAX_HEADER_ENTRIES + 1, 1 << 62])
def test_a_header_of_too_many_entries(count: int) -> None:
    data = avro_bytes.MAGIC + avro_bytes.long(count) + b"\x00" * 3000
    with pytest.raises(PermanentError, match="more than 1000 entries"):
        avro.parse(data, URI)


def test_a_header_in_many_parts_is_counted_as_one() -> None:
    parts = b"".join(avro_bytes.long(1) + avro_bytes.sized(str(n).encode()) + b"\x00" for n in range(2000))
    with pytest.raises(PermanentError, match="more than 1000 entries"):
        avro.parse(avro_bytes.MAGIC + parts + b"\x00" + avro_bytes.SYNC, URI)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ('{"type": "' + "x" * (8 << 20) + '"}', "a schema of 8388"),
        ("[" + "[]," * (1 << 20) + "0]", "more than 1048576 values"),
        ('{"type":' * 200 + '"int"' + "}" * 200, "nested deeper"),
        ('{"a": NaN}', "NaN"),
    ],
    ids=lambda text: text[:20],
)
def test_a_schema_that_is_too_large(schema: str, says: str) -> None:
    with pytest.raises(PermanentError, match=says):
        avro.parse(avro_bytes.raw_container({"avro.schema": schema}, []), URI)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_union_of_too_many_branches(engine: Any) -> None:
    """The walker in Python looks at each of them for each record."""
    kind = [{"type": "fixed", "name": f"f{number}", "size": 1} for number in range(101)]
    schema = {**manifest_schema(), "fields": [*manifest_schema()["fields"], {"name": "u", "type": kind}]}
    with pytest.raises(PermanentError, match="a union of 101 branches"):
        live(avro_bytes.raw_container({"avro.schema": json.dumps(schema)}, []), engine=engine)


def test_a_list_of_too_many_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_list, "MAX_MANIFESTS", 1)
    data = avro_bytes.container(list_schema(), [[list_entry(f"{HOME}/m1", 1)], [list_entry(f"{HOME}/m2", 1)]])
    uses: tuple[Callable[[], object], ...] = (
        lambda: manifest_list.read(data, URI),
        lambda: manifest_list.rewrite(data, URI, {}),
    )
    for use in uses:
        with pytest.raises(UnsupportedError, match="it names 2 manifests; want 1 or fewer"):
            use()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_manifest_with_more_entries_than_its_list_says(engine: Any) -> None:
    data = made([entry(f"{HOME}/{name}") for name in "abc"], blocks=3)
    assert len(live(data, engine=engine, entries=3)) == 3
    with pytest.raises(PermanentError, match=r"more entries than its manifest list says \(want 1, got 2\)"):
        live(data, engine=engine, entries=1)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kept", [0, 2])
def test_a_manifest_with_fewer_entries_than_its_list_says(engine: Any, kept: int) -> None:
    """Cut between two blocks, and its list has the length of what is left: only the count tells."""
    data = made([entry(f"{HOME}/{name}") for name in "abc"[:kept]], blocks=3)
    uses: tuple[Callable[[], object], ...] = (
        lambda: live(data, engine=engine, entries=3),
        lambda: b"".join(manifest.rewritten(data, URI, PATHS, {}, entries=3, engine=engine)),
    )
    for use in uses:
        with pytest.raises(PermanentError, match=rf"fewer entries than .* \(want 3, got {kept}\)") as caught:
            use()
        assert caught.value.subject == URI
    assert b"".join(manifest.rewritten(data, URI, PATHS, {}, entries=kept, engine=engine))


def test_deletes_in_avro_of_too_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position_deletes_avro, "MAX_ROWS", 1)
    with pytest.raises(UnsupportedError, match="2 rows; want 1 or fewer"):
        delete_files.rewrite(avro_deletes(), URI, "avro", PATHS)


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_deletes_for_too_many_files(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    files = {"parquet": position_deletes(ROWS), "orc": orc_deletes(ROWS), "avro": avro_deletes()}
    delete_files.rewrite(files[kind], URI, kind, PATHS)
    monkeypatch.setattr(delete_facts, "MAX_FILES", 1)
    with pytest.raises(UnsupportedError, match="more than 1 data files"):
        delete_files.rewrite(files[kind], URI, kind, PATHS)


@pytest.mark.parametrize(
    ("module", "name", "limit", "says"),
    [
        (wire, "MAX_FIELDS", 3, "a message of more than 3 fields"),
        (container, "MAX_STREAMS", 3, "more than 3 streams"),
        (position_deletes_orc, "MAX_ROWS", 1, "a stripe of 2 rows"),
        (container, "_MAX_CHUNKS", 0, "too many"),
    ],
)
def test_deletes_in_orc_of_too_much(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, limit: int, says: str
) -> None:
    data = orc_deletes(ROWS)
    monkeypatch.setattr(module, name, limit)
    with pytest.raises(PermanentError, match=says):
        delete_files.rewrite(data, URI, "orc", PATHS)


@pytest.mark.parametrize("name", ["deletes in ORC of empty chunks", "deletes in ORC with a long footer"])
def test_orc_that_says_nothing_at_great_length(name: str) -> None:
    _, make = hostile_files.FILES[name]
    with pytest.raises(PermanentError, match=r"a chunk is empty|more than 131072 fields"):
        delete_files.rewrite(make(), URI, "orc", PATHS)


def test_a_puffin_footer_of_too_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puffin, "MAX_FOOTER_VALUES", 5)
    with pytest.raises(PermanentError, match="more than 5 values"):
        puffin.parse(deletion_vectors({f"{HOME}/a": [1]}), URI)


@pytest.mark.parametrize("field", ["content_offset", "content_size_in_bytes", "record_count"])
def test_a_deletion_vector_whose_entry_has_no_numbers(field: str) -> None:
    schema = manifest_schema(version=3)
    for one in schema["fields"][-1]["type"]["fields"]:
        if one["name"] == field:
            one["type"] = "string"
    numbers = {"content_offset": 4, "content_size_in_bytes": 40, "record_count": 1, field: "x"}
    vector = entry(f"{HOME}/d", content=POSITION_DELETES, file_format="PUFFIN", referenced_data_file=f"{HOME}/a")
    vector["data_file"].update(numbers)
    data = avro_bytes.container(schema, [[vector]], meta={"content": "deletes"})
    facts = {"gs://cloud/t/d": manifest.DeleteFileFacts(7, b"a", b"b")}
    with pytest.raises(PermanentError, match="has no numbers"):
        manifest.rewrite(data, URI, PATHS, facts)


def test_what_is_left_out_is_told_in_few_words() -> None:
    """A million texts that name the source, and names that would break a line of the log."""
    source = {
        "format-version": 2,
        "properties": {f"k{number}": f"{HOME}/x" for number in range(MAX_TOLD + 50)},
        "schemas": [{"fields": [{"name": "a\nforged: line", "doc": HOME}]}],
        "k" * 10_000: {"a": HOME},
    }
    told = metadata_json.for_mirror(source, PATHS, 1, None, (), location="gs://cloud/t").left_out
    assert len(told) == MAX_TOLD + 1
    assert told[-1] == "52 more texts that hold a source path"
    assert all(len(one) < 300 and one.isprintable() for one in told)


def test_bytes_of_a_delete_file_are_not_echoed() -> None:
    out = io.BytesIO()
    out.write(b"PAR1" + b"A\n" * 10_000 + b"PAR1")
    with pytest.raises(PermanentError) as caught:
        delete_files.rewrite(out.getvalue(), URI, "parquet", PATHS)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 5000
