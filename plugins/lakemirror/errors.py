"""The two error families: try again later, or stop and have a person look.

Every error names the operation, its subject, what was wanted and what was got, and the next step.
Errors pickle (they cross Spark and process boundaries) and carry the exit code the CLI answers with.
"""

from __future__ import annotations

from typing import Any


class LakemirrorError(Exception):
    """Base of both families; raise one of the subclasses."""

    kind = "permanent"
    exit_code = 1

    def __init__(self, op: str, subject: str, message: str, hint: str = "") -> None:
        super().__init__(op, subject, message, hint)
        self.op = op
        self.subject = subject
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.op} {self.subject}: {self.message}"
        return f"{text}; {self.hint}" if self.hint else text

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "op": self.op,
            "subject": self.subject,
            "message": self.message,
            "hint": self.hint,
        }


class TransientError(LakemirrorError):
    """Running the same thing again later may succeed; nothing was half-published."""

    kind = "transient"


class PermanentError(LakemirrorError):
    """Running the same thing again gives the same answer; somebody must change something."""


class LostRaceError(TransientError):
    """Another run was first; this one changed nothing that matters and may simply run again."""

    exit_code = 5


class SourceVanishedError(TransientError):
    """A source object that the plan names is gone; the next run plans anew from the source's head."""


class UsageError(PermanentError):
    """The command line or the configuration is wrong."""

    kind = "usage"
    exit_code = 2


class VerificationError(PermanentError):
    """What was copied is not what the source holds."""

    exit_code = 4


class UnsupportedError(PermanentError):
    """The table uses a feature that this version refuses to mirror, named in the message."""
