"""How far a copy is: never back, whoever tells; and not more lines than a log can bear."""

from __future__ import annotations

import threading
import time

from lakemirror.replicate.progress import FilesTold, LogLines

Told = list[tuple[str, int, int, int, int]]


def test_it_never_goes_back_whoever_tells() -> None:
    told: Told = []
    files = FilesTold(lambda *seen: told.append(seen), 10, 1000)
    files.add(1, 100)
    files.reach(4, 300)
    files.portion(10, 1000)(1, 10)  # of tasks that do not speak for themselves: less than is known
    files.reach(40, 5000)  # a task that began anew has told some of it twice
    assert [(seen[1], seen[3]) for seen in told] == [(0, 0), (1, 100), (4, 300), (4, 300), (10, 1000)]
    assert {(seen[0], seen[2], seen[4]) for seen in told} == {("copy", 10, 1000)}


def test_rows_tell_of_what_they_hold_and_not_of_what_comes_after() -> None:
    told: Told = []
    files = FilesTold(lambda *seen: told.append(seen), 10, 1000)
    first, second = files.portion(8, 300), files.portion(2, 700)
    first(1, 2)
    first(2, 2)
    second(1, 2)
    second(2, 2)
    assert [(seen[1], seen[3]) for seen in told] == [(0, 0), (4, 150), (8, 300), (9, 650), (10, 1000)]


def test_nothing_to_copy_is_not_told() -> None:
    told: Told = []
    FilesTold(lambda *seen: told.append(seen), 0, 0).add(0, 0)
    assert told == []


def test_lines_are_few_and_say_how_long_it_takes() -> None:
    said: list[str] = []
    now = 0.0
    lines = LogLines("sales.orders", said.append, lambda: now)
    for second in range(41):
        now = float(second)
        lines("copy", second, 40, second * 10**6, 40 * 10**6)
    lines("rewrite", 0, 2, 0, 0)
    assert said == [
        "sales.orders: copy 0 of 40",
        "sales.orders: copy 15 of 40, 15.0 MB of 40.0 MB, 1.0 MB/s, 25 s left",
        "sales.orders: copy 30 of 40, 30.0 MB of 40.0 MB, 1.0 MB/s, 10 s left",
        "sales.orders: copy 40 of 40, 40.0 MB of 40.0 MB, 1.0 MB/s",
        "sales.orders: rewrite 0 of 2",
    ]


def test_a_stage_that_stands_still_says_so_more_and_more_seldom() -> None:
    said: list[str] = []
    now = 0.0
    lines = LogLines("sales.orders", said.append, lambda: now)
    lines.look()  # before anything has begun
    lines("copy", 0, 2, 0, 10**6)
    now = 10.0
    lines("copy", 1, 2, 5 * 10**5, 10**6)
    said.clear()
    for second in range(10, 4000):
        now = float(second)
        lines.look()
    stood = [
        "15 s",
        "30 s",
        "60 s",
        "2 min",
        "4 min",
        "8 min",
        "16 min",
        "26 min",
        "36 min",
        "46 min",
        "56 min",
        "66 min",
    ]
    assert [line.rpartition("; nothing has moved for ")[2] for line in said] == stood
    assert said[0] == "sales.orders: copy 1 of 2, 500.0 KB of 1.0 MB, 20.0 KB/s, 25 s left; nothing has moved for 15 s"
    lines("copy", 2, 2, 10**6, 10**6)
    said.clear()
    now = 10000.0
    lines.look()
    assert said == []


def test_a_thread_looks_as_long_as_the_work_lasts() -> None:
    said: list[str] = []
    stood = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        if "nothing has moved" in line:
            stood.set()

    with LogLines("sales.orders", say, time.monotonic, every_s=0.02) as lines:
        lines("copy", 0, 2, 0, 10)
        assert stood.wait(10)
    assert "lakemirror-progress" not in {thread.name for thread in threading.enumerate()}
