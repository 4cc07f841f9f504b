"""What the processes of the file tests do; importable by name, because they are started anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier

from lakemirror.storage.objects import ObstoreStore
from lakemirror.storage.port import ConditionFailed, IfMatch

BODY_BYTES = 300_000
WAIT_S = 60


def create_in_rounds(root: str, rounds: int, racer: int, start: Barrier) -> None:
    """Race for `<root>/<round>` in each round; note a victory as `<root>/won/<round>-<racer>`."""
    store = ObstoreStore({})
    for number in range(rounds):
        start.wait(WAIT_S)
        try:
            store.put(f"{root}/{number}", (bytes([racer]) * 1000 for _ in range(BODY_BYTES // 1000)))
        except ConditionFailed:
            continue
        store.put(f"{root}/won/{number}-{racer}", b"")


def increment(uri: str, times: int, start: Barrier) -> None:
    """Add one to the number in an object, so many times, each by compare and set."""
    store = ObstoreStore({})
    start.wait(WAIT_S)
    done = 0
    while done < times:
        blob = store.get(uri)
        assert blob.info.e_tag is not None
        try:
            store.put(uri, f"{int(blob.data) + 1:06}".encode(), IfMatch(blob.info.e_tag))
        except ConditionFailed:
            continue
        done += 1


def write_half_and_wait(uri: str) -> None:
    """Say `half` when half of a body is written, then wait to be killed."""

    def body() -> Iterator[bytes]:
        yield b"x" * BODY_BYTES
        sys.stdout.write("half\n")
        sys.stdout.flush()
        sys.stdin.read()
        yield b"y" * BODY_BYTES

    ObstoreStore({}).put(uri, body())


if __name__ == "__main__":
    write_half_and_wait(sys.argv[1])
