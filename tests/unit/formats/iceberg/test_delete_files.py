"""One door for delete files of every kind."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.errors import UnsupportedError
from lakemirror.formats.iceberg import delete_files
from lakemirror.model.paths import PrefixMap
from tests.avro_bytes import container
from tests.iceberg_files import PATH_ID, POS_ID, position_deletes
from tests.orc_files import PATH, POS, orc_deletes, orc_file, table_of
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
    assert delete_files.is_same(new.data, new.data, file_format, PATHS)
    assert not delete_files.is_same(new.data, data, file_format, PATHS)
    assert not delete_files.is_same(new.data, b"garbage", file_format, PATHS)


def noted(file_format: str, note: str) -> bytes:
    """The same deletes with a text of the writer beside them."""
    if file_format == "AVRO":
        rows = [{"file_path": path, "pos": position} for path, position in ROWS]
        return container(AVRO_SCHEMA, [rows], meta={"origin": note})
    if file_format == "PUFFIN":
        return deletion_vectors({f"{HOME}/a": [1], f"{HOME}/b": [2]}, more={"properties": {"origin": note}})
    if file_format == "ORC":
        fields = [PATH.with_metadata({**PATH.metadata, b"origin": note.encode()}), POS]
        return orc_file(table_of(orc_deletes(ROWS)).cast(pa.schema(fields)))
    table = pq.read_table(io.BytesIO(position_deletes(ROWS)))
    out = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"origin": note.encode()}), out)
    return out.getvalue()


@pytest.mark.parametrize("file_format", FILES)
def test_a_root_that_is_added_does_not_make_another_file(file_format: str) -> None:
    """Its name was a text like any other when the file was published, and is left out now."""
    more = PrefixMap.of({**dict(PATHS.rules), "s3://old": "gs://cloud/t/_roots/old"})
    data, other = noted(file_format, "s3://old/x"), noted(file_format, "something else")
    before, after = (delete_files.rewrite(data, URI, file_format, paths).data for paths in (PATHS, more))
    assert before != after
    assert delete_files.is_same(before, after, file_format, more)
    assert not delete_files.is_same(before, after, file_format, PATHS)
    assert not delete_files.is_same(before, delete_files.rewrite(other, URI, file_format, more).data, file_format, more)


def test_an_unknown_format_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="deletes in LANCE are not supported; want one of PARQUET") as caught:
        delete_files.rewrite(b"", URI, "LANCE", PATHS)
    assert caught.value.subject == URI
    with pytest.raises(UnsupportedError):
        delete_files.is_same(b"", b"", "LANCE", PATHS)


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
