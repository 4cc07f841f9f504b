"""One door for delete files of every kind."""

from __future__ import annotations

import pytest

from lakemirror.errors import UnsupportedError
from lakemirror.formats.iceberg import delete_files
from lakemirror.model.paths import PrefixMap
from tests.iceberg_files import position_deletes
from tests.puffin_bytes import deletion_vectors

HOME = "s3://src/wh/t"
URI = f"{HOME}/data/d"
PATHS = PrefixMap.of({HOME: "gs://cloud/t"})
ROWS = [(f"{HOME}/a", 1), (f"{HOME}/b", 2)]
FILES = {"PARQUET": position_deletes(ROWS), "PUFFIN": deletion_vectors({f"{HOME}/a": [1], f"{HOME}/b": [2]})}


@pytest.mark.parametrize("file_format", FILES)
def test_each_format_has_its_rewriter(file_format: str) -> None:
    data = FILES[file_format]
    new = delete_files.rewrite(data, URI, file_format.lower(), PATHS)
    assert new.facts.size_bytes == len(new.data)
    assert (new.facts.lower, new.facts.upper) == (b"gs://cloud/t/a", b"gs://cloud/t/b")
    assert bool(new.vectors) == (file_format == "PUFFIN")
    assert delete_files.is_same(new.data, new.data, file_format)
    assert not delete_files.is_same(new.data, data, file_format)
    assert not delete_files.is_same(new.data, b"garbage", file_format)


def test_an_unknown_format_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="deletes in LANCE are not supported; want one of PARQUET") as caught:
        delete_files.rewrite(b"", URI, "LANCE", PATHS)
    assert caught.value.subject == URI
    with pytest.raises(UnsupportedError):
        delete_files.is_same(b"", b"", "LANCE")
