"""Commits to Iceberg's own REST server: after every kind of source step it shows what was published.

No file of these tables exists but the first metadata.json: a server takes commits without looking at manifests.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog

from dev.services import Services
from lakemirror.catalogs.comparison import described, differing
from lakemirror.catalogs.left_out import left_out_of, told
from lakemirror.catalogs.ports import Published
from lakemirror.catalogs.rest import UNSUPPORTED, RestCatalog
from lakemirror.errors import LostRaceError, PermanentError, TransientError
from lakemirror.model.table import TableRef
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import Create
from tests.lake import Lake, rows
from tests.published_tables import NEW_KINDS, STEPS, Table, comparable

Json = dict[str, Any]
RACERS = 8
REFUSED_AT_MOST = 0.25
LEFT_OUT = "lakemirror.unsupported-by-catalog"

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
        compare(metadata, None if head is None else head.metadata, shown)
        assert shown["properties"]["lakemirror.version"] == str(self.table.published_count)

    def shows(self, want: Published) -> bool:
        head = self.catalog.load(self.ref)
        return head is not None and head.metadata is not None and not differing(want.metadata, head.metadata)

    def go(self, steps: Sequence[str], detail: int = 3) -> None:
        for step in steps:
            if step in ("publish", "!"):
                self.publish(late=step == "!")
            else:
                STEPS[step](self.table, detail)
        if not steps or steps[-1] != "!":
            self.publish()


def compare(published: Json, before: Json | None, shown: Json) -> None:
    """What `differing` looks past is as it was published, too, but for what docs/catalogs.md says."""
    want, got = comparable(without_late(published, before, shown)), comparable(shown)
    got["properties"] = {key: value for key, value in shown["properties"].items() if key != LEFT_OUT}
    if before is None:
        assert got == want
        return
    there = {one["snapshot-id"] for one in before["snapshots"]}
    has_new_head = want["current-snapshot-id"] not in {-1, *there}
    # a recreated table counts anew and a catalog never does; a commit without a new head moves the columns (ADR 18)
    want["last-column-id"] = max(want["last-column-id"], before["last-column-id"] + (not has_new_head))
    want["last-partition-id"] = max(want["last-partition-id"], before["last-partition-id"])
    # no update removes a sort order
    kept = {one["order-id"]: one for one in [*before["sort-orders"], *want["sort-orders"]]}
    want["sort-orders"] = [kept[number] for number in sorted(kept)]
    assert got == want
    added = [one for one in shown["snapshots"] if one["snapshot-id"] not in there]
    if shown["format-version"] > 1:
        numbers = [one.get("sequence-number") or 0 for one in added]  # the first of a recreated table begins anew
        assert shown["last-sequence-number"] == max(numbers, default=before.get("last-sequence-number", 0))
    if shown["format-version"] > 2:
        has_rows = any("first-row-id" in one for one in added)
        assert shown["next-row-id"] == (published if has_rows else before).get("next-row-id", 0)
        rows_of = {one["snapshot-id"]: one.get("added-rows", 0) for one in published["snapshots"]}
        assert all(one.get("added-rows", 0) >= rows_of[one["snapshot-id"]] for one in added)


def without_late(published: Json, before: Json | None, shown: Json) -> Json:
    """Without snapshots that the catalog says it could not take, and what is theirs; each must be one that is late."""
    late = {int(number) for number in json.loads(shown["properties"].get(LEFT_OUT, "{}"))}
    if not late:
        return published
    assert before is not None
    assert published["current-snapshot-id"] not in late
    there = {one["snapshot-id"] for one in before["snapshots"]}
    numbers = {one["snapshot-id"]: one.get("sequence-number") or 0 for one in published["snapshots"]}  # none of v1
    assert all(one not in there and numbers[one] <= before["last-sequence-number"] for one in late)
    sections = ("snapshots", "statistics", "partition-statistics")
    kept = {key: [one for one in published[key] if one["snapshot-id"] not in late] for key in sections}
    refs = {name: ref for name, ref in published["refs"].items() if ref["snapshot-id"] not in late}
    return {**published, **kept, "refs": refs}


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_step(services: Services, kind: str, version: int) -> None:
    if (kind, version) == ("recreated", 3):
        pytest.skip("see test_what_no_update_can_say")
    world = World(services, version)
    world.go(["append", "append", "publish"])
    world.go(KINDS[kind])


@pytest.mark.parametrize("kind", NEW_KINDS, ids=str)
def test_kinds_of_column_that_came_with_v3(services: Services, kind: Json) -> None:
    """By register and by updates; a commit that moves nothing else keeps them, too."""
    detail = NEW_KINDS.index(kind)
    world = World(services, 3)
    world.go(["append", "publish", "add_new_kind", "append", "publish", "set_properties"], detail)
    world = World(services, 3)
    world.go(["add_new_kind", "append", "publish", "add_column", "append"], detail)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_transform_of_several_columns_is_none_of_this_servers(services: Services, is_first: bool) -> None:
    """It reads `source-id` alone: refused when registered, an error of its own when updated. Nothing is changed."""
    world = World(services, 3)
    if not is_first:
        world.go(["append"])
    before = world.catalog.load(world.ref)
    world.table.last_partition = 1000
    world.table._spec([{"name": "p", "transform": "bucket[4]", "source-ids": [1, 2], "field-id": 1000}])
    kind, answer = (PermanentError, "answered 400") if is_first else (TransientError, "answered 500")
    with pytest.raises(kind, match=answer):
        world.go(["append"])
    assert world.catalog.load(world.ref) == before


def test_row_ids_of_skipped_snapshots(services: Services) -> None:
    world = World(services, 3)
    world.go(["append"], 10)
    world.go(["append", "append", "append", "!"], 20)
    shown = world.catalog.load(world.ref)
    assert shown is not None
    assert shown.metadata is not None
    assert shown.metadata["next-row-id"] == world.table.next_row_id


def test_row_ids_of_a_skipped_snapshot_that_was_rolled_back(services: Services) -> None:
    """No update moves the counter but a snapshot that is added: it stays behind the source's until the next one."""
    world = World(services, 3)

    def next_row_id() -> int:
        shown = world.catalog.load(world.ref)
        assert shown is not None
        assert shown.metadata is not None
        return int(shown.metadata["next-row-id"])

    world.go(["append"], 10)
    STEPS["append"](world.table, 20)
    STEPS["roll_back"](world.table, 0)
    world.publish(late=True)
    assert (next_row_id(), world.table.next_row_id) == (11, 11 + 21)
    world.go(["append"], 30)
    assert next_row_id() == world.table.next_row_id == 11 + 21 + 31


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


def test_the_newest_marker_alone_avoids_that(services: Services) -> None:
    """A follower that is behind takes the rollback and what came after it in one commit, however old they are."""
    world = World(services, 2)
    world.table.start_ms -= 3_600_000
    world.go(["append", "append", "publish", "roll_back", "append"], 0)


ROUND = st.tuples(
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 99)), min_size=1, max_size=5), st.booleans()
)


def test_any_history(services: Services) -> None:
    """Whatever a source does between two published versions: the server shows it, or it was foreseen that it cannot.

    Then the way out that the refusal names is taken, and the history goes on. Few may need it.
    """
    count: Counter[str] = Counter()

    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
        print_blob=True,
    )
    @given(st.sampled_from([1, 2, 3]), st.lists(ROUND, min_size=1, max_size=6))
    def lives(version: int, rounds: list[tuple[list[tuple[str, int]], bool]]) -> None:
        world = World(services, version)
        world.go(["append"])
        for steps, late in rounds:
            for step, detail in [*steps, ("append", 1)] if late else steps:
                STEPS[step](world.table, detail)
            count["published"] += 1
            try:
                world.publish(late=late)
            except PermanentError as err:
                if UNSUPPORTED not in err.message or "answered" in err.message:
                    raise  # not foreseen: a kind of step that we do not know
                count["refused"] += 1
                head = world.catalog.load(world.ref)
                assert head is not None
                world.catalog.drop(world.ref, head)
                world.publish(late=late)

    lives()
    print(f"{count['refused']} of {count['published']} refused")
    assert count["refused"] <= count["published"] * REFUSED_AT_MOST


class TestRacesThatNoRequirementNames:
    """Of two commits from one head one is taken, also if neither brings a new head."""

    ALIKE = ("set_properties", "analyze", "tag", "roll_back", "expire", "add_column")

    @pytest.mark.parametrize("version", [1, 2, 3])
    @pytest.mark.parametrize("step", ALIKE)
    def test_the_second_is_refused(self, services: Services, step: str, version: int) -> None:
        world = World(services, version)
        world.go(["append", "append", "append"])
        head = world.catalog.load(world.ref)
        STEPS[step](world.table, 1)
        second = Published("", world.table.publish())
        STEPS["set_properties"](world.table, 2)
        third = Published("", world.table.publish())
        world.catalog.commit(world.ref, head, second)
        with pytest.raises(LostRaceError):
            world.catalog.commit(world.ref, head, third)
        assert world.shows(second)
        world.catalog.commit(world.ref, world.catalog.load(world.ref), third)
        assert world.shows(third)

    def test_nor_after_a_rollback_when_all_looks_as_before(self, services: Services) -> None:
        world = World(services, 2)
        world.go(["append"])
        stale = world.catalog.load(world.ref)
        STEPS["set_properties"](world.table, 1)
        late = Published("", world.table.publish())
        world.go(["append"])
        world.go(["roll_back"], 0)
        with pytest.raises(LostRaceError):
            world.catalog.commit(world.ref, stale, late)

    def test_many_at_once(self, services: Services) -> None:
        world = World(services, 2)
        world.go(["append"])
        head = world.catalog.load(world.ref)
        news = []
        for detail in range(RACERS):
            STEPS["set_properties"](world.table, detail)
            news.append(Published("", world.table.publish()))
        start = threading.Barrier(RACERS)

        def commit(new: Published) -> Published | None:
            mine = RestCatalog("cloud", services.mirror_properties)
            mine.load(world.ref)
            start.wait(30)
            try:
                mine.commit(world.ref, head, new)
            except LostRaceError:
                return None
            return new

        with ThreadPoolExecutor(RACERS) as pool:
            won = [one for one in pool.map(commit, news) if one is not None]
        assert len(won) == 1
        assert world.shows(won[0])

    def test_what_future_writers_see_of_it(self, services: Services) -> None:
        """The highest column id is further on, and a column that the source adds later has the source's id."""
        world = World(services, 2)
        world.go(["append"])
        for _ in range(3):
            world.go(["set_properties"])
        shown = world.catalog.load(world.ref)
        assert shown is not None
        assert shown.metadata is not None
        assert shown.metadata["last-column-id"] == world.table.last_column + 3
        world.go(["add_column", "append"])


class TestLateTags:
    """A tag on a snapshot that was not mirrored, older than the catalog's last, where no whole swap is to be had."""

    @pytest.mark.parametrize("version", [2, 3])
    def test_left_out_and_told(self, services: Services, version: int) -> None:
        world = World(services, version)
        world.go(["append", "publish", "append", "append", "append", "!"])
        skipped = sorted(world.table.snapshots)[-2]
        world.table.refs["late"] = {"snapshot-id": skipped, "type": "tag"}
        world.go(["append"])
        shown = world.catalog.load(world.ref)
        assert shown is not None
        assert shown.metadata is not None
        assert left_out_of(shown.metadata) == {skipped: ["late"]}
        assert "late" not in shown.metadata["refs"]
        assert told(shown.metadata) == (
            f"unsupported_by_catalog: ref late is left out: snapshot {skipped} is older than the catalog's last",
        )
        world.go(["drop_ref", "append", "!"], 0)
        shown = world.catalog.load(world.ref)
        assert shown is not None
        assert shown.metadata is not None
        assert left_out_of(shown.metadata) == {}


def mirrored(services: Services, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[TableRef, Lake]:
    """A lake in plain files that is mirrored to Iceberg's server and shown there as v1."""
    table = TableRef((f"ns{uuid.uuid4().hex[:8]}",), "orders")
    lake = Lake(folder, tables=[{"name": str(table)}])
    document = yaml.safe_load(lake.config_path.read_text())
    mirror = {"name": "cloud", "type": "rest"}
    for number, (key, value) in enumerate(services.mirror_properties.items()):
        monkeypatch.setenv(f"MIRROR_{number}", value)
        mirror[key] = "rest" if key == "type" else f"${{MIRROR_{number}}}"
    document["mirror"] = {"catalog": mirror, "location": services.mirror_location}
    lake.config_path.write_text(yaml.safe_dump(document))
    lake.create(table).append(rows(3))
    lake.mirror(table)
    lake.app().follow(table)
    return table, lake


@pytest.mark.parametrize("has_moved", [True, False])
def test_the_way_out_of_a_foreign_append(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_moved: bool
) -> None:
    """This server has no whole swap, and never counts sequence numbers back: dropping theirs leads on, nothing else."""
    table, lake = mirrored(services, tmp_path, monkeypatch)
    with load_catalog("theirs", **services.mirror_properties) as theirs:
        theirs.load_table(str(table)).append(rows(1, 99))
        if has_moved:
            lake.source.load_table(str(table)).append(rows(1, 3))
            lake.mirror(table)
            with pytest.raises(PermanentError, match="foreign commit"):
                lake.app().follow(table)
            with pytest.raises(PermanentError, match=f"{UNSUPPORTED}.*sequence number"):
                lake.app().follow(table, overwrite_foreign=True)
            with pytest.raises(PermanentError, match="was not published by Lakemirror"):
                lake.app().drop_mirror(table)
        else:
            assert lake.app().follow(table, adopt=True).version == 1
            lake.source.load_table(str(table)).append(rows(1, 3))
            lake.mirror(table)
            with pytest.raises(PermanentError, match=f"{UNSUPPORTED}.*sequence number"):
                lake.app().follow(table)
        lake.app().drop_mirror(table, overwrite_foreign=has_moved)
        assert not theirs.table_exists(str(table))
        for version in (3, 4):
            assert lake.mirror(table).version == version
            assert lake.app().follow(table).version == version
            shown = theirs.load_table(str(table)).scan().to_arrow().to_pylist()
            assert sorted(shown, key=lambda row: row["id"]) == lake.source_rows(table)
            lake.source.load_table(str(table)).append(rows(1, version + 1))


def test_a_commit_that_was_sent_before_a_drop_comes_too_late(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is registered after the drop differs from what was there before in properties, which nobody can name."""
    table, lake = mirrored(services, tmp_path, monkeypatch)
    catalog, store = RestCatalog("cloud", services.mirror_properties), ObstoreStore(services.mirror_properties)
    before = catalog.load(table)

    def published(color: str) -> Published:
        with lake.source.load_table(str(table)).transaction() as change:
            change.set_properties(color=color)
        marker = str(lake.mirror(table).marker)
        uri = json.loads(store.get(marker, max_bytes=1 << 20).data)["metadata_uri"]
        return Published(uri, json.loads(store.get(uri, max_bytes=1 << 20).data))

    late = published("red")
    lake.app().drop_mirror(table)
    published("blue")
    assert lake.app().follow(table).version == 3
    with pytest.raises(LostRaceError):
        catalog.commit(table, before, late)
    shown = catalog.load(table)
    assert shown is not None
    assert shown.metadata is not None
    properties = shown.metadata["properties"]
    assert (properties["color"], properties["lakemirror.version"]) == ("blue", "3")


def test_a_head_whose_file_is_gone_can_be_dropped(services: Services) -> None:
    """The server still has the table, and says what it lacks."""
    world = World(services, 2)
    world.go(["append", "publish", "append"])
    head = world.catalog.load(world.ref)
    assert head is not None
    world.store.delete([head.metadata_uri])
    lost = world.catalog.load(world.ref)
    assert lost is not None
    assert (lost.metadata, "NotFoundException" in str(lost.problem)) == (None, True)
    with pytest.raises(PermanentError, match=f"{UNSUPPORTED}: what it shows cannot be read"):
        world.catalog.commit(world.ref, lost, Published(head.metadata_uri, world.table.publish()))
    world.catalog.drop(world.ref, lost)
    assert world.catalog.load(world.ref) is None
