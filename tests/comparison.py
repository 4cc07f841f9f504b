"""What the judge holds against each other: two tables' metadata, and rows that two engines read, paths apart."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

Json = dict[str, Any]

SHOWN = 5  # differences of one kind that are spelled out
POSITION_DELETES = 1  # the value of `content`
PATH_COLUMN_OF_DELETES = "2147483546"  # the field id of the path column in a position delete file

# What the metadata tables must say alike, but for paths: the columns of each.
METADATA = {
    "files": "* EXCEPT (readable_metrics)",  # which is made of the other columns
    "entries": "status, snapshot_id, sequence_number, file_sequence_number, data_file.file_path AS file_path",
    "manifests": """content, path, length, partition_spec_id, added_snapshot_id, added_data_files_count,
        existing_data_files_count, deleted_data_files_count, added_delete_files_count, existing_delete_files_count,
        deleted_delete_files_count, partition_summaries""",
    "partitions": "*",
    "refs": "*",
    "snapshots": "*",
}
# What the two metadata.json must say alike.
SAME = (
    "format-version",
    "table-uuid",
    "last-sequence-number",
    "next-row-id",
    "last-column-id",
    "current-schema-id",
    "schemas",
    "default-spec-id",
    "partition-specs",
    "last-partition-id",
    "default-sort-order-id",
    "sort-orders",
    "current-snapshot-id",
    "refs",
)
# What a table says of a partition's last change, told from the snapshots that it still has.
LAST_UPDATE = ("spec_id", "last_updated_at", "last_updated_snapshot_id")
ROW_LINEAGE = 3  # the format version that numbers rows

SizeOf = Callable[[str], int | None]  # of an object by its plain place; None: it is not there


def size_on_disk(path: str) -> int | None:
    return os.path.getsize(path) if os.path.exists(path) else None


def differing_metadata(
    ours: Json, theirs: Json, roots: Mapping[str, str], size_of: SizeOf = size_on_disk, *, on_rest: bool = False
) -> Iterator[str]:
    """What the tables say of themselves; of snapshots and statistics, as much as the mirror retains.

    `on_rest`: the highest column id may be above the source's (ADR 18), and `added-rows` may cover row ids that
    snapshots which were left out have used, as such a catalog counts them itself; and it writes a log of its own.
    """
    for what in SAME:
        if on_rest and what == "last-column-id" and theirs[what] > ours[what]:
            continue
        if ours.get(what) != theirs.get(what):
            yield f"{what}: want {ours.get(what)}, got {theirs.get(what)}"
    if not on_rest:
        yield from _differing_log(ours.get("snapshot-log") or [], theirs.get("snapshot-log") or [])
    retained = {snapshot["snapshot-id"] for snapshot in theirs["snapshots"]}
    for section, path in (
        ("snapshots", "manifest-list"),
        ("statistics", "statistics-path"),
        ("partition-statistics", "statistics-path"),
    ):
        kept = [entry for entry in ours.get(section, ()) if entry["snapshot-id"] in retained]
        want = [{**entry, path: _moved(plain(entry[path]), roots)} for entry in kept]
        got = [{**entry, path: plain(entry[path])} for entry in theirs.get(section, ())]
        if on_rest and section == "snapshots":
            shown = {one["snapshot-id"]: one for one in got}
            want = [{**one, **_raised(one, shown[one["snapshot-id"]], theirs)} for one in want]
        if want != got:
            yield f"{section}: want {want}, got {got}"
        for entry in got:
            if size_of(entry[path]) is None:
                yield f"{section}: {entry[path]} is not there"


def _differing_log(ours: list[Json], theirs: list[Json]) -> Iterator[str]:
    """What was main when: from the mirror's first word on, as the source tells it."""
    if theirs != ours[len(ours) - len(theirs) :]:
        yield f"snapshot-log: want an end of {ours}, got {theirs}"


def _raised(wanted: Json, shown: Json, theirs: Json) -> Json:
    """The `added-rows` that a snapshot may show: all up to it together reach no further than where the next begins."""
    if "first-row-id" not in wanted or (shown.get("added-rows") or 0) <= wanted["added-rows"]:
        return {}
    place = [one["snapshot-id"] for one in theirs["snapshots"]].index(shown["snapshot-id"])
    counted = sum(one.get("added-rows") or 0 for one in theirs["snapshots"][: place + 1])
    following = (one["first-row-id"] for one in theirs["snapshots"][place + 1 :] if "first-row-id" in one)
    return {"added-rows": shown["added-rows"]} if counted <= next(following, theirs["next-row-id"]) else {}


def row_columns(metadata: Json) -> str:
    """What is read of rows: all columns, and where rows are numbered also their numbers and when they changed."""
    return "*, _row_id, _last_updated_sequence_number" if metadata["format-version"] >= ROW_LINEAGE else "*"


def differing_rows(
    what: str,
    ours: list[str],
    theirs: list[str],
    roots: Mapping[str, str],
    retained: Collection[int],
    size_of: SizeOf = size_on_disk,
) -> Iterator[str]:
    """All rows, but for what only snapshots tell that the mirror does not retain."""
    if what == "snapshots":
        ours = [row for row in ours if json.loads(row)["snapshot_id"] in retained]
    if what == "partitions":
        ours, theirs = _partitions(ours, theirs, retained)
    want = Counter(_mapped(what, row, roots) for row in ours)
    got = Counter(_mapped(what, row, {}) for row in theirs)
    for row in itertools.islice((want - got).elements(), SHOWN):
        yield f"only in the source: {row}"
    for row in itertools.islice((got - want).elements(), SHOWN):
        yield f"only in the mirror: {row}"
    for row in theirs:
        yield from _differs_from_store(what, row, size_of)


def _mapped(what: str, row: str, roots: Mapping[str, str]) -> str:
    """A row of a metadata table with paths as the mirror must have them, and without what follows from paths."""
    if what not in METADATA:
        return row
    fields = json.loads(row)
    for name in ("file_path", "path", "referenced_data_file", "manifest_list"):
        if fields.get(name) is not None:
            fields[name] = _moved(plain(fields[name]), roots)
    if what == "manifests":
        del fields["length"]
    if what == "files" and fields["content"] == POSITION_DELETES:  # they are written anew
        del fields["file_size_in_bytes"], fields["split_offsets"], fields["column_sizes"]
        for name in ("lower_bounds", "upper_bounds"):
            (fields[name] or {}).pop(PATH_COLUMN_OF_DELETES, None)
    return json.dumps(fields, sort_keys=True, ensure_ascii=False)


def _partitions(ours: list[str], theirs: list[str], retained: Collection[int]) -> tuple[list[str], list[str]]:
    """Without the last update of those partitions whose last snapshot the mirror skipped: it cannot know of that."""
    both = [[json.loads(row) for row in rows] for rows in (ours, theirs)]
    skipped = [row.get("partition") for row in both[0] if row["last_updated_snapshot_id"] not in (None, *retained)]
    for row in itertools.chain(*both):
        if row.get("partition") in skipped:
            for name in LAST_UPDATE:
                row.pop(name, None)
    known, shown = ([json.dumps(row) for row in rows] for rows in both)
    return known, shown


def _differs_from_store(what: str, row: str, size_of: SizeOf) -> Iterator[str]:
    """Sizes that the mirror's metadata claims, held against the objects: readers trust them."""
    if what not in ("files", "manifests"):
        return
    fields = json.loads(row)
    names = ("path", "length") if what == "manifests" else ("file_path", "file_size_in_bytes")
    path, want = plain(fields[names[0]]), fields[names[1]]
    got = size_of(path)
    if got != want:
        yield f"the metadata says that {path} has {want} bytes, it has {got}"


def _moved(path: str, roots: Mapping[str, str]) -> str:
    for ours, theirs in sorted(roots.items(), key=lambda root: -len(root[0])):
        if path.startswith(f"{ours}/"):
            return theirs + path[len(ours) :]
    return path


def plain(uri: str) -> str:
    """`file:/x`, `file:///x` and `/x` are one place; so are `s3a://b/x` and `s3://b/x`."""
    scheme, slashes, rest = uri.partition("://")
    if slashes and scheme in ("s3", "s3a", "gs"):
        return f"{scheme.rstrip('a')}://{rest}"
    return "/" + uri.removeprefix("file:").lstrip("/")
