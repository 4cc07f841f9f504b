"""Answers for people: one aligned table of what went well on stdout, one block per error on stderr."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any, TextIO

from lakemirror.catalogs.abilities import CatalogAbilities
from lakemirror.cli.outcome import Answer, Outcome
from lakemirror.errors import LakemirrorError
from lakemirror.model.results import human_bytes

Facts = Mapping[str, Any]

WIDTH_OF_A_PIPE = 300  # nobody's terminal: rather long lines than cut values


@dataclass(frozen=True, slots=True)
class Column:
    heading: str
    value_of: Callable[[Facts], object]
    is_number: bool = False


def write_answer(answer: Answer, stdout: TextIO, stderr: TextIO) -> None:
    good = [outcome for outcome in answer.outcomes if outcome.is_ok]
    if answer.command == "config check":
        _write_check(answer.outcomes[0], stdout)
    elif good and answer.command == "config show":
        _write_grid(_VALUES, [(key, entry) for key, entry in good[0].facts["values"].items()], "key", stdout)
    elif good:
        heading = "group" if answer.command == "groups" else "table"
        rows = [(str(one.facts.get("group") or one.table), one.facts) for one in good]
        _write_grid(_COLUMNS[answer.command], rows, heading, stdout)
        stdout.writelines(f"{one.table}: left out: {what}\n" for one in good for what in _left_out(one.facts))
        stdout.writelines(f"{one.table}: problem: {what}\n" for one in good for what in _problem(one.facts))
        stdout.writelines(f"{one.table}: warning: {what}\n" for one in good for what in _warnings(one.facts))
        stdout.writelines(f"mirror catalog: {what}\n" for what in _catalogs(good))
    elif not answer.outcomes:
        stdout.write(f"the configuration has no {'group' if answer.command == 'groups' else 'table'}\n")
    for outcome in answer.outcomes:
        if outcome.error is not None:
            write_error(outcome.error, outcome.table, stderr)


def write_error(error: LakemirrorError, table: str | None, stderr: TextIO) -> None:
    """What failed, on what, why, what else there is to know, what to do next."""
    again = " (running it again may succeed)" if error.kind == "transient" else ""
    stderr.write(f"{table or 'lakemirror'}: {error.op} failed{again}\n")
    also = [("also", note) for note in error.notes]
    for label, text in (("on", error.subject), ("why", error.message), *also, ("next", error.hint)):
        if text:
            stderr.write(f"  {label:<6}" + text.replace("\n", "\n" + " " * 8) + "\n")


def _write_check(outcome: Outcome, stdout: TextIO) -> None:
    if outcome.is_ok:
        stdout.write(f"{outcome.facts['file']}: valid\n")
    for problem in outcome.facts["problems"]:
        hint = f"; {problem['hint']}" if problem["hint"] else ""
        stdout.write(f"{problem['where']}: {problem['message']}{hint}\n")


def _write_grid(columns: Sequence[Column], rows: Sequence[tuple[str, Facts]], heading: str, stdout: TextIO) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    is_terminal = stdout.isatty()
    look = {"box": SIMPLE_HEAD, "show_edge": False, "padding": 0} if is_terminal else {"box": None, "pad_edge": False}
    grid = Table(header_style="bold", **look)
    grid.add_column(heading, overflow="fold")
    for column in columns:
        grid.add_column(column.heading, justify="right" if column.is_number else "left", overflow="fold")
    for name, facts in rows:
        grid.add_row(name, *(_cell(column.value_of(facts)) for column in columns))
    # Rendered aside: rich ends the process by itself when the reader of a pipe has left.
    rendered = StringIO()
    width = None if is_terminal else WIDTH_OF_A_PIPE
    Console(file=rendered, width=width, force_terminal=is_terminal, markup=False, emoji=False, highlight=False).print(
        grid
    )
    stdout.writelines(f"{line.rstrip()}\n" for line in rendered.getvalue().splitlines() if line.strip())


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(str, value)) or "-"
        case _:
            return str(value)


def _left_out(facts: Facts) -> Sequence[str]:
    return facts.get("left_out") or (facts.get("mirror") or {}).get("left_out") or ()


def _warnings(facts: Facts) -> Sequence[str]:
    return facts.get("warnings") or (facts.get("follow") or {}).get("warnings") or ()


def _catalogs(good: Sequence[Outcome]) -> Sequence[str]:
    """What the mirror's catalog can do; all tables of an installation have the same one."""
    found = (one.facts.get("catalog") for one in good)
    return sorted({CatalogAbilities.from_json(one).described() for one in found if one})


def _problem(facts: Facts) -> Sequence[str]:
    problem = facts.get("problem")
    if not problem:
        return ()
    text = f"{problem['op']} {problem['subject']}: {problem['message']}"
    return (f"{text}; {problem['hint']}" if problem["hint"] else text,)


def _at(*path: str) -> Callable[[Facts], object]:
    """The value at a path of keys; None where the path ends early."""

    def value_of(facts: Facts) -> object:
        value: Any = facts
        for key in path:
            value = None if value is None else value.get(key)
        return value

    return value_of


def _version(*path: str) -> Column:
    def value_of(facts: Facts) -> object:
        version = _at(*path)(facts)
        return None if version is None else f"v{version}"

    return Column("from" if path[-1] == "from_version" else "version", value_of, is_number=True)


def _bytes(heading: str, *path: str) -> Column:
    def value_of(facts: Facts) -> object:
        count = _at(*path)(facts)
        return human_bytes(count) if isinstance(count, int) else None

    return Column(heading, value_of, is_number=True)


def _seconds(heading: str, *path: str) -> Column:
    def value_of(facts: Facts) -> object:
        spent = _at(*path)(facts)
        return f"{spent:.1f}" if isinstance(spent, int | float) else None

    return Column(heading, value_of, is_number=True)


def _mirror_columns(*below: str) -> tuple[Column, ...]:
    return (
        _version(*below, "version"),
        Column("snapshot", _at(*below, "snapshot_id"), is_number=True),
        Column("lane", _at(*below, "lane")),
        Column("files", _at(*below, "copied_files"), is_number=True),
        _bytes("bytes", *below, "copied_bytes"),
        Column("skipped", _at(*below, "skipped_files"), is_number=True),
        _seconds("mirror s" if below else "seconds", *below, "seconds", "total"),
    )


def _backlog(facts: Facts) -> object:
    files, size = facts["backlog_files"], facts["backlog_bytes"]
    return None if files is None or size is None else f"{files} files, {human_bytes(size)}"


def _newest_ready(facts: Facts) -> object:
    ready = facts["markers"]["ready"]
    return f"v{ready[-1]}" if ready else None


_VALUES = (Column("value", _at("value")), Column("from", _at("from")))
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "plan": (
        _version("from_version"),
        Column("to snapshot", _at("to_snapshot_id"), is_number=True),
        Column("lane", _at("lane")),
        Column("files", _at("files"), is_number=True),
        _bytes("bytes", "bytes"),
        Column("lists read", _at("manifest_lists_read"), is_number=True),
        Column("manifests read", _at("manifests_read"), is_number=True),
        Column("reused", _at("manifests_reused"), is_number=True),
    ),
    "mirror": _mirror_columns(),
    "follow": (
        _version("version"),
        Column("snapshot", _at("snapshot_id"), is_number=True),
        Column("committed", _at("committed")),
        _seconds("seconds", "seconds", "total"),
    ),
    "sync": (
        *_mirror_columns("mirror"),
        Column("committed", _at("follow", "committed")),
        _seconds("follow s", "follow", "seconds", "total"),
    ),
    "groups": (
        Column("visible up to", _at("watermark")),
        _seconds("lag s", "lag_s"),
        Column("held back by", _at("slowest")),
        Column("tables", lambda facts: len(facts["tables"]), is_number=True),
        Column("went back", lambda facts: len(facts["moves_back"]), is_number=True),
    ),
    "status": (
        Column("source", _at("source", "state")),
        Column("snapshot", _at("source", "snapshot_id"), is_number=True),
        Column("mirror", _at("mirror", "state")),
        _version("mirror", "version"),
        _seconds("lag s", "lag_s"),
        _seconds("took s", "latency_s"),
        Column("backlog", _backlog),
        Column("ready", _newest_ready),
        Column("in progress", _at("markers", "in_progress")),
    ),
    "drop-mirror": (_version("version"),),
}
