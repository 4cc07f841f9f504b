"""One door for delete files of every kind."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakemirror.errors import UnsupportedError
from lakemirror.formats.iceberg import delete_files
from lakemirror.model.paths import PrefixMap
from tests.avro_bytes import container
from tests.iceberg_files import PATH_ID, POS_ID, position_deletes
from tests.orc_files import orc_deletes
from tests.puffin_bytes import deletion_vectors

HOME = "s3://src/wh/t"
URI = f"{HOME}/data/d"
PATHS = PrefixMap.of({HOME: "gs://cloud/t"})
ROWS = [(f"{HOME}/a", 1), (f"{HOME}/b", 2)]
AVRO_SCHEMA = {
    "type": "record",
    "name": "table",
    "fields": [
        {"name": "file_path", "type": "string", "field-id": PATH_ID},
        {"name": "pos", "type": "long", "field-id": POS_ID},
    ],
}
FILES = {
    "PARQUET": position_deletes(ROWS),
    "ORC": orc_deletes(ROWS),
    "AVRO": container(AVRO_SCHEMA, [[{"file_path": path, "pos": position} for path, position in ROWS]]),
    "PUFFIN": deletion_vectors({f"{HOME}/a": [1], f"{HOME}/b": [2]}),
}


@pytest.mark.parametrize("file_format", FILES)
def test_each_format_has_its_rewriter(file_format: str) -> None:
    data = FILES[file_format]
    new = delete_files.rewrite(data, URI, file_format.lower(), PATHS)
    assert new.facts.size_bytes == len(new.data)
    assert (new.facts.lower, new.facts.upper) == (b"gs://cloud/t/a", b"gs://cloud/t/b")
    assert bool(new.facts.vectors) == (file_format == "PUFFIN")
    assert delete_files.is_same(new.data, new.data, file_format)
    assert not delete_files.is_same(new.data, data, file_format)
    assert not delete_files.is_same(new.data, b"garbage", file_format)


def test_an_unknown_format_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="deletes in LANCE are not supported; want one of PARQUET") as caught:
        delete_files.rewrite(b"", URI, "LANCE", PATHS)
    assert caught.value.subject == URI
    with pytest.raises(UnsupportedError):
        delete_files.is_same(b"", b"", "LANCE")


SCRIPT = """
import hashlib, sys
from lakemirror.formats.iceberg import delete_files
from lakemirror.model.paths import PrefixMap
for name in sys.argv[2:]:
    with open(f"{sys.argv[1]}/{name}", "rb") as file:
        new = delete_files.rewrite(file.read(), "s3://src/wh/t/d", name, PrefixMap.of({"s3://src/wh/t": "gs://cloud/t"}))
    print(hashlib.sha256(new.data).hexdigest())
"""


def test_another_process_writes_the_same_bytes(tmp_path: Path) -> None:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), *FILES],
        env={**os.environ, "PYTHONHASHSEED": "123"},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    want = [delete_files.rewrite(data, URI, name, PATHS).data for name, data in FILES.items()]
    assert run.stdout.split() == [hashlib.sha256(data).hexdigest() for data in want]
