"""What a table says, read by the book from its metadata.json down to its rows, by code that is not lakemirror's.

Files are read once for each time that they were written: a recreated table may write to an old name. Of a mirror
`Comparison` makes sure that they never change.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.avro_bytes import records
from tests.histories.contents import Position, Row, ids_in, positions_in, rows_in
from tests.iceberg_files import DATA, DELETED, EQUALITY_DELETES, POSITION_DELETES
from tests.lake import path_of

Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Seen:
    """A snapshot: its manifests in order with their entries, and the rows that it shows."""

    manifests: list[tuple[Json, list[Json]]]
    rows: Counter[Row]

    def files(self) -> list[Json]:
        return [one["data_file"] for _, entries in self.manifests for one in entries if one["status"] != DELETED]


@dataclass
class Reader:
    _cache: dict[tuple[str, str, int], Any] = field(default_factory=dict)

    def metadata(self, uri: str) -> Json:
        data = path_of(uri).read_bytes()
        found: Json = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        return found

    def snapshot(self, snapshot: Json) -> Seen:
        uri = snapshot["manifest-list"]
        return self._once("snapshot", uri, lambda data: self._snapshot(records(data)))

    def positions(self, file: Json) -> list[Position]:
        return self._once("positions", file["file_path"], lambda data: positions_in(data, file["file_format"]))

    def _once(self, what: str, uri: str, read: Callable[[bytes], T]) -> T:
        path = path_of(uri)
        key = (what, str(path), path.stat().st_mtime_ns)
        if key not in self._cache:
            self._cache[key] = read(path.read_bytes())
        found: T = self._cache[key]
        return found

    def _snapshot(self, listed: list[Json]) -> Seen:
        manifests = [(one, self._once("manifest", one["manifest_path"], records)) for one in listed]
        live = []
        for manifest, entries in manifests:
            for one in entries:
                if one["status"] != DELETED:
                    own = one.get("sequence_number")
                    sequence = manifest.get("sequence_number", 0) if own is None else own
                    live.append((sequence, manifest["partition_spec_id"], one["data_file"]))
        return Seen(manifests, self._rows(live))

    def _rows(self, live: list[tuple[int, int, Json]]) -> Counter[Row]:
        deletes = [(sequence, spec, file) for sequence, spec, file in live if file.get("content", DATA) != DATA]
        found: Counter[Row] = Counter()
        for sequence, spec, file in live:
            if file.get("content", DATA) != DATA:
                continue
            gone, gone_ids = set(), set()
            for since, delete_spec, delete in deletes:
                same_place = (delete_spec, delete["partition"]) == (spec, file["partition"])
                if delete["content"] == POSITION_DELETES and since >= sequence and same_place:
                    gone |= {at for path, at in self.positions(delete) if _applies(path, delete, file)}
                if delete["content"] == EQUALITY_DELETES and since > sequence and (same_place or delete_spec == 0):
                    gone_ids |= self._once("ids", delete["file_path"], ids_in)
            rows = self._once("rows", file["file_path"], rows_in)
            found.update(row for at, row in enumerate(rows) if at not in gone and row[0] not in gone_ids)
        return found


def _applies(path: str, delete: Json, file: Json) -> bool:
    """A delete file that names its data file is for that one alone."""
    named = delete.get("referenced_data_file")
    return path == file["file_path"] and named in (None, file["file_path"])
