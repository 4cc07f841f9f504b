"""What happens at the source: a few tables made by hand, each with a history of commits, all in memory.

A story is a list of states in order. Each has the place of the table's metadata (None: the table is dropped) and the
files that are there at that time; files of expired snapshots go. `archive` holds every file that ever was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.histories import contents
from tests.histories.encoding import File
from tests.histories.synthetic import SPELLINGS, Source
from tests.iceberg_files import PATH_ID, POSITION_DELETES, bounds

PLACE = "/source"


@dataclass(frozen=True)
class State:
    pointer: str | None
    files: frozenset[str]


@dataclass(frozen=True)
class Story:
    name: str
    states: tuple[State, ...]
    archive: dict[str, bytes]


class MemorySource(Source):
    """The table made by hand, without a disk and without a database."""

    def __init__(self, name: str, version: int) -> None:
        self.files: dict[str, bytes] = {}
        self.archive: dict[str, bytes] = {}
        self.states: list[State] = []
        super().__init__(Path("nowhere"), Path(f"{PLACE}/{name}"), version)

    def write(self, folder: str, name: str, data: bytes, *, spelled: bool = True) -> str:
        path = f"{self.location}/{folder}/{self._next():05d}-{name}"
        self.files[f"file://{path}"] = self.archive[f"file://{path}"] = data
        return SPELLINGS[self.spelling if spelled else 0](path)

    def point_catalog(self, uri: str | None) -> None:
        self.states.append(State(uri, frozenset(self.files)))

    def expire(self, keep: Callable[[int], bool]) -> None:
        wanted = {ref["snapshot-id"] for ref in self.refs.values()}
        self.snapshots = {one: made for one, made in self.snapshots.items() if one in wanted or keep(one)}
        while self.log and self.log[0]["snapshot-id"] not in self.snapshots:
            del self.log[0]
        reachable = {f"file://{path}" for path in self._reachable()}
        self.files = {uri: data for uri, data in self.files.items() if uri in reachable}

    # ------------------------------------------------------------------------------------------------- what it can do

    def data(self, rows: int) -> File:
        made = tuple((self._next(), "Bern") for _ in range(rows))
        data = contents.data_file(made)
        path, city = self.write("data", "rows.parquet", data), "Bern" if self.spec_id else None
        return File(path, len(data), record_count=rows, spec_id=self.spec_id, partition=city)

    def append(self, files: int = 1, ref: str = "main") -> None:
        self.commit(ref, add=[self.data(2) for _ in range(files)])
        self.publish()

    def delete_a_row(self) -> None:
        path = self.live("main")[0].file.path
        data = contents.delete_file("PARQUET", [(path, 0)])
        edges: dict[str, object] = {name: bounds({PATH_ID: path.encode()}) for name in ("lower_bounds", "upper_bounds")}
        place = self.write("data", "deletes.parquet", data)
        self.commit("main", add=[File(place, len(data), POSITION_DELETES, record_count=1, more=edges)])
        self.publish()

    def overwrite_all(self) -> None:
        self.commit("main", add=[self.data(1)], remove=[one.file for one in self.live("main")])
        self.publish()

    def told(self, name: str) -> Story:
        return Story(name, tuple(self.states), self.archive)


def _appends(source: MemorySource) -> None:
    source.append(2)
    source.append()
    source.append()
    source.append()


def _deletes(source: MemorySource) -> None:
    source.append()
    source.delete_a_row()
    source.append()
    source.overwrite_all()


def _rollback(source: MemorySource) -> None:
    source.append()
    first = source.head()
    assert first is not None
    source.append()
    source.point("main", first.id)
    source.publish()
    source.append()


def _properties(source: MemorySource) -> None:
    """Commits after which readers see the same rows."""
    source.append()
    for number in range(2):
        source.properties[f"color{number}"] = "red"
        source.publish()
    source.append()


def _painted(source: MemorySource) -> None:
    """Nothing but properties, many times: of such commits requirements say little."""
    source.append()
    for number in range(6):
        source.properties[f"color{number % 2}"] = str(number)
        source.publish()


def _undone(source: MemorySource) -> None:
    """A state that is left again for one like that before it."""
    source.append()
    source.properties["color"] = "red"
    source.publish()
    del source.properties["color"]
    source.publish()


def _recreated(source: MemorySource) -> None:
    source.append()
    source.append()
    source.point_catalog(None)
    source.start(source.location, 2)
    source.append()
    source.append()


def _remade(source: MemorySource) -> None:
    """Made anew in one step, many times: row ids begin at 0 again, and no updates say that."""
    source.append()
    for _ in range(3):
        source.start(source.location, 3)
        source.append()


def _expired(source: MemorySource) -> None:
    source.append()
    source.overwrite_all()
    source.expire(lambda number: False)
    source.publish()
    source.overwrite_all()
    source.expire(lambda number: False)
    source.publish()


def _tags(source: MemorySource) -> None:
    source.append()
    head = source.head()
    assert head is not None
    source.point("kept", head.id, "tag")
    source.overwrite_all()
    del source.refs["kept"]
    source.append()


def _evolved(source: MemorySource) -> None:
    """Schema and spec, each in a commit of its own, and rows under them."""
    source.append()
    source.schemas.append([*source.schemas[-1], {"id": 3, "name": "note", "required": False, "type": "string"}])
    source.publish()
    source.spec_id = 1
    source.publish()
    source.append()


_TOLD: dict[str, tuple[int, Callable[[MemorySource], None]]] = {
    "appends": (2, _appends),
    "deletes": (2, _deletes),
    "rollback": (2, _rollback),
    "properties": (2, _properties),
    "undone": (2, _undone),
    "painted": (2, _painted),
    "recreated": (2, _recreated),
    "remade": (3, _remade),
    "expired": (2, _expired),
    "tags": (3, _tags),
    "evolved": (2, _evolved),
}
_DIRECTED = ("painted", "remade")  # for schedules of a kind alone
NAMES = tuple(name for name in _TOLD if name not in _DIRECTED)
# What was recreated may have to be swapped as a whole, by a server that compares nothing (docs/catalogs.md).
FOR_REST = tuple(name for name in NAMES if name != "recreated")


@cache
def story(name: str) -> Story:
    version, tell = _TOLD[name]
    source = MemorySource(name, version)
    tell(source)
    return source.told(name)
