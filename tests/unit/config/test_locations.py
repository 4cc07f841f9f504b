"""Paths: relative ones belong to the file, and one place is recognised in all its spellings."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_core import PydanticCustomError

from lakemirror.config.locations import absolute_database, absolute_location, is_within


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mirror", "file:///etc/lake/mirror"),
        ("./mirror/", "file:///etc/lake/mirror"),
        ("../up/x", "file:///etc/up/x"),
        ("/abs/x/", "file:///abs/x"),
        ("with space/ü=%20#", "file:///etc/lake/with space/ü=%20#"),
        ("file:///abs/x", "file:///abs/x"),
        ("file:/abs/x/", "file:///abs/x"),
        ("FILE:///abs/./y/../x", "file:///abs/x"),
        ("file:////abs", "file:///abs"),
        ("s3://bucket/path/", "s3://bucket/path"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/a=1/b", "s3a://bucket/a=1/b"),
        ("S3://bucket/Key", "s3://bucket/Key"),
        ("gs://bucket/x", "gs://bucket/x"),
        ("memory://bucket/x", "memory://bucket/x"),
    ],
)
def test_locations_become_absolute(text: str, expected: str) -> None:
    assert absolute_location(text, "/etc/lake") == expected


_LOCATION = "a location like s3://bucket/path, gs://bucket/path, file:///path or a plain path"


@pytest.mark.parametrize(
    ("text", "wanted", "hint"),
    [
        ("~/lake", "an absolute path or one relative to the file", "write ${HOME} for `~`"),
        ("file:x", "a file location like file:///absolute/path", "for a relative path leave `file:` out"),
        ("file://x/y", "a file location like file:///absolute/path", "for a relative path leave `file:` out"),
        ("hdfs://host/x", _LOCATION, ""),
        ("https://host/x", _LOCATION, ""),
        ("s3:/bucket/x", _LOCATION, ""),
        ("s3:///x", _LOCATION, ""),
        ("s3://bucket//x", "a location without empty parts, `.` and `..`", ""),
        ("s3://bucket/a/../b", "a location without empty parts, `.` and `..`", ""),
        ("gs://bucket/./b", "a location without empty parts, `.` and `..`", ""),
    ],
)
def test_other_locations_are_refused(text: str, wanted: str, hint: str) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        absolute_location(text, "/etc/lake")
    assert caught.value.context == {"wanted": wanted, "hint": hint}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sqlite:///lake.db", "sqlite:////etc/lake/lake.db"),
        ("sqlite:///../a b/lake.db", "sqlite:////etc/a b/lake.db"),
        ("sqlite:////var/lake.db", "sqlite:////var/lake.db"),
        ("sqlite+pysqlite:///lake.db?timeout=5", "sqlite+pysqlite:////etc/lake/lake.db?timeout=5"),
        ("postgresql://host/db", "postgresql+psycopg2://host/db"),
        ("postgresql+asyncpg://host/db", "postgresql+asyncpg://host/db"),
        ("thrift://host:9083", "thrift://host:9083"),
        ("https://host/api", "https://host/api"),
    ],
)
def test_the_file_of_a_database_becomes_absolute(text: str, expected: str) -> None:
    assert absolute_database(text, "/etc/lake") == expected


_SQLITE = "a SQLite file like sqlite:///relative.db or sqlite:////absolute.db"


@pytest.mark.parametrize(
    ("text", "wanted", "hint"),
    [
        ("lake.db", "an address with a scheme", "a SQLite file is written sqlite:///path"),
        ("sqlite://", _SQLITE, "memory is gone with the process"),
        ("sqlite:///", _SQLITE, "memory is gone with the process"),
        ("sqlite:///:memory:", _SQLITE, "memory is gone with the process"),
        ("sqlite://lake.db", _SQLITE, "memory is gone with the process"),
        ("sqlite:///file:x?mode=memory&uri=true", _SQLITE, "memory is gone with the process"),
    ],
)
def test_other_databases_are_refused(text: str, wanted: str, hint: str) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        absolute_database(text, "/etc/lake")
    assert caught.value.context == {"wanted": wanted, "hint": hint}


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ("s3://b/x", "s3://b/x", True),
        ("s3://b/x/y", "s3://b/x", True),
        ("s3://b/x", "s3://b", True),
        ("s3a://b/x/y", "s3n://b/x", True),
        ("s3://b/xy", "s3://b/x", False),
        ("s3://bb/x", "s3://b", False),
        ("s3://b/x", "s3://b/x/y", False),
        ("gs://b/x", "s3://b/x", False),
        ("file:///a/b", "file:///a", True),
        ("file:///a", "file:///", True),
        ("file:///ab", "file:///a", False),
    ],
)
def test_what_lies_within_what(inner: str, outer: str, expected: bool) -> None:
    assert is_within(inner, outer) is expected


def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert is_within(f"file://{tmp_path}/link/mirror", f"file://{tmp_path}/real")
    assert not is_within(f"file://{tmp_path}/other/mirror", f"file://{tmp_path}/real")
