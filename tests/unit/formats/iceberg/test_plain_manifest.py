"""The short way through a manifest is never another way: the same bytes, the same rows, the same errors."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakemirror.errors import LakemirrorError
from lakemirror.formats.iceberg import manifest
from lakemirror.formats.iceberg.avro_walk import Engine, Walker
from lakemirror.formats.iceberg.manifest_fields import TO_REWRITE_DATA
from lakemirror.formats.iceberg.plain_manifest import Columns, PlainRules
from lakemirror.formats.iceberg.plain_manifest import rewrite as rewrite_plain
from lakemirror.model.layout import CONTROL_FOLDERS
from lakemirror.model.paths import PrefixMap
from lakemirror.storage.keys import check_key
from tests.avro_bytes import container, encode
from tests.iceberg_files import ADDED, DELETED, EXISTING, entry, manifest_schema
from tests.iceberg_files import manifest as made
from tests.walkers import needs_c

pytestmark = needs_c
URI = "s3://lake/wh/t/metadata/m.avro"
ROOTS = ["s3://lake/wh/t", "s3://lake/wh/t/cold", "s3://cold", "file:///lake/t", "hdfs://nn:8020/wh", "gs://b/ü x"]
TARGETS = ["gs://cloud/t", "gs://cloud/t/_roots/cold", "s3://m", "file:///mirror/t", "gs://c/" + "x" * 900]
SPELLINGS = {
    "s3://": ["s3://", "s3a://", "s3n://", "S3://", "s3:/", "s3:///"],
    "file://": ["file://", "file:", "", "FILE://", "file:///", "/"],
    "hdfs://": ["hdfs://", "HDFS://", "hdfs:/"],
    "gs://": ["gs://", "gs:/"],
}
NAMES = st.one_of(
    st.sampled_from(
        ["data", "part-0.parquet", "ü=1", "a b", "%20", ".", "..", "...", "", "#", "a#b", "_c0=1", ".hidden"]
    ),
    st.sampled_from(sorted(CONTROL_FOLDERS)),
    st.sampled_from(["\x00", "a\x1f", "\x7f", "n" * 255, "n" * 256, "é" * 128, "\U0001f600", "\ue000", "\x80"]),
    st.text(max_size=6),
)


@st.composite
def paths_of(draw: st.DrawFn) -> str:
    root = draw(st.sampled_from([*ROOTS, "s3://lake/wh/t_old", "relative", ""]))
    for scheme, spellings in SPELLINGS.items():
        if root.startswith(scheme):
            root = draw(st.sampled_from([scheme] * 3 + spellings)) + root.removeprefix(scheme)
    names = st.lists(st.sampled_from(["data", "p=1", "x.parquet"]) | NAMES, max_size=3)
    return "/".join([root, *draw(names)])


MAPS = st.just(dict(zip(ROOTS, TARGETS, strict=False))) | st.dictionaries(
    st.sampled_from([*ROOTS, "/", "s3://", "s3://lake//x", "x"]), st.sampled_from(TARGETS), max_size=4
)


@st.composite
def entries_of(draw: st.DrawFn) -> dict[str, Any]:
    odd = draw(st.integers(0, 9))
    return entry(
        draw(paths_of()),
        status=draw(st.sampled_from([ADDED, EXISTING, DELETED])) if odd else 3,
        size=draw(st.integers(0, 1 << 60)) if odd != 1 else -1,
        content=0 if odd != 2 else draw(st.integers(0, 3)),
        key_metadata=None if odd != 3 else b"key",
        referenced_data_file=draw(st.none() | paths_of()),
        column_sizes=[{"key": 1, "value": draw(st.integers(0, 1 << 60))}],
    )


def outcome(work: Any) -> Any:
    """What came of it: the answer, or the error in full."""
    try:
        return work()
    except LakemirrorError as err:
        return type(err), str(err)


def rows(data: bytes, paths: PrefixMap, engine: Engine, *, is_source: bool) -> list[tuple[str, str, int]]:
    """Live entries as planning makes them: target, source and size."""
    found = []
    rules = PlainRules.mapping(paths) if is_source else PlainRules.staying(paths)
    for part in manifest.live_parts(data, URI, paths if is_source else None, rules, engine=engine):
        if isinstance(part, Columns):
            assert engine == "c"
            found += _rows_of(part)
            continue
        for one in part:
            target = paths.map(one.path) if is_source else one.path
            check_key(target)
            found.append((target, one.path, one.size_bytes))
    return found


def _rows_of(part: Columns) -> list[tuple[str, str, int]]:
    def texts(offsets: bytes, data: bytes) -> list[str]:
        ends = memoryview(offsets).cast("i").tolist()
        assert (len(ends), ends[0], ends[-1]) == (part.rows + 1, 0, len(data))
        return [data[start:end].decode() for start, end in pairwise(ends)]

    sizes = memoryview(part.sizes).cast("q").tolist()
    targets, sources = texts(part.target_offsets, part.targets), texts(part.source_offsets, part.sources)
    return list(zip(targets, sources, sizes, strict=True))


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(rules=MAPS, entries=st.lists(entries_of(), min_size=1, max_size=3), version=st.sampled_from([1, 2]))
def test_same_bytes_and_errors_whatever_the_paths(rules: dict[str, str], entries: list[Any], version: int) -> None:
    data, paths = made(entries, version=version, codec="null"), PrefixMap.of(rules)
    answers = [outcome(partial(manifest.rewrite, data, URI, paths, {}, engine=e)) for e in ("c", "python")]
    assert answers[0] == answers[1]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(rules=MAPS, entries=st.lists(entries_of(), min_size=1, max_size=3), is_source=st.booleans())
def test_same_rows_and_errors_whatever_the_entries(rules: dict[str, str], entries: list[Any], is_source: bool) -> None:
    data, paths = made(entries, codec="null"), PrefixMap.of(rules)
    answers = [outcome(partial(rows, data, paths, e, is_source=is_source)) for e in ("c", "python")]
    assert answers[0] == answers[1]


HOME, PATHS = "s3://lake/wh/t", PrefixMap.of({"s3://lake/wh/t": "gs://cloud/t", "file:///lake": "gs://cloud/f"})
FINE = [entry("s3://lake/wh/t/data/a"), entry("s3://lake/wh/t/data/b", status=EXISTING)]
GONE = {"status": DELETED}
ODD: dict[str, tuple[dict[str, Any], str | None]] = {
    "none": ({}, None),
    "a status that is not one": ({"status": 3}, "status 3"),
    "a status below zero": ({"status": -1}, "status -1"),
    "a size below zero": ({"size": -1}, "size -1"),
    "a size below zero of a deleted file": ({"size": -1, **GONE}, None),
    "another content": ({"content": 1}, "holds content type 1"),
    "another content of a deleted file": ({"content": 1, **GONE}, None),
    "encrypted": ({"key_metadata": b"k"}, "is encrypted"),
    "encrypted and deleted": ({"key_metadata": b"k", **GONE}, None),
    "a referenced file elsewhere": ({"referenced_data_file": "s3://other/x"}, "no known root"),
    "a referenced file elsewhere, deleted": ({"referenced_data_file": "s3://other/x", **GONE}, "no known root"),
    "a referenced file": ({"referenced_data_file": "s3://lake/wh/t/data/a"}, None),
    "elsewhere": ({"path": "s3://other/x"}, "no known root"),
    "elsewhere and deleted": ({"path": "s3://other/x", **GONE}, "no known root"),
    "a name that no store holds": ({"path": "s3://lake/wh/t/a\x01"}, "the control character"),
}


@pytest.mark.parametrize("name", ODD)
def test_one_odd_entry_among_plain_ones(name: str) -> None:
    """Read alike by both ways, with the error that it deserves; and only what is not odd goes the short way."""
    fields, says = ODD[name]
    odd = entry(**{"path": "s3://lake/wh/t/data/odd", **fields})
    data = made([FINE[0], odd, FINE[1]])
    answers = both(data)
    assert answers["c"] == answers["python"]
    read = answers["c"][0]
    assert says in read[1] if says else len(read) == (2 if "status" in fields else 3)
    if says is None:
        parts = list(manifest.live_parts(data, URI, PATHS, PlainRules.mapping(PATHS), engine="c"))
        assert [isinstance(part, Columns) for part in parts] == [True]


@pytest.mark.parametrize("field", ["file_path", "status", "file_size_in_bytes", "content", "file_format"])
@pytest.mark.parametrize("change", ["optional", "missing"])
def test_odd_schemas_are_read_alike(field: str, change: str) -> None:
    schema = manifest_schema()
    for fields in (schema["fields"], schema["fields"][-1]["type"]["fields"]):
        for one in [one for one in fields if one["name"] == field]:
            one["type"] = ["null", one["type"]]
            if change == "missing":
                fields.remove(one)
    odd = deepcopy(FINE[0])
    (odd if field == "status" else odd["data_file"])[field] = None
    for entries in (FINE, [FINE[0], odd]):
        answers = both(container(schema, [entries]))
        assert answers["c"] == answers["python"]


def both(data: bytes) -> dict[str, Any]:
    """What each walker makes of a manifest of the source: rows, and the manifest for the mirror."""
    return {
        engine: (
            outcome(partial(rows, data, PATHS, engine, is_source=True)),
            outcome(partial(manifest.rewrite, data, URI, PATHS, {}, engine=engine)),
        )
        for engine in ("c", "python")
    }


def test_text_is_utf_8_exactly_if_python_says_so() -> None:
    """All that lead bytes and the edges of the bytes after them can make."""
    edges = [0x00, 0x41, 0x7E, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF]
    schema = record_of_path("bytes")
    walker = Walker(record_of_path("string"), TO_REWRITE_DATA, "c")
    rules = PlainRules.mapping(PATHS)
    for lead in range(0x80, 0x100):
        for rest in [
            (),
            *product(edges, repeat=1),
            *product(edges, repeat=2),
            *product(edges, [0x80, 0xBF, 0x41], edges),
        ]:
            name = bytes([lead, *rest])
            (ranges,) = walker.ranges(encode(schema, {"file_path": b"s3://lake/wh/t/x" + name}), 1)
            is_plain = rewrite_plain(walker, ranges, rules) is not None
            assert is_plain is (is_text(name) and 0x00 not in rest), name


def record_of_path(kind: str) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": "file_path", "type": kind, "field-id": 100}]}


def is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def goes_the_short_way(path: str) -> bool:
    block = encode(manifest_schema(), entry(path))
    walker = Walker(manifest_schema(), TO_REWRITE_DATA, "c")
    (ranges,) = walker.ranges(block, 1)
    return rewrite_plain(walker, ranges, PlainRules.mapping(PATHS)) is not None


@pytest.mark.parametrize(
    "path",
    [
        f"{HOME}/data/a.parquet",
        f"{HOME}/data/day=2024-01-01/ü %20+,;:@&=$!*'().parquet",
        "s3a://lake/wh/t/x",
        "s3n://lake/wh/t/x",
        "file:///lake/x",
        "file:/lake/x",
        "/lake/x",
        f"{HOME}/..data/.hidden/...",
        f"{HOME}/{'n' * 255}",
    ],
)
def test_usual_paths_go_the_short_way(path: str) -> None:
    assert goes_the_short_way(path)


@pytest.mark.parametrize(
    "path",
    [
        HOME,
        f"{HOME}/",
        f"{HOME}/a//b",
        f"{HOME}/a/",
        f"{HOME}/./a",
        f"{HOME}/a/..",
        f"{HOME}/_ready/x",
        f"{HOME}/a\x00b",
        f"{HOME}/a\x7f",
        f"{HOME}/a#b",
        f"{HOME}/{'n' * 256}",
        f"{HOME}/{'/'.join(['n' * 200] * 6)}",
        "s3://lake/wh/t2/x",
        "s3://other/x",
        "S3://lake/wh/t/x",
        "file://lake/x",
        "//lake/x",
        "relative/x",
        "",
    ],
)
def test_whatever_is_unusual_goes_the_long_way(path: str) -> None:
    assert not goes_the_short_way(path)


@pytest.mark.parametrize("path", ["s3://lake/wh/t/cold", "s3a://lake/wh/t/cold"])
def test_a_file_that_has_the_name_of_a_root_within_another(path: str) -> None:
    """It goes to the place of that root, not below that of the other."""
    paths = PrefixMap.of({HOME: "gs://cloud/t", f"{HOME}/cold": "gs://cloud/t/_roots/cold"})
    data = made([entry(path)], codec="null")
    assert [rows(data, paths, engine, is_source=True) for engine in ("c", "python")] == [
        [("gs://cloud/t/_roots/cold", path, 10)]
    ] * 2
    assert manifest.rewrite(data, URI, paths, {}, engine="c") == manifest.rewrite(data, URI, paths, {}, engine="python")


def test_odd_rules_have_no_short_way() -> None:
    for rules in (
        {"/": "gs://c/t"},
        {"s3://": "gs://c/t"},
        {"s3://a//b": "gs://c/t"},
        {"s3://a": "gs://c//t"},
        {"x": "y"},
    ):
        assert PlainRules.mapping(PrefixMap.of({**rules, "s3://fine": "gs://c/fine"})) == PlainRules(())
    assert PlainRules.staying(PrefixMap.of({"s3://a": "gs://c//t"})) == PlainRules(())


def test_the_longest_prefix_wins_in_every_spelling() -> None:
    paths = PrefixMap.of({"s3://a": "gs://c/t", "s3://a/b": "gs://c/u"})
    assert PlainRules.mapping(paths).pairs == (
        (b"s3://a/b/", b"gs://c/u/"),
        (b"s3a://a/b/", b"gs://c/u/"),
        (b"s3n://a/b/", b"gs://c/u/"),
        (b"s3://a/", b"gs://c/t/"),
        (b"s3a://a/", b"gs://c/t/"),
        (b"s3n://a/", b"gs://c/t/"),
    )
    assert PlainRules.staying(paths).pairs == ((b"gs://c/t/", b"gs://c/t/"), (b"gs://c/u/", b"gs://c/u/"))
