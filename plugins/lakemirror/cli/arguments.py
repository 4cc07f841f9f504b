"""From the command line to an `Invocation`, or to a `UsageError`; reads nothing but the arguments.

Every command has its own parser, so `--config` and `--json` (and every option) may stand before or after the
command and between table names. argparse never prints and never exits here: help is a value, a mistake an error.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from lakemirror.errors import UsageError

PROG = "lakemirror"

SUMMARIES = {
    "config check": "validate the configuration file",
    "config show": "effective values, and where each came from",
    "plan": "what `mirror` would do; writes nothing",
    "mirror": "copy what changed and publish it: detect, plan, copy, rewrite, verify, publish",
    "follow": "move the mirror catalog to the newest published version; needs no source",
    "sync": "mirror, then follow",
    "status": "heads, lag, backlog and markers of each table",
    "groups": "the time up to which all tables of a group are visible",
    "drop-mirror": "take a table out of the mirror catalog; its files stay for garbage collection",
}
COMMANDS = ("config", "plan", "mirror", "follow", "sync", "status", "groups", "drop-mirror")

EXIT_CODES = """\
exit codes:
  0  ok, nothing to do included
  1  failed
  2  wrong usage or configuration
  3  some tables failed and some did not, or `status` found something behind or wrong
  4  verification failed
  5  lost the race; safe to run again
"""


@dataclass(frozen=True, slots=True)
class Help:
    """The person asked for help: this text, and nothing else happens."""

    text: str


@dataclass(frozen=True, slots=True)
class Invocation:
    """One understood command line. `command` is a key of `SUMMARIES`."""

    command: str
    config: str | None = None
    json: bool = False
    tables: tuple[str, ...] = ()
    all: bool = False
    adopt: bool = False
    overwrite_foreign: bool = False
    snapshot_id: int | None = None
    full_verify: bool = False
    yes: bool = False
    forget: str | None = None


def wants_json(argv: Sequence[str]) -> bool:
    """Whether answers go out as JSON; must hold also for a command line that cannot be understood."""
    words = list(argv)
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def parse(argv: Sequence[str]) -> Invocation | Help:
    position = _command_position(argv)
    if position is None:
        return _parse_without_command(argv)
    command = argv[position]
    if command not in COMMANDS:
        raise UsageError("read command line", repr(command), "unknown command", _nearest(command, COMMANDS))
    parser = _parser_of(command)
    found = parser.parse_intermixed_args([*argv[:position], *argv[position + 1 :]])
    if found.help:
        return Help(parser.format_help())
    if command == "groups":
        return _group_invocation(found)
    return _config_invocation(found) if command == "config" else _table_invocation(command, found)


def _command_position(argv: Sequence[str]) -> int | None:
    is_value = False
    for position, word in enumerate(argv):
        if not is_value and not word.startswith("-"):
            return position
        is_value = word == "--config" and not is_value
    return None


def _parse_without_command(argv: Sequence[str]) -> Help:
    parser = _Parser(
        prog=PROG,
        usage=f"{PROG} [--config FILE] [--json] COMMAND ...",
        description="Keeps a read-only copy of Iceberg tables that is always whole.",
        epilog="commands:\n" + _listing(SUMMARIES) + f"\n\n{PROG} COMMAND --help says more.\n\n" + EXIT_CODES,
    )
    if parser.parse_args(argv).help:
        return Help(parser.format_help())
    raise UsageError("read command line", PROG, "no command given", f"one of: {', '.join(COMMANDS)}; see {PROG} --help")


def _config_invocation(found: argparse.Namespace) -> Invocation:
    action, *tables = found.words or [""]
    if action not in ("check", "show"):
        raise UsageError(
            "read command line", f"config {action}".strip(), "want `config check` or `config show`", f"{PROG} --help"
        )
    if action == "check" and tables:
        raise UsageError("read command line", "config check", "takes no table", f"{PROG} config show {tables[0]}")
    if len(tables) > 1:
        raise UsageError("read command line", "config show", "takes at most one table", "ask one by one")
    return Invocation(f"config {action}", found.config, found.json, tuple(tables))


def _group_invocation(found: argparse.Namespace) -> Invocation:
    if found.forget is not None and len(found.groups) != 1:
        what, hint = "--forget goes with exactly one group", f"{PROG} groups GROUP --forget {found.forget}"
        raise UsageError("read command line", "groups", what, hint)
    return Invocation("groups", found.config, found.json, tuple(found.groups), forget=found.forget)


def _table_invocation(command: str, found: argparse.Namespace) -> Invocation:
    options = {name: value for name, value in vars(found).items() if name not in ("help", "tables")}
    asked = Invocation(command, tables=tuple(found.tables), **options)
    if asked.all and asked.tables:
        raise UsageError("read command line", command, "both tables and --all are given", "give one of the two")
    if command != "status" and not (asked.all or asked.tables):
        raise UsageError("read command line", command, "no table given", "name tables like sales.orders, or give --all")
    if command == "drop-mirror" and (asked.all or not asked.yes):
        what = "--all is not for dropping" if asked.all else "readers of these tables would find nothing any more"
        hint = "name the tables" if asked.all else f"{PROG} drop-mirror {' '.join(asked.tables)} --yes, if you mean it"
        raise UsageError("read command line", command, what, hint)
    if asked.snapshot_id is not None and len(asked.tables) != 1:
        raise UsageError(
            "read command line", command, "--snapshot-id goes with exactly one table", "mirror the others without it"
        )
    return asked


def _parser_of(command: str) -> _Parser:
    if command == "config":
        parser = _Parser(
            prog=f"{PROG} config",
            usage=f"{PROG} config check | show [TABLE] [--config FILE] [--json]",
            epilog=_listing({name: text for name, text in SUMMARIES.items() if name.startswith("config ")}),
        )
        parser.add_argument("words", nargs="*", metavar="check | show [TABLE]", help=argparse.SUPPRESS)
        return parser
    parser = _Parser(prog=f"{PROG} {command}", description=_sentence(SUMMARIES[command]), epilog=EXIT_CODES)
    if command == "groups":
        parser.add_argument("groups", nargs="*", metavar="GROUP", help="a group of the configuration; none: all")
        parser.add_argument("--forget", metavar="TABLE", help="take a table that is in it no more out of the group")
        return parser
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="a table of the configuration, like sales.orders")
    parser.add_argument("--all", action="store_true", help="every table of the configuration")
    if command in _OPTIONS:
        _OPTIONS[command](parser)
    return parser


def _mirror_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--snapshot-id", type=int, metavar="ID", help="mirror this source snapshot, not the newest")
    parser.add_argument("--full-verify", action="store_true", help="check every object before publishing, no samples")


def _follow_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--adopt", action="store_true", help="take over a table that the mirror catalog has already")
    parser.add_argument(
        "--overwrite-foreign", action="store_true", help="replace a commit on the mirror that is not ours"
    )


def _drop_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="without it nothing is dropped")
    parser.add_argument(
        "--overwrite-foreign", action="store_true", help="drop the table also if its head on the mirror is not ours"
    )


_OPTIONS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "mirror": _mirror_options,
    "follow": _follow_options,
    "drop-mirror": _drop_options,
}


class _Parser(argparse.ArgumentParser):
    """argparse that raises instead of printing and exiting, with the options that every command has."""

    def __init__(self, *, prog: str, usage: str | None = None, description: str | None = None, epilog: str) -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=epilog,
            add_help=False,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.add_argument(
            "--config", metavar="FILE", help="default: $LAKEMIRROR_CONFIG, then include/config/lakemirror.yaml"
        )
        self.add_argument("--json", action="store_true", help="exactly one JSON document on stdout")
        self.add_argument("-h", "--help", action="store_true", help="show this and exit")

    def error(self, message: str) -> NoReturn:
        raise UsageError("read command line", self.prog, message, f"see {self.prog} --help")


def _listing(entries: dict[str, str]) -> str:
    width = max(map(len, entries)) + 2
    return "\n".join(f"  {name:<{width}}{text}" for name, text in entries.items())


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _nearest(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else f"one of: {', '.join(known)}"
