"""Source paths go to the mirror by the longest known prefix, cut at a slash, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemirror.errors import PermanentError, UnsupportedError
from lakemirror.model.paths import PrefixMap, canonical, is_below, is_relative

PATHS = PrefixMap.of(
    {
        "s3://wh/ns/t": "gs://m/ns/t",
        "s3a://wh/ns/t/cold/": "gs://m/ns/t/_roots/cold/",
        "file:/data": "gs://m/ns/t/_roots/disk",
    }
)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("s3://wh/ns/t", "gs://m/ns/t"),
        ("s3://wh/ns/t/data/x.parquet", "gs://m/ns/t/data/x.parquet"),
        ("s3a://wh/ns/t/data/x", "gs://m/ns/t/data/x"),
        ("s3n://wh/ns/t/data/x", "gs://m/ns/t/data/x"),
        ("S3://wh/ns/t/data/x", "gs://m/ns/t/data/x"),
        ("s3://wh/ns/t/cold/x", "gs://m/ns/t/_roots/cold/x"),
        ("s3://wh/ns/t/colder/x", "gs://m/ns/t/colder/x"),
        ("file:///data/x", "gs://m/ns/t/_roots/disk/x"),
        ("file:/data/x", "gs://m/ns/t/_roots/disk/x"),
        ("/data/x", "gs://m/ns/t/_roots/disk/x"),
        ("s3://wh/ns/t/a b/ü=%20+,/x", "gs://m/ns/t/a b/ü=%20+,/x"),
        ("s3://wh/ns/t//x", "gs://m/ns/t//x"),
    ],
)
def test_map(source: str, target: str) -> None:
    assert PATHS.map(source) == target
    assert PATHS.find(source) == target


@pytest.mark.parametrize(
    "source",
    [
        "s3://wh/ns/t_old/x",
        "s3://wh/ns/",
        "s3://wh/ns/T/x",
        "s3://wh2/ns/t/x",
        "gs://wh/ns/t/x",
        "/database/x",
        "hdfs://nn/wh/ns/t/x",
    ],
)
def test_unknown_root_fails_closed_naming_file_and_roots(source: str) -> None:
    assert PATHS.find(source) is None
    with pytest.raises(PermanentError) as caught:
        PATHS.map(source)
    assert caught.value.as_json() == {
        "kind": "permanent",
        "op": "map path",
        "subject": source,
        "message": "the file lies under no known root (known: s3://wh/ns/t/cold, file:///data, s3://wh/ns/t)",
        "hint": "add its root to source.roots in the configuration",
    }


@pytest.mark.parametrize("tail", ["..", "../x", "a/../../x", ".", "a/./b", "a/.."])
def test_paths_that_climb_are_refused(tail: str) -> None:
    with pytest.raises(PermanentError, match="climbs by"):
        PATHS.map(f"s3://wh/ns/t/{tail}")


@pytest.mark.parametrize("folder", ["_plan", "_ledger", "_inprogress", "_ready", "_gc", "_control", "_trash", "_roots"])
def test_source_files_cannot_pose_as_our_own(folder: str) -> None:
    """A file of the source named `_ready/v9.ready.json` would be a marker in the mirror."""
    with pytest.raises(PermanentError, match=f"{folder} is a folder of the mirror's own"):
        PATHS.map(f"s3://wh/ns/t/{folder}/v9.ready.json")
    assert PATHS.map(f"s3://wh/ns/t/data/{folder}/x") == f"gs://m/ns/t/data/{folder}/x"
    assert PATHS.map(f"s3://wh/ns/t/{folder}s/x") == f"gs://m/ns/t/{folder}s/x"


@given(st.text(min_size=1).filter(lambda tail: "." not in tail))
def test_whatever_is_below_a_root_keeps_its_tail(tail: str) -> None:
    assert PATHS.map(f"s3a://wh/ns/t/data/{tail}") == f"gs://m/ns/t/data/{tail}"


def test_later_spellings_of_one_root_are_one_root() -> None:
    assert PrefixMap.of({"s3a://b/t/": "gs://m"}) == PrefixMap.of({"s3://b/t": "gs://m/"})
    assert PrefixMap.of({"/d": "x"}).digest == PrefixMap.of({"file:///d/": "x"}).digest
    assert PrefixMap.of({"/d": "x"}).digest != PrefixMap.of({"/d": "y"}).digest


@pytest.mark.parametrize(
    ("text", "is_mentioned"),
    [
        ("copy of s3://wh/ns/t/data", True),
        ("s3n://wh/ns/t", True),
        ("/data/lake", True),
        ("file:/data/lake", True),
        ("s3://wh/other", True),  # another key of the same bucket
        ("s3://wh2/ns/t", False),
        ("/data2/lake", False),
        ("/mnt/data/lake", False),  # another path that ends alike
        ("https://docs.example/data/lake", False),
        ("file:///data", True),
        ("(/data/x)", True),
        ("a=/data", True),
        ("//data//lake", True),
        ("file%3A%2F%2F%2Fdata%2Flake", True),
        ("s3:/wh", True),
        ("under /data/lake.", True),
        ("", False),
    ],
)
def test_mentions_source(text: str, is_mentioned: bool) -> None:
    assert PATHS.mentions_source(text) is is_mentioned


@pytest.mark.parametrize(
    ("uri", "want"),
    [
        ("/x", "file:///x"),
        ("file:/x", "file:///x"),
        ("file:///x", "file:///x"),
        ("FILE:///x", "file:///x"),
        ("s3n://b/x//y", "s3://b/x//y"),
        ("gs://b/x", "gs://b/x"),
        ("x/y", "x/y"),
    ],
)
def test_canonical(uri: str, want: str) -> None:
    assert canonical(uri) == want
    assert canonical(want) == want


@pytest.mark.parametrize("path", ["data/x.parquet", "", "../x", "s3", "wh/ns/t/x"])
def test_a_relative_path_is_refused_by_name(path: str) -> None:
    assert PATHS.find(path) is None
    with pytest.raises(UnsupportedError, match="the path is relative") as caught:
        PATHS.map(path)
    assert (caught.value.subject, caught.value.op) == (path or "an empty path", "map path")


def test_relative() -> None:
    assert [is_relative(uri) for uri in ("data/x", "", "x:y", "/x", "s3://b/x", "file:/x")] == [True] * 3 + [False] * 3


@pytest.mark.parametrize(
    ("uri", "inside"),
    [
        ("gs://m/t/x", True),
        ("gs://m/t/a/b", True),
        ("gs://m/t", False),
        ("gs://m/t/", True),
        ("gs://m/t_old/x", False),
        ("gs://m/t/../u/x", False),
        ("gs://m/t/a/..", False),
        ("s3://m/t/x", False),
        ("x", False),
    ],
)
def test_is_below(uri: str, inside: bool) -> None:
    assert is_below(uri, "gs://m/t") is inside
    assert is_below(uri, "gs://m/t/") is inside


HOME = {"s3://wh/t": "gs://m"}


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (HOME, HOME, None),
        (HOME, {"s3a://wh/t/": "gs://m/"}, None),
        (HOME, {**HOME, "s3://cold": "gs://m/_roots/cold"}, None),
        ({**HOME, "s3://cold": "gs://m/_roots/cold"}, HOME, None),
        (HOME, {**HOME, "s3://wh/t/cold": "gs://m/cold"}, None),
        (
            HOME,
            {**HOME, "s3://wh/t/cold": "gs://m/_roots/cold"},
            "s3://wh/t/cold goes to gs://m/_roots/cold",
        ),
        ({**HOME, "s3://wh/t/cold": "gs://m/_roots/cold"}, HOME, "s3://wh/t/cold goes to gs://m/cold now, and went to"),
        (HOME, {"s3://wh/t2": "gs://m"}, "s3://wh/t2 goes to gs://m now, and s3://wh/t went there before"),
        (
            HOME,
            {"s3://wh/t2": "gs://m", "s3://wh/t": "gs://m/_roots/old"},
            "s3://wh/t goes to gs://m/_roots/old",
        ),
        (HOME, {"s3://wh": "gs://m"}, "s3://wh/t goes to gs://m/t now, and went to gs://m before"),
    ],
)
def test_first_change(before: dict[str, str], now: dict[str, str], says: str | None) -> None:
    """A file that the mirror holds must go on to have the place it has; a place must not get another file."""
    told = PrefixMap.of(now).first_change(PrefixMap.of(before))
    assert told == says if says is None or told is None else told.startswith(says)


def test_private_places_are_never_mapped_but_never_named_either() -> None:
    paths = PrefixMap.of({"/wh/t": "gs://m/t"}, private=["file:/wh x/", "s3a://onprem/wh"])
    assert paths.private == ("file:///wh x", "s3://onprem/wh")
    assert paths.find("/wh x/other") is None
    for text in ("/wh x/other", "file:///wh%20x/a", "S3://onprem/", "s3n://onprem"):
        assert paths.mentions_source(text)
    assert paths.digest != PrefixMap.of({"/wh/t": "gs://m/t"}).digest
