"""The command line's way from arguments to exit code. Streams and the App's factory arrive as arguments.

With `--json`, stdout gets exactly one JSON document whatever happens; everything else goes to stderr.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from lakemirror.cli.arguments import Help, Invocation, parse, wants_json
from lakemirror.cli.commands import LoadApp, bug, interruption, run_tables
from lakemirror.cli.config_commands import run_config
from lakemirror.cli.interrupts import WasInterrupted, never
from lakemirror.cli.outcome import EXIT_OK, Answer, Outcome
from lakemirror.cli.progress import watch_on
from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from lakemirror.app import App


def load_app(config_path: str | None) -> App:
    from lakemirror.app import App

    return App.load(config_path)


def run(
    argv: Sequence[str],
    *,
    stdout: TextIO,
    stderr: TextIO,
    load: LoadApp = load_app,
    was_interrupted: WasInterrupted = never,
) -> int:
    """Never raises: what goes wrong is an answer with an exit code."""
    as_json = wants_json(argv)
    try:
        asked = parse(argv)
        if isinstance(asked, Help):
            _deliver(lambda: stdout.write(_help(asked, as_json)), stdout)
            return EXIT_OK
        answer = _answer(asked, load, stderr, was_interrupted)
    except LakemirrorError as err:
        answer = Answer("", (Outcome(None, error=err),), is_single=True)
    except KeyboardInterrupt:
        answer = Answer("", (Outcome(None, error=interruption("command")),), is_single=True, was_interrupted=True)
    except Exception as err:  # noqa: BLE001  not swallowed: told as a defect, with its traceback
        answer = Answer("", (Outcome(None, error=bug(err, "command", stderr)),), is_single=True)
    _deliver(lambda: _write(answer, as_json, stdout, stderr), stdout)
    return answer.exit_code


def _deliver(write: Callable[[], object], stdout: TextIO) -> None:
    """Whoever read us may have left (`| head`): what is left to say has no reader, which is no failure."""
    with suppress(BrokenPipeError):
        write()
        stdout.flush()


def _write(answer: Answer, as_json: bool, stdout: TextIO, stderr: TextIO) -> None:
    if as_json:
        stdout.write(json.dumps(answer.as_json(), indent=2) + "\n")
    else:
        from lakemirror.cli.text import write_answer

        write_answer(answer, stdout, stderr)


def _help(asked: Help, as_json: bool) -> str:
    return json.dumps({"table": None, "ok": True, "help": asked.text}) + "\n" if as_json else asked.text


def _answer(asked: Invocation, load: LoadApp, stderr: TextIO, was_interrupted: WasInterrupted) -> Answer:
    if asked.command.startswith("config "):
        return run_config(asked)
    return run_tables(asked, load, watch_on(stderr), stderr, was_interrupted)
