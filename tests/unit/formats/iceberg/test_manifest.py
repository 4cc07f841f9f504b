"""Manifests: live entries are read exactly, rewriting touches paths and what follows from them, and nothing else."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.formats.iceberg.manifest import DeleteFileFacts, DeletionVector, LiveEntry, live_entries, rewrite
from lakemirror.model.paths import PrefixMap
from tests.avro_bytes import block_bodies, container, header_of, header_size, long, records, sized
from tests.iceberg_files import (
    ADDED,
    DELETED,
    EQUALITY_DELETES,
    EXISTING,
    PATH_ID,
    POS_ID,
    POSITION_DELETES,
    bounds,
    entry,
    manifest,
    manifest_schema,
)

URI = "s3://src/wh/t/metadata/m0.avro"
HOME, MIRROR = "s3://src/wh/t", "gs://cloud/mirror/ns/t"
PATHS = PrefixMap.of({HOME: MIRROR, "s3://cold/archive": f"{MIRROR}/_roots/cold"})
DELETES_META = {"content": "deletes", "format-version": "2"}


def home(name: str) -> str:
    return f"{HOME}/data/{name}"


def mirrored(name: str) -> str:
    return f"{MIRROR}/data/{name}"


def moved(entries: list[dict[str, Any]], **changes: Any) -> list[dict[str, Any]]:
    """The entries with other paths, as a rewrite should leave them; `changes` are of the last data file."""
    new = deepcopy(entries)
    for one in new:
        one["data_file"]["file_path"] = one["data_file"]["file_path"].replace(HOME, MIRROR)
    new[-1]["data_file"].update(changes)
    return new


def as_read(entries: list[dict[str, Any]], *, version: int = 2) -> list[dict[str, Any]]:
    """What an encoded entry reads back as: fields that a version lacks are gone."""
    return records(manifest(entries, version=version))


DATA = [
    entry(home("a b/ü=%+,.parquet"), size=10, value_counts=[{"key": 1, "value": 3}], split_offsets=[4, 99]),
    entry(home("old.parquet"), status=EXISTING, size=20, lower_bounds=bounds({1: home("x").encode()})),
    entry(home("gone.parquet"), status=DELETED, size=30),
]


@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize("blocks", [1, 3])
def test_live_entries_leave_deleted_ones_out(codec: str, blocks: int) -> None:
    assert list(live_entries(manifest(DATA, codec=codec, blocks=blocks), URI)) == [
        LiveEntry(home("a b/ü=%+,.parquet"), 10, "data", "PARQUET", None, None),
        LiveEntry(home("old.parquet"), 20, "data", "PARQUET", None, None),
    ]


@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize("negative_counts", [False, True])
@pytest.mark.parametrize("blocks", [1, 3])
def test_rewriting_changes_paths_and_nothing_else(codec: str, negative_counts: bool, blocks: int) -> None:
    """Deleted entries stay; bounds and counts of data files are the user's data, even if they look like a path."""
    data = manifest(DATA, codec=codec, blocks=blocks, negative_counts=negative_counts)
    new = rewrite(data, URI, PATHS, {})
    assert records(new) == moved(as_read(DATA))
    assert header_of(new) == header_of(data)
    assert new[: header_size(new)] == data[: header_size(data)]
    assert [count for count, _ in block_bodies(new)] == [count for count, _ in block_bodies(data)]
    assert rewrite(data, URI, PATHS, {}) == new


def test_rewriting_keeps_raw_bytes_between_the_paths() -> None:
    """Even an encoding that no reader would choose (negative counts) is kept where nothing changes."""
    data = manifest(DATA[:1], codec="null", negative_counts=True)
    (_, old), (_, new) = block_bodies(data)[0], block_bodies(rewrite(data, URI, PATHS, {}))[0]
    path, target = DATA[0]["data_file"]["file_path"].encode(), mirrored("a b/ü=%+,.parquet").encode()
    before, after = old.split(path)
    assert new == before.removesuffix(long(len(path))) + sized(target) + after


def test_v1_manifest_has_no_content_field_and_holds_data() -> None:
    old = manifest(DATA, version=1)
    assert [one.kind for one in live_entries(old, URI)] == ["data", "data"]
    assert records(rewrite(old, URI, PATHS, {})) == moved(as_read(DATA, version=1))


def test_further_roots_are_mapped() -> None:
    new = rewrite(manifest([entry("s3a://cold/archive/x.parquet")]), URI, PATHS, {})
    assert records(new)[0]["data_file"]["file_path"] == f"{MIRROR}/_roots/cold/x.parquet"


@pytest.mark.parametrize("status", [ADDED, DELETED])
def test_unknown_root_is_refused_naming_file_and_roots(status: int) -> None:
    path = "s3://src/wh/t_old/data/x.parquet"
    with pytest.raises(PermanentError) as caught:
        rewrite(manifest([entry(path, status=status)]), URI, PATHS, {})
    assert caught.value.subject == path
    assert "(known: s3://cold/archive, s3://src/wh/t)" in caught.value.message


POSITIONS = entry(
    home("d.parquet"),
    content=POSITION_DELETES,
    size=500,
    lower_bounds=bounds({POS_ID: b"\x00" * 8, PATH_ID: home("a.parquet").encode()}),
    upper_bounds=bounds({PATH_ID: home("a.parquet").encode()[:12] + b"~", POS_ID: b"\xff" * 8}),
    referenced_data_file=home("a.parquet"),
)
FACTS = DeleteFileFacts(777, mirrored("a.parquet").encode(), mirrored("b.parquet").encode())


def test_position_deletes_are_told_with_their_path_bounds() -> None:
    assert list(live_entries(manifest([POSITIONS], meta=DELETES_META), URI)) == [
        LiveEntry(
            home("d.parquet"),
            500,
            "position_delete",
            "PARQUET",
            home("a.parquet").encode(),
            home("a.parquet").encode()[:12] + b"~",
        )
    ]


def test_position_deletes_get_size_bounds_and_referenced_file_of_the_mirror() -> None:
    """Cut bounds are replaced by whole ones; the bounds of `pos` and their order stay."""
    new = rewrite(manifest([POSITIONS], meta=DELETES_META), URI, PATHS, {mirrored("d.parquet"): FACTS})
    assert records(new) == moved(
        as_read([POSITIONS]),
        file_size_in_bytes=777,
        lower_bounds=bounds({POS_ID: b"\x00" * 8, PATH_ID: FACTS.lower}),
        upper_bounds=bounds({PATH_ID: FACTS.upper, POS_ID: b"\xff" * 8}),
        referenced_data_file=mirrored("a.parquet"),
    )


MEASURED = {"column_sizes": [{"key": PATH_ID, "value": 90}, {"key": POS_ID, "value": 40}], "split_offsets": [4, 99]}


@pytest.mark.parametrize("file_format", ["PARQUET", "ORC", "AVRO"])
def test_what_was_measured_on_the_sources_delete_file_is_left_out(file_format: str) -> None:
    """Sizes of columns and places of row groups are other in the file that was written anew; readers need neither."""
    live = entry(home("d.parquet"), content=POSITION_DELETES, size=500, file_format=file_format, **MEASURED)
    gone = {**deepcopy(live), "status": DELETED}
    equality = entry(home("e.parquet"), content=EQUALITY_DELETES, **MEASURED)
    facts = {mirrored("d.parquet"): FACTS}
    new = rewrite(manifest([live, gone, equality], meta=DELETES_META), URI, PATHS, facts)
    want = moved(as_read([live]), file_size_in_bytes=777, column_sizes=[], split_offsets=[])
    assert records(new) == [*want, *moved(as_read([gone])), *moved(as_read([equality]))]


@pytest.mark.parametrize("name", ["column_sizes", "split_offsets"])
def test_what_cannot_be_left_out_is_refused(name: str) -> None:
    schema = deepcopy(manifest_schema())
    data_file = next(field for field in schema["fields"] if field["name"] == "data_file")
    field = next(field for field in data_file["type"]["fields"] if field["name"] == name)
    field["type"] = {"type": "fixed", "name": "f", "size": 3}
    live = entry(home("d.parquet"), content=POSITION_DELETES, size=500)
    live["data_file"][name] = b"abc"
    made = container(schema, [[live]], meta=DELETES_META)
    with pytest.raises(PermanentError, match=f"field {field['field-id']} is not a list"):
        rewrite(made, URI, PATHS, {mirrored("d.parquet"): FACTS})


def test_bounds_that_were_not_there_are_not_invented() -> None:
    bare = entry(home("d.parquet"), content=POSITION_DELETES, size=500, lower_bounds=bounds({POS_ID: b"\x00"}))
    new = rewrite(manifest([bare], meta=DELETES_META), URI, PATHS, {mirrored("d.parquet"): FACTS})
    assert records(new) == moved(as_read([bare]), file_size_in_bytes=777)


def test_deleted_position_deletes_keep_their_size_and_lose_cut_bounds() -> None:
    """Their file may be gone and is never opened: a whole bound is mapped, a cut one is dropped."""
    tombstone = {**deepcopy(POSITIONS), "status": DELETED}
    new = rewrite(manifest([tombstone], meta=DELETES_META), URI, PATHS, {})
    assert records(new) == moved(
        as_read([tombstone]),
        lower_bounds=bounds({POS_ID: b"\x00" * 8, PATH_ID: mirrored("a.parquet").encode()}),
        upper_bounds=bounds({POS_ID: b"\xff" * 8}),
        referenced_data_file=mirrored("a.parquet"),
    )


@pytest.mark.parametrize("cut", range(len(home("a.parquet")) + 1))
def test_cut_bounds_of_tombstones_never_show_the_source(cut: int) -> None:
    tombstone = deepcopy(POSITIONS)
    tombstone["status"] = DELETED
    tombstone["data_file"]["lower_bounds"] = bounds({PATH_ID: home("a.parquet").encode()[:cut]})
    new = rewrite(manifest([tombstone], meta=DELETES_META, codec="null"), URI, PATHS, {})
    assert b"s3://" not in new
    assert b"src/wh" not in new


def test_equality_deletes_move_but_keep_size_and_bounds() -> None:
    equality = entry(
        home("e.parquet"),
        content=EQUALITY_DELETES,
        size=55,
        equality_ids=[1],
        lower_bounds=bounds({1: home("a").encode()}),
    )
    data = manifest([equality], meta=DELETES_META)
    assert list(live_entries(data, URI)) == [LiveEntry(home("e.parquet"), 55, "equality_delete", "PARQUET", None, None)]
    assert records(rewrite(data, URI, PATHS, {})) == moved(as_read([equality]))


def test_position_deletes_without_facts_are_a_stop() -> None:
    with pytest.raises(PermanentError, match=r"no facts for gs://cloud/mirror/ns/t/data/d.parquet"):
        rewrite(manifest([POSITIONS], meta=DELETES_META), URI, PATHS, {})


def vector(name: str, offset: int, **more: Any) -> dict[str, Any]:
    """The entry of a deletion vector for a data file."""
    where = {"referenced_data_file": home(name), "content_offset": offset, "content_size_in_bytes": 40}
    counted = {"content": POSITION_DELETES, "file_format": "PUFFIN", "record_count": 3, "size": 99}
    return entry(home("shared.puffin"), **{**counted, **where, **more})


def vector_facts(*names: str) -> DeleteFileFacts:
    found = (DeletionVector(mirrored(name), 4 + 40 * number, 40, 3) for number, name in enumerate(names))
    return DeleteFileFacts(101, b"x", b"y", frozenset(found))


def test_deletion_vectors_of_a_shared_puffin_file() -> None:
    """Each entry keeps its offset and length; path, data file, size and path bounds are the mirror's."""
    with_bounds = {"lower_bounds": bounds({PATH_ID: home("b").encode()})}
    entries = [vector("a", 4), vector("b", 44, **with_bounds), vector("gone", 84, status=DELETED)]
    made = manifest(entries, meta=DELETES_META, version=3)
    assert {(one.path, one.kind, one.file_format) for one in live_entries(made, URI)} == {
        (home("shared.puffin"), "position_delete", "PUFFIN")
    }
    new = records(rewrite(made, URI, PATHS, {mirrored("shared.puffin"): vector_facts("a", "b")}))
    want = moved(as_read(entries, version=3))
    for one in want:
        file = one["data_file"]
        file["referenced_data_file"] = file["referenced_data_file"].replace(HOME, MIRROR)
        file["file_size_in_bytes"] = 99 if one["status"] == DELETED else 101
    want[1]["data_file"]["lower_bounds"] = bounds({PATH_ID: mirrored("b").encode()})
    assert new == want


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"content_offset": 8}, "no deletion vector for"),
        ({"content_size_in_bytes": 41}, "no deletion vector for"),
        ({"record_count": 4}, "no deletion vector for"),
        ({"referenced_data_file": home("b")}, "no deletion vector for"),
        ({"content_offset": None}, "does not say where it lies"),
        ({"referenced_data_file": None}, "does not say where it lies"),
    ],
)
def test_an_entry_that_its_puffin_file_contradicts_is_a_stop(changes: dict[str, Any], says: str) -> None:
    made = manifest([vector("a", 4, **changes)], meta=DELETES_META, version=3)
    with pytest.raises(PermanentError, match=says):
        rewrite(made, URI, PATHS, {mirrored("shared.puffin"): vector_facts("a", "c")})


def test_carried_over_vectors_of_an_earlier_version_were_checked_with_it() -> None:
    made = manifest([vector("a", 4, status=EXISTING)], meta=DELETES_META, version=3)
    known = {mirrored("shared.puffin"): DeleteFileFacts(101, None, None, None, lambda: pytest.fail("it was read"))}
    (new,) = records(rewrite(made, URI, PATHS, known))
    assert new["data_file"]["file_size_in_bytes"] == 101


@pytest.mark.parametrize(("offset", "is_there"), [(4, True), (44, False)])
def test_new_vectors_in_a_file_of_an_earlier_version_are_looked_up(offset: int, *, is_there: bool) -> None:
    vectors = vector_facts("a").vectors
    assert vectors is not None
    known = {mirrored("shared.puffin"): DeleteFileFacts(101, None, None, None, lambda: vectors)}
    made = manifest([vector("a", offset)], meta=DELETES_META, version=3)
    if is_there:
        (new,) = records(rewrite(made, URI, PATHS, known))
        assert new["data_file"]["file_size_in_bytes"] == 101
    else:
        with pytest.raises(PermanentError, match="no deletion vector for"):
            rewrite(made, URI, PATHS, known)


@pytest.mark.parametrize(
    ("made", "meta", "says"),
    [
        (entry(home("x"), key_metadata=b"k"), {}, "is encrypted"),
        (entry(home("x"), content=POSITION_DELETES, file_format="lance"), DELETES_META, "position deletes in LANCE"),
        (entry(home("x"), content=3), {}, "unknown content type 3"),
    ],
)
def test_what_is_not_supported_is_named(made: dict[str, Any], meta: dict[str, str], says: str) -> None:
    with pytest.raises(UnsupportedError, match=says):
        list(live_entries(manifest([made], meta=meta), URI))


@pytest.mark.parametrize(
    ("made", "meta", "says"),
    [
        (entry(home("x"), size=-1), {}, "size -1"),
        (entry(home("x"), content=POSITION_DELETES), {}, "a manifest of data holds content type 1"),
        (entry(home("x")), DELETES_META, "a manifest of deletes holds content type 0"),
    ],
)
def test_what_contradicts_itself_is_refused(made: dict[str, Any], meta: dict[str, str], says: str) -> None:
    with pytest.raises(PermanentError, match=says):
        list(live_entries(manifest([made], meta=meta), URI))
