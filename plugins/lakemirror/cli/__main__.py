"""`python -m lakemirror.cli`: owns the process, that is its file descriptors and its exit code."""

from __future__ import annotations

import io
import logging
import os
import sys
from contextlib import suppress
from typing import TextIO

from lakemirror.cli.arguments import wants_json
from lakemirror.cli.interrupts import noticing_ctrl_c
from lakemirror.cli.main import run
from lakemirror.cli.outcome import EXIT_INTERRUPTED


def main() -> int:
    argv = sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    _log_to(sys.stderr)
    stdout = _private_stdout() if wants_json(argv) else sys.stdout
    with noticing_ctrl_c(leave=_leave) as ctrl_c:
        code = run(argv, stdout=stdout, stderr=sys.stderr, ctrl_c=ctrl_c)
        if ctrl_c.was_pressed():
            _end_children()
    for stream in (stdout, sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            # The reader has left; otherwise the interpreter would complain about the rest when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _leave() -> None:
    """Ends the process without waiting for anything; a progress bar may have hidden the cursor."""
    _end_children()
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h\n")
        sys.stderr.flush()
    os._exit(EXIT_INTERRUPTED)


def _end_children() -> None:
    """A JVM that was interrupted while it started never learns that we are gone, and would stay for ever."""
    import psutil  # type: ignore[import-untyped]  # its stubs are not among the pinned packages

    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()


def _log_to(stderr: TextIO) -> None:
    """Warnings of the libraries below, one line each: their tracebacks (py4j logs one at Ctrl-C) are not for people."""
    handler = logging.StreamHandler(stderr)
    handler.setFormatter(_OneLine("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class _OneLine(logging.Formatter):
    def formatException(self, ei: object) -> str:  # noqa: N802  the name is logging's
        return ""


def _private_stdout() -> io.TextIOWrapper:
    """stdout for the JSON document alone: what else prints in this process or its children (Spark) goes to stderr."""
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return private


if __name__ == "__main__":
    sys.exit(main())
