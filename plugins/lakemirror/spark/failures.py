"""How errors of tasks come to the driver: those of the library as text beside the results, others in Spark's own way.

To Spark a task that hands back an error has succeeded, and it ends the other attempt at it. So where two may be at work
the later one lets an error escape that may pass: the first may be well.
"""

from __future__ import annotations

import json
import re

from lakemirror import errors
from lakemirror.errors import LakemirrorError, LostRaceError, SourceVanishedError, TransientError

_PYTHON = "org.apache.spark.api.python.PythonException"
_PASSES_IN_NO_ATTEMPT = (SourceVanishedError, LostRaceError)


class EscapedError(Exception):
    """An error of the library, in words, that failed an attempt at a task."""


def describe(err: LakemirrorError) -> str:
    """By the nearest class that `errors` has: a store's own kinds of error are families of these."""
    known = next(kind.__name__ for kind in type(err).__mro__ if getattr(errors, kind.__name__, None) is kind)
    return json.dumps([known, err.args, err.notes])


def revive(text: str) -> LakemirrorError:
    name, args, notes = json.loads(text)
    known = getattr(errors, name, None)
    family = known if isinstance(known, type) and issubclass(known, LakemirrorError) else errors.PermanentError
    revived = family(*args)
    for note in notes:
        revived.add_note(note)
    return revived


def may_escape(err: LakemirrorError) -> bool:
    """Another attempt may do better."""
    return isinstance(err, TransientError) and not isinstance(err, _PASSES_IN_NO_ATTEMPT)


def escaped(err: Exception) -> LakemirrorError | None:
    """What made Spark give up, if it is an error of the library."""
    found = re.findall(rf"^{EscapedError.__module__}\.{EscapedError.__name__}: (\[.*\])$", str(err), re.MULTILINE)
    return revive(found[-1]) if found else None


def raised_in_task(err: Exception) -> str | None:
    """The last line of a task's traceback; None if no Python code failed but Spark: PySpark tells that of SQL alone."""
    _, found, text = str(err).partition(_PYTHON)
    lines = text.partition("\n\tat ")[0].strip().splitlines()
    return (lines[-1] if lines else "") if found else None
