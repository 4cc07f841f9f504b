"""Runs a table command over its tables, one after the other, over one App (and so one Spark session, if any).

One table's failure is that table's answer and never stops the others; a bug in one table's way counts as such a
failure, with its traceback on stderr. Ctrl-C ends the command: what was done is reported, the rest is marked.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from lakemirror.cli.arguments import Invocation
from lakemirror.cli.interrupts import WasInterrupted, never
from lakemirror.cli.outcome import Answer, Outcome
from lakemirror.cli.progress import Watch
from lakemirror.errors import LakemirrorError, PermanentError, TransientError
from lakemirror.model.table import TableRef

if TYPE_CHECKING:
    from lakemirror.app import App

LoadApp = Callable[[str | None], "App"]


@dataclass(frozen=True, slots=True)
class _Target:
    """A table to work on, or why the name given for it is none."""

    name: str
    table: TableRef | None
    error: LakemirrorError | None = None


def run_tables(
    asked: Invocation, load_app: LoadApp, watch: Watch, stderr: TextIO, was_interrupted: WasInterrupted = never
) -> Answer:
    """Answers in the order given, or by name. `watch` makes each table's progress callback."""
    outcomes: list[Outcome] = []
    targets = [_Target(name, None) for name in asked.tables]
    is_stopped = False
    try:
        with load_app(asked.config) as app:
            targets = _targets(app, asked)
            for target in targets:
                outcome = _run_one(app, target, asked, watch, stderr, was_interrupted)
                if outcome.is_ok or not was_interrupted():
                    outcomes.append(outcome)
                if was_interrupted():
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        is_stopped = True
        outcomes += _failed(targets, outcomes, interruption)
    except LakemirrorError as err:
        failure = err
        outcomes += _failed(targets, outcomes, lambda _: failure)
    except Exception as err:  # noqa: BLE001  not swallowed: told as a defect, with its traceback
        failure = bug(err, asked.command, stderr)
        outcomes += _failed(targets, outcomes, lambda _: failure)
    is_single = len(asked.tables) == 1 and len(outcomes) == 1
    return Answer(asked.command, tuple(outcomes), is_single, is_stopped)


def interruption(subject: str) -> LakemirrorError:
    return TransientError("interrupt", subject, "stopped by Ctrl-C", "run it again: it goes on where it was")


def bug(err: Exception, subject: str, stderr: TextIO) -> LakemirrorError:
    """An exception nobody foresaw: the traceback for whoever repairs it, a plain error for everybody else."""
    stderr.write("".join(traceback.format_exception(err)))
    return PermanentError(
        "internal",
        subject,
        f"{type(err).__name__}: {err}",
        "this is a defect of lakemirror: report it with the traceback",
    )


def _targets(app: App, asked: Invocation) -> list[_Target]:
    if not asked.tables:
        return [_Target(str(table), table) for table in sorted(app.tables(all=True), key=str)]
    targets: list[_Target] = []
    for name in asked.tables:
        try:
            targets += [_Target(str(table), table) for table in app.tables([name])]
        except LakemirrorError as err:
            targets.append(_Target(name, None, err))
    return targets


def _failed(
    targets: Sequence[_Target], done: Sequence[Outcome], error_for: Callable[[str], LakemirrorError]
) -> Iterable[Outcome]:
    """An outcome for every table that has none yet; at least one, so that the failure is always told."""
    waiting = targets[len(done) :]
    if not waiting and not done:
        return [Outcome(None, error=error_for("all tables"))]
    return [Outcome(target.name, error=error_for(target.name)) for target in waiting]


def _run_one(
    app: App, target: _Target, asked: Invocation, watch: Watch, stderr: TextIO, was_interrupted: WasInterrupted
) -> Outcome:
    if target.table is None:
        return Outcome(target.name, error=target.error)
    try:
        with watch(target.name) as progress:
            return _COMMANDS[asked.command](app, target.table, asked, progress)
    except LakemirrorError as err:
        return Outcome(target.name, error=err)
    except Exception as err:
        if was_interrupted():
            raise KeyboardInterrupt from err
        return Outcome(target.name, error=bug(err, target.name, stderr))


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


_COMMANDS: dict[str, Callable[[Any, TableRef, Invocation, Any], Outcome]] = {
    "plan": _plan,
    "mirror": _mirror,
    "follow": _follow,
    "sync": _sync,
    "status": _status,
}
