"""What may happen to the files of a source table that is made by hand: one commit or one expiry each."""

from __future__ import annotations

from collections.abc import Sequence

from tests.histories import contents
from tests.histories.actions import Actions, action, chosen, subset
from tests.histories.encoding import Entry, File
from tests.histories.synthetic import Source
from tests.iceberg_files import EQUALITY_DELETES, PATH_ID, POSITION_DELETES, bounds
from tests.lake import path_of

CITIES = ("Bern", "Genève 50%", "Zürich+Chur=1,2")
EXTENSIONS = {"PARQUET": "parquet", "ORC": "orc", "AVRO": "avro"}


class FileChanges(Actions):
    """Every action leaves the table published; conditions are what its format and state allow."""

    source: Source
    ids = 0

    # ---------------------------------------------------------------------------------------------------------- rows

    @action(weight=6)
    def append(self, a: int, b: int, c: int) -> None:
        self.source.commit(self.branch(a), add=self.new_data(1 + b % 3, b), split=1 + c % 3)
        self.source.publish()

    def has_rows(self) -> bool:
        return any(self.source.live(branch) for branch in self.source.branches())

    @action(weight=2, when=has_rows)
    def delete_whole_files(self, a: int, b: int, c: int) -> None:
        branch = self.branch(a, with_rows=True)
        gone = subset(self.source.live(branch), b)
        self.source.commit(branch, remove=[one.file for one in gone])
        self.source.publish()

    @action(weight=2, when=has_rows)
    def overwrite(self, a: int, b: int, c: int) -> None:
        """Copy-on-write: files go, and others come in the same commit."""
        branch = self.branch(a, with_rows=True)
        gone = subset(self.source.live(branch), b)
        self.source.commit(branch, add=self.new_data(1 + c % 3, c), remove=[one.file for one in gone])
        self.source.publish()

    @action(weight=5, when=lambda self: self.source.version == 2 and self.has_rows())
    def delete_positions(self, a: int, b: int, c: int) -> None:
        """Position deletes of all three formats, of single files (and some that say so) or of whole partitions."""
        branch, kind, is_for_one = self.branch(a, with_rows=True), chosen(sorted(EXTENSIONS), c), b % 2 == 1
        groups: dict[tuple[int, str | None], list[Entry]] = {}
        for one in subset(self.source.live(branch), b):
            groups.setdefault((one.file.spec_id, one.file.partition), []).append(one)
        made = []
        for entries in groups.values():
            for part in [[one] for one in entries] if is_for_one else [entries]:
                made.append(self.delete_file(kind, part, a, says_so=is_for_one and c % 2 == 1))
        self.source.commit(branch, add=made, split=1 + c % 3)
        self.source.publish()

    def delete_file(self, kind: str, entries: Sequence[Entry], at: int, *, says_so: bool) -> File:
        positions = [(one.file.path, at % one.file.record_count) for one in entries]
        data = contents.delete_file(kind, positions)
        path = self.source.write("data", f"deletes.{EXTENSIONS[kind]}", data)
        paths = sorted({one for one, _ in positions})
        edges = {"lower_bounds": paths[0], "upper_bounds": paths[-1]}
        more: dict[str, object] = {name: bounds({PATH_ID: edge.encode()}) for name, edge in edges.items()}
        more |= {"referenced_data_file": paths[0]} if says_so else {}
        first = entries[0].file
        return File(path, len(data), POSITION_DELETES, kind, len(positions), first.spec_id, first.partition, more)

    @action(weight=5, when=lambda self: self.source.version == 3 and self.has_rows())
    def delete_by_vectors(self, a: int, b: int, c: int) -> None:
        """One Puffin file with a vector for each data file; a vector that it replaces goes."""
        branch = self.branch(a, with_rows=True)
        entries = {one.file.path: one for one in subset(self.source.live(branch), b)}
        positions = {path: self.deleted(branch, one) | {c % one.file.record_count} for path, one in entries.items()}
        data, places = contents.deletion_vectors(positions)
        path = self.source.write("data", "vectors.puffin", data)
        made = []
        for target, (offset, length) in places.items():
            more = {"referenced_data_file": target, "content_offset": offset, "content_size_in_bytes": length}
            file, count = entries[target].file, len(positions[target])
            made.append(File(path, len(data), POSITION_DELETES, "PUFFIN", count, file.spec_id, file.partition, more))
        old = [
            one.file
            for one in self.source.live(branch, POSITION_DELETES)
            if one.file.file_format == "PUFFIN" and one.file.more["referenced_data_file"] in positions
        ]
        self.source.commit(branch, add=made, remove=old, split=1 + a % 3)
        self.source.publish()

    @action(weight=2, when=lambda self: self.source.version > 1 and self.has_rows())
    def delete_by_equality(self, a: int, b: int, c: int) -> None:
        """Of all partitions, because the spec of the delete file has none."""
        branch = self.branch(a, with_rows=True)
        file = chosen(self.source.live(branch), b).file
        ids = tuple(sorted({one for one, _ in contents.rows_in(self.read(file))}))[: 1 + c % 3]
        data = contents.equality_deletes(ids)
        path = self.source.write("data", "equality.parquet", data)
        made = File(path, len(data), EQUALITY_DELETES, record_count=len(ids), more={"equality_ids": [1]})
        self.source.commit(branch, add=[made])
        self.source.publish()

    # --------------------------------------------------------------------------------------------------- maintenance

    def has_snapshot(self) -> bool:
        return bool(self.source.snapshots)

    @action(weight=2, when=has_rows)
    def compact(self, a: int, b: int, c: int) -> None:
        """Some data files become one; delete files that are for them alone stay behind or go."""
        branch = self.branch(a, with_rows=True)
        gone = subset(self.source.live(branch), b)
        left = []
        for one in gone:
            deleted = self.deleted(branch, one)
            left += [row for at, row in enumerate(contents.rows_in(self.read(one.file))) if at not in deleted]
        paths = {one.file.path for one in gone}
        old = [one.file for one in self.source.live(branch, POSITION_DELETES)]
        dangling = [one for one in old if one.more.get("referenced_data_file") in paths] if c % 2 else []
        cities = CITIES if self.source.spec_id else [""]
        parts = {city: [row for row in left if city in ("", row[1])] for city in cities}
        add = [self.data_file(rows, city) for city, rows in parts.items() if rows]
        self.source.commit(branch, add=add, remove=[*(one.file for one in gone), *dangling])
        self.source.publish()

    @action(weight=3, when=lambda self: any(branch in self.source.refs for branch in self.source.branches()))
    def rewrite_manifests(self, a: int, b: int, c: int) -> None:
        branch = chosen([one for one in self.source.branches() if one in self.source.refs], a)
        self.source.rewrite_manifests(branch, lambda at: bool(b >> at % 6 & 1), 1 + c % 4)
        self.source.publish()

    @action(weight=3, when=has_snapshot)
    def expire(self, a: int, b: int, c: int) -> None:
        """Files that no snapshot needs go from the disk, old metadata too: the log has rolled over."""
        self.source.expire(lambda number: bool(a >> number % 6 & 1))
        self.source.publish()

    @action(when=has_snapshot)
    def compute_statistics(self, a: int, b: int, c: int) -> None:
        snapshot, size = chosen([*self.source.snapshots], a), 1 + b
        path = self.source.write("metadata", "stats.puffin", b"PFA1" * size)
        sizes = {"file-size-in-bytes": 4 * size, "file-footer-size-in-bytes": 4}
        made = {"snapshot-id": snapshot, "statistics-path": path, **sizes, "blob-metadata": []}
        self.source.statistics[snapshot] = made
        self.source.publish()

    # -------------------------------------------------------------------------------------------------- small words

    def branch(self, pick: int, *, with_rows: bool = False) -> str:
        return chosen([one for one in self.source.branches() if not with_rows or self.source.live(one)], pick)

    def new_data(self, count: int, pick: int, rows: int = 4) -> list[File]:
        """Data files under the table's current spec; a file of a partition has one city."""
        made = []
        for number in range(count):
            city = chosen(CITIES, pick + number)
            made.append(self.data_file([(self.ids + at, city) for at in range(rows)], city))
            self.ids += rows
        return made

    def data_file(self, rows: Sequence[contents.Row], city: str) -> File:
        data = contents.data_file(tuple(rows))
        spec = self.source.spec_id
        path = self.source.write(f"data/city={city}" if spec else "data", "data.parquet", data)
        return File(path, len(data), record_count=len(rows), spec_id=spec, partition=city if spec else None)

    def deleted(self, branch: str, entry: Entry) -> set[int]:
        """Positions of a data file that live position deletes and vectors of a branch take away."""
        found: set[int] = set()
        for one in self.source.live(branch, POSITION_DELETES):
            if one.sequence >= entry.sequence:
                positions = contents.positions_in(self.read(one.file), one.file.file_format)
                found |= {at for path, at in positions if path == entry.file.path}
        return found

    def read(self, file: File) -> bytes:
        return path_of(file.path).read_bytes()
