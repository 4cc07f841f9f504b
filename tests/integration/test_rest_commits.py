"""Commits to Iceberg's own REST server: after every kind of source step it shows what was published.

No file of these tables exists but the first metadata.json: a server takes commits without looking at manifests.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from dev.services import Services
from lakemirror.catalogs.comparison import described, differing
from lakemirror.catalogs.ports import Published
from lakemirror.catalogs.rest import UNSUPPORTED, RestCatalog
from lakemirror.errors import PermanentError
from lakemirror.model.table import TableRef
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import Create
from tests.published_tables import STEPS, Table

Json = dict[str, Any]

# Steps between two published versions, by name of the kind. `!` keeps only what refs need: the mirror came late.
KINDS: dict[str, Sequence[str]] = {
    "append": ["append"],
    "several snapshots at once": ["append", "append", "append"],
    "skipped snapshots": ["append", "append", "append", "!"],
    "rollback": ["append", "append", "publish", "roll_back"],
    "rollback and a new head": ["append", "publish", "roll_back", "append"],
    "expired snapshots": ["append", "append", "append", "publish", "expire"],
    "tags and branches with retention": ["append", "tag", "branch"],
    "refs dropped": ["tag", "branch", "publish", "drop_ref", "drop_ref"],
    "schemas with gaps": ["add_column", "add_column", "append", "forget_schemas", "publish", "add_column", "append"],
    "a column dropped": ["add_column", "publish", "drop_column", "append"],
    "partition specs": ["partition", "append", "partition", "append"],
    "a spec of a column that is gone": ["partition", "append", "drop_column", "append"],
    "sort orders": ["sort", "append"],
    "properties": ["set_properties", "publish", "unset_properties"],
    "statistics": ["analyze", "append", "publish", "analyze", "publish", "forget_statistics"],
    "no parent": ["replace"],
    "no parent, and the rest expired": ["replace", "expire", "!"],
    "upgraded": ["upgrade", "append"],
    "upgraded, with snapshots from before": ["append", "append", "upgrade", "append", "append"],
    "recreated": ["recreate", "append"],
    "empty": [],
}


class World:
    """One table of one catalog, and the bucket beside it."""

    def __init__(self, services: Services, version: int) -> None:
        self.ref = TableRef(("steps",), f"t{uuid.uuid4().hex[:12]}")
        self.catalog = RestCatalog("cloud", services.mirror_properties)
        self.store = ObstoreStore(services.mirror_properties)
        self.table = Table(
            f"{services.mirror_location}/steps/{self.ref.name}", version, start_ms=int(time.time() * 1000)
        )

    def publish(self, *, late: bool = False) -> None:
        metadata = self.table.publish(lambda _: not late)
        head = self.catalog.load(self.ref)
        uri = f"{self.table.location}/metadata/{self.table.published_count:05d}-ours.metadata.json"
        if head is None:
            self.store.put(uri, json.dumps(metadata).encode(), Create())
        self.catalog.commit(self.ref, head, Published(uri, metadata))
        got = self.catalog.load(self.ref)
        assert got is not None
        assert got.metadata is not None
        shown = got.metadata
        assert [described(metadata, shown, name) for name in differing(metadata, shown)] == []
        assert shown["schemas"] == metadata["schemas"]
        assert shown["partition-specs"] == metadata["partition-specs"]
        assert shown["properties"]["lakemirror.version"] == str(self.table.published_count)

    def go(self, steps: Sequence[str], detail: int = 3) -> None:
        for step in steps:
            if step in ("publish", "!"):
                self.publish(late=step == "!")
            else:
                STEPS[step](self.table, detail)
        if not steps or steps[-1] != "!":
            self.publish()


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_step(services: Services, kind: str, version: int) -> None:
    if (kind, version) == ("recreated", 3):
        pytest.skip("see test_what_no_update_can_say")
    world = World(services, version)
    world.go(["append", "append", "publish"])
    world.go(KINDS[kind])


def test_row_ids_of_skipped_snapshots(services: Services) -> None:
    world = World(services, 3)
    world.go(["append"], 10)
    world.go(["append", "append", "append", "!"], 20)
    shown = world.catalog.load(world.ref)
    assert shown is not None
    assert shown.metadata is not None
    assert shown.metadata["next-row-id"] == world.table.next_row_id


def test_what_no_update_can_say(services: Services) -> None:
    """Row ids of a table that was made anew begin at 0, and a catalog never counts back."""
    world = World(services, 3)
    world.go(["append"])
    before = world.catalog.load(world.ref)
    with pytest.raises(PermanentError, match=UNSUPPORTED):
        world.go(["recreate", "append"])
    assert world.catalog.load(world.ref) == before


def test_a_head_from_before_the_rollback_was_noted(services: Services) -> None:
    """A rollback is noted as of now. What the source wrote long before that is refused until it writes again."""
    world = World(services, 2)
    world.table.start_ms -= 3_600_000
    world.go(["append", "append", "publish", "roll_back"], 0)
    before = world.catalog.load(world.ref)
    with pytest.raises(PermanentError, match="took note of the rollback"):
        world.go(["append"])
    assert world.catalog.load(world.ref) == before
    world.table.start_ms += 3_600_000
    world.go(["append"])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_random_histories(services: Services, history_seed: int, version: int) -> None:
    chance = random.Random(history_seed + version)
    for _ in range(6):
        world = World(services, version)
        world.go(["append"])
        told: list[str] = []
        for _ in range(8):
            steps = chance.choices([*STEPS, "append", "append"], k=chance.randint(1, 5))
            details = [chance.randrange(100) for _ in steps]
            told.append(f"{list(zip(steps, details, strict=True))}")
            for step, detail in zip(steps, details, strict=True):
                STEPS[step](world.table, detail)
            late = chance.random() < 0.3
            try:
                world.publish(late=late)
            except PermanentError as err:
                # foreseen, not tried; anything else is a kind of step that we do not know
                if UNSUPPORTED in err.message and "answered" not in err.message:
                    break
                raise AssertionError(told) from err
