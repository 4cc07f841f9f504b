"""The two error families: try again later, or stop and have a person look.

Every error names the operation, its subject, what was wanted and what was got, and the next step.
Errors pickle (they cross Spark and process boundaries) and carry the exit code the CLI answers with.

Much of what they tell comes from files that others wrote. So every text is of bounded length, and characters that would
end a line of a log, or hide something in it, are shown escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MAX_NAME = 4500  # of operation and subject: the longest key that a store holds, and room for its bucket
MAX_MESSAGE = 3000
MAX_HINT = 1000
MAX_NOTES = 20


def shown(text: str, limit: int = MAX_MESSAGE, *, lines: bool = False) -> str:
    """A text as it may stand in a log; with `lines` it may have several. Doing it twice changes nothing."""
    if len(text) > limit:
        ending = f"… ({len(text)} characters)"
        text = text[: limit - len(ending)] + ending
    if text.isprintable():
        return text
    escaped = "".join(one if one.isprintable() or (lines and one == "\n") else ascii(one)[1:-1] for one in text)
    return escaped if len(escaped) <= limit else f"{escaped[: limit - 1]}…"


class LakemirrorError(Exception):
    """Base of both families; raise one of the subclasses."""

    kind = "permanent"
    exit_code = 1
    has_lines = False  # whether its message may have several lines: none of them is then from a file of somebody else

    def __init__(self, op: str, subject: str, message: str, hint: str = "") -> None:
        op, subject, hint = shown(op, MAX_NAME), shown(subject, MAX_NAME), shown(hint, MAX_HINT)
        message = shown(message, MAX_MESSAGE if not self.has_lines else 10 * MAX_MESSAGE, lines=self.has_lines)
        super().__init__(op, subject, message, hint)
        self.op = op
        self.subject = subject
        self.message = message
        self.hint = hint

    def add_note(self, note: str) -> None:
        """What else there is to know; it is told with the error everywhere. Only so many are kept."""
        if len(self.notes) < MAX_NOTES:
            super().add_note(shown(note))

    @property
    def notes(self) -> list[str]:
        return list(getattr(self, "__notes__", ()))

    def __str__(self) -> str:
        return told(self.op, self.subject, self.message, self.hint, self.notes)

    def as_json(self) -> dict[str, Any]:
        """`notes` only if there are any."""
        return {
            "kind": self.kind,
            "op": self.op,
            "subject": self.subject,
            "message": self.message,
            "hint": self.hint,
            **({"notes": self.notes} if self.notes else {}),
        }


def told(op: str, subject: str, message: str, hint: str, notes: Sequence[str] = ()) -> str:
    """An error in one line, wherever it comes from."""
    text = f"{op} {subject}: {message}"
    text = f"{text}; {hint}" if hint else text
    return f"{text} ({'; '.join(notes)})" if notes else text


class TransientError(LakemirrorError):
    """Running the same thing again later may succeed; nothing was half-published."""

    kind = "transient"


class PermanentError(LakemirrorError):
    """Running the same thing again gives the same answer; somebody must change something."""


class LostRaceError(TransientError):
    """Another run was first; this one changed nothing that matters and may simply run again."""

    exit_code = 5


class TableBusyError(LostRaceError):
    """Another run holds the table's lease: it is at work, and this one has nothing to do yet."""


class UnsettledError(TransientError):
    """A request was sent that may still take effect when this run is over: what guards it is not let go of."""


class SourceVanishedError(TransientError):
    """A source object that the plan names is gone; the next run plans anew from the source's head."""


class UsageError(PermanentError):
    """The command line or the configuration is wrong."""

    kind = "usage"
    exit_code = 2
    has_lines = True


class VerificationError(PermanentError):
    """What was copied is not what the source holds."""

    exit_code = 4


class UnsupportedError(PermanentError):
    """The table uses a feature that this version refuses to mirror, named in the message."""
