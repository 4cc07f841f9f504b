"""REST catalogs that misbehave: what was done is told from what was not, by reading back and never by guessing."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lakemirror.catalogs.abilities import CatalogAbilities
from lakemirror.catalogs.ports import MirrorHead, Published
from lakemirror.catalogs.rest import UNSUPPORTED, RestCatalog
from lakemirror.catalogs.updates import commit_of
from lakemirror.config.knobs import Knobs
from lakemirror.errors import (
    LakemirrorError,
    LostRaceError,
    PermanentError,
    TableBusyError,
    TransientError,
    UnsettledError,
)
from lakemirror.model.layout import TableLayout
from lakemirror.model.table import TableRef
from lakemirror.storage.objects import ObstoreStore
from lakemirror.usecases.fencing import swapping
from tests.faults.proxy import deaf_url
from tests.published_tables import Table
from tests.rest_double import RestDouble, rest_double
from tests.rest_interpreter import take

T = TableRef.parse("shop.orders")
PATH = "namespaces/shop/tables/orders"
LEASES = ObstoreStore({})


@pytest.fixture
def double() -> Iterator[RestDouble]:
    with rest_double() as double:
        yield double


class World:
    """A table of two published versions, the first of which is committed."""

    def __init__(self, double: RestDouble) -> None:
        self.double = double
        self.catalog = RestCatalog("cloud", {"uri": double.uri, "token": "token-1", "rest.retry-pause-s": "0"})
        self.made = Table("mem://m/t", 2)
        self.made.append(1)
        self.first = self.publish()
        self.catalog.commit(T, None, self.first)
        self.made.append(2)
        self.second = self.publish()
        self.made.append(3)
        self.third = self.publish()

    def publish(self) -> Published:
        metadata = self.made.publish()
        new = Published(f"mem://m/t/{self.made.published_count}.json", metadata)
        self.double.files[new.metadata_uri] = metadata
        return new

    def head(self) -> MirrorHead:
        head = self.catalog.load(T)
        assert head is not None
        return head

    @property
    def version(self) -> str:
        return str(self.double.tables[PATH][1]["properties"]["lakemirror.version"])


@pytest.fixture
def world(double: RestDouble) -> World:
    return World(double)


def on_commit(fault: int | str) -> object:
    return lambda verb, path: fault if (verb, path) == ("POST", f"/v1/{PATH}") else None


@pytest.mark.parametrize("fault", ["cut after"])
def test_a_commit_that_was_made_and_never_answered_is_done(world: World, fault: str) -> None:
    head = world.head()
    world.double.fault = on_commit(fault)  # type: ignore[assignment]
    world.catalog.commit(T, head, world.second)
    assert world.version == "2"


def test_a_first_commit_that_was_made_and_never_answered_is_done(double: RestDouble) -> None:
    made = Table("mem://m/t", 2)
    new = Published("mem://m/t/1.json", made.publish())
    double.files[new.metadata_uri] = new.metadata
    double.fault = lambda verb, path: "cut after" if path.endswith("/register") else None
    RestCatalog("cloud", {"uri": double.uri, "token": "token-1"}).commit(T, None, new)
    assert PATH in double.tables


def test_a_commit_that_was_not_made_and_never_answered_is_transient(world: World) -> None:
    head = world.head()
    world.double.fault = on_commit("cut")  # type: ignore[assignment]
    with pytest.raises(TransientError, match="the head is as before") as caught:
        world.catalog.commit(T, head, world.second)
    assert not isinstance(caught.value, LostRaceError)
    assert world.version == "1"


def test_a_commit_that_was_made_and_cannot_be_read_back_is_left_open(world: World) -> None:
    head = world.head()
    cut = [False]

    def fault(verb: str, path: str) -> str | None:
        cut[0] = cut[0] or verb == "POST"
        return "cut after" if cut[0] else None

    world.double.fault = fault
    with pytest.raises(TransientError, match="whether it was made cannot be read back now"):
        world.catalog.commit(T, head, world.second)
    world.double.fault = lambda verb, path: None
    assert world.version == "2"
    assert world.head() != head  # the next run finds it


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_a_server_error_after_the_commit_was_made(world: World, status: int) -> None:
    head = world.head()
    world.double.fault = on_commit(status)  # type: ignore[assignment]
    world.catalog.commit(T, head, world.second)
    assert world.version == "2"


def test_a_commit_of_somebody_else_in_the_dark_is_a_lost_race(world: World) -> None:
    head = world.head()
    other = RestCatalog("other", {"uri": world.double.uri, "token": "token-1"})
    other.commit(T, head, world.third)
    world.double.fault = on_commit("cut")  # type: ignore[assignment]
    with pytest.raises(LostRaceError):
        world.catalog.commit(T, head, world.second)
    assert world.version == "3"


def test_a_conflict_with_a_head_that_moved_is_a_lost_race(world: World) -> None:
    head = world.head()
    world.catalog.commit(T, head, world.second)
    with pytest.raises(LostRaceError, match="head moved"):
        world.catalog.commit(T, head, world.third)
    assert world.version == "2"


def test_a_conflict_with_a_head_that_has_not_moved_is_permanent(world: World) -> None:
    head = world.head()
    world.double.fault = lambda verb, path: "refuse" if verb == "POST" else None
    world.double.tables[PATH][1]["last-sequence-number"] = 99
    with pytest.raises(PermanentError, match=f"{UNSUPPORTED}: the head has not moved"):
        world.catalog.commit(T, head, world.second)
    assert world.version == "1"


@pytest.mark.parametrize(
    ("has_view", "error", "says"),
    [(False, LostRaceError, "dropped since"), (True, PermanentError, "the head has not moved")],
)
def test_a_table_in_the_way_that_is_gone_at_the_next_look(
    world: World, has_view: bool, error: type[LakemirrorError], says: str
) -> None:
    """It was dropped meanwhile; a view that has its name stays."""

    def drop(verb: str, path: str) -> None:
        if (verb, path) == ("GET", f"/v1/{PATH}"):
            world.double.tables.pop(PATH, None)

    world.double.fault = drop
    if has_view:
        world.double.tables[PATH.replace("/tables/", "/views/")] = world.double.tables[PATH]
    with pytest.raises(error, match=says) as caught:
        world.catalog.commit(T, None, world.second)
    assert type(caught.value) is error


def test_a_throttled_commit_was_not_made(world: World) -> None:
    head = world.head()
    world.double.headers = {"Retry-After": "3600"}
    world.double.fault = lambda verb, path: 429 if verb == "POST" else None
    with pytest.raises(TransientError, match="429") as caught:
        world.catalog.commit(T, head, world.second)
    assert "in 3600 s" in caught.value.hint
    assert world.version == "1"


def test_an_unchanged_head_costs_one_conditional_call(world: World) -> None:
    catalog = RestCatalog("onprem", {"uri": world.double.uri, "token": "token-1"})
    assert catalog.head(T) == world.first.metadata_uri
    before = len(world.double.asked)
    assert catalog.head(T) == world.first.metadata_uri
    assert world.double.asked[before:] == [f"GET /v1/{PATH}?snapshots=refs"]
    world.catalog.commit(T, world.head(), world.second)
    assert catalog.head(T) == world.double.tables[PATH][0]


def test_without_register_the_table_is_created_by_updates(double: RestDouble) -> None:
    double.config["endpoints"] = ["POST /v1/{prefix}/namespaces/{namespace}/tables/{table}"]
    made = Table("mem://m/t", 3)
    made.append(1)
    catalog = RestCatalog("cloud", {"uri": double.uri, "token": "token-1"})
    catalog.commit(T, None, Published("mem://m/t/1.json", made.publish()))
    assert not any("register" in one for one in double.asked)
    assert double.bodies[-1]["requirements"] == [{"type": "assert-create"}]
    assert double.tables[PATH][1]["table-uuid"] == made.uuid


@pytest.mark.parametrize("can_remove_schemas", [True, False])
def test_without_register_the_highest_column_id_is_the_versions_if_the_server_can(
    double: RestDouble, can_remove_schemas: bool
) -> None:
    """Servers count columns themselves; a version has a number of its own, above that of its columns."""
    double.config["endpoints"] = ["POST /v1/{prefix}/namespaces/{namespace}/tables/{table}"]
    double.unknown_updates = set() if can_remove_schemas else {"remove-schemas"}
    made = Table("mem://m/t", 2)
    made.append(1)
    published = made.publish()
    own = published["last-column-id"]
    new = Published("mem://m/t/1.json", {**published, "last-column-id": own + 16})
    catalog = RestCatalog("cloud", {"uri": double.uri, "token": "token-1"})
    catalog.commit(T, None, new)
    shown = double.tables[PATH][1]
    assert shown["last-column-id"] == (own + 16 if can_remove_schemas else own)
    assert shown["schemas"] == published["schemas"]


@pytest.mark.parametrize("status", [400, 406, 422, 500, 501])
def test_without_register_a_server_that_does_not_know_an_update_is_asked_without_it(
    double: RestDouble, status: int
) -> None:
    double.config["endpoints"] = ["POST /v1/{prefix}/namespaces/{namespace}/tables/{table}"]
    double.unknown_updates, double.unknown_status = {"remove-schemas"}, status
    made = Table("mem://m/t", 2)
    made.append(1)
    catalog = RestCatalog("cloud", {"uri": double.uri, "token": "token-1", "rest.retry-pause-s": "0"})
    catalog.commit(T, None, Published("mem://m/t/1.json", made.publish()))
    assert double.tables[PATH][1]["table-uuid"] == made.uuid


def test_without_register_a_first_commit_that_was_made_and_never_answered_is_done(double: RestDouble) -> None:
    """It is there: nothing is sent again."""
    double.config["endpoints"] = ["POST /v1/{prefix}/namespaces/{namespace}/tables/{table}"]
    made = Table("mem://m/t", 2)
    made.append(1)
    catalog = RestCatalog("cloud", {"uri": double.uri, "token": "token-1", "rest.retry-pause-s": "0"})
    double.fault = on_commit("cut after")  # type: ignore[assignment]
    catalog.commit(T, None, Published("mem://m/t/1.json", made.publish()))
    assert sum(one == f"POST /v1/{PATH}" for one in double.asked) == 1


def test_without_register_what_cannot_be_said_is_refused_by_name(double: RestDouble) -> None:
    double.config["endpoints"] = ["POST /v1/{prefix}/namespaces/{namespace}/tables/{table}"]
    made = Table("mem://m/t", 2)
    made.orders.append({**made.orders[0], "order-id": 7})
    catalog = RestCatalog("cloud", {"uri": double.uri, "token": "token-1"})
    with pytest.raises(PermanentError, match=f"{UNSUPPORTED}: sort order 7 would become 1"):
        catalog.commit(T, None, Published("mem://m/t/1.json", made.publish()))
    assert double.tables == {}


def test_what_the_server_hands_out_reaches_the_store_and_logins_do_not(double: RestDouble) -> None:
    double.config = {
        "defaults": {"s3.region": "theirs", "s3.endpoint": "http://default"},
        "overrides": {"s3.path-style-access": "true", "s3.region": "forced"},
    }
    catalog = RestCatalog("cloud", {"uri": double.uri, "token": "token-1", "s3.endpoint": "http://ours"})
    assert catalog.file_io() == {
        "uri": double.uri,
        "s3.region": "forced",
        "s3.endpoint": "http://ours",
        "s3.path-style-access": "true",
    }


def test_a_token_that_has_expired_is_renewed_once(double: RestDouble) -> None:
    catalog = RestCatalog("cloud", {"uri": double.uri, "credential": "me:hush"})
    assert catalog.head(T) is None
    double.tokens.append("token-2")
    assert catalog.head(T) is None
    assert sum("oauth" in one for one in double.asked) == 2
    double.fault = lambda verb, path: 401 if verb == "GET" else None
    with pytest.raises(PermanentError, match="401"):
        catalog.head(T)
    assert sum("oauth" in one for one in double.asked) == 3


def test_connecting_takes_no_longer_than_an_answer() -> None:
    with deaf_url() as url:
        start = time.monotonic()
        with pytest.raises(TransientError, match="did not answer"):
            RestCatalog("cloud", {"uri": url, "rest.timeout-s": "0.3"}).load(T)
        assert time.monotonic() - start < 5


@pytest.mark.parametrize("status", [401, 419])
def test_a_token_that_cannot_be_renewed_and_expires_is_transient(world: World, status: int) -> None:
    """One that was good; one that never was is wrong."""
    head = world.head()
    world.double.fault = lambda verb, path: status if "tables" in path else None
    with pytest.raises(TransientError, match=f"{status}.*renew it"):
        world.catalog.load(T)
    with pytest.raises(TransientError, match=f"{status}.*renew it"):
        world.catalog.commit(T, head, world.second)
    with pytest.raises(PermanentError, match=str(status)):
        RestCatalog("cloud", {"uri": world.double.uri, "token": "token-1"}).load(T)


def test_a_404_for_another_reason_is_not_a_missing_table(world: World) -> None:
    world.double.fault = lambda verb, path: 404 if "tables" in path else None
    with pytest.raises(PermanentError, match="404"):
        world.catalog.load(T)


def test_secrets_are_nowhere(double: RestDouble) -> None:
    properties = {"uri": double.uri, "credential": "me:hush-hush", "header.X-Key": "secret-header"}
    catalog = RestCatalog("cloud", properties)
    assert "hush" not in repr(catalog) + repr(catalog._client)
    double.fault = lambda verb, path: 400 if "tables" in path else None
    with pytest.raises(PermanentError) as caught:
        catalog.head(T)
    assert not any(one in str(caught.value.as_json()) for one in ("hush", "secret-header", "token-1"))


def test_it_travels_to_other_processes(world: World) -> None:
    again = pickle.loads(pickle.dumps(world.catalog))
    assert again.head(T) == world.first.metadata_uri


class Clock:
    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 2, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.moment

    def later(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


def leased(double: RestDouble, name: str, clock: Clock, meanwhile: Callable[[], None] = lambda: None) -> RestCatalog:
    """A follower with the real lease; `meanwhile` is done when it has looked for the last time."""
    layout = TableLayout(f"memory://{double.uri.rpartition(':')[2]}/shop/orders")

    @contextmanager
    def with_lease(table: TableRef) -> Iterator[Callable[[], None]]:
        with swapping(LEASES, layout, Knobs(), clock, name) as check:

            def checked() -> None:
                meanwhile()
                check()

            yield checked

    properties = {"uri": double.uri, "token": "token-1", "rest.retry-pause-s": "0"}
    return RestCatalog("cloud", properties, with_lease=with_lease)


class TestServersThatCannotRemoveSchemas:
    """The filler of a commit without a new head is refused there: it goes without, by one follower at a time."""

    @pytest.fixture
    def simple(self, double: RestDouble) -> RestDouble:
        double.unknown_updates = {"remove-schemas"}
        return double

    def follower(self, double: RestDouble, name: str, meanwhile: Callable[[], None] = lambda: None) -> RestCatalog:
        """`meanwhile` is done when it has looked for the last time."""
        return leased(double, name, Clock(), meanwhile)

    def version(self, world: World, number: int, **properties: str) -> Published:
        metadata = {**world.first.metadata, "properties": {"lakemirror.version": str(number), **properties}}
        return Published(f"mem://m/t/v{number}.json", metadata)

    def test_the_commit_is_made_without_the_filler(self, simple: RestDouble) -> None:
        world = World(simple)
        self.follower(simple, "one").commit(T, world.head(), self.version(world, 9))
        assert world.version == "9"
        assert not any(one["action"] == "add-schema" for one in simple.bodies[-1]["updates"])

    def test_an_older_version_is_not_put_over_a_newer_one(self, simple: RestDouble) -> None:
        """Both have seen v1, and change nothing that requirements name."""
        world = World(simple)
        head = world.head()
        self.follower(simple, "one").commit(T, head, self.version(world, 3, color="red"))
        with pytest.raises(LostRaceError, match="head moved"):
            self.follower(simple, "two").commit(T, head, self.version(world, 2, size="big"))
        assert world.head().metadata["properties"] == self.version(world, 3, color="red").metadata["properties"]

    def test_two_followers_do_not_come_at_the_same_time(self, simple: RestDouble) -> None:
        world = World(simple)
        head = world.head()
        told: list[str] = []

        def meanwhile() -> None:
            with pytest.raises(TableBusyError) as caught:
                self.follower(simple, "two").commit(T, head, self.version(world, 3, color="red"))
            told.append(caught.value.op)

        self.follower(simple, "one", meanwhile).commit(T, head, self.version(world, 2, size="big"))
        assert told
        assert world.head().metadata["properties"] == self.version(world, 2, size="big").metadata["properties"]

    @pytest.mark.parametrize("fault", [503, "cut", "late"])
    def test_one_whose_outcome_nobody_told_keeps_others_out(self, simple: RestDouble, fault: int | str) -> None:
        world, clock = World(simple), Clock()
        head = world.head()

        def on_the_second(verb: str, path: str) -> int | str | None:
            is_guarded = any(one["action"] == "remove-schemas" for one in simple.bodies[-1].get("updates", ()))
            return fault if verb == "POST" and not is_guarded else None

        simple.fault = on_the_second
        if fault == 503:  # answered so after it was done: that is seen, and the next one comes in at once
            leased(simple, "one", clock).commit(T, head, self.version(world, 2))
        else:
            with pytest.raises(UnsettledError, match="the head is as before"):
                leased(simple, "one", clock).commit(T, head, self.version(world, 2))
        simple.fault = lambda verb, path: None
        if fault != 503:
            with pytest.raises(TableBusyError):
                leased(simple, "two", clock).commit(T, head, self.version(world, 3))
            simple.land()
            clock.later(Knobs().lease_seconds + Knobs().clock_skew_seconds)
        leased(simple, "two", clock).commit(T, world.head(), self.version(world, 3))
        assert world.version == "3"

    def test_without_a_lease_it_is_refused(self, simple: RestDouble) -> None:
        world = World(simple)
        with pytest.raises(PermanentError, match=f"{UNSUPPORTED}: it changes nothing that the catalog compares.*400"):
            world.catalog.commit(T, world.head(), self.version(world, 9))
        assert world.version == "1"

    def test_others_are_not_tried_twice(self, simple: RestDouble) -> None:
        world = World(simple)
        simple.unknown_updates = {"add-snapshot"}
        asked = len(simple.asked)
        with pytest.raises(PermanentError, match="400"):
            world.catalog.commit(T, world.head(), world.second)
        assert sum(one.startswith("POST") for one in simple.asked[asked:]) == 1


class TestWholeSwap:
    """Only for what no updates can say, only under the lease, only over the head that was seen."""

    @pytest.fixture
    def stuck(self, world: World) -> tuple[World, Published]:
        """The source was made anew with another meaning of schema 0."""
        other = Table("mem://m/t", 2, number=99)
        other.schemas[0]["fields"][0]["name"] = "other"
        other.append(5)
        new = Published("mem://m/t/anew.json", other.publish())
        world.double.files[new.metadata_uri] = new.metadata
        return world, new

    def open(self, world: World, held: list[str]) -> RestCatalog:
        @contextmanager
        def with_lease(table: TableRef) -> Iterator[Callable[[], None]]:
            held.append(f"taken {table}")
            yield lambda: held.append("checked")
            held.append("given back")

        return RestCatalog("cloud", {"uri": world.double.uri, "token": "token-1"}, with_lease=with_lease)

    def test_it_is_made(self, stuck: tuple[World, Published]) -> None:
        world, new = stuck
        world.double.overwrite = 200
        held: list[str] = []
        self.open(world, held).commit(T, world.head(), new)
        assert world.head().metadata_uri == new.metadata_uri
        assert held == ["taken shop.orders", "checked", "given back"]

    @pytest.mark.parametrize("status", [400, 404, 405, 406, 409, 501])
    def test_a_server_that_has_none(self, stuck: tuple[World, Published], status: int) -> None:
        world, new = stuck
        world.double.overwrite = status
        before = world.head()
        with pytest.raises(PermanentError, match=f"{UNSUPPORTED}: schema 0 means something else"):
            self.open(world, []).commit(T, before, new)
        assert world.head() == before

    def test_never_without_a_lease(self, stuck: tuple[World, Published]) -> None:
        world, new = stuck
        world.double.overwrite = 200
        assert world.catalog.abilities().has_whole_swap is False
        with pytest.raises(PermanentError, match=UNSUPPORTED):
            world.catalog.commit(T, world.head(), new)

    def test_never_for_what_updates_can_say(self, world: World) -> None:
        held: list[str] = []
        self.open(world, held).commit(T, world.head(), world.second)
        assert held == []

    def test_a_head_that_moved(self, stuck: tuple[World, Published]) -> None:
        world, new = stuck
        world.double.overwrite = 200
        stale = world.head()
        world.catalog.commit(T, stale, world.second)
        with pytest.raises(LostRaceError, match="head moved"):
            self.open(world, []).commit(T, stale, new)
        assert world.version == "2"

    def test_an_answer_that_never_came(self, stuck: tuple[World, Published]) -> None:
        world, new = stuck
        world.double.overwrite = 200
        head = world.head()
        world.double.fault = lambda verb, path: "cut after" if path.endswith("/register") else None
        self.open(world, []).commit(T, head, new)
        assert world.head().metadata_uri == new.metadata_uri

    def test_one_that_is_still_on_its_way_keeps_others_out(self, stuck: tuple[World, Published]) -> None:
        """It compares nothing, and would put this version over whatever came after it."""
        world, second = stuck
        world.double.overwrite = 200
        third = Published("mem://m/t/third.json", {**second.metadata, "properties": {"lakemirror.version": "3"}})
        head, clock = world.head(), Clock()
        world.double.fault = lambda verb, path: "late" if path.endswith("/register") else None
        with pytest.raises(UnsettledError, match=r"the head is as before; .*lease of swaps has ended by itself"):
            leased(world.double, "one", clock).commit(T, head, second)
        world.double.fault = lambda verb, path: None
        clock.later(Knobs().lease_seconds - 1)
        with pytest.raises(TableBusyError):
            leased(world.double, "two", clock).commit(T, head, second)
        world.double.land()
        clock.later(Knobs().clock_skew_seconds + 1)
        with pytest.raises(LostRaceError, match="head moved"):
            leased(world.double, "two", clock).commit(T, head, second)
        leased(world.double, "two", clock).commit(T, world.head(), third)
        assert world.version == "3"

    @pytest.mark.parametrize("trouble", ["not allowed", "not whole"])
    def test_one_that_cannot_be_read_back_for_good_keeps_others_out(
        self, stuck: tuple[World, Published], trouble: str
    ) -> None:
        """That the catalog refuses to show its head says nothing of what is on its way."""
        world, new = stuck
        world.double.overwrite = 200
        head, clock = world.head(), Clock()
        shown = dict(world.double.tables)

        def fault(verb: str, path: str) -> int | str | None:
            if path.endswith("/register"):
                if trouble == "not whole":
                    world.double.tables.update({at: (place, {}) for at, (place, _) in shown.items()})
                return "late"
            is_sent = any(one.endswith("/register") for one in world.double.asked[asked:])
            return 403 if trouble == "not allowed" and is_sent else None

        asked = len(world.double.asked)
        world.double.fault = fault
        with pytest.raises(UnsettledError, match="cannot be read back now"):
            leased(world.double, "one", clock).commit(T, head, new)
        world.double.fault = lambda verb, path: None
        world.double.tables.update(shown)
        with pytest.raises(TableBusyError):
            leased(world.double, "two", clock).commit(T, head, new)

    @pytest.mark.parametrize("second", [403, 429, 409, 400])
    def test_one_that_was_asked_for_again_and_refused_then_keeps_others_out(
        self, stuck: tuple[World, Published], second: int
    ) -> None:
        """What the second sending is told is no answer to the first."""
        world, new = stuck
        world.double.overwrite = 200
        world.double.config["idempotency-key-lifetime"] = "PT30M"
        head, clock, sent = world.head(), Clock(), 0

        def fault(verb: str, path: str) -> int | str | None:
            nonlocal sent
            sent += path.endswith("/register")
            if not path.endswith("/register"):
                return None
            if sent > 1:
                world.double.overwrite = second
            return "late" if sent == 1 else second if second in (403, 429) else None

        world.double.fault = fault
        with pytest.raises(UnsettledError, match="the head is as before"):
            leased(world.double, "one", clock).commit(T, head, new)
        world.double.fault = lambda verb, path: None
        with pytest.raises(TableBusyError):
            leased(world.double, "two", clock).commit(T, head, new)

    def test_one_that_never_arrives_keeps_others_out_for_a_lease_time_alone(
        self, stuck: tuple[World, Published]
    ) -> None:
        world, new = stuck
        world.double.overwrite = 200
        head, clock = world.head(), Clock()
        world.double.fault = lambda verb, path: "cut" if path.endswith("/register") else None
        with pytest.raises(UnsettledError):
            leased(world.double, "one", clock).commit(T, head, new)
        world.double.fault = lambda verb, path: None
        clock.later(Knobs().lease_seconds + Knobs().clock_skew_seconds)
        leased(world.double, "two", clock).commit(T, head, new)
        assert world.head().metadata_uri == new.metadata_uri

    def test_what_is_told_of_it(self, world: World) -> None:
        assert self.open(world, []).abilities().has_whole_swap is None
        world.double.config["endpoints"] = []
        assert self.open(world, []).abilities().has_whole_swap is False


def test_a_throttled_commit_that_was_taken_after_all_is_done(world: World) -> None:
    """Sent again it is refused; what the catalog shows is what was to be committed."""
    head = world.head()
    sent: list[int] = []

    def fault(verb: str, path: str) -> int | None:
        if verb != "POST" or sent:
            return None
        sent.append(1)
        place, metadata = world.double.tables[PATH]
        made = commit_of(metadata, world.second.metadata)
        world.double.tables[PATH] = f"{place}-2", take(metadata, [*made.requirements], [*made.updates])
        return 429

    world.double.fault = fault
    world.catalog.commit(T, head, world.second)
    assert world.version == "2"


class TestDrop:
    def test_files_are_never_asked_to_be_deleted(self, world: World) -> None:
        world.catalog.drop(T, world.head())
        assert world.double.asked[-1] == f"DELETE /v1/{PATH}?purgeRequested=false"
        assert world.catalog.load(T) is None

    def test_an_answer_that_never_came(self, world: World) -> None:
        head = world.head()
        world.double.fault = lambda verb, path: "cut after" if verb == "DELETE" else None
        world.catalog.drop(T, head)
        assert world.catalog.load(T) is None

    def test_one_that_was_not_taken(self, world: World) -> None:
        head = world.head()
        world.double.fault = lambda verb, path: "cut" if verb == "DELETE" else None
        with pytest.raises(TransientError, match="the table is still there"):
            world.catalog.drop(T, head)

    def test_not_while_a_commit_that_compares_nothing_may_be_on_its_way(self, double: RestDouble) -> None:
        """It would bring the table back, or put its own over it."""
        world, clock = World(double), Clock()
        head = world.head()

        def busy() -> None:
            with pytest.raises(TableBusyError):
                leased(double, "two", clock).drop(T, head)

        double.unknown_updates = {"remove-schemas"}
        changed = {**world.first.metadata, "properties": {"lakemirror.version": "2"}}
        leased(double, "one", clock, busy).commit(T, head, Published("mem://m/t/2.json", changed))
        assert world.version == "2"

    def test_a_head_that_moved_stays(self, world: World) -> None:
        head, catalog = world.head(), leased(world.double, "one", Clock())
        world.double.tables[PATH] = (world.second.metadata_uri, dict(world.second.metadata))
        with pytest.raises(LostRaceError, match="head moved"):
            catalog.drop(T, head)
        assert world.version == "2"

    def test_one_that_is_gone_already_is_fine(self, world: World) -> None:
        head, clock = world.head(), Clock()
        del world.double.tables[PATH]
        leased(world.double, "one", clock).drop(T, head)
        assert not any(one.startswith("DELETE") for one in world.double.asked)

    @pytest.mark.parametrize("has_arrived", [False, True])
    def test_one_that_may_be_on_its_way_keeps_the_next_version_out(self, world: World, has_arrived: bool) -> None:
        """Otherwise it would take that away. By updates where the table is there still, else by register."""
        head, clock = world.head(), Clock()
        world.double.fault = lambda verb, path: "late" if verb == "DELETE" else None
        with pytest.raises(UnsettledError, match="the table is still there"):
            leased(world.double, "one", clock).drop(T, head)
        world.double.fault = lambda verb, path: None
        if has_arrived:
            world.double.land()
        now = None if has_arrived else head
        next_one = replace(world.second, follows_drop=True)
        with pytest.raises(TableBusyError):
            leased(world.double, "two", clock).commit(T, now, next_one)
        clock.later(Knobs().lease_seconds + Knobs().clock_skew_seconds)
        leased(world.double, "two", clock).commit(T, now, next_one)
        assert world.version == "2"
        clock.later(1)
        leased(world.double, "three", clock).commit(T, world.head(), replace(world.third, follows_drop=True))
        assert world.version == "3", "the lease was given back"

    def test_what_compares_nothing_after_a_drop_needs_no_second_lease(self, double: RestDouble) -> None:
        world, clock = World(double), Clock()
        double.unknown_updates = {"remove-schemas"}
        changed = {**world.first.metadata, "properties": {"lakemirror.version": "2"}}
        new = Published("mem://m/t/2.json", changed, follows_drop=True)
        leased(double, "one", clock).commit(T, world.head(), new)
        assert world.version == "2"

    def test_without_a_fence_the_next_version_waits_for_nobody(self, world: World) -> None:
        world.catalog.commit(T, world.head(), replace(world.second, follows_drop=True))
        assert world.version == "2"

    def test_one_that_nobody_can_read_back_is_left_open(self, world: World) -> None:
        head = world.head()

        def from_the_drop_on(verb: str, path: str) -> str | None:
            return "cut" if any(one.startswith("DELETE") for one in world.double.asked) else None

        world.double.fault = from_the_drop_on
        with pytest.raises(UnsettledError, match="cannot be read back now"):
            world.catalog.drop(T, head)

    def test_one_that_may_not_be_read_back_says_what_to_do_first(self, world: World) -> None:
        head = world.head()

        def forbidden_afterwards(verb: str, path: str) -> int | str | None:
            if verb == "DELETE":
                return "cut after"
            return 403 if any(one.startswith("DELETE") for one in world.double.asked) else None

        world.double.fault = forbidden_afterwards
        with pytest.raises(UnsettledError) as caught:
            leased(world.double, "one", Clock()).drop(T, head)
        assert caught.value.hint.startswith("check the login")
        assert caught.value.hint.endswith("the request may still arrive")

    def test_a_server_that_cannot(self, double: RestDouble) -> None:
        double.config["endpoints"] = ["POST /v1/{prefix}/namespaces/{namespace}/register"]
        world = World(double)
        with pytest.raises(PermanentError, match=f"{UNSUPPORTED}: the catalog cannot drop"):
            world.catalog.drop(T, world.head())


def test_what_a_server_can_do_is_told_by_its_endpoints(double: RestDouble) -> None:
    def asked() -> CatalogAbilities:
        return RestCatalog("cloud", {"uri": double.uri, "token": "token-1"}).abilities()

    everything = asked()  # a server that says nothing has what the protocol says
    assert (everything.has_register, everything.has_drop, everything.has_multi_table_commit) == (True, True, True)
    double.config["endpoints"] = [
        "POST /v1/{prefix}/namespaces/{namespace}/register",
        "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    ]
    double.config["idempotency-key-lifetime"] = "PT30M"
    told = asked()
    assert (told.has_register, told.has_drop, told.has_multi_table_commit) == (True, True, False)
    assert told.has_idempotency_keys
    assert double.asked == ["GET /v1/config", "GET /v1/config"]
