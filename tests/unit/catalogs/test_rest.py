"""REST catalogs that misbehave: what was done is told from what was not, by reading back and never by guessing."""

from __future__ import annotations

import pickle
import time

import pytest

from lakemirror.catalogs.abilities import CatalogAbilities
from lakemirror.catalogs.ports import Published
from lakemirror.catalogs.rest import UNSUPPORTED, RestCatalog
from lakemirror.catalogs.updates import commit_of
from lakemirror.errors import (
    LakemirrorError,
    LostRaceError,
    PermanentError,
    TransientError,
)
from lakemirror.model.table import TableRef
from tests.faults.proxy import deaf_url
from tests.published_tables import Table
from tests.rest_double import RestDouble
from tests.rest_interpreter import take
from tests.unit.catalogs.rest_world import PATH, T, World, on_commit


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


OTHER_WORDS = (b'"upstream down"', b"[]", b"null", b"502", b"<html>bad gateway</html>", b"")


@pytest.mark.parametrize("body", OTHER_WORDS)
def test_a_proxy_that_speaks_no_catalogs_language(world: World, body: bytes) -> None:
    """What it says may be JSON and is no object: the status counts, and the commit was made."""
    head = world.head()
    world.double.body = body
    world.double.fault = on_commit(502)  # type: ignore[assignment]
    world.catalog.commit(T, head, world.second)
    assert world.version == "2"


@pytest.mark.parametrize("body", [b'"taken"', b"[]", b"not even JSON"])
def test_a_success_that_says_something_else_is_read_back(world: World, body: bytes) -> None:
    head = world.head()
    world.double.body = body
    world.double.fault = on_commit(200)  # type: ignore[assignment]
    world.catalog.commit(T, head, world.second)
    assert world.version == "2"


def test_a_read_that_is_answered_by_something_else_is_told(world: World) -> None:
    world.double.body = b'"welcome"'
    world.double.fault = lambda verb, path: 200 if verb == "GET" else None
    with pytest.raises(PermanentError, match="not of an Iceberg catalog"):
        world.head()


@pytest.mark.parametrize("body", OTHER_WORDS)
def test_a_conflict_in_other_words_is_looked_into(world: World, body: bytes) -> None:
    head = world.head()
    world.catalog.commit(T, head, world.second)
    world.double.body = body
    world.double.fault = on_commit(409)  # type: ignore[assignment]
    with pytest.raises(LostRaceError, match="head moved"):
        world.catalog.commit(T, head, world.third)


def test_a_namespace_that_others_make(world: World) -> None:
    """Who may make tables only is refused, and needs nothing but that it is there."""
    world.double.tables.clear()
    world.double.fault = lambda verb, path: 403 if (verb, path) == ("POST", "/v1/namespaces") else None
    world.catalog.commit(T, None, world.second)
    assert world.version == "2"


def test_a_level_of_a_namespace_that_may_not_even_be_seen(world: World) -> None:
    """Who has rights on the innermost alone: that it is there is enough."""
    refused = {("POST", "/v1/namespaces"): 403, ("GET", "/v1/namespaces/a"): 403}
    world.double.fault = lambda verb, path: refused.get((verb, path))
    inner = TableRef.parse("a.b.orders")
    world.catalog.commit(inner, None, world.second)
    assert world.catalog.load(inner) is not None


def test_a_namespace_that_nobody_made(world: World) -> None:
    world.double.tables.clear()

    def fault(verb: str, path: str) -> int | None:
        return {("POST", "/v1/namespaces"): 403, ("GET", "/v1/namespaces/shop"): 404}.get((verb, path))

    world.double.fault = fault
    with pytest.raises(PermanentError, match=r"make namespace shop: .*403"):
        world.catalog.commit(T, None, world.second)


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
    assert world.double.statuses[before:] == [304]
    world.catalog.commit(T, world.head(), world.second)
    for status in (200, 304):
        assert catalog.head(T) == world.double.tables[PATH][0]
        assert world.double.statuses[-1] == status


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
