from __future__ import annotations

import pytest

from lakemirror.cli.outcome import Answer, Outcome, exit_code_of
from lakemirror.errors import (
    LakemirrorError,
    LostRaceError,
    PermanentError,
    TransientError,
    UsageError,
    VerificationError,
)

GOOD = Outcome("s.good")
BEHIND = Outcome("s.behind", needs_attention=True)


def bad(family: type[LakemirrorError]) -> Outcome:
    return Outcome("s.bad", error=family("copy", "s.bad", "broke"))


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([], 0),
        ([GOOD], 0),
        ([GOOD, GOOD], 0),
        ([BEHIND], 3),
        ([GOOD, BEHIND], 3),
        ([bad(PermanentError)], 1),
        ([bad(TransientError)], 1),
        ([bad(UsageError)], 2),
        ([bad(VerificationError)], 4),
        ([bad(LostRaceError)], 5),
        ([bad(LostRaceError), bad(LostRaceError)], 5),
        ([bad(UsageError), bad(UsageError)], 2),
        ([bad(UsageError), bad(LostRaceError)], 1),
        ([bad(PermanentError), bad(VerificationError)], 1),
        ([GOOD, bad(UsageError)], 3),
        ([GOOD, bad(LostRaceError), bad(VerificationError)], 3),
        ([BEHIND, bad(PermanentError)], 3),
    ],
)
def test_exit_codes(outcomes: list[Outcome], code: int) -> None:
    assert exit_code_of(outcomes) == code


def test_an_interrupted_command_says_so_whatever_was_done() -> None:
    assert Answer("mirror", (GOOD,), is_single=True, was_interrupted=True).exit_code == 130


def test_table_ok_and_error_frame_the_facts() -> None:
    error = TransientError("copy", "s.bad", "timed out", "run it again")
    outcome = Outcome("s.bad", {"table": "ignored", "ok": True, "mirror": None}, error)
    assert list(outcome.as_json().items()) == [
        ("table", "s.bad"),
        ("ok", False),
        ("mirror", None),
        (
            "error",
            {"kind": "transient", "op": "copy", "subject": "s.bad", "message": "timed out", "hint": "run it again"},
        ),
    ]
