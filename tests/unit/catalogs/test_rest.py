"""REST catalogs that misbehave: what was done is told from what was not, by reading back and never by guessing."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from lakemirror.catalogs.ports import MirrorHead, Published
from lakemirror.catalogs.rest import UNSUPPORTED, RestCatalog
from lakemirror.errors import LostRaceError, PermanentError, TransientError, UnsupportedError
from lakemirror.model.table import TableRef
from tests.published_tables import Table
from tests.rest_double import RestDouble, rest_double

T = TableRef.parse("shop.orders")
PATH = "namespaces/shop/tables/orders"


@pytest.fixture
def double() -> Iterator[RestDouble]:
    with rest_double() as double:
        yield double


class World:
    """A table of two published versions, the first of which is committed."""

    def __init__(self, double: RestDouble) -> None:
        self.double = double
        self.catalog = RestCatalog("cloud", {"uri": double.uri, "token": "token-1"})
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
    with pytest.raises(TransientError, match="it was not made") as caught:
        world.catalog.commit(T, head, world.second)
    assert not isinstance(caught.value, LostRaceError)
    assert world.version == "1"


@pytest.mark.parametrize("status", [500, 502, 503, 504])
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


def test_a_throttled_commit_was_not_made(world: World) -> None:
    head = world.head()
    world.double.headers = {"Retry-After": "7"}
    world.double.fault = lambda verb, path: 429 if verb == "POST" else None
    with pytest.raises(TransientError, match="429") as caught:
        world.catalog.commit(T, head, world.second)
    assert "in 7 s" in caught.value.hint


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


@pytest.mark.parametrize("key", ["rest.sigv4-enabled", "auth.type", "signer"])
def test_what_it_cannot_do_is_refused_by_name(key: str) -> None:
    with pytest.raises(UnsupportedError, match=key.split(".type", maxsplit=1)[0]):
        RestCatalog("cloud", {"uri": "http://x", key: "true"})
