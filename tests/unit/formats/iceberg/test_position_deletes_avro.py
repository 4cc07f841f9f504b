"""Position deletes in Avro: only path bytes change, in every codec that Iceberg writes; damage is refused by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg import position_deletes_avro as module
from lakemirror.formats.iceberg.manifest import DeleteFileFacts
from lakemirror.formats.iceberg.position_deletes_avro import is_same, rewrite
from lakemirror.model.paths import PrefixMap
from tests.avro_bytes import (
    CODECS,
    SYNC,
    Decoder,
    block_bodies,
    encode,
    header_of,
    header_size,
    packed,
    raw_container,
    sized,
)
from tests.iceberg_files import PATH_ID, POS_ID

HOME = "s3://src/wh/t"
URI = f"{HOME}/data/d.avro"
PATHS = PrefixMap.of({HOME: "gs://cloud/t", "s3://zcold": "gs://cloud/t/_roots/cold"})
ROWS = [(f"{HOME}/data/a ü.parquet", 0), (f"{HOME}/data/a ü.parquet", 7), (f"{HOME}/data/b", 3)]
MIRRORED = [("gs://cloud/t/data/a ü.parquet", 0), ("gs://cloud/t/data/a ü.parquet", 7), ("gs://cloud/t/data/b", 3)]
Json = dict[str, Any]

PATH: Json = {"name": "file_path", "type": "string", "field-id": PATH_ID}
POS: Json = {"name": "pos", "type": "long", "field-id": POS_ID}
INNER = [
    {"name": "id", "type": ["null", "int"], "field-id": 1},
    {"name": "tags", "type": {"type": "array", "items": "string", "element-id": 3}, "field-id": 2},
    {"name": "props", "type": ["null", {"type": "map", "values": "long"}], "field-id": 4},
]
ROW: Json = {"name": "row", "type": {"type": "record", "name": "r2", "fields": INNER}, "field-id": 2147483544}


def schema_of(*fields: Json) -> Json:
    return {"type": "record", "name": "table", "fields": list(fields)}


def made(
    blocks: Sequence[Sequence[tuple[str | None, int]]],
    codec: str = "deflate",
    *,
    schema: Json | None = None,
    more: Json | None = None,
) -> bytes:
    """A delete file of these blocks; `more` are the values of further fields."""
    schema = schema or schema_of(PATH, POS)
    bodies = []
    for rows in blocks:
        records = [{"file_path": path, "pos": position, **(more or {})} for path, position in rows]
        bodies.append((len(rows), b"".join(encode(schema, record) for record in records)))
    meta = {"avro.schema": json.dumps(schema), "avro.codec": codec, "delete-type": "position"}
    return raw_container(meta, bodies)


def rows_of(data: bytes) -> list[tuple[str, int]]:
    schema = json.loads(header_of(data)["avro.schema"])
    found = []
    for count, body in block_bodies(data):
        decoder = Decoder(body)
        found += [decoder.read(schema) for _ in range(count)]
        assert decoder.at == len(body)
    return [(record["file_path"], record["pos"]) for record in found]


@pytest.mark.parametrize("codec", CODECS)
def test_rows_are_the_same_but_for_their_paths(codec: str) -> None:
    data = made([ROWS[:2], ROWS[2:]], codec)
    new = rewrite(data, URI, PATHS)
    assert rows_of(new.data) == MIRRORED
    assert new.facts == DeleteFileFacts(len(new.data), MIRRORED[0][0].encode(), MIRRORED[2][0].encode())
    assert new.data[: header_size(data)] == data[: header_size(data)]
    assert [count for count, _ in block_bodies(new.data)] == [2, 1]
    assert rewrite(data, URI, PATHS) == new


@pytest.mark.parametrize("codec", CODECS)
def test_nothing_but_path_bytes_changes(codec: str) -> None:
    """With the deleted row, nested as it may be: the blocks are those of the source with one text for another."""
    row = {"id": None, "tags": ["x", HOME], "props": {"k": 1 << 40}}
    data = made([ROWS, ROWS[2:]], codec, schema=schema_of(PATH, POS, ROW), more={"row": row})
    new = rewrite(data, URI, PATHS)
    for (_, before), (_, after) in zip(block_bodies(data), block_bodies(new.data), strict=True):
        for (source, _), (target, _) in zip(ROWS[1:], MIRRORED[1:], strict=True):
            before = before.replace(encode("string", source), encode("string", target))
        assert after == before


def test_the_path_column_is_found_by_id_and_may_stand_anywhere() -> None:
    schema = schema_of(POS, {**PATH, "name": "file_path", "type": ["null", "string"]})
    new = rewrite(made([ROWS], schema=schema), URI, PATHS)
    assert rows_of(new.data) == MIRRORED


SHUFFLED = [(f"{HOME}/a", 2), (f"{HOME}/a", 4), ("s3a://src/wh/t/a", 1), ("s3a://src/wh/t/a", 300), ("s3://zcold/b", 9)]


@pytest.mark.parametrize("codec", CODECS)
def test_rows_stay_sorted_by_path_and_position(codec: str) -> None:
    row = {"id": 1, "tags": ["x"], "props": None}
    data = made([SHUFFLED[:3], SHUFFLED[3:]], codec, schema=schema_of(PATH, POS, ROW), more={"row": row})
    new = rewrite(data, URI, PATHS)
    want = [("gs://cloud/t/_roots/cold/b", 9), *(("gs://cloud/t/a", position) for position in (1, 2, 4, 300))]
    assert rows_of(new.data) == want
    assert [count for count, _ in block_bodies(new.data)] == [3, 2]


def test_order_that_the_source_chose_is_kept() -> None:
    assert rows_of(rewrite(made([ROWS[::-1]]), URI, PATHS).data) == MIRRORED[::-1]


def test_another_order_is_refused_where_it_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match="its 5 rows need another order"):
        rewrite(made([SHUFFLED], schema=schema_of(POS, PATH)), URI, PATHS)
    monkeypatch.setattr(module, "MAX_SORTED_ROWS", 4)
    with pytest.raises(UnsupportedError, match="want 4 or fewer"):
        rewrite(made([SHUFFLED]), URI, PATHS)


@pytest.mark.parametrize(
    "kind",
    [
        ["null", "string"],
        ["string", "null"],
        {"type": "string"},
        {"type": "string", "avro.java.string": "String"},
        ["null", {"type": "string", "avro.java.string": "String"}],
    ],
)
def test_text_by_every_name(kind: object) -> None:
    """The bytes of a record are those of its type, whatever is said beside it."""
    plain = ["string" if one != "null" else one for one in kind] if isinstance(kind, list) else "string"

    def body(rows: Sequence[tuple[str, int]]) -> bytes:
        schema = schema_of({**PATH, "type": plain}, POS)
        return b"".join(encode(schema, {"file_path": path, "pos": position}) for path, position in rows)

    header = {"avro.schema": json.dumps(schema_of({**PATH, "type": kind}, POS))}
    new = rewrite(raw_container(header, [(3, body(ROWS))]), URI, PATHS)
    assert [*block_bodies(new.data)] == [(3, body(MIRRORED))]
    assert new.facts == DeleteFileFacts(len(new.data), MIRRORED[0][0].encode(), MIRRORED[2][0].encode())


@pytest.mark.parametrize("codec", CODECS)
def test_same_records_however_they_were_compressed(codec: str) -> None:
    one = made([ROWS], codec)
    assert is_same(one, made([ROWS[:1], ROWS[1:]], codec))
    assert not is_same(one, made([ROWS[:2]], codec))
    assert not is_same(one, made([ROWS[::-1]], codec))
    assert not is_same(one, made([ROWS], "null" if codec != "null" else "snappy"))
    assert not is_same(one, one[:-1])
    assert not is_same(b"garbage", one)


@pytest.mark.parametrize("codec", ["xz", "lz4", ""])
def test_other_codecs_are_refused_by_name(codec: str) -> None:
    with pytest.raises(UnsupportedError, match=f"codec '{codec}' is not supported") as caught:
        rewrite(made([ROWS], codec), URI, PATHS)
    assert caught.value.subject == URI


def test_a_text_that_looks_like_a_codec_is_none() -> None:
    """The bytes of such an entry inside another one, before the entry itself."""
    meta = {
        "note": "xx\x14avro.codec\x0csnappy",
        "avro.schema": json.dumps(schema_of(PATH, POS)),
        "avro.codec": "bzip2",
    }
    body = b"".join(encode(schema_of(PATH, POS), {"file_path": path, "pos": pos}) for path, pos in ROWS)
    assert rows_of(rewrite(raw_container(meta, [(3, body)]), URI, PATHS).data) == MIRRORED


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (made([ROWS], schema=schema_of({**PATH, "field-id": 5}, POS)), "no column of text with field id 2147483546"),
        (made([[]], schema=schema_of({**PATH, "type": "bytes"}, POS)), "no column of text"),
        (made([[]], schema=schema_of(PATH, {**PATH, "name": "again"})), "no column of text"),
        (made([[]]), "deletes nothing"),
        (made([[]], schema=schema_of({**PATH, "type": ["string", "bytes"]}, POS)), "no column of text"),
        (made([[]], schema=schema_of({**PATH, "type": ["null", "string", "null"]}, POS)), "no column of text"),
        (made([[]], schema=schema_of({**PATH, "type": ["null"]}, POS)), "no column of text"),
        (made([[("", 1)]]), "a row has no path"),
        (made([[(None, 1)]], schema=schema_of({**PATH, "type": ["null", "string"]}, POS)), "a row has no path"),
        (raw_container({"avro.schema": '"int"'}, []), "not a readable Avro file"),
        (raw_container({"avro.schema": "[]"}, []), "not a readable Avro file"),
        (raw_container({"avro.schema": '{"fields": 3}'}, []), "not a readable Avro file"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, words: str) -> None:
    with pytest.raises(PermanentError, match=words) as caught:
        rewrite(data, URI, PATHS)
    assert caught.value.subject == URI


@pytest.mark.parametrize("path", ["s3://other/x", f"{HOME}_old/x", f"{HOME}/../x", "data/x"])
def test_unknown_roots_and_climbing_paths_are_refused(path: str) -> None:
    with pytest.raises(PermanentError) as caught:
        rewrite(made([[(path, 1)]]), URI, PATHS)
    assert caught.value.subject == path


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    monkeypatch.setattr("lakemirror.formats.iceberg.avro.MAX_PLAIN_BYTES", 100_000)
    data = made([[(f"{HOME}/{'x' * 90_000}", 1)], [(f"{HOME}/{'y' * 90_000}", 1)]], codec)
    with pytest.raises(PermanentError, match="more than") as caught:
        rewrite(data, URI, PATHS)
    assert caught.value.subject == URI


def test_a_wrong_crc_of_snappy() -> None:
    body = encode("string", f"{HOME}/a") + encode("long", 1)
    meta = {"avro.schema": json.dumps(schema_of(PATH, POS)), "avro.codec": "snappy"}
    with pytest.raises(PermanentError, match="CRC-32"):
        rewrite(raw_container(meta, []) + b"\x02" + sized(packed("snappy", body)[:-1] + b"\0") + SYNC, URI, PATHS)


@pytest.mark.parametrize("codec", CODECS)
def test_cut_at_every_byte(codec: str) -> None:
    data = made([ROWS], codec)
    for size in range(len(data)):
        with pytest.raises(PermanentError) as caught:
            rewrite(data[:size], URI, PATHS)
        assert caught.value.subject == URI


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=200, deadline=None)
@given(choices=st.data())
def test_flipped_bytes(codec: str, choices: st.DataObject) -> None:
    data = made([ROWS], codec)
    broken = bytearray(data)
    for _ in range(choices.draw(st.integers(1, 4))):
        broken[choices.draw(st.integers(0, len(data) - 1))] = choices.draw(st.integers(0, 255))
    try:
        rewrite(bytes(broken), URI, PATHS)
    except PermanentError as err:
        assert err.hint  # noqa: PT017 - an answer is fine as well; any other exception is not
