"""Damaged metadata ends in a PermanentError that names the file: no crash, no hang, no half answer taken for whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemirror.errors import PermanentError
from lakemirror.formats.iceberg import manifest, manifest_list, metadata_json
from lakemirror.formats.iceberg.manifest import DeleteFileFacts
from lakemirror.model.paths import PrefixMap
from tests.avro_bytes import container, header_size
from tests.iceberg_files import (
    DELETED,
    PATH_ID,
    POSITION_DELETES,
    bounds,
    entry,
    list_entry,
    list_schema,
    position_deletes,
)
from tests.iceberg_files import manifest as made

ROOT = Path(__file__).resolve().parents[4]
URI = "s3://src/wh/t/metadata/file"
HOME = "s3://src/wh/t"
PATHS = PrefixMap.of({HOME: "gs://cloud/t"})
FACTS = {"gs://cloud/t/d": DeleteFileFacts(7, b"gs://cloud/t/a", b"gs://cloud/t/b")}
DELETE = entry(
    f"{HOME}/d",
    content=POSITION_DELETES,
    lower_bounds=bounds({PATH_ID: HOME.encode()}),
    referenced_data_file=f"{HOME}/a",
)
TOMBSTONE = {**DELETE, "status": DELETED}
LIST = [[list_entry(f"{HOME}/m1", 100), list_entry(f"{HOME}/m2", 200, content=1)]]
MIRRORED = {f"{HOME}/m{n}": manifest_list.MirroredManifest(f"gs://cloud/t/m{n}", n) for n in (1, 2)}


def read_manifest(data: bytes) -> object:
    return list(manifest.live_entries(data, URI))


def rewrite_manifest(data: bytes) -> object:
    return manifest.rewrite(data, URI, PATHS, FACTS)


def read_list(data: bytes) -> object:
    return manifest_list.read(data, URI)


def rewrite_list(data: bytes) -> object:
    return manifest_list.rewrite(data, URI, MIRRORED)


Use = Callable[[bytes], object]
CASES = {
    "data": (made([entry(f"{HOME}/a"), entry(f"{HOME}/b", status=DELETED)]), (read_manifest, rewrite_manifest)),
    "deletes": (made([DELETE, TOMBSTONE], meta={"content": "deletes"}), (read_manifest, rewrite_manifest)),
    "plain": (made([DELETE, TOMBSTONE], meta={"content": "deletes"}, codec="null"), (read_manifest, rewrite_manifest)),
    "list": (container(list_schema(), LIST), (read_list, rewrite_list)),
    "plain list": (container(list_schema(), LIST, codec="null"), (read_list, rewrite_list)),
}


@pytest.mark.parametrize("name", CASES)
def test_cut_at_every_byte(name: str) -> None:
    """Between header and blocks a cut file is whole as Avro: its length in the manifest list tells (see replicate)."""
    data, uses = CASES[name]
    for use in uses:
        for size in set(range(len(data))) - {header_size(data)}:
            with pytest.raises(PermanentError) as caught:
                use(data[:size])
            assert caught.value.subject == URI


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=300, deadline=None)
@given(choices=st.data())
def test_flipped_bytes(name: str, choices: st.DataObject) -> None:
    data, uses = CASES[name]
    broken = bytearray(data)
    for _ in range(choices.draw(st.integers(1, 4))):
        broken[choices.draw(st.integers(0, len(data) - 1))] = choices.draw(st.integers(0, 255))
    for use in uses:
        try:
            use(bytes(broken))
        except PermanentError as err:
            assert err.hint  # noqa: PT017 - an answer is fine as well; any other exception is not


@pytest.mark.parametrize("name", ["plain", "plain list"])
@settings(max_examples=300, deadline=None)
@given(choices=st.data())
def test_flipped_bytes_of_records(name: str, choices: st.DataObject) -> None:
    """The header is left alone, so that every example reaches the walker."""
    data, uses = CASES[name]
    broken = bytearray(data)
    for _ in range(choices.draw(st.integers(1, 3))):
        broken[choices.draw(st.integers(header_size(data), len(data) - 17))] = choices.draw(st.integers(0, 255))
    for use in uses:
        try:
            use(bytes(broken))
        except PermanentError as err:
            assert err.hint  # noqa: PT017


WRONG_TYPES = ["int", "bytes", "null", "boolean", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}]


@pytest.mark.parametrize("kind", WRONG_TYPES, ids=str)
@pytest.mark.parametrize("name", ["status", "file_path", "file_size_in_bytes", "content", "lower_bounds"])
def test_fields_of_another_type(name: str, kind: object) -> None:
    """A schema whose wanted fields are not what the specification says, over records that fit the schema."""
    zero = {"int": 0, "bytes": b"", "null": None, "boolean": False}.get(str(kind), [] if "items" in str(kind) else {})
    schema = _with_type(name, kind)
    record = {**DELETE, "data_file": {**DELETE["data_file"]}}
    (record if name == "status" else record["data_file"])[name] = zero
    data = container(schema, [[record]], meta={"content": "deletes"})
    for use in (read_manifest, rewrite_manifest):
        try:
            use(data)
        except PermanentError as err:
            assert err.hint  # noqa: PT017


def _with_type(name: str, kind: object) -> dict[str, object]:
    from tests.iceberg_files import manifest_schema

    schema = manifest_schema()
    for fields in (schema["fields"], schema["fields"][-1]["type"]["fields"]):
        for field in fields:
            if field["name"] == name:
                field["type"] = kind
    return schema


@pytest.mark.parametrize("name", ["status", "file_path", "file_size_in_bytes", "file_format"])
@pytest.mark.parametrize("status", [1, DELETED])
def test_fields_that_are_missing(name: str, status: int) -> None:
    from tests.iceberg_files import manifest_schema

    schema = manifest_schema()
    inner = schema["fields"][-1]["type"]
    inner["fields"] = [field for field in inner["fields"] if field["name"] != name]
    schema["fields"] = [field for field in schema["fields"] if field["name"] != name]
    data = container(schema, [[{**DELETE, "status": status}]], meta={"content": "deletes"})
    for use in (read_manifest, rewrite_manifest):
        try:
            use(data)
        except PermanentError as err:
            assert err.hint  # noqa: PT017


def test_cut_position_deletes() -> None:
    from lakemirror.formats.iceberg import position_deletes as deletes

    data = position_deletes([(f"{HOME}/a", 1), (f"{HOME}/b", 2)])
    for size in range(0, len(data), 7):
        with pytest.raises(PermanentError):
            deletes.rewrite(data[:size], URI, PATHS)


FLIP_EVERY_FOOTER_BYTE = """
from tests.unit.formats.iceberg.test_damage import HOME, PATHS, URI, PermanentError, position_deletes
from lakemirror.formats.iceberg import position_deletes as deletes
data = position_deletes([(f"{HOME}/a", 1), (f"{HOME}/b", 2)])
for position in range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data)):
    for bit in (1, 4, 32):
        broken = bytearray(data)
        broken[position] ^= bit
        try:
            deletes.rewrite(bytes(broken), URI, PATHS)
        except PermanentError:
            pass
"""


def test_a_damaged_footer_does_not_end_the_process() -> None:
    """In a process of its own: what pyarrow's C++ throws where Python cannot catch it would end this one."""
    done = subprocess.run(
        [sys.executable, "-c", FLIP_EVERY_FOOTER_BYTE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@settings(max_examples=200, deadline=None)
@given(choices=st.data())
def test_flipped_bytes_of_position_deletes(choices: st.DataObject) -> None:
    from lakemirror.formats.iceberg import position_deletes as deletes

    data = position_deletes([(f"{HOME}/a", 1), (f"{HOME}/b", 2)])
    broken = bytearray(data)
    broken[choices.draw(st.integers(0, len(data) - 1))] ^= choices.draw(st.integers(1, 255))
    try:
        deletes.rewrite(bytes(broken), URI, PATHS)
    except PermanentError as err:
        assert err.hint  # noqa: PT017


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b"\xff\xfe",
        b"\x1f\x8b",
        b"\x1f\x8b\x08\x00garbage",
        b"[" * 200_000,
        b'{"format-version": ' + b"9" * 5000 + b"}",
        b'{"view-uuid": "x", "format-version": 1}',
    ],
    ids=lambda data: repr(data[:20]),
)
def test_metadata_that_is_none(data: bytes) -> None:
    with pytest.raises(PermanentError) as caught:
        metadata_json.parse(data, URI)
    assert (caught.value.op, caught.value.subject) == ("read metadata", URI)
