"""Runs a table command over its tables, one after the other, over one App (and so one Spark session, if any).

One table's failure is that table's answer and never stops the others; a bug in one table's way counts as such a
failure, with its traceback on stderr. Ctrl-C ends the command: what was done is reported, the rest is marked.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from lakemirror.cli.arguments import Invocation
from lakemirror.cli.interrupts import CtrlC
from lakemirror.cli.outcome import Answer, Outcome
from lakemirror.cli.progress import Watch
from lakemirror.errors import LakemirrorError, PermanentError, TransientError
from lakemirror.model.table import TableRef

if TYPE_CHECKING:
    from lakemirror.app import App

LoadApp = Callable[[str | None], "App"]


@dataclass(frozen=True, slots=True)
class _Target:
    """A table to work on, or why the name given for it is none. No name: the tables are not known yet."""

    name: str | None
    table: TableRef | None = None
    error: LakemirrorError | None = None


class TableRun:
    """One command over its tables; `interrupted` may be asked at any time, also by another thread."""

    def __init__(self, asked: Invocation, stderr: TextIO, ctrl_c: CtrlC) -> None:
        self._asked = asked
        self._stderr = stderr
        self._ctrl_c = ctrl_c
        self._targets = [_Target(name) for name in asked.tables] or [_Target(None)]
        self._outcomes: list[Outcome] = []

    def run(self, load_app: LoadApp, watch: Watch) -> Answer:
        """Answers in the order given, or by name. `watch` makes each table's progress callback."""
        try:
            with load_app(self._asked.config) as app:
                self._targets = _targets(app, self._asked)
                for target in self._targets:
                    outcome = self._run_one(app, target, watch)
                    if outcome.is_ok or not self._ctrl_c.was_pressed():
                        self._outcomes.append(outcome)
                    if self._ctrl_c.was_pressed():
                        raise KeyboardInterrupt
        except KeyboardInterrupt:
            return self.interrupted()
        except Exception as err:  # noqa: BLE001  not swallowed: told as a defect, with its traceback
            if self._ctrl_c.was_pressed():
                return self.interrupted()
            error = err if isinstance(err, LakemirrorError) else bug(err, self._asked.command, self._stderr)
            return self._answer(error)
        return self._answer()

    def interrupted(self) -> Answer:
        """What was done so far; every other table is marked as stopped."""
        return self._answer(was_interrupted=True)

    def _answer(self, error: LakemirrorError | None = None, *, was_interrupted: bool = False) -> Answer:
        """What stopped the whole command is told for each table that has no outcome of its own."""
        outcomes = list(self._outcomes)
        for target in self._targets[len(outcomes) :]:
            outcomes.append(Outcome(target.name, error=error or interruption(target.name or "all tables")))
        is_single = len(self._asked.tables) == 1 and len(outcomes) == 1
        return Answer(self._asked.command, tuple(outcomes), is_single, was_interrupted)

    def _run_one(self, app: App, target: _Target, watch: Watch) -> Outcome:
        if target.table is None:
            return Outcome(target.name, error=target.error)
        name = str(target.table)
        try:
            with watch(name) as progress:
                return _COMMANDS[self._asked.command](app, target.table, self._asked, progress)
        except LakemirrorError as err:
            return Outcome(name, error=err)
        except Exception as err:
            if self._ctrl_c.was_pressed():
                raise KeyboardInterrupt from err
            return Outcome(name, error=bug(err, name, self._stderr))


def interruption(subject: str) -> LakemirrorError:
    return TransientError("interrupt", subject, "stopped by Ctrl-C", "run it again: it goes on where it was")


def bug(err: Exception, subject: str, stderr: TextIO) -> LakemirrorError:
    """An exception nobody foresaw: the traceback for whoever repairs it, a plain error for everybody else."""
    stderr.write("".join(traceback.format_exception(err)))
    first_line = next(iter(str(err).splitlines()), "")
    hint = "this is a defect of lakemirror: report it with the traceback"
    return PermanentError("internal", subject, f"{type(err).__name__}: {first_line}", hint)


def _targets(app: App, asked: Invocation) -> list[_Target]:
    if not asked.tables:
        known = [_Target(str(table), table) for table in app.tables(all=True)]
        refused = [_Target(name, None, error) for name, error in app.refused_tables().items()]
        return sorted(known + refused, key=lambda target: str(target.name))
    targets: list[_Target] = []
    for name in asked.tables:
        try:
            targets += [_Target(str(table), table) for table in app.tables([name])]
        except LakemirrorError as err:
            targets.append(_Target(name, None, err))
    return targets


def _plan(app: App, table: TableRef, asked: Invocation, progress: Any) -> Outcome:
    return Outcome(str(table), app.plan(table).as_json())


def _mirror(app: App, table: TableRef, asked: Invocation, progress: Any) -> Outcome:
    result = app.mirror(table, target_snapshot_id=asked.snapshot_id, full_verify=asked.full_verify, progress=progress)
    return Outcome(str(table), result.as_json())


def _follow(app: App, table: TableRef, asked: Invocation, progress: Any) -> Outcome:
    result = app.follow(table, adopt=asked.adopt, overwrite_foreign=asked.overwrite_foreign)
    return Outcome(str(table), result.as_json())


def _sync(app: App, table: TableRef, asked: Invocation, progress: Any) -> Outcome:
    facts: dict[str, Any] = {"mirror": None, "follow": None}
    try:
        facts["mirror"] = _mirror(app, table, asked, progress).as_json()
        facts["follow"] = _follow(app, table, asked, progress).as_json()
    except LakemirrorError as err:
        return Outcome(str(table), facts, err)
    return Outcome(str(table), facts)


def _status(app: App, table: TableRef, asked: Invocation, progress: Any) -> Outcome:
    result = app.status(table)
    return Outcome(str(table), result.as_json(), needs_attention=result.is_behind)


def _drop(app: App, table: TableRef, asked: Invocation, progress: Any) -> Outcome:
    return Outcome(str(table), app.drop_mirror(table, overwrite_foreign=asked.overwrite_foreign).as_json())


_COMMANDS: dict[str, Callable[[Any, TableRef, Invocation, Any], Outcome]] = {
    "plan": _plan,
    "mirror": _mirror,
    "follow": _follow,
    "sync": _sync,
    "status": _status,
    "drop-mirror": _drop,
}
