"""`python -m lakemirror.cli`: owns the process, that is its file descriptors and its exit code."""

from __future__ import annotations

import io
import os
import sys

from lakemirror.cli.arguments import wants_json
from lakemirror.cli.main import run


def main() -> int:
    argv = sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    stdout = _private_stdout() if wants_json(argv) else sys.stdout
    code = run(argv, stdout=stdout, stderr=sys.stderr)
    for stream in (stdout, sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            # The reader has left; otherwise the interpreter would complain about the rest when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _private_stdout() -> io.TextIOWrapper:
    """stdout for the JSON document alone: what else prints in this process or its children (Spark) goes to stderr."""
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return private


if __name__ == "__main__":
    sys.exit(main())
