"""Where a source table that is made by hand lies, and what the configuration says of it: roots come, go and change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lakemirror.errors import PermanentError
from lakemirror.model.results import MirrorResult
from tests.histories.actions import action, chosen, subset
from tests.histories.table_changes import TableChanges
from tests.lake import Lake, path_of

ROOTS_AT_MOST = 3


class PlaceChanges(TableChanges):
    """`roots` are in the configuration; those `away` are not, and come back under the name that is noted.

    Roots that no version was published with are left as they are: what a killed run wrote by them lies in the folder
    that the next run writes to, and under another map it stops by name.
    """

    lake: Lake
    warehouse: Path

    def __init__(self) -> None:
        self.roots: dict[str, Path] = {}
        self.away: dict[Path, str] = {}
        self.places: dict[str, Path] = {}  # of all roots that ever were, by their latest names
        self.published: set[str] = set()  # roots that the newest version knows
        self.names, self.tables = 0, 1

    def configure(self) -> None:
        raise NotImplementedError

    def add_root(self, place: Path, name: str | None = None) -> None:
        name = name or self.new_name()
        self.roots[name] = self.places[name] = place
        self.configure()

    def new_name(self) -> str:
        self.names += 1
        return f"r{self.names}"

    def note(self, result: MirrorResult) -> MirrorResult:
        """A run ended well: what it published, it published by these roots."""
        if result.lane != "none":
            self.published = set(self.roots)
        return result

    def lacks_a_root(self, err: PermanentError) -> bool:
        """Whether the run stopped for want of a root that is away; then all of them come back."""
        if not self.away or "lies under no known root" not in err.message:
            return False
        while self.away:
            self.bring_a_root_back(0, 0, 0)
        return True

    # ------------------------------------------------------------------------------------------------------- actions

    def knows_few_places(self) -> bool:
        return len(self.roots) + len(self.away) < ROOTS_AT_MOST

    @action(when=knows_few_places)
    def move(self, a: int, b: int, c: int) -> None:
        """ALTER TABLE … SET LOCATION: old files stay, and their place becomes a further root."""
        self.add_root(self.source.location)
        self.source.location = self.warehouse / "shop" / f"moved{self.names}"
        self.source.publish()

    @action(when=lambda self: self.knows_few_places() and bool(self.lake.ready()))
    def add_a_root(self, a: int, b: int, c: int) -> None:
        """One that holds the table's data from now on, or one that has nothing to do with it.

        Not before the first version: what a killed first run left is of another map, and the next one stops by name.
        """
        place = self.source.location / "data" if a % 2 else self.warehouse / "elsewhere"
        if place not in (*self.roots.values(), *self.away):
            self.add_root(place)

    def known_roots(self) -> list[str]:
        return sorted(self.published & self.roots.keys())

    @action(weight=2, when=known_roots)
    def drop_a_root(self, a: int, b: int, c: int) -> None:
        """From the configuration alone: files below it are still live. It comes back under its name or another."""
        name = chosen(self.known_roots(), a)
        self.away[self.roots.pop(name)] = self.new_name() if b % 2 else name
        self.configure()

    @action(weight=2, when=lambda self: self.away)
    def bring_a_root_back(self, a: int, b: int, c: int) -> None:
        place = chosen([*self.away], a)
        self.add_root(place, self.away.pop(place))

    @action(when=known_roots)
    def rename_a_root(self, a: int, b: int, c: int) -> None:
        self.add_root(self.roots.pop(chosen(self.known_roots(), a)))

    @action(weight=2, when=lambda self: self.roots)
    def write_data_elsewhere(self, a: int, b: int, c: int) -> None:
        """write.data.path: from now on below a further root, or again below the table's own location."""
        self.source.data_home = chosen([*self.roots.values()], a) if b % 4 else None

    @action(when=TableChanges.has_snapshot)
    def move_lists(self, a: int, b: int, c: int) -> None:
        """The manifest lists of some snapshots lie elsewhere, under the same ids: metadata that was moved."""
        for one in subset([*self.source.snapshots.values()], a):
            path = self.source.write("metadata", "moved-snap.avro", path_of(one.list_path).read_bytes())
            self.source.snapshots[one.id] = replace(one, list_path=path)
        self.source.publish()

    @action()
    def recreate(self, a: int, b: int, c: int) -> None:
        """Dropped, and made anew under its name: another uuid, in the same place or another, with names of files that
        were used before.

        Not before the first version: what a killed first run left lies where the first table's files go.
        """
        self.source.point_catalog(None)
        if c % 2 and self.lake.ready():
            self.mirror_what_was_dropped()
        self.tables += 1
        place = self.warehouse / "shop" / f"again{self.tables}" if a % 2 else self.source.location
        self.source.start(place, 1 + b % 3, same_names=bool(b // 3 % 2 and self.lake.ready()))
        self.source.publish()

    def mirror_what_was_dropped(self) -> None:
        raise NotImplementedError
