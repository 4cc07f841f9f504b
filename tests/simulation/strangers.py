"""Somebody else who writes to the mirror's catalog, as any engine with the right to do so can.

Followers that begin after that must refuse, and say so; only an operator who names a way out goes on.
"""

from __future__ import annotations

import json
from typing import Any

from tests.simulation.database import Database
from tests.simulation.rest import RestServer
from tests.simulation.watch import ROOT, Watch

NAME = "stranger"
WAYS_OUT = ({"adopt": True}, {"overwrite_foreign": True}, {})  # the last: the table is dropped, whoever wrote its head
_SNAPSHOT = 9_000_000_000_000_000_000


def commit_by_pointer(database: Database, objects: dict[str, bytes], watch: Watch) -> None:
    """A file of his own beside ours, and the pointer at it; nothing if there is no such table."""
    head = database.head
    if head is None or head not in objects:
        return
    uri = f"{ROOT}/metadata/foreign-{watch.demotions.moment}.metadata.json"
    objects[uri] = json.dumps(_altered(json.loads(objects[head]), watch.demotions.moment)).encode()
    watch.is_foreign_next = True
    database.execute("UPDATE iceberg_tables SET metadata_location = :new", {"new": uri})


def commit_by_updates(server: RestServer, watch: Watch) -> None:
    if server.head is not None:
        watch.is_foreign_next = True
        server.show(_altered(server.head[1], watch.demotions.moment))


def _altered(metadata: dict[str, Any], moment: int) -> dict[str, Any]:
    """Another property, or a snapshot: sequence numbers go on from there, and no catalog counts them back."""
    head = metadata.get("current-snapshot-id")
    mine = [one for one in metadata.get("snapshots", ()) if one["snapshot-id"] == head]
    if moment % 2 or not mine:
        return {**metadata, "properties": {**metadata.get("properties", {}), "written-by": f"a stranger at {moment}"}}
    number, sequence = _SNAPSHOT + moment, metadata["last-sequence-number"] + 1
    made = {**mine[0], "snapshot-id": number, "parent-snapshot-id": head, "sequence-number": sequence}
    made["timestamp-ms"] = metadata["last-updated-ms"]
    if "next-row-id" in metadata:
        made |= {"first-row-id": metadata["next-row-id"], "added-rows": 0}
    return {
        **metadata,
        "snapshots": [*metadata["snapshots"], made],
        "last-sequence-number": sequence,
        "current-snapshot-id": number,
        "refs": {**metadata["refs"], "main": {**metadata["refs"]["main"], "snapshot-id": number}},
        "snapshot-log": [*metadata["snapshot-log"], {"snapshot-id": number, "timestamp-ms": made["timestamp-ms"]}],
    }
