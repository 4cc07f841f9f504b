"""Puffin files: the same blobs in the same places, other data files referred to; damage is refused by name."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg import puffin
from lakemirror.formats.iceberg.manifest import DeletionVector
from lakemirror.model.paths import PrefixMap
from tests.puffin_bytes import bitmap, deletion_vectors, footer, vector, vector_blob
from tests.puffin_bytes import puffin as made

URI = "s3://src/wh/t/data/d.puffin"
HOME = "s3://src/wh/t"
PATHS = PrefixMap.of({HOME: "gs://cloud/t"})
SKETCH = {
    "type": "apache-datasketches-theta-v1",
    "fields": [1],
    "snapshot-id": 7,
    "sequence-number": 1,
    "compression-codec": "zstd",
    "properties": {"ndv": "3"},
}
TWO = deletion_vectors({f"{HOME}/data/b": [1, 2, 3], "s3a://src/wh/t/data/ä": range(100_000)})


def footer_of(data: bytes) -> dict[str, object]:
    size = struct.unpack("<i", data[-12:-8])[0]
    found: dict[str, object] = json.loads(data[-12 - size : -12])
    return found


def test_only_the_paths_in_the_footer_change() -> None:
    new = puffin.rewrite(TWO, URI, PATHS)
    want = json.dumps(footer_of(TWO), ensure_ascii=False)
    want = want.replace(f"{HOME}/", "gs://cloud/t/").replace("s3a://src/wh/t/", "gs://cloud/t/")
    assert list(map(json.dumps, [footer_of(new.data)])) == list(map(json.dumps, [json.loads(want)]))
    body = TWO[: TWO.rindex(b'PFA1{"')]
    assert new.data.startswith(body + b'PFA1{"')


def test_facts_say_what_the_manifest_entries_must_say() -> None:
    new = puffin.rewrite(TWO, URI, PATHS)
    one, other = vector(bitmap([1, 2, 3])), vector(bitmap(range(100_000)))
    vectors = (
        DeletionVector("gs://cloud/t/data/b", 4, len(one), 3),
        DeletionVector("gs://cloud/t/data/ä", 4 + len(one), len(other), 100_000),
    )
    assert new.facts.vectors == {*vectors}
    for found, blob in zip(vectors, (one, other), strict=True):
        assert new.data[found.offset : found.offset + found.length] == blob
    assert new.facts.size_bytes == len(new.data)
    assert (new.facts.lower, new.facts.upper) == (b"gs://cloud/t/data/b", "gs://cloud/t/data/ä".encode())


def test_blobs_stay_where_they_are() -> None:
    """Padding, blobs out of order, other blobs between them: offsets in manifests must stay true."""
    one, other = (vector_blob(f"{HOME}/{name}", 1) for name in "ab")
    data = vector(bitmap([5]))
    file = made([(one, data), (SKETCH, b"sketch"), (other, data)], padding=b"\0\0\0")
    swapped = footer_of(file)
    blobs = swapped["blobs"]
    assert isinstance(blobs, list)
    swapped["blobs"] = blobs[::-1]
    body = file[: file.rindex(b'PFA1{"')]
    new = puffin.rewrite(body + footer(swapped), URI, PATHS)
    assert {(found.offset, found.referenced_data_file) for found in new.facts.vectors or ()} == {
        (blobs[2]["offset"], "gs://cloud/t/b"),
        (blobs[0]["offset"], "gs://cloud/t/a"),
    }
    assert new.data[: len(body)] == body
    assert footer_of(new.data)["blobs"][1] == blobs[1]  # type: ignore[index]


def test_fields_that_nobody_knows_yet_survive() -> None:
    blob = {**vector_blob(f"{HOME}/a", 1), "future": {"x": [1, 2.5, None]}}
    new = puffin.rewrite(made([(blob, vector(bitmap([1])))], more={"future": True}), URI, PATHS)
    assert footer_of(new.data)["future"] is True
    assert footer_of(new.data)["blobs"][0]["future"] == {"x": [1, 2.5, None]}  # type: ignore[index]


def test_the_same_bytes_every_time_and_a_rewritten_file_can_be_read_again() -> None:
    new = puffin.rewrite(TWO, URI, PATHS)
    assert puffin.rewrite(TWO, URI, PATHS).data == new.data
    again = puffin.rewrite(new.data, URI, PrefixMap.of({"gs://cloud/t": "gs://cloud/t"}))
    assert again == new


def test_statistics_hold_no_paths_and_are_not_rewritten() -> None:
    """A statistics file is a plain file to copy: whoever rewrites it by mistake is told so."""
    data = made([(SKETCH, b"sketch")])
    assert [blob["type"] for blob in puffin.parse(data, URI).blobs] == [puffin.THETA_SKETCH]
    with pytest.raises(PermanentError, match="holds no deletion vector; a file of statistics is copied as it is"):
        puffin.rewrite(data, URI, PATHS)


def test_same_blobs_however_the_footer_is_spelled() -> None:
    new = puffin.rewrite(TWO, URI, PATHS).data
    spaced = new[: new.rindex(b'PFA1{"')] + footer(json.dumps(footer_of(new), indent=2).encode())
    assert spaced != new
    assert puffin.is_same(new, spaced)
    assert not puffin.is_same(new, TWO)
    assert not puffin.is_same(new, b"garbage")


ONE = vector(bitmap([1, 2]))
BLOB = vector_blob(f"{HOME}/a", 2)
BODY = bitmap([1, 2])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes are too few"),
        (b"PAR1" + TWO[4:], "no Puffin magic"),
        (TWO[:-1] + b"2", "no Puffin magic"),
        (b"PFA1" + footer({"blobs": []}, size=-1), "a footer of -1 bytes"),
        (b"PFA1" + footer({"blobs": []}, size=2**31 - 1), "a footer of 2147483647 bytes"),
        (b"PFA1" + footer({"blobs": []}, size=5), "no Puffin magic before"),
        (b"PFA1" + footer(b"{"), "Expecting"),
        (b"PFA1" + footer(b"\xff"), "decode"),
        (b"PFA1" + footer(b"[" * 100_000), "nested deeper"),
        (b"PFA1" + footer(b'{"blobs": [], "n": ' + b"9" * 5000 + b"}"), "digits"),
        (b"PFA1" + footer(b'{"blobs": [], "blobs": []}'), "'blobs' twice"),
        (b"PFA1" + footer([]), "no list of blobs"),
        (b"PFA1" + footer({"blobs": {}}), "no list of blobs"),
        (b"PFA1" + footer({"blobs": [1]}), "no type"),
        (made([({**BLOB, "offset": True}, ONE)]), "offset 'True'"),
        (made([({**BLOB, "length": "9"}, ONE)]), "length '9'"),
        (made([({**BLOB, "offset": 0}, ONE)]), "at 0 does not fit"),
        (made([({**BLOB, "offset": -5}, ONE)]), "at -5 does not fit"),
        (made([({**BLOB, "length": -1}, ONE)]), "a blob of -1 bytes"),
        (made([({**BLOB, "length": len(ONE) + 1}, ONE)]), "does not fit"),
        (made([({**BLOB, "length": 1 << 70}, ONE)]), "does not fit"),
        (made([(BLOB, ONE), ({**BLOB, "offset": 5}, b"")]), "overlaps another"),
        (made([({**BLOB, "compression-codec": "zstd"}, ONE)]), "compressed, which the specification forbids"),
        (made([({**BLOB, "properties": None}, ONE)]), "no referenced-data-file or no cardinality"),
        (made([({**BLOB, "properties": {"cardinality": "2"}}, ONE)]), "no referenced-data-file"),
        (made([({**BLOB, "properties": {"referenced-data-file": HOME}}, ONE)]), "no cardinality"),
        (made([(vector_blob(f"{HOME}/a", 3), ONE)]), "want 3, got 2"),
        (made([(BLOB, b"")]), "another length"),
        (made([(BLOB, ONE[:-1])]), "another length"),
        (made([(BLOB, b"\xff" + ONE[1:])]), "another length"),
        (made([(BLOB, ONE[:4] + b"\0" + ONE[5:])]), "no magic"),
        (made([(BLOB, ONE[:-1] + b"\0")]), "CRC-32"),
        (made([(BLOB, ONE[:-5] + b"\x09" + ONE[-4:])]), "CRC-32"),
        (made([(BLOB, vector(BODY[:-1]))]), "a bitmap is cut"),
        (made([({**BLOB, "note": "\ud800"}, ONE)]), "not valid Unicode"),
        (made([({**BLOB, "note": float("inf")}, ONE)]), "not a number of JSON"),
    ],
)
def test_damage_is_named(data: bytes, words: str) -> None:
    with pytest.raises(PermanentError, match=words) as caught:
        puffin.rewrite(data, URI, PATHS)
    assert (caught.value.op, caught.value.subject) == ("read puffin", URI)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"PFA1" + footer({"blobs": []}, flags=b"\1\0\0\0"), "compressed with LZ4"),
        (b"PFA1" + footer({"blobs": []}, flags=b"\0\0\0\x80"), "unknown flags 00000080"),
        (made([({**BLOB, "type": "deletion-vector-v9"}, ONE)]), "unknown blob type 'deletion-vector-v9'"),
    ],
)
def test_what_is_not_supported_is_named(data: bytes, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words) as caught:
        puffin.rewrite(data, URI, PATHS)
    assert caught.value.subject == URI


def test_footers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puffin, "MAX_FOOTER_BYTES", 100)
    with pytest.raises(PermanentError, match="does not fit"):
        puffin.parse(TWO, URI)


@pytest.mark.parametrize("path", ["s3://other/x", f"{HOME}_old/x", f"{HOME}/../x", "data/x"])
def test_unknown_roots_and_climbing_paths_are_refused(path: str) -> None:
    with pytest.raises(PermanentError) as caught:
        puffin.rewrite(deletion_vectors({path: [1]}), URI, PATHS)
    assert caught.value.subject == path


def test_two_vectors_for_one_data_file_are_refused() -> None:
    data = deletion_vectors({f"{HOME}/a": [1], "s3a://src/wh/t/a": [2]})
    with pytest.raises(PermanentError, match="two deletion vectors are for one data file"):
        puffin.rewrite(data, URI, PATHS)


def test_cut_at_every_byte() -> None:
    data = deletion_vectors({f"{HOME}/a": [1, 2], f"{HOME}/b": range(9)})
    for size in range(len(data)):
        with pytest.raises(PermanentError) as caught:
            puffin.rewrite(data[:size], URI, PATHS)
        assert caught.value.subject == URI


@settings(max_examples=500, deadline=None)
@given(choices=st.data())
def test_flipped_bytes(choices: st.DataObject) -> None:
    data = deletion_vectors({f"{HOME}/a": [1, 2], f"{HOME}/b": range(9)})
    broken = bytearray(data)
    for _ in range(choices.draw(st.integers(1, 4))):
        broken[choices.draw(st.integers(0, len(data) - 1))] = choices.draw(st.integers(0, 255))
    try:
        puffin.rewrite(bytes(broken), URI, PATHS)
    except PermanentError as err:
        assert err.hint  # noqa: PT017 - an answer is fine as well; any other exception is not
