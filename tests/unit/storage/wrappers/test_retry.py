from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakemirror.errors import PermanentError, TransientError, UsageError
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ConditionFailed, IfMatch, ObjectInfo, ObjectNotFound, ObjectStore, Overwrite
from lakemirror.storage.wrappers.count import CountingStore
from lakemirror.storage.wrappers.fault import Action, Fault, FaultyStore, SimulatedCrash, Verb
from lakemirror.storage.wrappers.retry import RetryingStore

URI = "memory://m/x"
VERBS: dict[Verb, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get(URI),
    "stream": lambda store: b"".join(store.stream(URI)),
    "head": lambda store: store.head(URI),
    "list": lambda store: list(store.list("memory://m")),
    "delete": lambda store: store.delete(["memory://m/gone"]),
    "copy": lambda store: store.copy(URI, "memory://m/y", Overwrite()),
    "put": lambda store: store.put("memory://m/z", b"z", Overwrite()),
}


class Scene:
    """A retrying store over a faulty one that holds an object, and the pauses it made."""

    def __init__(self, *faults: Fault, attempts: int = 3) -> None:
        self.naps: list[float] = []
        self.memory = ObstoreStore({})
        self.memory.put(URI, b"here")
        self.counted = CountingStore(self.memory)
        self.faulty = FaultyStore(self.counted, faults)
        self.store = RetryingStore(
            self.faulty, attempts=attempts, base_delay_s=1, max_delay_s=5, sleep=self.naps.append, random=lambda: 0.5
        )


def failing(verb: Verb, times: int, action: Action = Action.FAIL) -> list[Fault]:
    return [Fault(verb, action, nth=nth) for nth in range(1, times + 1)]


@pytest.mark.parametrize("verb", VERBS)
def test_passing_failures_are_overcome(verb: Verb) -> None:
    scene = Scene(*failing(verb, 2))
    assert VERBS[verb](scene.store) == VERBS[verb](scene.memory) or verb in ("copy", "put")
    assert len(scene.faulty.met) == 2
    assert scene.naps == [0.5, 1.0]


@pytest.mark.parametrize("verb", VERBS)
def test_the_attempts_are_bounded_and_told(verb: Verb) -> None:
    scene = Scene(*failing(verb, 9), attempts=6)
    with pytest.raises(TransientError) as raised:
        VERBS[verb](scene.store)
    assert raised.value.__notes__ == ["gave up after 6 attempts"]
    assert len(scene.faulty.met) == 6
    assert scene.naps == [0.5, 1.0, 2.0, 2.5, 2.5]


@pytest.mark.parametrize(("each_s", "attempts"), [(50.0, 3), (121.0, 1)])
def test_attempts_that_take_long_are_fewer(each_s: float, attempts: int) -> None:
    class Slow(FaultyStore):
        now_s = 0.0

        def head(self, uri: str) -> ObjectInfo:
            Slow.now_s += each_s
            return super().head(uri)

    store = Slow(ObstoreStore({}), failing("head", 9))
    used = RetryingStore(store, patience_s=120, clock=lambda: Slow.now_s, sleep=lambda _: None)
    with pytest.raises(TransientError) as raised:
        used.head(URI)
    assert raised.value.__notes__ == [f"gave up after {attempts} attempts"]


def test_permanent_errors_and_crashes_pass_at_once() -> None:
    scene = Scene(Fault("head", Action.KILL))
    with pytest.raises(SimulatedCrash):
        scene.store.head(URI)
    with pytest.raises(ObjectNotFound):
        scene.store.get("memory://m/none")
    with pytest.raises(PermanentError):
        scene.store.get("memory://m/a//b")
    assert scene.naps == []


def test_a_stream_or_listing_that_breaks_after_its_first_piece_is_the_caller_s() -> None:
    scene = Scene(Fault("stream", Action.CUT))
    pieces = scene.store.stream(URI)
    assert next(pieces) == b"he"
    with pytest.raises(TransientError):
        next(pieces)
    assert scene.naps == []


def test_a_stream_cannot_be_put_twice_and_is_not_tried_again() -> None:
    scene = Scene(Fault("put", Action.FAIL))
    with pytest.raises(TransientError):
        scene.store.put("memory://m/y", iter([b"y"]))
    assert scene.naps == []


class TestCreate:
    def test_our_own_first_attempt_counts_as_success(self) -> None:
        scene = Scene(Fault("put", Action.FAIL_AFTER))
        written = scene.store.put("memory://m/y", b"mine")
        info = scene.memory.head("memory://m/y")
        assert (written.uri, written.size_bytes, written.e_tag) == (info.uri, 4, info.e_tag)
        assert written.crc32c == scene.memory.put("memory://m/again", b"mine").crc32c
        assert scene.counted.counts["put"] == 2

    def test_the_comparison_is_retried_too(self) -> None:
        scene = Scene(Fault("put", Action.FAIL_AFTER), Fault("head", Action.FAIL), Fault("stream", Action.CUT))
        assert scene.store.put("memory://m/y", b"mine").size_bytes == 4
        assert len(scene.faulty.met) == 3

    @pytest.mark.parametrize("theirs", [b"else", b"longer than mine"])
    def test_somebody_else_s_object_does_not(self, theirs: bytes) -> None:
        scene = Scene(Fault("put", Action.FAIL))
        scene.memory.put("memory://m/y", theirs)
        with pytest.raises(ConditionFailed):
            scene.store.put("memory://m/y", b"mine")
        assert scene.memory.get("memory://m/y").data == theirs

    @pytest.mark.parametrize("verb", ["head", "stream"])
    def test_nor_does_one_that_is_gone_when_it_is_compared(self, verb: str) -> None:
        scene = Scene(Fault("put", Action.FAIL))
        scene.memory.put("memory://m/y", b"mine")
        look = getattr(scene.faulty, verb)

        def gone(uri: str, **options: Any) -> Any:
            scene.memory.delete([uri])
            return look(uri, **options)

        setattr(scene.faulty, verb, gone)
        with pytest.raises(ConditionFailed):
            scene.store.put("memory://m/y", b"mine")

    def test_an_equal_object_that_was_there_before_does_not(self) -> None:
        scene = Scene()
        scene.memory.put("memory://m/y", b"mine")
        with pytest.raises(ConditionFailed):
            scene.store.put("memory://m/y", b"mine")

    def test_copies_are_compared_with_their_source(self) -> None:
        scene = Scene(Fault("copy", Action.FAIL_AFTER))
        assert scene.store.copy(URI, "memory://m/y") == scene.memory.head("memory://m/y")
        other = Scene(Fault("copy", Action.FAIL))
        other.memory.put("memory://m/y", b"else")
        with pytest.raises(ConditionFailed):
            other.store.copy(URI, "memory://m/y")

    def test_if_match_is_left_to_the_caller(self) -> None:
        scene = Scene(Fault("put", Action.FAIL_AFTER))
        e_tag = scene.memory.head(URI).e_tag
        assert e_tag is not None
        with pytest.raises(ConditionFailed):
            scene.store.put(URI, b"mine", IfMatch(e_tag))
        assert scene.memory.get(URI).data == b"mine"


def test_no_attempt_at_all_is_refused() -> None:
    with pytest.raises(UsageError):
        RetryingStore(ObstoreStore({}), attempts=0)
