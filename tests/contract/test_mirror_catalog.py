"""What every mirror catalog does: one winner, nobody overtaken unawares, and the head it shows is what was committed.

The tables are metadata alone. The catalog of Glue is a test double (moto): what it does not enforce is said below.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakemirror.catalogs.abilities import CatalogAbilities
from lakemirror.catalogs.comparison import differing
from lakemirror.catalogs.ports import MirrorHead, Published
from lakemirror.errors import LakemirrorError, LostRaceError, TransientError
from lakemirror.model.table import TableRef
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import Create
from tests.contract.catalog_homes import MIRRORS, Home, make_home
from tests.published_tables import Table

RACERS = 16


@dataclass
class Mirror:
    """A table that is published step by step, beside a catalog."""

    home: Home
    made: Table

    def publish(self) -> Published:
        metadata = self.made.publish()
        uri = f"{self.made.location}/metadata/{self.made.published_count:05d}-ours.metadata.json"
        ObstoreStore(self.home.properties).put(uri, json.dumps(metadata).encode(), Create())
        return Published(uri, metadata)

    def append(self) -> Published:
        self.made.append(7)
        return self.publish()

    @property
    def table(self) -> TableRef:
        return self.home.table()

    def head(self) -> MirrorHead:
        head = self.home.mirror().load(self.table)
        assert head is not None
        return head

    def shows(self, want: Published) -> bool:
        """By a catalog that was opened anew."""
        head = self.head()
        if head.metadata is None:
            return head.metadata_uri == want.metadata_uri
        return differing(want.metadata, head.metadata) == ()


@pytest.fixture(params=MIRRORS)
def mirror(request: pytest.FixtureRequest, tmp_path: Path) -> Mirror:
    home = make_home(request.param, request, tmp_path)
    location = f"{home.location}/{home.namespace}/orders"
    return Mirror(home, Table(location, 2, start_ms=int(time.time() * 1000)))


def test_a_table_that_is_not_there(mirror: Mirror) -> None:
    assert mirror.home.mirror().load(mirror.table) is None


def test_first_commit_then_others(mirror: Mirror) -> None:
    catalog = mirror.home.mirror()
    first = mirror.append()
    catalog.commit(mirror.table, None, first)
    assert mirror.shows(first)
    head = catalog.load(mirror.table)
    assert head is not None
    assert head.metadata_uri == first.metadata_uri  # it was registered
    assert mirror.table in catalog.tables()
    second = mirror.append()
    catalog.commit(mirror.table, head, second)
    assert mirror.shows(second)
    third = mirror.append()
    catalog.commit(mirror.table, catalog.load(mirror.table), third)
    assert mirror.shows(third)


def test_a_stale_commit_is_refused(mirror: Mirror) -> None:
    catalog = mirror.home.mirror()
    catalog.commit(mirror.table, None, mirror.append())
    stale = catalog.load(mirror.table)
    second, third = mirror.append(), mirror.append()
    catalog.commit(mirror.table, stale, second)
    with pytest.raises(LostRaceError) as caught:
        catalog.commit(mirror.table, stale, third)
    assert (caught.value.subject, caught.value.exit_code) == (str(mirror.table), 5)
    assert caught.value.hint
    assert mirror.shows(second)
    with pytest.raises(LostRaceError):
        catalog.commit(mirror.table, None, third)
    assert mirror.shows(second)


def test_a_commit_to_a_table_that_is_gone(mirror: Mirror) -> None:
    catalog = mirror.home.mirror()
    catalog.commit(mirror.table, None, mirror.append())
    head = catalog.load(mirror.table)
    mirror.home.writer().drop_table(str(mirror.table))
    with pytest.raises(LostRaceError):
        catalog.commit(mirror.table, head, mirror.append())
    assert catalog.load(mirror.table) is None


def test_a_table_that_is_dropped_keeps_its_files(mirror: Mirror) -> None:
    catalog = mirror.home.mirror()
    first, second = mirror.append(), mirror.append()
    catalog.commit(mirror.table, None, first)
    stale = mirror.head()
    catalog.commit(mirror.table, stale, second)
    with pytest.raises(LostRaceError):
        catalog.drop(mirror.table, stale)
    assert mirror.shows(second)
    head = mirror.head()
    catalog.drop(mirror.table, head)
    assert catalog.load(mirror.table) is None
    assert mirror.table not in catalog.tables()
    store = ObstoreStore(mirror.home.properties)
    assert all(store.get(one.metadata_uri, max_bytes=1 << 20).data for one in (first, second))
    catalog.drop(mirror.table, head)  # again: it is gone, which is fine
    catalog.commit(mirror.table, None, second)
    assert mirror.shows(second)


def test_what_it_can_do_is_told_without_changing_anything(mirror: Mirror) -> None:
    can = mirror.home.mirror().abilities()
    assert can.has_namespace_levels == mirror.home.has_levels
    assert (can.has_register, can.has_drop) == (True, True)
    assert can.commit == ("updates" if mirror.home.is_rest else "pointer")
    assert CatalogAbilities.from_json(json.loads(json.dumps(can.as_json()))) == can
    assert mirror.home.mirror().load(mirror.table) is None


def test_of_many_who_race_one_wins(mirror: Mirror) -> None:
    """At the first commit and at a later one; each racer has a catalog of its own."""
    first = mirror.append()
    assert race(mirror, None, first)["won"] == 1
    assert mirror.shows(first)
    head = mirror.home.mirror().load(mirror.table)
    second = mirror.append()
    told = race(mirror, head, second)
    assert mirror.shows(second)
    if mirror.home.kind != "glue":  # moto takes any version: unproven there
        assert told["won"] == 1


def race(mirror: Mirror, expected: MirrorHead | None, new: Published) -> Counter[str]:
    racers = RACERS if mirror.home.kind != "glue" else 6  # each has a client of Amazon's, which takes a second to make
    start = threading.Barrier(racers)

    def commit(_: int) -> str:
        catalog = mirror.home.mirror()
        start.wait(30)
        try:
            catalog.commit(mirror.table, expected, new)
        except LostRaceError:
            return "lost"
        except TransientError:
            return "try again"
        return "won"

    with ThreadPoolExecutor(racers) as pool:
        return Counter(pool.map(commit, range(racers)))


def test_a_catalog_that_cannot_be_reached(mirror: Mirror) -> None:
    if mirror.home.kind == "sqlite":
        pytest.skip("a file is always there; a locked one is tested with the source")
    catalog = mirror.home.mirror(**mirror.home.unreachable)
    for ask in (lambda: catalog.load(mirror.table), lambda: catalog.commit(mirror.table, None, mirror.append())):
        with pytest.raises(TransientError) as caught:
            ask()
        assert not any(secret in str(caught.value.as_json()) for secret in mirror.home.secrets)


def test_levels_of_namespaces(mirror: Mirror) -> None:
    table = TableRef((mirror.home.namespace, "inner"), "orders")
    new = mirror.append()
    catalog = mirror.home.mirror()
    if not mirror.home.has_levels:
        with pytest.raises(LakemirrorError, match="unsupported_by_catalog"):
            catalog.commit(table, None, new)
        return
    catalog.commit(table, None, new)
    found = catalog.load(table)
    assert found is not None
    assert found.metadata_uri == new.metadata_uri
