from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from lakemirror.errors import TransientError
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ObjectStore
from lakemirror.storage.wrappers.fault import Action, Fault, FaultyStore, SimulatedCrash, Verb

VERBS: dict[Verb, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get("memory://m/a"),
    "stream": lambda store: b"".join(store.stream("memory://m/a")),
    "put": lambda store: store.put("memory://m/new", b"new!"),
    "head": lambda store: store.head("memory://m/a"),
    "list": lambda store: list(store.list("memory://m")),
    "delete": lambda store: store.delete(["memory://m/b", "memory://m/c"]),
    "copy": lambda store: store.copy("memory://m/a", "memory://m/new"),
}
WRITES = {"put": ["a", "b", "c", "new"], "delete": ["a"], "copy": ["a", "b", "c", "new"]}


@pytest.fixture
def inner() -> ObstoreStore:
    store = ObstoreStore({})
    for name in "abc":
        store.put(f"memory://m/{name}", b"data")
    return store


def names(store: ObjectStore) -> list[str]:
    return [info.uri.rpartition("/")[2] for info in store.list("memory://m")]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("action", "error"), [(Action.FAIL, TransientError), (Action.KILL, SimulatedCrash)], ids=["fail", "kill"]
)
def test_before_nothing_is_done(inner: ObstoreStore, verb: Verb, action: Action, error: type[BaseException]) -> None:
    store = FaultyStore(inner, [Fault(verb, action)])
    with pytest.raises(error):
        VERBS[verb](store)
    assert names(inner) == ["a", "b", "c"]
    VERBS[verb](store)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("action", "error"),
    [(Action.FAIL_AFTER, TransientError), (Action.KILL_AFTER, SimulatedCrash)],
    ids=["fail", "kill"],
)
def test_after_all_is_done(inner: ObstoreStore, verb: Verb, action: Action, error: type[BaseException]) -> None:
    store = FaultyStore(inner, [Fault(verb, action)])
    with pytest.raises(error):
        VERBS[verb](store)
    assert names(inner) == WRITES.get(verb, ["a", "b", "c"])


@pytest.mark.parametrize(
    ("action", "error"), [(Action.CUT, TransientError), (Action.KILL_MIDWAY, SimulatedCrash)], ids=["cut", "kill"]
)
class TestMidway:
    def test_a_stream_ends_after_half_a_piece(
        self, inner: ObstoreStore, action: Action, error: type[BaseException]
    ) -> None:
        pieces = FaultyStore(inner, [Fault("stream", action)]).stream("memory://m/a")
        assert next(pieces) == b"da"
        with pytest.raises(error):
            next(pieces)

    @pytest.mark.parametrize("streamed", [False, True])
    def test_a_put_breaks_off_and_writes_nothing(
        self, inner: ObstoreStore, tmp_path: Path, action: Action, error: type[BaseException], streamed: bool
    ) -> None:
        store = FaultyStore(inner, [Fault("put", action, nth=nth) for nth in (1, 2)])
        for uri in ("memory://m/new", f"file://{tmp_path}/new"):
            with pytest.raises(error):
                store.put(uri, iter([b"one", b"two"]) if streamed else b"one")
        assert names(inner) == ["a", "b", "c"]
        assert list(tmp_path.iterdir()) == []


def test_the_nth_matching_call_is_met_and_others_pass(inner: ObstoreStore) -> None:
    fault = Fault("head", Action.FAIL, nth=2, uri_contains="/b")
    store = FaultyStore(inner, [fault])
    store.head("memory://m/a")
    store.head("memory://m/b")
    store.head("memory://m/a")
    store.get("memory://m/b")
    assert store.met == []
    with pytest.raises(TransientError, match="injected fault"):
        store.head("memory://m/b")
    assert store.met == [fault]
    store.head("memory://m/b")


def test_any_verb_and_any_of_the_uris_can_be_meant(inner: ObstoreStore) -> None:
    store = FaultyStore(inner, [Fault("*", Action.FAIL, nth=nth, uri_contains="/c") for nth in (1, 2)])
    with pytest.raises(TransientError):
        store.delete(["memory://m/b", "memory://m/c"])
    with pytest.raises(TransientError):
        store.copy("memory://m/a", "memory://m/c")
    store.head("memory://m/c")


def test_a_stale_listing_is_the_one_before(inner: ObstoreStore) -> None:
    store = FaultyStore(inner, [Fault("list", Action.STALE_LIST, nth=2), Fault("list", Action.STALE_LIST, nth=3)])
    assert names(store) == ["a", "b", "c"]
    store.put("memory://m/new", b"")
    assert names(store) == ["a", "b", "c"]
    store.delete(["memory://m/a"])
    assert names(store) == ["a", "b", "c"]
    assert names(store) == ["b", "c", "new"]


def test_a_stale_listing_without_one_before_is_empty(inner: ObstoreStore) -> None:
    assert names(FaultyStore(inner, [Fault("list", Action.STALE_LIST)])) == []


def test_a_delay_waits_and_does(inner: ObstoreStore) -> None:
    naps: list[float] = []
    store = FaultyStore(inner, [Fault("put", Action.DELAY, delay_s=7)], sleep=naps.append)
    store.put("memory://m/new", b"")
    assert (naps, names(inner)) == ([7], ["a", "b", "c", "new"])


def test_a_crash_is_not_an_exception() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_pickles_with_its_faults(tmp_path: Path) -> None:
    store = FaultyStore(ObstoreStore({}), [Fault("head", Action.FAIL)])
    copy: FaultyStore = pickle.loads(pickle.dumps(store))
    with pytest.raises(TransientError):
        copy.head(f"{tmp_path}/x")
