"""Inputs made by hand, by name: bombs, absurd counts, a million of everything, and places that are none of the table's.

Each is made when it is asked for; the large ones would not fit into the repository.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
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


def names() -> list[str]:
    return sorted(_all())


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


def _places() -> Iterator[tuple[str, Make]]:
    """Metadata that names places which are none of the table's."""
    edits: dict[str, Callable[[dict[str, Any], str], object]] = {
        "location": lambda metadata, path: metadata.update(location=path),
        "manifest list": lambda metadata, path: metadata["snapshots"][-1].update({"manifest-list": path}),
        "statistics": lambda metadata, path: metadata.update(
            statistics=[
                {
                    "snapshot-id": metadata["current-snapshot-id"],
                    "statistics-path": path,
                    "file-size-in-bytes": 7,
                }
            ]
        ),
        "data path": lambda metadata, path: metadata["properties"].update({"write.data.path": path}),
        "metadata log": lambda metadata, path: metadata.update(
            {"metadata-log": [{"metadata-file": path, "timestamp-ms": 1}]}
        ),
        "ref": lambda metadata, path: metadata["refs"].update(
            {path: {"snapshot-id": metadata["current-snapshot-id"], "type": "tag"}}
        ),
    }
    for what, edit in edits.items():
        for number, path in enumerate(
            (*ELSEWHERE, f"{HOME}/../x", f"{HOME}/a\nforged: line", f"{HOME}//x", f"{HOME}/_ready/x")
        ):
            yield (
                f"{what} elsewhere {number}",
                lambda edit=edit, path=path: _edited(lambda metadata: edit(metadata, path)),
            )  # type: ignore[misc]


def _markers() -> Iterator[tuple[str, Make]]:
    """What a follower meets in a bucket that somebody else can write to."""

    def marker(side: Side, **changes: Any) -> Case:
        document = json.loads(MemoryLake("v2").mirror.objects[MARKER])
        return Case("v2", "mirrored", side, MARKER, with_checksum({**document, **changes}))

    def next_marker(side: Side, **changes: Any) -> Case:
        """The marker of a second version, forged from the first."""
        document = json.loads(MemoryLake("v2").mirror.objects[MARKER])
        data = with_checksum({**document, "version": "v2", "parent": "v1", **changes})
        return Case("v2", "mirrored", side, MARKER.replace("v1.", "v2."), data, fits=False)

    for number, path in enumerate((*ELSEWHERE, f"{ROOT}/../other/x", f"{ROOT}/a\nforged", ROOT, f"{ROOT}x/y")):
        for field in ("metadata_uri", "index_uri", "manifest_list_uri"):
            changes = {field: path}
            yield f"marker {field} {number}", lambda changes=changes: next_marker("follower", **changes)  # type: ignore[misc]
            yield (
                f"marker {field} {number} met by the replicator",
                lambda changes=changes: next_marker("mirror", **changes),
            )  # type: ignore[misc]
    for field, values in {
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
    }.items():
        for number, value in enumerate(values):
            changes = {field: value}
            yield f"marker with {field} {number}", lambda changes=changes: next_marker("follower", **changes)  # type: ignore[misc]
    yield "marker of 100 MB", lambda: marker("follower", more="x" * 10**8)
    yield "marker of a million keys", lambda: marker("follower", **{f"k{n}": n for n in range(MILLION)})
    for number, name in enumerate(("v" + "9" * 30, "v" + "9" * 18, "v99999", "v0", "v1\n", "v²", "../v2")):
        yield (
            f"marker named {number}",
            lambda name=name: Case("v2", "mirrored", "follower", f"{ROOT}/_ready/{name}.ready.json", b"{}", fits=False),
        )  # type: ignore[misc]


def _files() -> Iterator[tuple[str, Make]]:
    """Bombs in every kind of file, given to their readers."""
    for name, (suffix, make) in hostile_files.FILES.items():
        yield name, lambda suffix=suffix, make=make: Case("v2", "empty", "reader", f"{HOME}/{suffix}", make())  # type: ignore[misc]
