"""Errors tell of files that others wrote: bounded, on one line, and the same on the other side of a pickle."""

from __future__ import annotations

import pickle

import pytest

from lakemirror.errors import (
    MAX_HINT,
    MAX_MESSAGE,
    MAX_NAME,
    MAX_NOTES,
    PermanentError,
    TransientError,
    UsageError,
    shown,
)
from lakemirror.storage.port import ThrottledError


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a\nERROR forged: line", r"a\nERROR forged: line"),
        ("a\r\x1b[31mb\x00", r"a\r\x1b[31mb\x00"),
        ("\u202eabc", r"\u202eabc"),
        ("\ud800", r"\ud800"),
        ("ü 雪 'quoted' \\n", "ü 雪 'quoted' \\n"),
    ],
)
def test_nothing_ends_a_line_or_hides_in_it(text: str, want: str) -> None:
    err = PermanentError(text, text, text, text)
    assert (err.op, err.subject, err.message, err.hint) == (want,) * 4
    assert str(err) == f"{want} {want}: {want}; {want}"


def test_megabytes_are_cut() -> None:
    err = PermanentError("read", "s" * 10**6, "m\n" * 10**6, "h" * 10**6)
    assert (len(err.subject), len(err.message), len(err.hint)) == (MAX_NAME, MAX_MESSAGE, MAX_HINT)
    assert err.subject.endswith("… (1000000 characters)")


@pytest.mark.parametrize("text", ["\n" * 9000, "x" * 9000, "é\n" * 2000, "\ud800" * 5000])
def test_an_error_pickles_as_it_is(text: str) -> None:
    err = PermanentError("read", text, text, text)
    assert pickle.loads(pickle.dumps(err)).args == err.args
    assert shown(err.message) == err.message


def test_the_problems_of_a_configuration_have_a_line_each() -> None:
    assert UsageError("load", "a\nb", "2 problems\n one\n two\x1b").message == "2 problems\n one\n two\\x1b"
    assert UsageError("load", "a\nb", "").subject == r"a\nb"


def noted() -> TransientError:
    err = ThrottledError("copy", "s3://b/f", "503", "run again", 2.0)
    err.add_note("gave up after 3 tries")
    err.add_note("an upload could not be\naborted")
    return err


def test_notes_are_told_with_the_error() -> None:
    notes = ["gave up after 3 tries", r"an upload could not be\naborted"]
    assert str(noted()) == rf"copy s3://b/f: 503; run again ({'; '.join(notes)})"
    assert noted().as_json()["notes"] == notes
    assert "notes" not in PermanentError("copy", "s3://b/f", "no").as_json()


def test_notes_survive_a_pickle() -> None:
    there = pickle.loads(pickle.dumps(noted()))
    assert (str(there), there.notes, there.retry_after_s) == (str(noted()), noted().notes, 2.0)


def test_notes_are_bounded() -> None:
    err = noted()
    for _ in range(100):
        err.add_note("x" * 10**6)
    assert len(err.notes) == MAX_NOTES
    assert max(map(len, err.notes)) == MAX_MESSAGE
