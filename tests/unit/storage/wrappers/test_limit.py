from __future__ import annotations

import pickle
import time

import pytest

from lakemirror.errors import UsageError
from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.wrappers.limit import RateLimitedStore, TokenBucket


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def limited(clock: Clock, *, bytes_per_s: float | None = None, requests_per_s: float | None = None) -> RateLimitedStore:
    inner = ObstoreStore({})
    inner.put("memory://m/a", b"x" * 1000)
    requests = None if requests_per_s is None else TokenBucket(requests_per_s, clock, clock.sleep)
    return RateLimitedStore(inner, bytes_per_s=bytes_per_s, requests=requests, clock=clock, sleep=clock.sleep)


def test_a_second_s_worth_passes_at_once_and_the_rest_at_the_rate(clock: Clock) -> None:
    bucket = TokenBucket(10, clock, clock.sleep)
    moments = []
    for _ in range(30):
        bucket.take(1)
        moments.append(round(clock.now_s - 100, 6))
    assert moments == [0.0] * 10 + [round(0.1 * number, 6) for number in range(1, 21)]


def test_a_pause_saves_up_no_more_than_a_second(clock: Clock) -> None:
    bucket = TokenBucket(10, clock, clock.sleep)
    bucket.take(10)
    clock.now_s += 3600
    start_s = clock.now_s
    bucket.take(20)
    assert clock.now_s - start_s == pytest.approx(1)


def test_without_a_burst_the_first_byte_is_paid_for(clock: Clock) -> None:
    inner = ObstoreStore({})
    inner.put("memory://m/b", b"x" * 1000)
    store = RateLimitedStore(inner, bytes_per_s=100, burst_s=0, clock=clock, sleep=clock.sleep)
    store.get("memory://m/b")
    assert clock.now_s - 100 == pytest.approx(10)


def test_a_slow_line_is_read_in_small_pieces_so_that_no_stream_waits_long(clock: Clock) -> None:
    inner = ObstoreStore({})
    inner.put("memory://m/b", b"x" * 1_000_000)
    store = RateLimitedStore(inner, bytes_per_s=800_000, clock=clock, sleep=clock.sleep)
    assert max(map(len, store.stream("memory://m/b"))) == 200_000
    assert max(map(len, store.stream("memory://m/b", chunk_bytes=1000))) == 1000


def test_streams_and_bodies_are_slowed_piece_by_piece(clock: Clock) -> None:
    store = limited(clock, bytes_per_s=100)
    moments = [clock.now_s - 100 for _ in store.stream("memory://m/a", chunk_bytes=250)]
    assert moments == pytest.approx([1.5, 4, 6.5, 9])
    store.put("memory://m/b", (b"x" * 100 for _ in range(5)))
    assert clock.now_s - 100 == pytest.approx(14)
    store.put("memory://m/c", b"x" * 100)
    assert clock.now_s - 100 == pytest.approx(15)
    store.get("memory://m/c")
    assert clock.now_s - 100 == pytest.approx(16)


def test_every_verb_is_a_request(clock: Clock) -> None:
    store = limited(clock, requests_per_s=1)
    store.head("memory://m/a")
    for call in (
        lambda: store.get("memory://m/a"),
        lambda: store.stream("memory://m/a"),
        lambda: store.put("memory://m/b", b""),
        lambda: store.head("memory://m/a"),
        lambda: store.list("memory://m"),
        lambda: store.copy("memory://m/a", "memory://m/c"),
        lambda: store.delete(["memory://m/a"]),
    ):
        before_s = clock.now_s
        call()
        assert clock.now_s - before_s == pytest.approx(1)


@pytest.mark.parametrize("rate", [0, -1])
def test_a_rate_must_let_something_pass(clock: Clock, rate: float) -> None:
    with pytest.raises(UsageError):
        limited(clock, bytes_per_s=rate)


def test_pickles() -> None:
    store = RateLimitedStore(ObstoreStore({}), bytes_per_s=5, clock=time.monotonic, sleep=time.sleep)
    assert isinstance(pickle.loads(pickle.dumps(store)), RateLimitedStore)
