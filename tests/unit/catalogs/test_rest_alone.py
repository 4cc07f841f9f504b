"""What a REST catalog takes without comparing: whole swaps, commits that nothing names, drops; one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from lakemirror.catalogs.ports import Published
from lakemirror.catalogs.rest import UNSUPPORTED, RestCatalog
from lakemirror.catalogs.rest_login import TokenLogin
from lakemirror.config.knobs import Knobs
from lakemirror.errors import (
    LostRaceError,
    PermanentError,
    TableBusyError,
    TransientError,
    UnsettledError,
)
from lakemirror.model.table import TableRef
from lakemirror.replicate.fence import NoFence
from lakemirror.usecases.fencing import swapping
from tests.published_tables import Table
from tests.rest_double import RestDouble
from tests.unit.catalogs.rest_world import LEASES, PATH, Clock, T, World, layout_of, leased


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


class Noted(NoFence):
    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def is_over(self) -> bool:
        self._seen.append("looked at")
        return False


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
        def with_lease(table: TableRef) -> Iterator[NoFence]:
            held.append("taken")
            yield Noted(held)
            held.append("given back")

        return RestCatalog("cloud", {"uri": world.double.uri, "token": "token-1"}, with_lease=with_lease)

    def test_it_is_made(self, stuck: tuple[World, Published]) -> None:
        world, new = stuck
        world.double.overwrite = 200
        held: list[str] = []
        self.open(world, held).commit(T, world.head(), new)
        assert world.head().metadata_uri == new.metadata_uri
        assert held == ["taken", "looked at", "given back"]

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

    @pytest.mark.parametrize("status", [429, 401])
    @pytest.mark.parametrize("came", ["with a lease", "without one", "and is at work"])
    def test_one_that_was_not_taken_is_sent_again_only_over_the_same_head_under_the_lease(
        self, stuck: tuple[World, Published], came: str, status: int
    ) -> None:
        """It was throttled, or its login had expired; meanwhile its lease has ended, and another follower came in."""
        world, new = stuck
        world.double.overwrite = 200
        other = Published("mem://m/t/other.json", {**new.metadata, "properties": {"lakemirror.version": "9"}})
        world.double.files[other.metadata_uri] = other.metadata
        head, clock, sent = world.head(), Clock(), 0

        def fault(verb: str, path: str) -> int | None:
            nonlocal sent
            sent += path.endswith("/register")
            return status if path.endswith("/register") and sent == 1 else None

        with ExitStack() as leases:

            def meanwhile(*pause_s: float) -> str:
                clock.later(Knobs().lease_seconds + Knobs().clock_skew_seconds)
                if came == "with a lease":
                    leased(world.double, "two", clock).commit(T, head, other)
                elif came == "without one":
                    world.catalog.commit(T, head, world.third)
                else:
                    leases.enter_context(swapping(LEASES, layout_of(world.double), Knobs(), clock, "two"))
                return "token-1"

            one = leased(world.double, "one", clock)
            one.load(T)
            one._client._sleep = meanwhile  # type: ignore[assignment]
            logins = iter([lambda: "token-1", meanwhile])
            one._client._login = TokenLogin(one._client._transport, lambda: next(logins)())
            world.double.fault = fault
            told = "head moved" if came == "without one" else "took it over"
            with pytest.raises(LostRaceError, match=told):
                one.commit(T, head, new)
        versions = {"with a lease": "9", "without one": "3", "and is at work": "1"}
        assert (sent - (came == "with a lease"), world.version) == (1, versions[came])

    def test_one_that_was_throttled_beyond_its_lease_takes_it_anew(self, stuck: tuple[World, Published]) -> None:
        world, new = stuck
        world.double.overwrite = 200
        head, clock, sent = world.head(), Clock(), 0

        def fault(verb: str, path: str) -> int | None:
            nonlocal sent
            sent += path.endswith("/register")
            if path.endswith("/register") and sent == 2:  # nobody else can come in while it is on its way
                with pytest.raises(TableBusyError), swapping(LEASES, layout_of(world.double), Knobs(), clock, "two"):
                    pass
            return 429 if path.endswith("/register") and sent == 1 else None

        one = leased(world.double, "one", clock)
        one._client._sleep = lambda pause_s: clock.later(Knobs().lease_seconds + Knobs().clock_skew_seconds)
        world.double.fault = fault
        one.commit(T, head, new)
        assert (sent, world.head().metadata_uri) == (2, new.metadata_uri)

    def test_one_whose_lease_has_ended_while_it_looked_is_not_sent(self, stuck: tuple[World, Published]) -> None:
        world, new = stuck
        world.double.overwrite = 200
        head, clock = world.head(), Clock()
        late = leased(world.double, "one", clock, lambda: clock.later(Knobs().lease_seconds))
        asked = len(world.double.asked)
        with pytest.raises(LostRaceError, match="has ended before this could be sent"):
            late.commit(T, head, new)
        assert not any(one.startswith("POST") for one in world.double.asked[asked:])

    def test_one_whose_answer_is_no_catalogs_keeps_others_out(self, stuck: tuple[World, Published]) -> None:
        world, new = stuck
        world.double.overwrite, world.double.body = 406, b'"upstream down"'  # it is not taken yet
        head, clock = world.head(), Clock()
        world.double.fault = lambda verb, path: 502 if path.endswith("/register") else None
        with pytest.raises(UnsettledError, match="the head is as before"):
            leased(world.double, "one", clock).commit(T, head, new)
        world.double.fault = lambda verb, path: None
        with pytest.raises(TableBusyError):
            leased(world.double, "two", clock).commit(T, head, new)

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

    @pytest.mark.parametrize("has_fence", [True, False])
    @pytest.mark.parametrize("came", ["with a lease", "without one"])
    def test_one_that_was_throttled_takes_away_nothing_that_came_meanwhile(
        self, world: World, came: str, has_fence: bool
    ) -> None:
        head, clock = world.head(), Clock()
        world.double.fault = lambda verb, path: 429 if verb == "DELETE" else None

        def meanwhile(pause_s: float) -> None:
            clock.later(Knobs().lease_seconds + Knobs().clock_skew_seconds)
            follower = leased(world.double, "two", clock) if came == "with a lease" else world.catalog
            follower.commit(T, head, replace(world.second, follows_drop=came == "with a lease"))
            world.double.fault = lambda verb, path: None

        one = leased(world.double, "one", clock) if has_fence else RestCatalog("cloud", world.properties)
        one._client._sleep = meanwhile
        with pytest.raises(LostRaceError, match="took it over" if has_fence and came == "with a lease" else "moved"):
            one.drop(T, head)
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
