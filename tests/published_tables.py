"""Metadata of a table that lives through any steps, as a mirror publishes it; no file of it need exist.

A published version holds the snapshots that refs need and some of the others: those in between may be left out, as a
mirror leaves them out that comes late.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
START_MS = 1_790_000_000_000
SERVERS_OWN = (
    "snapshot-log",  # a head that the table had before is noted as of now
    "last-updated-ms",  # when the server took the commit
    "metadata-log",  # files of the server's own
    "next-row-id",  # these two are for future writers: behind the source's if its last snapshots are not mirrored
    "last-sequence-number",
)


class Table:
    """The source, and what is published of it. Every step takes one number that decides its details."""

    def __init__(self, location: str, version: int, number: int = 1, start_ms: int = START_MS) -> None:
        self.start_ms = start_ms
        self.location, self.count, self.published_count = location, 0, 0
        self.start(version, number)

    def start(self, version: int, number: int) -> None:
        self.uuid = str(uuid.UUID(int=number, version=4))
        self.version = version
        self.snapshots: dict[int, Json] = {}
        self.left_out: set[int] = set()
        self.log: list[Json] = []
        self.refs: dict[str, Json] = {}
        self.properties = {"a": "1"}
        self.statistics: dict[int, Json] = {}
        self.partition_statistics: dict[int, Json] = {}
        self.schemas = [{"type": "struct", "schema-id": 0, "fields": [_column(1), _column(2)]}]
        self.specs: list[Json] = [{"spec-id": 0, "fields": []}]
        self.orders: list[Json] = [{"order-id": 0, "fields": []}]
        self.sequence, self.next_row_id, self.last_column, self.last_partition = 0, 0, 2, 999
        self.spec_id, self.order_id = 0, 0

    def _next(self) -> int:
        self.count += 1
        return self.count

    @property
    def head(self) -> int | None:
        main = self.refs.get("main")
        return None if main is None else main["snapshot-id"]

    # --------------------------------------------------------------------------------------------------------- steps

    def append(self, detail: int, ref: str = "main") -> None:
        at = self.refs.get(ref) or self.refs.get("main")
        self._snapshot(None if at is None else at["snapshot-id"], detail, ref)

    def replace(self, detail: int) -> None:
        """CREATE OR REPLACE TABLE: a snapshot without a parent."""
        self._snapshot(None, detail, "main")

    def _snapshot(self, parent: int | None, detail: int, ref: str) -> None:
        number = 7_000_000_000_000_000_000 + self._next()
        self.sequence += self.version > 1
        rows = 1 + detail % 100
        made: Json = {
            "snapshot-id": number,
            "timestamp-ms": self.start_ms + self.count,
            "summary": {"operation": "append", "added-records": str(rows)},
            "manifest-list": f"{self.location}/metadata/snap-{number}.avro",
            "schema-id": self.schemas[-1]["schema-id"],
        }
        if self.version > 1:
            made["sequence-number"] = self.sequence
        if parent is not None:
            made["parent-snapshot-id"] = parent
        if self.version > 2:
            made |= {"first-row-id": self.next_row_id, "added-rows": rows}
            self.next_row_id += rows
        self.snapshots[number] = made
        self.refs[ref] = {**self.refs.get(ref, {"type": "branch"}), "snapshot-id": number}
        if ref == "main":
            self.log.append({"snapshot-id": number, "timestamp-ms": made["timestamp-ms"]})

    def tag(self, detail: int) -> None:
        if self.snapshots:
            ref: Json = {"snapshot-id": self._some(detail), "type": "tag"}
            if detail % 2:
                ref["max-ref-age-ms"] = 1000 + detail
            self.refs[f"tag{detail % 3}"] = ref

    def branch(self, detail: int) -> None:
        if self.head is not None:
            ref: Json = {"snapshot-id": self.head, "type": "branch", "min-snapshots-to-keep": 1 + detail % 5}
            self.refs["audit"] = {**ref, "max-snapshot-age-ms": 5000} if detail % 2 else ref
            if detail % 3:
                self.append(detail, "audit")

    def drop_ref(self, detail: int) -> None:
        names = sorted(set(self.refs) - {"main"})
        if names:
            del self.refs[names[detail % len(names)]]

    def roll_back(self, detail: int) -> None:
        if self.snapshots:
            self.refs["main"]["snapshot-id"] = self._some(detail)
            self.log.append({"snapshot-id": self.head, "timestamp-ms": self.start_ms + self._next()})

    def expire(self, detail: int) -> None:
        needed = {ref["snapshot-id"] for ref in self.refs.values()}
        self.snapshots = {one: made for one, made in self.snapshots.items() if one in needed or one % 3 == detail % 3}

    def add_column(self, detail: int) -> None:
        self.last_column += 1
        fields = [*self.schemas[-1]["fields"], _column(self.last_column)]
        self._schema(fields, 1 + (detail % 4 == 0) * (detail % 3))

    def add_new_kind(self, detail: int) -> None:
        """A column of a type or with a default that came with v3."""
        self.last_column += 1
        more = NEW_KINDS[detail % len(NEW_KINDS)] if self.version > 2 else {}
        self._schema([*self.schemas[-1]["fields"], {**_column(self.last_column), **more}], 1)

    def drop_column(self, detail: int) -> None:
        fields = self.schemas[-1]["fields"]
        if len(fields) > 1:
            gone = fields[-1]["id"]
            self.last_column += 1  # never the same schema again
            self._schema([*fields[:-1], _column(self.last_column)], 1)
            if any(field["source-id"] == gone for field in self.specs[self._at(self.spec_id)]["fields"]):
                self._spec([])

    def _schema(self, fields: list[Json], step: int) -> None:
        number = self.schemas[-1]["schema-id"] + step  # ids have gaps where schemas were removed
        self.schemas.append({"type": "struct", "schema-id": number, "fields": fields})

    def forget_schemas(self, detail: int) -> None:
        used = {one["schema-id"] for one in self.snapshots.values()}
        self.schemas = [one for one in self.schemas[:-1] if one["schema-id"] in used] + self.schemas[-1:]

    def partition(self, detail: int) -> None:
        self.last_partition = max(self.last_partition + (self.version > 1), 1000)  # v1 counts anew in each spec
        longs = [field for field in self.schemas[-1]["fields"] if field["type"] == "long"]
        column = longs[detail % len(longs)]
        fields = [{"name": f"p{self._next()}", "transform": "identity", "source-id": column["id"]}]
        self._spec([{**fields[0], "field-id": self.last_partition}])

    def _spec(self, fields: list[Json]) -> None:
        same = [one for one in self.specs if one["fields"] == fields]
        if not same:
            self.specs.append({"spec-id": self.specs[-1]["spec-id"] + 1, "fields": fields})
        self.spec_id = (same or self.specs[-1:])[0]["spec-id"]

    def _at(self, spec_id: int) -> int:
        return next(index for index, one in enumerate(self.specs) if one["spec-id"] == spec_id)

    def sort(self, detail: int) -> None:
        column = self.schemas[-1]["fields"][0]["id"]
        direction = ("asc", "desc")[detail % 2]
        field = {"transform": "identity", "source-id": column, "direction": direction, "null-order": "nulls-first"}
        same = [one for one in self.orders if one["fields"] == [field]]
        if not same:
            self.orders.append({"order-id": self.orders[-1]["order-id"] + 1, "fields": [field]})
        self.order_id = (same or self.orders[-1:])[0]["order-id"]

    def set_properties(self, detail: int) -> None:
        self.properties = {**self.properties, f"k{detail % 4}": f"v{detail}"}

    def unset_properties(self, detail: int) -> None:
        self.properties = {key: value for key, value in self.properties.items() if key != f"k{detail % 4}"}

    def analyze(self, detail: int) -> None:
        if self.snapshots:
            number = self._some(detail)
            place = f"{self.location}/metadata/{self._next()}"
            blob = {"type": "ndv", "snapshot-id": number, "sequence-number": 1, "fields": [1]}
            entry = {"snapshot-id": number, "file-size-in-bytes": 9, "file-footer-size-in-bytes": 4}
            self.statistics[number] = {**entry, "statistics-path": f"{place}.stats", "blob-metadata": [blob]}
            if detail % 2:
                entry = {"snapshot-id": number, "file-size-in-bytes": 7}
                self.partition_statistics[number] = {**entry, "statistics-path": f"{place}.parquet"}

    def forget_statistics(self, detail: int) -> None:
        self.statistics = {}

    def upgrade(self, detail: int) -> None:
        self.version = min(3, self.version + 1)

    def recreate(self, detail: int) -> None:
        self.start(self.version, 100 + self._next())

    def _some(self, detail: int) -> int:
        return sorted(self.snapshots)[detail % len(self.snapshots)]

    # ----------------------------------------------------------------------------------------------------- publishing

    def publish(self, keep: Callable[[int], bool] = lambda snapshot_id: True) -> Json:
        """The metadata of the next version: with the snapshots that refs need, and those that `keep` says."""
        self.published_count += 1
        needed = {ref["snapshot-id"] for ref in self.refs.values()}
        kept = {
            one: made
            for one, made in self.snapshots.items()
            if one in needed or (keep(one) and one not in self.left_out)
        }
        self.left_out |= self.snapshots.keys() - kept.keys()  # for good, unless a ref comes to need it
        head = self.head
        own = {"lakemirror.version": str(self.published_count)}
        own |= {} if head is None else {"lakemirror.source-snapshot-id": str(head)}
        made: Json = {
            "format-version": self.version,
            "table-uuid": self.uuid,
            "location": self.location,
            "last-updated-ms": self.start_ms + self._next(),
            "last-column-id": self.last_column,
            "schemas": self.schemas,
            "current-schema-id": self.schemas[-1]["schema-id"],
            "partition-specs": self.specs,
            "default-spec-id": self.spec_id,
            "last-partition-id": self.last_partition,
            "sort-orders": self.orders,
            "default-sort-order-id": self.order_id,
            "properties": {**self.properties, **own},
            "current-snapshot-id": -1 if head is None else head,
            "snapshots": list(kept.values()),
            "refs": self.refs,
            "snapshot-log": [one for one in self.log if one["snapshot-id"] in kept],
            "metadata-log": [],
            "statistics": [one for number, one in self.statistics.items() if number in kept],
            "partition-statistics": [one for number, one in self.partition_statistics.items() if number in kept],
        }
        if self.version == 1:
            fields = next(one["fields"] for one in self.specs if one["spec-id"] == self.spec_id)
            made |= {"schema": self.schemas[-1], "partition-spec": fields}
        if self.version > 1:
            made["last-sequence-number"] = self.sequence
        if self.version > 2:
            made["next-row-id"] = self.next_row_id
        return copy.deepcopy(made)


def _column(number: int) -> Json:
    return {"id": number, "name": f"c{number}", "required": False, "type": "long"}


def comparable(metadata: Json) -> Json:
    """All but what is the server's own, and in an order that does not matter.

    Of a snapshot that follows others which were left out, `added-rows` is an upper bound.
    """
    found: Json = {key: value for key, value in metadata.items() if key not in SERVERS_OWN and value not in ([], None)}
    found["snapshots"] = sorted(
        ({**one, "added-rows": 0} for one in metadata.get("snapshots", ())), key=lambda one: one["snapshot-id"]
    )
    for key in ("statistics", "partition-statistics"):
        found[key] = sorted(metadata.get(key) or [], key=lambda one: one["snapshot-id"])
    found.pop("schema", None)  # what v1 says twice
    found.pop("partition-spec", None)
    found.setdefault("current-snapshot-id", -1)
    return found


NEW_KINDS: tuple[Json, ...] = (
    {"type": "variant"},
    {"type": "geometry(srid:4326)"},
    {"type": "geography(srid:4326, spherical)"},
    {"type": "timestamptz_ns"},
    {"type": "unknown"},
    {"initial-default": 5, "write-default": 6},
    {"type": "string", "initial-default": "x", "write-default": 'ü, "y"'},
    {"type": "binary", "initial-default": "00FF", "write-default": "0A"},
    {"type": "decimal(9, 2)", "initial-default": "14.20", "write-default": "-1.00"},
    {"type": "timestamptz", "write-default": "2026-01-02T03:04:05.000006+00:00"},
)

STEPS: dict[str, Callable[[Table, int], None]] = {
    "append": Table.append,
    "replace": Table.replace,
    "tag": Table.tag,
    "branch": Table.branch,
    "drop_ref": Table.drop_ref,
    "roll_back": Table.roll_back,
    "expire": Table.expire,
    "add_column": Table.add_column,
    "add_new_kind": Table.add_new_kind,
    "drop_column": Table.drop_column,
    "forget_schemas": Table.forget_schemas,
    "partition": Table.partition,
    "sort": Table.sort,
    "set_properties": Table.set_properties,
    "unset_properties": Table.unset_properties,
    "analyze": Table.analyze,
    "forget_statistics": Table.forget_statistics,
    "upgrade": Table.upgrade,
    "recreate": Table.recreate,
}
