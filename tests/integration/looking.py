"""What a mirror table's files say, read by code that is not lakemirror's: whole, exact, and free of source paths."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from lakemirror.model.table import TableRef
from tests import orc_files
from tests.avro_bytes import block_bodies, header_of, records
from tests.lake import ORDERS, Lake, path_of


@dataclass(frozen=True)
class Looked:
    """The version that the mirror catalog shows: its metadata, and all entries by manifest."""

    metadata: dict[str, Any]
    manifests: dict[str, dict[str, Any]]
    entries: dict[str, list[dict[str, Any]]]

    def files(self, *, deleted: bool = False) -> dict[str, dict[str, Any]]:
        """The data and delete files of live (or deleted) entries, by path."""
        found = [one for some in self.entries.values() for one in some if (one["status"] == 2) == deleted]
        return {one["data_file"]["file_path"]: one["data_file"] for one in found}


def look(lake: Lake, table: TableRef = ORDERS) -> Looked:
    head = lake.mirror_head(table)
    assert head is not None
    metadata = json.loads(path_of(head).read_bytes())
    manifests: dict[str, dict[str, Any]] = {}
    for snapshot in metadata["snapshots"]:
        for one in records(path_of(snapshot["manifest-list"]).read_bytes()):
            manifests[one["manifest_path"]] = one
    return Looked(metadata, manifests, {path: records(path_of(path).read_bytes()) for path in manifests})


def check_whole(lake: Lake, table: TableRef = ORDERS) -> Looked:
    """Everything that the mirror's head needs is there, with the sizes that its metadata claims."""
    seen = look(lake, table)
    root = f"file://{lake.mirror_folder}/{table.folder}"
    for path, one in seen.manifests.items():
        assert path.startswith(f"{root}/")
        assert path_of(path).stat().st_size == one["manifest_length"], path
    for path, file in seen.files().items():
        assert path.startswith(f"{root}/")
        assert path_of(path).stat().st_size == file["file_size_in_bytes"], path
    for section in ("statistics", "partition-statistics"):
        for one in seen.metadata.get(section) or ():
            assert path_of(one["statistics-path"]).stat().st_size == one["file-size-in-bytes"]
    assert source_mentions(lake) == []
    return seen


def source_mentions(lake: Lake) -> list[str]:
    """Rewritten files of the mirror that hold a path of the source, in any layer of their encoding."""
    return [name for name, data in lake.mirror_objects().items() if mentions(name, data, str(lake.warehouse))]


def mentions(name: str, data: bytes, needle: str) -> bool:
    """True if a file that readers of the mirror open, and that could name a place, names this one."""
    is_ours = any(part.startswith("_") and part not in ("_roots", "_maps") for part in name.split("/"))
    if is_ours or not (name.endswith((".avro", ".json", ".puffin")) or "deletes" in name):
        return False
    return needle.encode() in data or needle in _decoded(name, data)


def _decoded(name: str, data: bytes) -> str:
    if name.endswith(".avro"):
        plain = b"".join(body for _, body in block_bodies(data))
        return f"{header_of(data)} {records(data)} {plain.decode(errors='replace')}"
    if name.endswith(".json"):
        return json.dumps(json.loads(data), ensure_ascii=False)
    if name.endswith(".puffin"):
        return ""  # their footers are plain text
    if name.endswith(".orc"):
        return str(orc_files.table_of(data).to_pylist())
    file = pq.ParquetFile(io.BytesIO(data))
    return f"{file.read().to_pylist()} {file.metadata.metadata} {file.metadata.to_dict()}"


def stable_objects(lake: Lake) -> dict[str, bytes]:
    """What readers and later runs build on; of markers what is inside their hash, not who wrote them and when."""
    found = {}
    for name, data in lake.mirror_objects().items():
        if "/_ready/" in name:
            document = json.loads(data)
            del document["created_at"], document["producer"], document["fence_token"]
            data = json.dumps(document).encode()
        is_work = any(folder in name for folder in ("/_plan/", "/_ledger/", "/_inprogress/"))
        if not is_work or "/_ledger/index/" in name:
            found[name] = data
    return found
