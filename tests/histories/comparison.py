"""Holds a mirror against its source: every ref and retained snapshot, every entry of every manifest, every object.

What may differ is what follows from other places: paths, the sizes of what holds paths, and bounds of paths.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.histories.contents import Row
from tests.histories.reader import Json, Reader, Seen
from tests.iceberg_files import PATH_ID, POSITION_DELETES
from tests.integration.looking import mentions
from tests.lake import ORDERS, Lake, path_of

WORK = ("_plan", "_ledger", "_inprogress", "_control")  # folders whose objects may change
SAME = (
    *("format-version", "table-uuid", "last-sequence-number", "last-column-id", "schemas", "current-schema-id"),
    *("partition-specs", "default-spec-id", "sort-orders", "next-row-id", "a-field-of-tomorrow"),
)
Stamp = tuple[int, int, int]


class Comparison:
    """Remembers what it has seen: an object of a published version must stay as it is for ever."""

    def __init__(self, lake: Lake, reader: Reader) -> None:
        self._lake, self._reader = lake, reader
        self._root = f"{lake.mirror_folder}/{ORDERS.folder}"
        self._known: dict[str, Stamp] = {}

    def check(self, source_uri: str, mirror_uri: str, places: Mapping[str, str], head: int | None) -> None:
        """The mirror is the source as `source_uri` has it, with `head`, if given, as main.

        `places` are the source's roots by name.
        """
        ours, theirs = self._reader.metadata(source_uri), self._reader.metadata(mirror_uri)
        assert {key: theirs.get(key) for key in SAME} == {key: ours.get(key) for key in SAME}
        assert path_of(theirs["location"]) == Path(self._root)
        refs = dict(ours["refs"])
        if head is not None:
            refs["main"] = {**refs.get("main", {"type": "branch"}), "snapshot-id": head}
        assert theirs["refs"] == refs
        assert theirs["current-snapshot-id"] == refs.get("main", {"snapshot-id": -1})["snapshot-id"]
        snapshots = {one["snapshot-id"]: one for one in ours["snapshots"]}
        kept = {one["snapshot-id"]: one for one in theirs["snapshots"]}
        assert {ref["snapshot-id"] for ref in refs.values()} <= kept.keys() <= snapshots.keys()
        for number, one in kept.items():
            assert _without(one, "manifest-list") == _without(snapshots[number], "manifest-list")
            self._check_snapshot(snapshots[number], one, places)
        self._check_statistics(ours, theirs, places)
        self.check_objects()

    def rows(self, metadata_uri: str) -> list[Row]:
        """The rows of main, in order."""
        metadata = self._reader.metadata(metadata_uri)
        heads = [one for one in metadata["snapshots"] if one["snapshot-id"] == metadata["current-snapshot-id"]]
        return sorted(row for head in heads for row in self._reader.snapshot(head).rows.elements())

    def counts(self, source_uri: str, mirror_uri: str) -> dict[int | None, int]:
        """How many rows the source has at each snapshot that the mirror keeps."""
        kept = {one["snapshot-id"] for one in self._reader.metadata(mirror_uri)["snapshots"]}
        found = [one for one in self._reader.metadata(source_uri)["snapshots"] if one["snapshot-id"] in kept]
        return {one["snapshot-id"]: self._reader.snapshot(one).rows.total() for one in found}

    def check_objects(self) -> None:
        """Nothing that was there has changed or gone; nothing that is new names a place of the source."""
        found = {}
        for folder, folders, names in os.walk(self._root):
            if folder == self._root:
                folders[:] = [name for name in folders if name not in WORK]
            for name in names:
                status = os.stat(path := f"{folder}/{name}")
                found[path] = (status.st_ino, status.st_mtime_ns, status.st_size)
        changed = sorted(name for name, stamp in self._known.items() if found.get(name) != stamp)
        assert changed == [], "objects of published versions changed"
        for name in found.keys() - self._known.keys():
            inside = name[len(str(self._lake.mirror_folder)) + 1 :]
            assert not mentions(inside, Path(name).read_bytes(), str(self._lake.warehouse)), f"{name} names the source"
        self._known = found

    def _check_snapshot(self, ours: Json, theirs: Json, places: Mapping[str, str]) -> None:
        want, got = self._reader.snapshot(ours), self._reader.snapshot(theirs)
        assert self._back(theirs["manifest-list"], places) == _plain(ours["manifest-list"])
        assert got.rows == want.rows, f"rows of snapshot {ours['snapshot-id']}"
        assert len(got.manifests) == len(want.manifests)
        for (our_manifest, our_entries), (their_manifest, their_entries) in zip(
            want.manifests, got.manifests, strict=True
        ):
            path, length = their_manifest["manifest_path"], their_manifest["manifest_length"]
            assert self._back(path, places) == _plain(our_manifest["manifest_path"])
            assert path_of(path).stat().st_size == length, path
            skipped = ("manifest_path", "manifest_length")
            assert _without(their_manifest, *skipped) == _without(our_manifest, *skipped)
            assert len(their_entries) == len(our_entries)
            for our_entry, their_entry in zip(our_entries, their_entries, strict=True):
                assert _without(their_entry, "data_file") == _without(our_entry, "data_file")
                self._check_file(our_entry["data_file"], their_entry["data_file"], places)
        self._check_on_disk(want, got, places)

    def _check_file(self, ours: Json, theirs: Json, places: Mapping[str, str]) -> None:
        for name in ("file_path", "referenced_data_file"):
            if ours.get(name) is None:
                assert theirs.get(name) is None
            else:
                assert self._back(theirs[name], places) == _plain(ours[name])
        skipped = ["file_path", "referenced_data_file"]
        if ours.get("content") == POSITION_DELETES:
            skipped += ["file_size_in_bytes", "lower_bounds", "upper_bounds"]
            for name in ("lower_bounds", "upper_bounds"):
                assert _other_bounds(theirs[name]) == _other_bounds(ours[name])
        assert _without(theirs, *skipped) == _without(ours, *skipped)

    def _check_on_disk(self, want: Seen, got: Seen, places: Mapping[str, str]) -> None:
        """Live files: sizes, bytes of what is copied, positions and bounds of what is rewritten."""
        for ours, theirs in zip(want.files(), got.files(), strict=True):
            path = path_of(theirs["file_path"])
            assert path.stat().st_size == theirs["file_size_in_bytes"], path
            if ours.get("content") != POSITION_DELETES:
                assert path.read_bytes() == path_of(ours["file_path"]).read_bytes(), path
                continue
            positions = self._reader.positions(theirs)
            moved = sorted((self._back(one, places), at) for one, at in positions)
            assert moved == sorted((_plain(one), at) for one, at in self._reader.positions(ours))
            paths = [one for one, _ in positions]
            for name, edge in (("lower_bounds", min(paths)), ("upper_bounds", max(paths))):
                bounds = {one["key"]: one["value"] for one in theirs[name] or ()}
                assert bounds.get(PATH_ID, edge.encode()) == edge.encode()

    def _check_statistics(self, ours: Json, theirs: Json, places: Mapping[str, str]) -> None:
        kept = {one["snapshot-id"] for one in theirs["snapshots"]}
        want = [one for one in ours["statistics"] if one["snapshot-id"] in kept]
        assert len(want) == len(theirs["statistics"])
        for our, their in zip(want, theirs["statistics"], strict=True):
            assert _without(our, "statistics-path") == _without(their, "statistics-path")
            assert self._back(their["statistics-path"], places) == _plain(our["statistics-path"])
            assert path_of(their["statistics-path"]).read_bytes() == path_of(our["statistics-path"]).read_bytes()

    def _back(self, uri: str, places: Mapping[str, str]) -> str:
        """The source path that a mirror path stands for; `places[""]` is the table's location."""
        path = _plain(uri)
        assert path.startswith(f"{self._root}/"), uri
        rest = re.sub(r"^_maps/[^/]+/", "", path[len(self._root) + 1 :])
        further = re.match(r"_roots/([^/]+)/(.*)", rest)
        return f"{places['']}/{rest}" if further is None else f"{places[further[1]]}/{further[2]}"


def _plain(uri: str) -> str:
    return str(path_of(uri))


def _without(fields: Mapping[str, Any], *names: str) -> Json:
    return {name: value for name, value in fields.items() if name not in names}


def _other_bounds(bounds: list[Json] | None) -> list[Json]:
    return [one for one in bounds or () if one["key"] != PATH_ID]
