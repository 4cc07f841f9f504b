"""More of what may happen to a source table that is made by hand: its branches and tags, and its shape."""

from __future__ import annotations

from tests.avro_bytes import CODECS
from tests.histories.actions import action, chosen
from tests.histories.changes import FileChanges
from tests.iceberg_files import ADDED, DATA

NAMES = ("side", "audit", "eve")


class TableChanges(FileChanges):
    @action(weight=3, when=FileChanges.has_snapshot)
    def name_a_snapshot(self, a: int, b: int, c: int) -> None:
        """A branch or a tag, made or moved, on any snapshot that is there."""
        name, kind = chosen(NAMES, b), "tag" if c % 2 else "branch"
        self.source.refs.pop(name, None)
        self.source.point(name, chosen([*self.source.snapshots], a), kind)
        if kind == "tag":
            self.source.refs[name]["max-ref-age-ms"] = 86_400_000 * (1 + c)
        self.source.publish()

    @action(when=lambda self: len(self.source.refs) > 1)
    def drop_a_name(self, a: int, b: int, c: int) -> None:
        del self.source.refs[chosen([one for one in self.source.refs if one != "main"], a)]
        self.source.publish()

    @action(weight=2, when=FileChanges.has_snapshot)
    def move_main(self, a: int, b: int, c: int) -> None:
        """To any snapshot: back, forward to a branch, or to one that was staged."""
        self.source.point("main", chosen([*self.source.snapshots], a))
        self.source.publish()

    @action()
    def stage(self, a: int, b: int, c: int) -> None:
        """Write, audit, publish: a snapshot that no name points at, yet."""
        self.source.commit(None, add=self.new_data(1 + a % 2, b))
        self.source.publish()

    def to_pick(self) -> list[int]:
        return [one for one, made in self.source.snapshots.items() if made.is_append and self.source.head() is not made]

    @action(when=to_pick)
    def cherry_pick(self, a: int, b: int, c: int) -> None:
        """The files that an append added are added to main once more, by another manifest."""
        snapshot = self.source.snapshots[chosen(self.to_pick(), a)]
        there = {one.file.key for one in self.source.live("main")}
        new = [
            one.file
            for manifest in snapshot.manifests
            for one in manifest.entries
            if one.status == ADDED and one.snapshot_id == snapshot.id and one.file.content == DATA
        ]
        self.source.commit("main", add=[file for file in new if file.key not in there and self.is_there(file.path)])
        self.source.publish()

    def is_there(self, path: str) -> bool:
        return any(one.file.path == path for made in self.source.snapshots.values() for one in made.live)

    @action(when=lambda self: self.source.version < 3)
    def upgrade(self, a: int, b: int, c: int) -> None:
        self.source.version += 1
        self.source.publish()

    @action()
    def change_schema(self, a: int, b: int, c: int) -> None:
        """A column more, or the last one that was added less."""
        columns, last = self.source.schemas[-1], max(c["id"] for columns in self.source.schemas for c in columns)
        new = {"id": last + 1, "name": f"c{last + 1}", "type": "int", "required": False, "doc": "a column"}
        self.source.schemas.append(columns[:-1] if a % 2 and len(columns) > 2 else [*columns, new])
        self.source.publish()

    @action()
    def change_spec(self, a: int, b: int, c: int) -> None:
        self.source.spec_id = 1 - self.source.spec_id
        self.source.publish()

    @action()
    def change_how_it_is_written(self, a: int, b: int, c: int) -> None:
        """Spellings of paths, gzip'ed metadata, codecs of manifests: all that a writer may do from now on."""
        self.source.spelling, self.source.is_packed, self.source.codec = a % 3, b % 2 == 1, chosen(CODECS, c)
        self.source.properties["owner"] = f"ada {a}"
        self.source.publish()

    @action()
    def replace(self, a: int, b: int, c: int) -> None:
        """CREATE OR REPLACE: the same table, a snapshot without a parent, now and then of a later format version."""
        self.source.version = max(1 + c % 3 if c > 48 else 1, self.source.version)
        self.source.commit("main", add=self.new_data(1 + a % 3, b), from_scratch=True)
        self.source.publish()
