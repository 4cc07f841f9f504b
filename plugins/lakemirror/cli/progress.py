"""Progress bars on stderr, only when that is a terminal: stage, files, bytes, rate, time left. Otherwise silence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TextIO

from lakemirror.model.results import describe_volume

Progress = Callable[[str, int, int, int, int], None]  # stage, files done, files in all, bytes done, bytes in all
Watch = Callable[[str], AbstractContextManager[Progress | None]]


def watch_on(stderr: TextIO) -> Watch:
    """Makes, for each table, the callback that the work reports to; None where nobody looks."""
    return (lambda table: _bars(table, stderr)) if stderr.isatty() else _silence


@contextmanager
def _silence(table: str) -> Iterator[None]:
    yield None


@contextmanager
def _bars(table: str, stderr: TextIO) -> Iterator[Progress]:
    """One bar per stage; the bars vanish when the table is done, its result line stays."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[volume]}"),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(file=stderr), transient=True) as bars:
        waiting = bars.add_task(f"{table} looking for changes", total=None, volume="")
        stages: dict[str, tuple[TaskID, float]] = {}

        def advance(stage: str, done: int, total: int, bytes_done: int, bytes_total: int) -> None:
            if stage not in stages:
                bars.update(waiting, visible=False)
                stages[stage] = (bars.add_task(f"{table} {stage}", total=total, volume=""), bars.get_time())
            bar, started_at = stages[stage]
            volume = describe_volume(bytes_done, bars.get_time() - started_at, bytes_total)
            bars.update(bar, completed=done, total=total, volume=volume)

        yield advance
