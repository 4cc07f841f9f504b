"""Inputs made by hand, by name: bombs, absurd counts, a million of everything, and places that are none of the table's.

Each is made when it is asked for; the large ones would not fit into the repository.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.fuzz import hostile_files, seeds
from tests.fuzz.cases import Case, Side
from tests.fuzz.fitting import with_checksum
from tests.fuzz.memory_lake import ROOT, MemoryLake, Start, metadata_of
from tests.fuzz.mutate_json import ELSEWHERE

MILLION = 1_000_000
HOME = f"{seeds.PLACE}/v2"
MARKER = f"{ROOT}/_ready/v1.ready.json"
Make = Callable[[], Case]
_QUICK = (
    *("empty lists", "deep lists", "deep objects", "deletes in zstd", "deletes in ORC of empty chunks"),
    *("list that claims 2^62", "manifest that claims 2^62", "header that claims 2^62", "types that double"),
    *("schema that is deep", "schema that is deep and whole", "schema of 60,000 fields"),
)
# Bombs of their full size and a million fields: seconds each, so these few stand for the others in every test run.
FULL_SIZE = ("a gzip bomb", "list of one gigabyte", "million fields", "schema of a million fields")


def names() -> list[str]:
    return sorted(_all())


def quick_names() -> list[str]:
    """Those that take no second: a part of every test run."""
    slow = {name for name, _ in (*_metadata(), *_files())} - {*_QUICK}
    return [name for name in names() if name not in slow]


def case(name: str) -> Case:
    return _all()[name]()


def _all() -> dict[str, Make]:
    return dict([*_metadata(), *_places(), *_markers(), *_files()])


def _source(uri: str, data: bytes, table: str = "v2", start: Start = "empty") -> Case:
    return Case(table, start, "source", uri, data)


def _edited(change: Callable[[dict[str, Any]], object]) -> Case:
    files = seeds.tables()["v2"]
    uri = seeds.metadata_uri(files)
    metadata = metadata_of(files[uri])
    change(metadata)
    return _source(uri, json.dumps(metadata).encode())


def _raw(data: bytes) -> Case:
    return _source(seeds.metadata_uri(seeds.tables()["v2"]), data)


def _metadata() -> Iterator[tuple[str, Make]]:
    def many(key: str, one: Callable[[int], Any]) -> Make:
        return lambda: _edited(lambda metadata: metadata[key].extend(one(number) for number in range(MILLION)))

    def many_keys(key: str, one: Callable[[int], Any]) -> Make:
        return lambda: _edited(lambda metadata: metadata[key].update({f"k{n}": one(n) for n in range(MILLION)}))

    def first(metadata: dict[str, Any]) -> int:
        return int(metadata["snapshots"][0]["snapshot-id"])

    yield "million snapshots", many("snapshots", lambda n: {"snapshot-id": n, "timestamp-ms": n})
    yield "million log entries", many("snapshot-log", lambda n: {"snapshot-id": n, "timestamp-ms": n})
    yield "million schemas", many("schemas", lambda n: {"schema-id": n, "fields": []})
    yield "million specs", many("partition-specs", lambda n: {"spec-id": n, "fields": []})
    yield "million properties", many_keys("properties", str)
    yield "million properties that name the source", many_keys("properties", lambda n: f"{HOME}/{n}")
    yield "million refs to nothing", many_keys("refs", lambda n: {"snapshot-id": n, "type": "tag"})
    yield (
        "million refs to one snapshot",
        lambda: _edited(
            lambda metadata: metadata["refs"].update(
                {f"k{n}": {"snapshot-id": first(metadata), "type": "tag"} for n in range(MILLION)}
            )
        ),
    )
    yield (
        "million fields",
        lambda: _edited(
            lambda metadata: metadata["schemas"][0]["fields"].extend(
                {"id": n, "name": f"f{n}", "type": "int", "required": False} for n in range(MILLION)
            )
        ),
    )
    yield (
        "million statistics",
        lambda: _edited(
            lambda metadata: metadata.update(
                statistics=[
                    {"snapshot-id": first(metadata), "statistics-path": f"{HOME}/{n}", "file-size-in-bytes": n}
                    for n in range(MILLION)
                ]
            )
        ),
    )
    yield "comments that name the source", lambda: _edited(_with_comments)
    yield (
        "a long key over many",
        lambda: _edited(lambda metadata: metadata.update({"k" * 10**7: dict.fromkeys(map(str, range(10**5)), HOME)})),
    )
    yield "a text of 100 MB", lambda: _edited(lambda metadata: metadata.update(location="x" * 10**8))
    yield "empty lists", lambda: _raw(b'{"format-version":2,"x":[' + b"[]," * (20 * MILLION) + b"0]}")
    yield "ones", lambda: _raw(b'{"format-version":2,"x":[' + b"1," * (30 * MILLION) + b"0]}")
    yield "deep lists", lambda: _raw(b'{"format-version":2,"x":' + b"[" * MILLION)
    yield "deep objects", lambda: _raw(b'{"x":' * MILLION)
    yield "spaces", lambda: _raw(b" " * (300 << 20))
    yield "a gzip bomb", lambda: _raw(gzip.compress(b" " * (1 << 30), 9, mtime=0))
    yield "a gzip bomb of lists", lambda: _raw(gzip.compress(b"[" + b"[]," * (80 * MILLION) + b"0]", 9, mtime=0))


def _with_comments(metadata: dict[str, Any]) -> None:
    fields = metadata["schemas"][0]["fields"]
    fields.extend({"id": n, "name": f"a\nforged {n}", "type": "int", "doc": HOME} for n in range(10**5))


def _elsewhere(what: str, path: str) -> Case:
    """Metadata that names a place which is none of the table's."""

    def edit(metadata: dict[str, Any]) -> None:
        head = metadata["current-snapshot-id"]
        match what:
            case "location":
                metadata["location"] = path
            case "manifest list":
                metadata["snapshots"][-1]["manifest-list"] = path
            case "statistics":
                entry = {"snapshot-id": head, "statistics-path": path, "file-size-in-bytes": 7}
                metadata["statistics"] = [entry]
            case "data path":
                metadata["properties"]["write.data.path"] = path
            case "metadata log":
                metadata["metadata-log"] = [{"metadata-file": path, "timestamp-ms": 1}]
            case "ref":
                metadata["refs"][path] = {"snapshot-id": head, "type": "tag"}

    return _edited(edit)


def _places() -> Iterator[tuple[str, Make]]:
    paths = (*ELSEWHERE, f"{HOME}/../x", f"{HOME}/a\nforged: line", f"{HOME}//x", f"{HOME}/_ready/x")
    for what in ("location", "manifest list", "statistics", "data path", "metadata log", "ref"):
        for number, path in enumerate(paths):
            yield f"{what} elsewhere {number}", partial(_elsewhere, what, path)


def _forged(side: Side, **changes: Any) -> Case:
    """The marker of a second version, forged from the first; its own checksum fits."""
    document = json.loads(MemoryLake("v2").mirror.objects[MARKER])
    data = with_checksum({**document, "version": "v2", "parent": "v1", **changes})
    return Case("v2", "mirrored", side, MARKER.replace("v1.", "v2."), data, fits=False)


def _named(name: str) -> Case:
    return Case("v2", "mirrored", "follower", f"{ROOT}/_ready/{name}.ready.json", b"{}", fits=False)


_VALUES: dict[str, tuple[Any, ...]] = {
    "version": ("v3", "v0", "v-1", "v" + "9" * 30, 2, None, "2"),
    "table": ("db.other", "db.t\n", 7, None),
    "kind": ("tag", "", None),
    "epoch": ("other", None),
    "metadata_sha256": ("0" * 64, None),
    "snapshot_id": ("1", "x", 1.5, "9" * 40, None, True),
    "sequence_number": (-1, 2**70, True, "1"),
    "source_committed_at": ("0001-01-01T00:00:00+14:00", "2026-01-01T00:00:00", "now", 7),
    "format": (2, True, "1", None, [1]),
    "files": (-1, 2**64, 1e5),
}


def _markers() -> Iterator[tuple[str, Make]]:
    """What a follower, and the next run, meet in a bucket that somebody else can write to."""
    paths = (*ELSEWHERE, f"{ROOT}/../other/x", f"{ROOT}/a\nforged", ROOT, f"{ROOT}x/y")
    for number, path in enumerate(paths):
        for field in ("metadata_uri", "index_uri", "manifest_list_uri"):
            yield f"marker {field} {number}", partial(_forged, "follower", **{field: path})
            yield f"marker {field} {number} met by the replicator", partial(_forged, "mirror", **{field: path})
    for field, values in _VALUES.items():
        for number, value in enumerate(values):
            yield f"marker with {field} {number}", partial(_forged, "follower", **{field: value})
    yield "marker of 100 MB", lambda: _forged("follower", more="x" * 10**8)
    yield "marker of a million keys", lambda: _forged("follower", **{f"k{n}": n for n in range(MILLION)})
    for number, name in enumerate(("v" + "9" * 30, "v" + "9" * 18, "v99999", "v0", "v1\n", "v²", "../v2")):
        yield f"marker named {number}", partial(_named, name)


def _file(suffix: str, make: Callable[[], bytes]) -> Case:
    return Case("v2", "empty", "reader", f"{HOME}/{suffix}", make())


def _files() -> Iterator[tuple[str, Make]]:
    """Bombs in every kind of file, given to their readers."""
    for name, (suffix, make) in hostile_files.FILES.items():
        yield name, partial(_file, suffix, make)
