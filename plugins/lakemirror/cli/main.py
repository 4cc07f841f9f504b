"""The command line's way from arguments to exit code. Streams and the App's factory arrive as arguments.

With `--json`, stdout gets exactly one JSON document whatever happens; everything else goes to stderr.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from lakemirror.cli.arguments import Help, Invocation, parse, wants_json
from lakemirror.cli.commands import LoadApp, TableRun, bug, interruption
from lakemirror.cli.config_commands import run_config
from lakemirror.cli.group_commands import run_groups
from lakemirror.cli.interrupts import CtrlC
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
    ctrl_c: CtrlC | None = None,
) -> int:
    """Never raises: what goes wrong is an answer with an exit code."""
    ctrl_c = ctrl_c or CtrlC()
    speaker = _Speaker(wants_json(argv), stdout, stderr)
    ctrl_c.last_word = lambda: speaker.answer(_interrupted())
    try:
        asked = parse(argv)
        if isinstance(asked, Help):
            speaker.help(asked)
            return EXIT_OK
        answer = _answer(asked, load, speaker, ctrl_c)
    except LakemirrorError as err:
        answer = _failed(err)
    except KeyboardInterrupt:
        answer = _interrupted()
    except Exception as err:  # noqa: BLE001  not swallowed: told as a defect, with its traceback
        answer = _failed(bug(err, "command", stderr))
    speaker.answer(answer)
    return answer.exit_code


def _answer(asked: Invocation, load: LoadApp, speaker: _Speaker, ctrl_c: CtrlC) -> Answer:
    if asked.command.startswith("config "):
        return run_config(asked)
    if asked.command == "groups":
        return run_groups(asked, load)
    work = TableRun(asked, speaker.stderr, ctrl_c)
    ctrl_c.last_word = lambda: speaker.answer(work.interrupted())
    return work.run(load, watch_on(speaker.stderr))


def _failed(error: LakemirrorError) -> Answer:
    return Answer("", (Outcome(None, error=error),), is_single=True)


def _interrupted() -> Answer:
    return Answer("", (Outcome(None, error=interruption("command")),), is_single=True, was_interrupted=True)


class _Speaker:
    """Says one thing, once, even if two threads want to speak."""

    def __init__(self, as_json: bool, stdout: TextIO, stderr: TextIO) -> None:
        self.stderr = stderr
        self._as_json = as_json
        self._stdout = stdout
        self._turn = threading.Lock()

    def answer(self, answer: Answer) -> None:
        from lakemirror.cli.text import write_answer

        if not self._turn.acquire(blocking=False):
            return
        # Whoever read us may have left (`| head`): what is left to say has no reader, which is no failure.
        with suppress(BrokenPipeError):
            if self._as_json:
                self._stdout.write(json.dumps(answer.as_json(), indent=2) + "\n")
            else:
                write_answer(answer, self._stdout, self.stderr)
            self._stdout.flush()

    def help(self, asked: Help) -> None:
        with suppress(BrokenPipeError):
            document = {"table": None, "ok": True, "help": asked.text}
            self._stdout.write(json.dumps(document) + "\n" if self._as_json else asked.text)
            self._stdout.flush()
