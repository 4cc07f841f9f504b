"""A child that runs hostile inputs, one at a time, and says what came of each; it may die of one.

It reads lines of JSON (`{"seed": 1, "index": 7}`, `{"hostile": "name"}` or `{"file": "path"}`) and answers each with a
line of JSON. Its address space is limited, so that what asks for too much fails instead of taking the machine down.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakemirror.errors import LakemirrorError, PermanentError
from tests.fuzz import cases, saved

ADDRESS_SPACE_BYTES = 6 << 30
MAX_SUBJECT, MAX_TEXT = 5000, 12_000
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what somebody prints is no answer
    if "--cold" not in sys.argv:
        cases.make(0, 0)  # so that the first input does not pay for what all of them need
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        print(json.dumps(run(case_of(json.loads(line)))), file=answers)


@dataclass(frozen=True, slots=True)
class Probe:
    """Does what no input may do, to see that it is found."""

    what: str
    data: bytes = b""

    @property
    def name(self) -> str:
        return f"probe {self.what}"

    def run(self) -> None:
        match self.what:
            case "dies":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hangs":
                while True:
                    pass
            case "eats":
                len(b"x" * (700 << 20))
            case "asks for too much":
                bytearray(1 << 40)
            case "raises":
                raise KeyError(self.what)
            case "breaks lines":
                err = PermanentError("read", "x", "y", "z")
                err.message = "a\nb"
                raise err
            case "says nothing":
                raise PermanentError("read", "", "y", "z")
            case "echoes":
                raise PermanentError("read", "x", "y", "z") from ValueError("x" * 10**6)


def case_of(asked: dict[str, Any]) -> cases.Case | Probe:
    if "probe" in asked:
        return Probe(asked["probe"])
    if "hostile" in asked:
        from tests.fuzz import hostile  # which imports pyiceberg, and that takes seconds

        return hostile.case(asked["hostile"])
    if "file" in asked:
        return saved.load(Path(asked["file"]))
    return cases.make(asked["seed"], asked["index"])


def run(case: cases.Case | Probe) -> dict[str, Any]:
    """`outcome` is taken, refused, or a finding with its `signature`; with the CPU time and memory it took."""
    _reset_peak()
    before, start = _peak_bytes(), time.process_time()
    problem, text = None, ""
    try:
        case.run()
        outcome = "taken"
    except LakemirrorError as err:
        outcome, problem = "refused", wrong_with(err)
        text = f"{type(err).__name__}: {err}"[:300]
    except BaseException as err:  # noqa: BLE001 - this is what is looked for
        outcome, problem = "finding", _signature(err)
        text = "".join(traceback.format_exception(err))[-4000:]
    return {
        "outcome": outcome if problem is None else "finding",
        "signature": problem,
        "name": case.name,
        "text": text,
        "cpu_s": time.process_time() - start,
        "grown_bytes": _peak_bytes() - before,
        "size": len(case.data),
    }


def wrong_with(err: LakemirrorError) -> str | None:
    """What is not as an error must be: who, what, why and what next, on one line of bounded length."""
    where = _signature(err)
    if not (err.op and err.subject and err.message and err.hint):
        return f"no op, subject, message or hint: {where}"
    if len(err.subject) > MAX_SUBJECT or len(str(err)) > MAX_TEXT:
        return f"an error of {len(str(err))} characters: {where}"
    if not str(err).isprintable():
        return f"an error that breaks lines: {where}"
    cause: BaseException | None = err
    while cause is not None:
        if len(str(cause)) > MAX_TEXT:
            return f"a cause of {len(str(cause))} characters: {where}"
        cause = cause.__cause__ or cause.__context__
    return None


def _signature(err: BaseException) -> str:
    """The kind of an error and the line of the library that it came from: findings alike are one finding."""
    frames = [one for one in traceback.extract_tb(err.__traceback__) if "/lakemirror/" in one.filename]
    place = f"{frames[-1].filename.rpartition('/lakemirror/')[2]}:{frames[-1].lineno}" if frames else "elsewhere"
    return f"{type(err).__name__} at {place}"


def _reset_peak() -> None:
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5")


def _peak_bytes() -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
